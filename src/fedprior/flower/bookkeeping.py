"""How a federation is run, and what its server knows of the clients."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprior.errors import FedpriorError


@dataclass(frozen=True)
class Options:
    """How a federation is run: the keys of the app's configuration, with dashes for underscores."""

    row: str = "mh"  # a method, and what is changed of it: mh:lam=15
    seed: int = 0
    clients: int = 2  # how many take part
    deadline: float = 600.0  # seconds to wait for the replies of a round
    minimum: int = 1  # replies without which a round is not done, and the run stops; 0: the model stays as it is
    norm_limit: float = 0.0  # leave out uploads with more than so many times the median norm; 0: none
    out: str = "runs"  # where records go
    resume: bool = False

    @staticmethod
    def of(config: Any) -> Options:
        """Read the app's configuration."""
        fields = {name: type(value) for name, value in vars(Options()).items()}
        given = {key.replace("-", "_"): value for key, value in config.items()}
        known = {key: given[key] for key in given if key in fields}
        for key, value in known.items():
            if fields[key] is float and isinstance(value, int):
                known[key] = value = float(value)
            if type(value) is not fields[key]:
                raise FedpriorError(f"{key.replace('_', '-')} = {value!r} is no {fields[key].__name__}")
        options = Options(**known)
        if options.clients < 1 or options.deadline <= 0 or options.minimum < 0 or options.norm_limit < 0:
            raise FedpriorError("clients must be at least 1, deadline above 0, minimum and norm-limit at least 0")
        return options


@dataclass
class Ledger:
    """What the server knows of its clients; part of every checkpoint."""

    experiment: str
    names: list[str]  # a client's number is its place here
    sizes: list[tuple[int, int]]  # samples to train, to test
    fingerprints: list[str]
    accepted: list[str]  # the name of each client's state; "": it has none yet
    rejected: dict[str, int] = field(default_factory=dict)
    absent: dict[str, int] = field(default_factory=dict)  # rounds in which a client did not answer well

    def to_array(self) -> np.ndarray:
        """As bytes, so that it lies in one file with the model."""
        return np.frombuffer(json.dumps(vars(self)).encode(), np.uint8)

    @staticmethod
    def from_array(array: np.ndarray) -> Ledger:
        """The ledger behind ``to_array``."""
        content = json.loads(array.tobytes())
        return Ledger(**{**content, "sizes": [(int(a), int(b)) for a, b in content["sizes"]]})

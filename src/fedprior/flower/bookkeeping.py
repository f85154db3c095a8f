"""How a federation is run, and what its server knows of the clients."""

from __future__ import annotations

import json
import logging
import math
import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprior.errors import FedpriorError
from fedprior.files import digest
from fedprior.flower.messages import Presence

KINDS: dict[type, str] = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
log = logging.getLogger("flwr")


@dataclass(frozen=True)
class Options:
    """How a federation is run: the keys of the app's configuration, with dashes for underscores."""

    row: str = "mh"  # a method, and what is changed of it: mh:lam=15
    seed: int = 0
    clients: int = 2  # how many are waited for; if more are there, they take part too
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
            if fields[key] is float and type(value) is int:
                known[key] = value = float(value)
            if type(value) is not fields[key]:
                raise FedpriorError(f"{key.replace('_', '-')} = {value!r} must be {KINDS[fields[key]]}")
        options = Options(**known)
        if options.clients < 1 or options.minimum < 0:
            raise FedpriorError("clients must be at least 1, and minimum at least 0")
        if not 0 < options.deadline < math.inf or not 0 <= options.norm_limit < math.inf:
            raise FedpriorError("deadline must be a number above 0, and norm-limit one of at least 0, both finite")
        return options


@dataclass
class Ledger:
    """What the server knows of its clients; part of every checkpoint."""

    experiment: str
    names: list[str]  # a client's number is its place here
    sizes: list[tuple[int, int]]  # samples to train, to test
    fingerprints: list[str]
    accepted: list[str]  # the name of each client's state; "": it has none yet
    before: list[str] = field(default_factory=list)  # those of the checkpoint before, which may have to be gone back to
    lost: list[str] = field(default_factory=list)  # clients that cannot go on, since their state is lost
    rejoined: dict[str, list[int]] = field(default_factory=dict)  # after which rounds a client came back as a newcomer
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


def enrol(present: dict[str, Presence], task: str, wanted: int) -> Ledger:
    """The ledger of a new run of all clients that can take part, if there are as many as are wanted."""
    if len(present) < wanted:
        there = ", ".join(map(repr, sorted(present))) or "none"
        raise FedpriorError(f"{wanted} clients are to take part, and {len(present)} can (there: {there}); see the log")
    names = sorted(present)
    return Ledger(
        experiment=f"{digest(task)[:8]}-{secrets.token_hex(8)}",
        names=names,
        sizes=[(present[name].train, present[name].test) for name in names],
        fingerprints=[present[name].fingerprint for name in names],
        accepted=[""] * len(names),
    )


def recognise(ledger: Ledger, present: dict[str, Presence]) -> None:
    """Say which clients are new, and which have other samples than when the run began; every round refuses these."""
    for name in sorted(present.keys() - set(ledger.names)):
        log.warning("fedprior: client %r was not there when the run began, and takes no part in it", name)
    for name, fingerprint in zip(ledger.names, ledger.fingerprints, strict=True):
        if name in present and present[name].fingerprint != fingerprint:
            log.error(
                "fedprior: client %r has other samples than when the run began, and takes no part until they are back",
                name,
            )

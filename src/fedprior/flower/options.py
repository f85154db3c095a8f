"""How a federation is run: the keys of the app's configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedprior.errors import FedpriorError

KINDS: dict[type, str] = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}


@dataclass(frozen=True)
class Options:
    """The keys, with dashes for underscores, and their defaults."""

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

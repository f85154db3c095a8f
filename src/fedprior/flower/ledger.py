"""What a federation's server knows of its clients."""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import dataclass, field

import numpy as np

from fedprior.errors import FedpriorError
from fedprior.files import digest
from fedprior.flower.messages import Presence

log = logging.getLogger("flwr")


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

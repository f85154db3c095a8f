"""What an earlier server of a run has left, and whether this one may go on from it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from fedprior.errors import FedpriorError
from fedprior.records import checkpoint
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status

log = logging.getLogger("flwr")


def newest(run: RunFolder) -> dict[str, np.ndarray] | None:
    """The newest whole checkpoint; None if nothing was done yet. A run that lacks its checkpoints is never begun anew."""
    for path in reversed(run.checkpoints):
        if (arrays := checkpoint.read(path)) is not None:
            return arrays
        log.warning("fedprior: checkpoint %s is damaged and passed over", path.name)
    if run.checkpoints:
        raise FedpriorError(
            f"all checkpoints in {run.path} are damaged; restore one from a copy, or begin a new run with another out"
        )
    if run.exists and (run.status != (Status.RUNNING, 0) or run.scan("times.csv").rows):
        raise FedpriorError(
            f"{run.path / 'checkpoints'} holds no checkpoint, though rounds were done, and the sites' states go with one; "
            "restore it from a copy, or begin a new run with another out"
        )
    return None


def check_may_go_on(run: RunFolder, config: dict[str, Any], at: int) -> list[str]:
    """Refuse to go on from round ``at`` with other settings, or to an earlier round; return what else to know."""
    warnings, rounds = run.check_same(config), int(config["run"]["protocol"]["rounds"])
    if at > rounds:
        raise FedpriorError(
            f"{run.path} is at round {at} already and cannot end at rounds = {rounds}; give at least {at} "
            "rounds, or begin a new run with another out"
        )
    began = run.config["deployed"]
    now = config["deployed"]["norm_limit"]
    if isinstance(began, dict) and (then := began["norm_limit"]) != now:  # older versions did not record it
        raise FedpriorError(
            f"{run.path} was begun with norm-limit = {then:g}, and now it is {now:g}; go on with {then:g}, or begin a new "
            "run with another out"
        )
    return warnings

"""Sweeps on a page: the settings that were tried and how they do on validation samples, also while they run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedprior.analysis.series import VALIDATION, curve_over_seeds, series_of
from fedprior.analysis.summary import Number, over_seeds
from fedprior.records.schema import ACCURACY, RunRecord, Status
from fedprior.records.standing import standing


@dataclass(frozen=True)
class Tried:
    """One setting of a sweep."""

    name: str
    validation: Number | None  # at the last evaluation of each seed; None: nothing yet, or it diverged
    curve: list[float]  # the mean over seeds, of the rounds that all of them have
    done: int  # rounds, of the seed that has done least
    rounds: int
    status: str


@dataclass(frozen=True)
class Swept:
    """The settings of one method that were tried on one task, the best first."""

    task: str
    method: str
    tried: list[Tried]


def swept(records: Iterable[RunRecord]) -> list[Swept]:
    """The sweeps that some runs are cells of."""
    cells: dict[tuple[str, str, str], dict[str, list[RunRecord]]] = {}
    for record in records:
        # Two sweeps of one task lie in two folders.
        where = (str(Path(record.where).absolute().parents[1]), record.task, record.config["run"]["variant"]["method"])
        cells.setdefault(where, {}).setdefault(record.variant, []).append(record)
    return [
        Swept(task, method, sorted((_tried(name, runs) for name, runs in by_name.items()), key=_place))
        for (_, task, method), by_name in cells.items()
    ]


def _tried(name: str, runs: list[RunRecord]) -> Tried:
    curves = [series_of(run, ACCURACY.name).get(VALIDATION, {}) for run in runs]
    diverged = any(run.status is Status.DIVERGED for run in runs)
    known = {run.seed: curve[max(curve)] for run, curve in zip(runs, curves, strict=True) if curve}
    statuses = {standing(run.status, Path(run.where))[0] for run in runs}
    return Tried(
        name,
        over_seeds(known) if known and not diverged else None,
        [x for x in curve_over_seeds(curves).mean.tolist() if math.isfinite(x)],
        min(max([run.round, *curve]) for run, curve in zip(runs, curves, strict=True)),
        runs[0].config["run"]["protocol"]["rounds"],
        "diverged" if diverged else ", ".join(sorted(statuses)),
    )


def _place(tried: Tried) -> float:
    return np.inf if tried.validation is None else -tried.validation["mean"]

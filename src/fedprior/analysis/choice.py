"""The choice of hyper-parameters: by what the personal models do on validation samples, never on test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedprior.analysis.series import VALIDATION, find_metric, series_of
from fedprior.analysis.summary import Number, over_seeds
from fedprior.errors import FedpriorError
from fedprior.records.schema import RunRecord


@dataclass(frozen=True, eq=False)
class Candidate:
    """One setting of a sweep and its runs, one for each seed."""

    variant: str
    setting: dict[str, Any]  # the values of the swept keys
    records: tuple[RunRecord, ...] = field(repr=False)
    diverged: str | None = None  # when, and with which seed

    def score(self, metric: str = "accuracy") -> Number | None:
        """What the setting is chosen by; None if it diverged."""
        if self.diverged:
            return None
        return over_seeds({record.seed: _last(record, metric) for record in self.records})


def _last(record: RunRecord, metric: str) -> float:
    info = find_metric([record], metric)
    curve = series_of(record, info.name).get(VALIDATION, {})
    if record.round not in curve:
        raise FedpriorError(
            f"{record.where} has no {metric} of its personal models on validation samples at round {record.round}; "
            f"remove {record.where} and sweep again"
        )
    return curve[record.round]


def choose(candidates: Iterable[Candidate], metric: str = "accuracy") -> Candidate | None:
    """The candidate that did best on validation, the first of equals; None if all diverged."""
    scores = [(candidate, candidate.score(metric)) for candidate in candidates]
    alive = [(candidate, score["mean"]) for candidate, score in scores if score is not None]
    if not alive:
        return None
    sign = 1 if find_metric(alive[0][0].records, metric).higher_is_better else -1
    return max(alive, key=lambda scored: sign * scored[1])[0]


Bounds = Mapping[str, tuple[float | None, float | None]]  # the least and the most that a setting can be


def ends(chosen: Mapping[str, Any], tried: Iterable[Mapping[str, Any]], bounds: Bounds | None = None) -> dict[str, str]:
    """The numbers of a setting beyond which nothing was tried, so that a better one may lie there: smallest or largest.
    Beyond its ``bounds`` lies nothing.

    >>> ends({"lam": 1.0, "K": 2, "start": "w"}, [{"lam": x, "K": 2, "start": "w"} for x in (0.1, 1.0)])
    {'lam': 'largest'}
    """
    tried, found = list(tried), dict[str, str]()
    for key, value in chosen.items():
        values = {setting[key] for setting in tried}
        if len(values) > 1 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            least, most = (bounds or {}).get(key, (None, None))
            if value == min(values) and value != least:
                found[key] = "smallest"
            elif value == max(values) and value != most:
                found[key] = "largest"
    return found


def summarize_sweep(
    candidates: Iterable[Candidate], metric: str = "accuracy", bounds: Bounds | None = None
) -> dict[str, Any]:
    """A method's settings, what they were chosen by, and the chosen one, as plain data."""
    candidates = list(candidates)
    best = choose(candidates, metric)
    return {
        "chosen": None if best is None else best.setting,
        "at_end": {} if best is None else ends(best.setting, [c.setting for c in candidates], bounds),
        "cells": [
            {
                "variant": candidate.variant,
                "setting": candidate.setting,
                "validation": candidate.score(metric),
                "diverged": candidate.diverged,
                "rounds": candidate.records[0].config["run"]["protocol"]["rounds"],
                "folder": str(Path(candidate.records[0].where).parent),
            }
            for candidate in candidates
        ],
    }

"""The learning curves of a task: what is drawn of them, which part of the axis is shown, and which of them coincide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedprior.analysis.compare import LOCAL
from fedprior.analysis.grouping import Seeds, method_of
from fedprior.analysis.paired import EQUAL
from fedprior.analysis.series import curve_over_seeds, series_of
from fedprior.records.schema import MetricInfo
from fedprior.records.spending import BUDGETS, spending
from fedprior.report.canvas import literal

HIDDEN = 0.015  # curves as near as this, in parts of the axis, hide one another


class Curve(NamedTuple):
    """One kind of model of one variant."""

    variant: str
    model: str  # "personal" or "global"
    x: np.ndarray  # [T] rounds, or what was spent by then
    mean: np.ndarray  # [T] over seeds
    spread: np.ndarray | None  # [T] one standard deviation; None: a single seed
    local: bool  # the reference: every client alone

    @property
    def label(self) -> str:
        """The curve's name."""
        return literal(self.variant, 28) + (", global" if self.model == "global" else "")


def gather(by_variant: Mapping[str, Seeds], metric: str) -> tuple[list[Curve], str]:
    """All curves of a task, and what their x axis counts: rounds, or, where all runs have a budget of one kind, its unit."""
    along, takes = _along(by_variant)
    every = [curve for v, seeds in by_variant.items() for curve in _curves(v, seeds, metric, takes[v])]
    return _across(every), along


def _along(by_variant: Mapping[str, Seeds]) -> tuple[str, dict[str, float]]:
    """What the x axis counts, and how much of it a round of each variant takes: rounds, or what all budgets are of.

    Where nobody takes anything of that, as Local sends nothing, rounds are all there is to count.
    """
    budgets, takes = set(), {}
    for variant, seeds in by_variant.items():
        config = next(iter(seeds.values())).config
        budget, cost = config["run"]["protocol"].get("budget"), config.get("cost")
        kind = next(iter(budget)) if budget and cost else None
        budgets.add(kind)
        if kind is not None and cost is not None:
            takes[variant] = spending(cost, config["run"]["protocol"]["aggregated"]).of(kind)
    (kind, *others) = budgets
    if others or kind is None or None in takes.values() or not any(takes.values()):
        return "round", dict.fromkeys(by_variant, 1.0)
    return BUDGETS[kind], {variant: float(each or 0) for variant, each in takes.items()}


def _curves(variant: str, seeds: Seeds, metric: str, takes: float) -> list[Curve]:
    """A variant's global and personal curves; a personal model that is the global one is not drawn twice."""
    series = [series_of(record, metric) for record in seeds.values()]
    drawn: list[Curve] = []
    for model in ("global", "personal"):
        by_seed = [each.get((model, "own", "weighted"), {}) for each in series]
        rounds, mean, spread = curve_over_seeds(by_seed)
        if not rounds or any(np.array_equal(mean, curve.mean, equal_nan=True) for curve in drawn):
            continue
        x = takes * np.array(rounds, float)
        drawn.append(Curve(variant, model, x, mean, spread, method_of(seeds) == LOCAL))
    return drawn


def _across(curves: list[Curve]) -> list[Curve]:
    """The curves, where one that spends nothing of the budget is a level line at its end."""
    far = max((curve.x[-1] for curve in curves), default=0.0)

    def level(curve: Curve) -> Curve:
        spread = None if curve.spread is None else curve.spread[[-1, -1]]
        return curve._replace(x=np.array([0.0, far]), mean=curve.mean[[-1, -1]], spread=spread)

    return [level(curve) if curve.x[-1] == 0 < far else curve for curve in curves]


def visible(curves: Sequence[Curve], info: MetricInfo) -> tuple[float, float]:
    """The part of the axis that is shown: from the best value of any round to somewhat beyond the worst end.

    An end that lies farther below the lower quartile of all ends than one and a half times the way from there to the best is
    left out of this: to show a method that fails, the differences between all others would vanish.
    """
    sign = 1 if info.higher_is_better else -1
    good = [sign * curve.mean[np.isfinite(curve.mean)] for curve in curves]
    good = [each for each in good if len(each)]
    if not good:
        return 0.0, 1.0
    ends = np.array([each[-1] for each in good])
    best, quartile = max(float(each.max()) for each in good), float(np.quantile(ends, 0.25))
    least = 2.0 if info.unit == "%" else 0.02 * max(abs(best), 1e-6)
    shown = ends >= quartile - 1.5 * max(best - quartile, least)
    worst = float(ends[shown].min())
    span = max(best - worst, least)
    late = min(float(each[len(each) // 2 :].min()) for each, kept in zip(good, shown, strict=True) if kept)
    edge = max(min(late, worst - 0.4 * span), worst - 1.5 * span)  # the second half too, if it is not far below
    low, high = sorted((sign * edge, sign * (best + 0.1 * span)))
    return (max(low, 0.0), min(high, 100.5)) if info.unit == "%" else (low, high)


def coinciding(curves: Sequence[Curve], height: float) -> list[list[Curve]]:
    """Groups of curves of which each but one would be hidden behind another; ``height`` is that of the axis."""
    groups: list[list[Curve]] = []
    for curve in curves:
        near = (group for group in groups if _apart(group[0], curve) <= HIDDEN * height)
        if (group := next(near, None)) is None:
            groups.append([curve])
        else:
            group.append(curve)
    return [sorted(group, key=lambda curve: curve.local) for group in groups]  # the reference is drawn on top


def _apart(one: Curve, other: Curve) -> float:
    """How far two curves are from each other over most of their length, and at their ends."""
    if len(one.x) != len(other.x) or not np.allclose(one.x, other.x):
        return np.inf
    between = np.abs(one.mean - other.mean)
    return float(max(np.quantile(between, 0.75), between[-1]))


def joined(group: Sequence[Curve]) -> str:
    """The names of curves that coincide: "=" where they are equal, "≈" where they are only as near as their lines."""
    equal = all(np.abs(group[0].mean - curve.mean).max() <= EQUAL for curve in group)
    names = [curve.label for curve in group]
    if len(group) > 1 and all(curve.model == "global" for curve in group):
        names = [*(name.removesuffix(", global") for name in names[:-1]), names[-1]]
    sign = " =" if equal else " ≈"
    lines = [" ".join(part) for part in _pairs([name + sign for name in names[:-1]] + names[-1:])]
    return "\n".join(lines)


def _pairs(words: list[str]) -> list[list[str]]:
    return [words[i : i + 2] for i in range(0, len(words), 2)]

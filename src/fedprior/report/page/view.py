"""What a page shows at one choice of metric, model, data, average, round and reference.

The page's own script does the same for every choice that a reader makes; a test compares the two, and this one with
`fedprior compare`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedprior.analysis.compare import EQUAL, LOCAL, Interval
from fedprior.analysis.evidence import FEW, is_share
from fedprior.analysis.paired import LEVEL, holm, p_value
from fedprior.analysis.series import ROUNDS
from fedprior.analysis.summary import Number, over_seeds
from fedprior.records.schema import ACCURACY, AVERAGES, ClientId, MetricInfo
from fedprior.report.page.blocks import MODELS, POOLED, Block, Cell

DATA = ("own", POOLED)
ROUNDED = 6  # digits after the point beyond which two numbers are equal when they are put in order


class Choice(NamedTuple):
    """What is looked at."""

    metric: str
    model: str
    data: str
    average: str
    round: str
    against: str

    @property
    def key(self) -> str:
        """Which of a cell's averages that is."""
        return POOLED if self.data == POOLED else self.average


class Apart(NamedTuple):
    """A variant minus the reference over the seeds that both have."""

    interval: Interval
    p: float | None  # None: a single seed
    seeds: list[int]


class Counts(NamedTuple):
    """For how many clients a variant is better than the reference, equal to it, and worse."""

    wins: int
    ties: int
    losses: int


@dataclass(frozen=True)
class Line:
    """One variant at a choice."""

    variant: str
    cell: Cell | None  # None: it has no such number
    number: Number | None
    apart: Apart | None = None  # None: the reference itself, or nothing in common with it
    adjusted: float | None = None  # the p-value, adjusted for the number of comparisons with the reference
    counts: Counts | None = None


@dataclass(frozen=True)
class View:
    """All variants at a choice."""

    choice: Choice
    info: MetricInfo
    lines: list[Line]
    best: str | None
    beaten: int  # variants that the best one can be told from
    untold: list[str]  # those that it cannot be told from
    equal: list[list[str]]
    few: int  # clients with so few test samples that one is more than five points
    clients: int


def usual(blocks: Iterable[tuple[str, str, str]], methods: Mapping[str, str]) -> Choice:
    """The choice that a page begins with; ``methods``: the method of each variant."""
    keys = list(blocks)
    metrics, local = [key[0] for key in keys], [v for v, method in methods.items() if method == LOCAL]
    metric = ACCURACY.name if ACCURACY.name in metrics else metrics[0]
    model = min((key[1] for key in keys if key[0] == metric), key=MODELS.index)
    against = LOCAL if LOCAL in methods else [*local, *methods][0]
    return Choice(metric, model, DATA[0], AVERAGES[0], next(iter(ROUNDS)), against)


def view(block: Block, info: MetricInfo, choice: Choice, samples: Mapping[ClientId, int]) -> View:
    """The lines of all variants and what can be said of them."""
    numbers = {
        variant: dict(sorted(cell.averages.get(choice.key, {}).items())) if cell else {}
        for variant, cell in block.cells.items()
    }
    aparts = {v: _apart(numbers[v], numbers[choice.against]) for v in numbers if v != choice.against}
    adjusted = holm({v: apart.p for v, apart in aparts.items() if apart is not None and apart.p is not None})
    theirs = block.cells[choice.against]
    lines = []
    for variant, cell in block.cells.items():
        apart, own = aparts.get(variant), cell is not None and choice.data == "own"
        counts = count(cell, theirs, apart.seeds, info) if cell and theirs and apart and own else None
        number = over_seeds(numbers[variant]) if numbers[variant] else None
        lines.append(Line(variant, cell, number, apart, adjusted.get(variant), counts))
    best, beaten, untold = _best(numbers, info)
    present = {client for cell in block.cells.values() if cell for client in cell.samples}
    return View(
        choice,
        info,
        lines,
        best,
        beaten,
        untold,
        block.equal,
        few=sum(samples[client] < FEW for client in present) if is_share(info) else 0,
        clients=len(present),
    )


def _apart(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Apart | None:
    seeds = [seed for seed in ours if seed in theirs]
    if not seeds:
        return None
    differences = [ours[seed] - theirs[seed] for seed in seeds]
    return Apart(Interval.of(differences), p_value(differences), seeds)


def per_client(cell: Cell, seeds: Sequence[int]) -> dict[ClientId, float]:
    """The clients' values, averaged over seeds; a client that any of them lacks is left out."""
    every = [cell.clients.get(seed, {}) for seed in seeds]
    return {c: float(np.mean([each[c] for each in every])) for c in every[0] if all(c in each for each in every)}


def differences(ours: Cell, theirs: Cell, seeds: Sequence[int]) -> dict[ClientId, float]:
    """Every client's difference, averaged over seeds, of those clients that both have."""
    mine, other = per_client(ours, seeds), per_client(theirs, seeds)
    return {client: mine[client] - other[client] for client in mine if client in other}


def count(ours: Cell, theirs: Cell, seeds: Sequence[int], info: MetricInfo) -> Counts | None:
    """How many clients gain and lose; None where no client's value was recorded."""
    apart = list(differences(ours, theirs, seeds).values())
    if not apart:
        return None
    higher, lower = sum(d > EQUAL for d in apart), sum(d < -EQUAL for d in apart)
    wins, losses = (higher, lower) if info.higher_is_better else (lower, higher)
    return Counts(wins, len(apart) - wins - losses, losses)


def _best(numbers: Mapping[str, Mapping[int, float]], info: MetricInfo) -> tuple[str | None, int, list[str]]:
    """The variant with the best mean, from how many others it can be told, and from which it cannot."""
    sign = 1 if info.higher_is_better else -1
    means = {v: sign * round(float(np.mean(list(each.values()))), ROUNDED) for v, each in numbers.items() if each}
    finite = {v: mean for v, mean in means.items() if np.isfinite(mean)}
    if not finite:
        return None, 0, []
    best = max(finite, key=lambda v: finite[v])
    aparts = {v: _apart(numbers[v], numbers[best]) for v in finite if v != best}
    adjusted = holm({v: apart.p for v, apart in aparts.items() if apart is not None and apart.p is not None})
    untold = [v for v in aparts if adjusted.get(v, 1.0) >= LEVEL]
    return best, len(aparts) - len(untold), untold

"""What a page shows at one choice of metric, model, data, average, round and reference.

The page's own script does the same for every choice that a reader makes; a test compares the two, and this one with
`fedprior compare`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedprior.analysis.compare import LOCAL, Interval
from fedprior.analysis.evidence import FEW, is_share
from fedprior.analysis.paired import EQUAL, LEVEL, holm, p_value
from fedprior.analysis.series import ROUNDS
from fedprior.analysis.summary import Number, over_seeds
from fedprior.records.schema import ACCURACY, AVERAGES, ClientId, MetricInfo
from fedprior.report.page.blocks import MODELS, POOLED, Block, Cell
from fedprior.report.words import format_value

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
    """A variant minus another over the seeds that both have."""

    interval: Interval
    p: float | None  # None: a single seed, or seeds that agree by chance
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
    infinite: tuple[int, ...] = ()  # the seeds with which it is; such a variant has no number


class Best(NamedTuple):
    """The variants with the best mean as it is written, and what pairwise comparisons of all variants say of them."""

    variants: list[str]  # several in a tie
    beaten: list[str]  # those than which all of them are better, told by the seeds
    untold: list[str]  # those that not all of them can be told from
    ahead: list[str]  # those that are better than one of them over the seeds that both have: seeds may differ
    pairs: int  # that were tested


@dataclass(frozen=True)
class View:
    """All variants at a choice."""

    choice: Choice
    info: MetricInfo
    lines: list[Line]
    best: Best | None  # None: no variant has a finite number
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
    every = {v: _known(cell.averages.get(choice.key, {})) if cell else {} for v, cell in block.cells.items()}
    infinite = {v: tuple(seed for seed, x in by_seed.items() if math.isinf(x)) for v, by_seed in every.items()}
    # What is infinite with one seed is so on average; the seeds that went well would make it look good.
    numbers = {v: {} if infinite[v] else by_seed for v, by_seed in every.items()}
    aparts = {v: _apart(numbers[v], numbers[choice.against]) for v in numbers if v != choice.against}
    adjusted = holm({v: apart.p for v, apart in aparts.items() if apart is not None and apart.p is not None})
    theirs = block.cells[choice.against]
    lines = []
    for variant, cell in block.cells.items():
        apart, own = aparts.get(variant), cell is not None and choice.data == "own"
        counts = count(cell, theirs, apart.seeds, info) if cell and theirs and apart and own else None
        number = over_seeds(numbers[variant]) if numbers[variant] else None
        lines.append(Line(variant, cell, number, apart, adjusted.get(variant), counts, infinite[variant]))
    present = {client for cell in block.cells.values() if cell for client in cell.samples}
    return View(
        choice,
        info,
        lines,
        _best(numbers, info),
        block.equal,
        few=sum(samples[client] < FEW for client in present) if is_share(info) else 0,
        clients=len(present),
    )


def _known(by_seed: Mapping[int, float]) -> dict[int, float]:
    """The numbers of seeds, in order; what no client has is not a number."""
    return {seed: x for seed, x in sorted(by_seed.items()) if not math.isnan(x)}


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


def _best(numbers: Mapping[str, Mapping[int, float]], info: MetricInfo) -> Best | None:
    """The best variants, compared with all others.

    Which ones are best is chosen by looking at the very numbers that are compared, so that the adjustment is for all pairs.
    """
    sign = 1 if info.higher_is_better else -1
    means = {
        v: sign * float(format_value(float(np.mean(list(each.values()))), info)) for v, each in numbers.items() if each
    }
    if not means:
        return None
    best = [v for v, mean in means.items() if mean == max(means.values())]
    pairs = {pair: _apart(*(numbers[v] for v in pair)) for pair in itertools.combinations(means, 2)}
    adjusted = holm({pair: a.p for pair, a in pairs.items() if a is not None and a.p is not None})

    def gain(one: str, other: str) -> float:
        """How much better a variant is than another, as far as the seeds can tell."""
        pair = (one, other) if (one, other) in pairs else (other, one)
        if (apart := pairs[pair]) is None or adjusted.get(pair, 1.0) >= LEVEL:
            return 0.0
        return sign * apart.interval.mean * (1 if pair[0] == one else -1)

    found = Best(best, [], [], [], len(adjusted))
    for other in means:
        if other not in best:
            gains = [gain(one, other) for one in best]
            (found.ahead if min(gains) < 0 else found.beaten if min(gains) > 0 else found.untold).append(other)
    return found

"""The numbers of a task as the page's script reads them: small, and exact where a sentence depends on it.

Equal arrays are written once. A client's accuracy is written as its number of right answers, a curve in steps of a hundredth
of a point (or in finer ones, for other metrics), the band around it in coarser ones, and all else so exactly that the script
finds equal what the library does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedprior.analysis.evidence import is_share
from fedprior.analysis.paired import EQUAL
from fedprior.records.schema import ClientId, MetricInfo
from fedprior.report.page.blocks import Block, Cell
from fedprior.report.page.gather import Curve, TaskNumbers
from fedprior.report.page.holdings import PARTS
from fedprior.report.page.look import colours
from fedprior.report.words import metric_words

Arrays = list[list[Any]]
# Digits of averages, and digits after the point of clients' values: what is equal in the library, by its EQUAL, is so here.
DIGITS, EXACT = 13, 12
SHORT = 6  # digits of clients' values where so few tell methods apart just as EQUAL does, which is nearly everywhere
COARSE = 4  # the steps of a band around a curve, in those of the curve


class Pool:
    """Arrays by number, each of them once."""

    def __init__(self) -> None:
        self.arrays: Arrays = []
        self._places: dict[tuple[Any, ...], int] = {}

    def put(self, array: Iterable[Any]) -> int:
        """The number of an array."""
        key = tuple(array)
        if key not in self._places:
            self._places[key] = len(self.arrays)
            self.arrays.append(list(key))
        return self._places[key]


def encoded(task: TaskNumbers) -> dict[str, Any]:
    """One task as plain data."""
    pool = Pool()
    clients, order = list(task.samples), list(task.methods)
    blocks: dict[str, Any] = {}
    for (metric, model, choice), block in task.blocks.items():
        by_model = blocks.setdefault(metric, {}).setdefault(model, {})
        by_model[choice] = _block(block, task.infos[metric], clients, task.samples, order, pool)
    curves: dict[str, Any] = {}
    for (metric, model, average), by_variant in task.curves.items():
        if metric in blocks:
            step = _step(task.infos[metric], by_variant.values())
            drawn = [_curve(by_variant.get(variant), step, pool) for variant in order]
            curves.setdefault(metric, {}).setdefault(model, {})[average] = {
                "step": step,
                "band": COARSE * step,
                "of": drawn,
            }
    most, look = max(len(method.runs) for method in task.methods.values()), colours(task)
    return {
        "name": task.name,
        "metrics": {name: _info(task.infos[name]) for name in blocks},
        "quantiles": quantiles(most - 1),
        "clients": [str(client) for client in clients],
        "samples": list(task.samples.values()),
        "methods": [
            {
                "id": m.variant,
                "name": m.name,
                "rounds": m.spent.rounds,
                "colour": look[m.variant],
                **_spent(m.spent),
            }
            for m in task.methods.values()
        ],
        "usual": task.usual._asdict(),
        "blocks": blocks,
        "curves": curves,
        "holdings": _holdings(task, clients),
        "arrays": pool.arrays,
    }


def _info(info: MetricInfo) -> dict[str, Any]:
    return {
        "words": metric_words(info),
        "unit": info.unit,
        "higher": info.higher_is_better,
        "share": is_share(info),
    }


def _spent(spent: Any) -> dict[str, Any]:
    return {name: plain(getattr(spent, name), 6) for name in ("gradients", "hvps", "megabytes", "seconds")}


def quantiles(most: int) -> list[float]:
    """Student's t, 0.975, for 1, 2, ... degrees of freedom."""
    from scipy import stats

    return [float(stats.t.ppf(0.975, dof)) for dof in range(1, most + 1)]


def plain(value: float | None, digits: int = DIGITS) -> float | int | None:
    """A number with so many significant digits; None where it is no finite one.

    >>> plain(2 / 3, 4), plain(20.0), plain(math.inf)
    (0.6667, 20, None)
    """
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


class Group(NamedTuple):
    """The clients' values averaged over some seeds: over all where all variants have the same ones, else over each alone."""

    seeds: list[int]
    means: list[float | None]  # [N]; None: any of the seeds lacks the client


def _block(
    block: Block,
    info: MetricInfo,
    clients: Sequence[ClientId],
    samples: Mapping[ClientId, int],
    order: Sequence[str],
    pool: Pool,
) -> dict[str, Any]:
    known = {variant: cell for variant in order if (cell := block.cells.get(variant))}
    together = _have_the_same_seeds(known.values())
    groups = {variant: _groups(cell, clients, together) for variant, cell in known.items()}
    short = np.zeros(len(clients), bool)
    if together and not is_share(info):  # else values are added up over seeds, or beside others that are exact
        short = _short([group.means for (group,) in groups.values()])
    sizes = [samples[client] for client in clients]
    cells = [_cell(known[v], groups[v], info, sizes, short, pool) if v in known else None for v in order]
    return {"cells": cells, "equal": [[order.index(v) for v in group] for group in block.equal]}


def _have_the_same_seeds(cells: Iterable[Cell]) -> bool:
    """Whether all cells have the same seeds in all that is known of them."""
    every = set()
    for cell in cells:
        finite = ([seed for seed, x in of.items() if math.isfinite(x)] for of in cell.averages.values())
        every |= {frozenset(cell.rounds), frozenset(cell.clients or cell.rounds), *map(frozenset, finite)}
    return len(every) == 1


def _groups(cell: Cell, clients: Sequence[ClientId], together: bool) -> list[Group]:
    seeds = sorted(cell.rounds)
    found = []
    for chosen in [seeds] if together else [[seed] for seed in seeds]:
        every = [cell.clients.get(seed, {}) for seed in chosen]
        whole = (all(client in each for each in every) for client in clients)
        means = [
            float(np.mean([each[c] for each in every])) if w else None for c, w in zip(clients, whole, strict=True)
        ]
        found.append(Group(chosen, means))
    return found


@np.errstate(invalid="ignore")  # inf - inf is NaN
def _short(means: Sequence[Sequence[float | None]]) -> np.ndarray:
    """Of which clients SHORT digits tell apart the same methods as the values themselves do. [N]"""
    whole = np.array(means, float)  # [M, N]
    short = np.array([[plain(mean, SHORT) for mean in each] for each in means], float)
    pairs = zip(whole, short, strict=True)
    return np.all([((whole - one > EQUAL) == (short - other > EQUAL)).all(0) for one, other in pairs], 0)


def _cell(
    cell: Cell, groups: Sequence[Group], info: MetricInfo, sizes: Sequence[int], short: np.ndarray, pool: Pool
) -> dict[str, Any]:
    seeds = sorted(cell.rounds)
    averages = {name: pool.put(plain(of.get(seed)) for seed in seeds) for name, of in cell.averages.items()}
    coded: dict[str, Any] = {
        "model": cell.model,
        "seeds": pool.put(seeds),
        "rounds": pool.put(cell.rounds[seed][-1] for seed in seeds),  # the last that were chosen
    }
    infinite = {name: [s for s in seeds if math.isinf(of.get(s, 0.0))] for name, of in cell.averages.items()}
    if any(infinite.values()):  # which are null among the averages, as those that were not measured
        coded["infinite"] = {name: of for name, of in infinite.items() if of}
    if cell.tenth is not None:
        coded["tenth"] = list(cell.tenth)
    if cell.clients:
        coded["groups"] = len(groups)
        coded["clients"] = [_values(cell, group, info, sizes, short, pool) for group in groups]
    return {**coded, "averages": averages}


def _values(
    cell: Cell, group: Group, info: MetricInfo, sizes: Sequence[int], short: np.ndarray, pool: Pool
) -> list[int]:
    """The clients' values of a group: [array, of how many evaluations it counts the right answers, or 0]."""
    counts = {len(cell.rounds[seed]) for seed in group.seeds}
    if is_share(info) and len(counts) == 1:
        factor = len(group.seeds) * counts.pop()
        right = [None if m is None else m * n * factor / 100 for m, n in zip(group.means, sizes, strict=True)]
        if all(r is None or abs(r - round(r)) < 1e-4 for r in right):
            return [pool.put(None if r is None else round(r) for r in right), factor]
    values = zip(group.means, short, strict=True)
    return [pool.put(plain(m, SHORT) if is_short else _exact(m) for m, is_short in values), 0]


def _exact(value: float | None) -> float | int | None:
    return plain(value if value is None else round(value, EXACT), 17)


def _step(info: MetricInfo, curves: Iterable[Curve]) -> float:
    """What one unit of a curve's numbers is."""
    if info.unit == "%":
        return 0.01
    most = max((abs(x) for curve in curves for x in curve.mean if math.isfinite(x)), default=1.0) or 1.0
    return float(10.0 ** (math.ceil(math.log10(most)) - 4))


def _curve(curve: Curve | None, step: float, pool: Pool) -> dict[str, int] | None:
    if curve is None:
        return None
    coded = {"x": pool.put(_steps(curve.rounds)), "y": pool.put(_steps(_units(curve.mean, step)))}
    return coded if curve.deviation is None else {**coded, "s": pool.put(_units(curve.deviation, COARSE * step))}


def _units(values: Iterable[float], step: float) -> list[int | None]:
    return [round(value / step) if math.isfinite(value) else None for value in values]


def _steps(values: Iterable[int | None]) -> list[int | None]:
    """Each number as what it adds to the one before; a gap stays one.

    >>> _steps([5, 7, None, 6])
    [5, 2, None, -1]
    """
    before, steps = 0, list[int | None]()
    for value in values:
        steps.append(None if value is None else value - before)
        before = before if value is None else value
    return steps


def _holdings(task: TaskNumbers, clients: Sequence[ClientId]) -> dict[str, Any] | None:
    if task.holdings is None:
        return None
    held = task.holdings.clients
    parts = [part for part in PARTS if any(part in each for each in held.values())]
    known = [*clients, *(client for client in held if client not in task.samples)]
    empty = [0] * len(task.holdings.classes)
    return {
        "classes": [str(name) for name in task.holdings.classes],
        "clients": [str(client) for client in known],  # those with results first, in their order
        "parts": {part: [held[c].get(part, empty) if c in held else empty for c in known] for part in parts},
    }

"""The numbers of a task as the page's script reads them: small, and exact where a sentence depends on it.

Equal arrays are written once. A client's accuracy is written as its number of right answers, a curve in steps of a hundredth
of a point (or in finer ones, for other metrics), the band around it in coarser ones, and all else so exactly that the script
finds equal what the library does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedprior.analysis.evidence import is_share
from fedprior.records.schema import ClientId, MetricInfo
from fedprior.report.page.blocks import Block, Cell
from fedprior.report.page.gather import Curve, TaskNumbers
from fedprior.report.page.holdings import PARTS
from fedprior.report.page.look import colours
from fedprior.report.words import metric_words

Arrays = list[list[Any]]
DIGITS, EXACT = 13, 12  # of averages and of clients' values: what is equal in the library, by its EQUAL, is so here
AVERAGED = 6  # digits of clients' values that nothing is added to: equal ones stay equal
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


def _block(
    block: Block,
    info: MetricInfo,
    clients: Sequence[ClientId],
    samples: Mapping[ClientId, int],
    order: Sequence[str],
    pool: Pool,
) -> dict[str, Any]:
    together = _have_the_same_seeds(cell for cell in block.cells.values() if cell)
    cells = [_cell(block.cells.get(variant), info, clients, samples, together, pool) for variant in order]
    return {"cells": cells, "equal": [[order.index(v) for v in group] for group in block.equal]}


def _have_the_same_seeds(cells: Iterable[Cell]) -> bool:
    """Whether all cells have the same seeds in all that is known of them."""
    every = set()
    for cell in cells:
        finite = ([seed for seed, x in of.items() if math.isfinite(x)] for of in cell.averages.values())
        every |= {frozenset(cell.rounds), frozenset(cell.clients or cell.rounds), *map(frozenset, finite)}
    return len(every) == 1


def _cell(
    cell: Cell | None,
    info: MetricInfo,
    clients: Sequence[ClientId],
    samples: Mapping[ClientId, int],
    together: bool,
    pool: Pool,
) -> dict[str, Any] | None:
    """One cell. ``together``: the clients' values may be averaged over seeds, since all variants have the same ones here."""
    if cell is None:
        return None
    seeds = sorted(cell.rounds)
    averages = {name: pool.put(plain(of.get(seed)) for seed in seeds) for name, of in cell.averages.items()}
    coded: dict[str, Any] = {
        "model": cell.model,
        "seeds": pool.put(seeds),
        "rounds": pool.put(cell.rounds[seed][-1] for seed in seeds),  # the last that were chosen
    }
    if cell.tenth is not None:
        coded["tenth"] = list(cell.tenth)
    if cell.clients:
        groups = [seeds] if together else [[seed] for seed in seeds]
        coded["groups"] = len(groups)
        coded["clients"] = [_values(cell, group, info, clients, samples, together, pool) for group in groups]
    return {**coded, "averages": averages}


def _values(
    cell: Cell,
    seeds: Sequence[int],
    info: MetricInfo,
    clients: Sequence[ClientId],
    samples: Mapping[ClientId, int],
    together: bool,
    pool: Pool,
) -> list[int]:
    """The clients' values averaged over some seeds: [array, of how many evaluations it counts the right answers, or 0]."""
    every = [cell.clients.get(seed, {}) for seed in seeds]
    whole = [client if all(client in each for each in every) else None for client in clients]
    means = [None if c is None else float(np.mean([each[c] for each in every])) for c in whole]
    counts = {len(cell.rounds[seed]) for seed in seeds}
    if is_share(info) and len(counts) == 1:
        factor = len(seeds) * counts.pop()
        right = [None if m is None else m * samples[c] * factor / 100 for m, c in zip(means, clients, strict=True)]
        if all(r is None or abs(r - round(r)) < 1e-4 for r in right):
            return [pool.put(None if r is None else round(r) for r in right), factor]
    digits = AVERAGED if together and not is_share(info) else EXACT
    return [pool.put(plain(mean, digits) for mean in means), 0]


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

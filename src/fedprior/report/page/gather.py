"""Records in, all that a page shows out: the numbers of each task, and what there is to know of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedprior.analysis.grouping import Seeds, Warn, group, is_cell, method_of, silent
from fedprior.analysis.series import curve_over_seeds
from fedprior.analysis.summary import facts
from fedprior.errors import FedpriorError
from fedprior.records.schema import AVERAGES, ClientId, MetricInfo, RunRecord
from fedprior.records.spending import BYTES, HVP
from fedprior.records.thinning import thinned_words
from fedprior.report.page.blocks import MODELS, Block, Reading, blocks_of, measured, reading
from fedprior.report.page.holdings import Holdings, holdings_of
from fedprior.report.page.sweeps import Swept, swept
from fedprior.report.page.view import Choice, View, usual, view
from fedprior.report.words import row_name

POINTS = 101  # of a curve at most: a screen has no places for more


class Curve(NamedTuple):
    """A metric over rounds, of one variant's model and one average over clients."""

    rounds: list[int]  # [T]
    mean: list[float]  # [T] over seeds
    deviation: list[float] | None  # [T]; None: a single seed


@dataclass(frozen=True)
class Spent:
    """What a variant's run takes of the whole federation; None where it was not recorded."""

    rounds: int  # done
    gradients: float | None  # a Hessian-vector product counts as two
    hvps: int | None  # of them
    megabytes: float | None  # sent, both ways
    seconds: float | None  # mean over seeds


@dataclass(frozen=True)
class Method:
    """A row of the tables."""

    variant: str
    name: str  # as readers see it
    method: str
    about: Mapping[str, Any]  # what it changes of its method
    spent: Spent
    runs: tuple[RunRecord, ...] = field(repr=False)


@dataclass(frozen=True)
class TaskNumbers:
    """One task: every number of every method, and what is to be known of them."""

    name: str
    methods: dict[str, Method]  # by variant
    infos: dict[str, MetricInfo]  # by column
    blocks: dict[tuple[str, str, str], Block] = field(repr=False)  # (metric, model, choice of the round)
    curves: dict[tuple[str, str, str], dict[str, Curve]] = field(repr=False)  # (metric, model, average) -> variant
    samples: dict[ClientId, int]  # test samples of every client
    holdings: Holdings | None
    lacks: list[str]  # what these records do not hold, in sentences

    @property
    def usual(self) -> Choice:
        """The choice that the page begins with."""
        return usual(self.blocks, {variant: method.method for variant, method in self.methods.items()})

    def view(self, choice: Choice) -> View:
        """What is shown at a choice."""
        key = (choice.metric, choice.model, choice.round)
        block = self.blocks.get(key) or Block(dict.fromkeys(self.methods), [])
        return view(block, self.infos[choice.metric], choice, self.samples)

    @property
    def names(self) -> dict[str, str]:
        """What readers see of each variant."""
        return {variant: method.name for variant, method in self.methods.items()}


@dataclass(frozen=True)
class Gathered:
    """All that one page shows."""

    tasks: list[TaskNumbers]
    sweeps: list[Swept]
    notes: list[str]  # what is to be known of the runs: those that diverged, are not finished, or are left out


def gather(
    records: Iterable[RunRecord],
    order: Sequence[str] = (),
    partition: bool = True,
    warn: Warn = silent,
    read: Callable[[RunRecord], Reading] = reading,
) -> Gathered:
    """Everything that a page shows of some runs; ``partition``: whether who holds what is among it.

    ``read`` gives what is needed of a run, perhaps from an earlier time.
    """
    records, notes = list(records), list[str]()

    def note(text: str) -> None:
        notes.append(text)
        warn(text)

    tested = [record for record in records if not is_cell(record)]
    groups = group(tested, order=order, warn=note)
    tasks = [task_numbers(name, by_variant, partition, read) for name, by_variant in groups.items()]
    for name, by_variant in groups.items():
        for text in thinned_words(record.config for seeds in by_variant.values() for record in seeds.values()):
            note(f"{name}: {text}")
    return Gathered([task for task in tasks if task.blocks], swept(filter(is_cell, records)), notes)


def task_numbers(
    name: str,
    by_variant: Mapping[str, Seeds],
    partition: bool = True,
    read: Callable[[RunRecord], Reading] = reading,
) -> TaskNumbers:
    """One task's numbers."""
    readings = {v: {seed: read(record) for seed, record in seeds.items()} for v, seeds in by_variant.items()}
    infos = measured(by_variant)
    blocks = blocks_of(readings, infos)
    samples = _samples(blocks, name)
    methods = {variant: _method(variant, seeds) for variant, seeds in by_variant.items()}
    runs = [run for method in methods.values() for run in method.runs]
    holdings, why = holdings_of(runs, samples) if partition else (None, None)
    lacks = [*_lacks(methods), *([why] if why else [])]
    return TaskNumbers(name, methods, infos, blocks, _curves(readings, infos), samples, holdings, lacks)


def _samples(blocks: Mapping[tuple[str, str, str], Block], task: str) -> dict[ClientId, int]:
    """The test samples of every client, which must be the same in all runs."""
    found: dict[ClientId, int] = {}
    for block in blocks.values():
        for variant, cell in block.cells.items():
            for client, count in (cell.samples if cell else {}).items():
                if found.setdefault(client, count) != count:
                    raise FedpriorError(
                        f"client {client} of {task} has {found[client]} test samples in some runs and {count} in those of "
                        f"{variant}; give runs of one experiment"
                    )
    return {client: found[client] for client in sorted(found, key=lambda c: (isinstance(c, str), c))}


def _method(variant: str, seeds: Seeds) -> Method:
    about, runs = facts(seeds), tuple(seeds.values())
    takes, done = about["round_takes"], about["rounds"]
    seconds, sent = about["seconds"], takes["numbers"] if takes else None
    spent = Spent(
        done,
        (takes["gradients"] + HVP * takes["hvps"]) * done if takes else None,
        takes["hvps"] * done if takes else None,
        None if sent is None else sent * BYTES / 1e6 * done,
        seconds["mean"] if seconds else None,
    )
    return Method(variant, row_name(variant, about), method_of(seeds), about, spent, runs)


def _lacks(methods: Mapping[str, Method]) -> list[str]:
    """What the records of some methods do not hold, by name."""
    kinds = {
        "what a round costs": lambda method: method.spent.gradients is None,
        "how much is sent": lambda method: method.spent.megabytes is None,
        "the time of every round": lambda method: method.spent.seconds is None,
        "the commands that made them": lambda method: any(run.provenance is None for run in method.runs),
    }
    found = []
    for what, is_lacking in kinds.items():
        if without := [method.name for method in methods.values() if is_lacking(method)]:
            whose = "These records do" if len(without) == len(methods) else f"The records of {', '.join(without)} do"
            found.append(f"{whose} not hold {what}, which is left out.")
    return found


def _curves(
    readings: Mapping[str, Mapping[int, Reading]], infos: Mapping[str, MetricInfo]
) -> dict[tuple[str, str, str], dict[str, Curve]]:
    found = {}
    for column in infos:
        for model in MODELS:
            for average in AVERAGES:
                curves = {v: _curve(seeds, column, (model, "own", average)) for v, seeds in readings.items()}
                if drawn := {variant: curve for variant, curve in curves.items() if curve is not None}:
                    found[column, model, average] = drawn
    return found


def _curve(seeds: Mapping[int, Reading], column: str, key: tuple[str, str, str]) -> Curve | None:
    by_seed = [run.series.get(column, {}).get(key, {}) for run in seeds.values()]
    rounds, mean, deviation = curve_over_seeds(by_seed)
    if not rounds:
        return None
    kept = thinned(range(len(rounds)))
    return Curve(
        [rounds[k] for k in kept], mean[kept].tolist(), None if deviation is None else deviation[kept].tolist()
    )


def thinned(rounds: Sequence[int], most: int = POINTS) -> list[int]:
    """At most so many of the rounds, evenly, and always the first and the last.

    >>> thinned([1, 2, 3, 4, 5, 6, 7], 4)
    [1, 3, 5, 7]
    """
    if len(rounds) <= most:
        return list(rounds)
    places = np.round(np.linspace(0, len(rounds) - 1, most)).astype(int)
    return [rounds[k] for k in places]

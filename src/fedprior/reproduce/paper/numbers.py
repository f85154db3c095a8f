"""The numbers of a table: what was measured in each cell, at which budget, beside what the paper prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprior.analysis.series import reported, series_of
from fedprior.analysis.summary import Number, over_seeds
from fedprior.records.schema import RunRecord, Status
from fedprior.reproduce.paper.published import Printed
from fedprior.reproduce.paper.rows import Row
from fedprior.reproduce.paper.tasks import FULL_SEEDS, PaperTask

if TYPE_CHECKING:
    from fedprior.study.results import Results

LAST, BEST = "last", "best"
Seeds = Mapping[int, RunRecord]


class Runs(NamedTuple):
    """The runs of a row on a task: those that reached the end, and the seeds with which it diverged."""

    finished: Seeds
    diverged: tuple[int, ...] = ()


def runs_by_cell(results: Results) -> dict[tuple[str, str], Runs]:
    """By the names of the task and of the row that was trained."""
    found = {(task, row): Runs(seeds) for task, rows in results.groups().items() for row, seeds in rows.items()}
    for record in results.records:
        if record.status is Status.DIVERGED:
            seeds, diverged = found.get(key := (record.task, record.variant), Runs({}))
            found[key] = Runs(seeds, tuple(sorted({*diverged, record.seed})))
    return found


def is_full(task: PaperTask, rounds: int, seeds: int) -> bool | None:
    """Whether T and the number of seeds are the paper's, or more; None where its T is not known."""
    return None if task.full_rounds is None else rounds >= task.full_rounds and seeds >= FULL_SEEDS


def budget_words(full: bool | None) -> str:
    """What `is_full` says, for a reader."""
    return {
        True: "the full budget",
        False: "less than the paper",
        None: "the paper gives no number of rounds for this task",
    }[full]


@dataclass(frozen=True)
class Entry:
    """A cell of a table."""

    task: str
    row: str
    model: str
    data: str
    average: str
    rounds: int
    seeds: tuple[int, ...]  # those that diverged included
    full: bool | None  # as `is_full` says
    last: Number | None  # None where every seed diverged
    best: Number | None  # of the round that is best on test; None where only the end was evaluated
    published: float | None
    diverged: tuple[int, ...] = ()  # seeds, which are in no mean
    plus_minus: float | None = None  # the paper's


def entry(
    task: PaperTask,
    row: str,
    runs: Runs,
    model: str,
    published: float | None = None,
    *,
    data: str = "own",
    average: str = "weighted",
    plus_minus: float | None = None,
) -> Entry | None:
    """What was measured of a model of a variant; None if it was not evaluated, as the global model that a method lacks."""
    finished, diverged = runs
    by_seed = {seed: reported(series_of(record), model, data, average) for seed, record in sorted(finished.items())}

    def number(choice: str) -> Number | None:
        values = {seed: value for seed, by_choice in by_seed.items() if (value := by_choice[choice]) is not None}
        return over_seeds(values) if values else None

    last, best = number(LAST), number(BEST)
    if last is None and (finished or not diverged):
        return None
    rounds = min((record.round for record in finished.values()), default=0)
    seeds = tuple(sorted({*finished, *diverged}))
    full = is_full(task, rounds, len(seeds))
    what = (task.name, row, model, data, average, rounds, seeds, full)
    return Entry(*what, last, best, published, diverged, plus_minus)


Entries = dict[tuple[str, str], Entry]  # (column, label of the row)


def entries(
    results: Results, tasks: Iterable[PaperTask], rows: Sequence[Row], printed: Mapping[str, Printed]
) -> Entries:
    """The cells of a table of rows against tasks. ``printed``: the paper's rows by their names."""
    by_cell, found = runs_by_cell(results), Entries()
    for task in tasks:
        for row in rows:
            if (runs := by_cell.get((task.name, row.variant))) is None:
                continue
            paper = printed.get(row.printed or "")
            known, spread = (paper.values, paper.plus_minus) if paper else ({}, {})
            cell = entry(task, row.label, runs, row.model, known.get(task.name), plus_minus=spread.get(task.name))
            if cell is not None:
                found[task.name, row.label] = cell
    return found


def mean_of(cell: Entry | None, choice: str) -> float | None:
    """The mean of a cell at a choice of the round."""
    number = best_or_last(cell, choice)
    return None if number is None else number["mean"]


def best_or_last(cell: Entry | None, choice: str) -> Number | None:
    """The number of a cell at a choice of the round."""
    return None if cell is None else cell.best if choice == BEST else cell.last


@dataclass(frozen=True)
class Statistics:
    """Over the tasks of a row, as the paper has them: the standard deviation is that of a sample (n - 1)."""

    average: float
    std: float | None


def statistics(values: Sequence[float | None]) -> Statistics | None:
    """The average and the deviation over all tasks; None if a task is missing, as in the paper.

    >>> h = statistics([57.04, 57.51, 70.86])  # H.Avg and H.Std of FedAvg in the paper
    >>> round(h.average, 2), round(h.std, 2)
    (61.8, 7.85)
    >>> statistics([57.04, None]) is None
    True
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Statistics(float(np.mean(known)), float(np.std(known, ddof=1)) if len(known) > 1 else None)

"""The cells of a study: a task, a row and a seed each; what is done of them, and as plain data for another process."""

from __future__ import annotations

import numbers
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.errors import FedpriorError
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status
from fedprior.study.results import Lost, Results
from fedprior.study.trial import Progress, Trial

OTHER = "other settings"  # the status of a cell whose folder holds another run
SEEDS = 2**32  # how many there are


class Cell(NamedTuple):
    """One run of a study."""

    task: str
    variant: str
    seed: int
    trial: Trial
    folder: Path | None

    @property
    def ended(self) -> str:
        """How a cell that will not go on is reported: diverged, as its records say, or failed."""
        try:
            diverged = self.folder is None or RunFolder(self.folder).status[0] is Status.DIVERGED
        except FedpriorError:
            diverged = False
        return "diverged" if diverged else "failed"

    def __str__(self) -> str:
        return f"{self.task}, {self.variant}, seed {self.seed}"


CellWatch = Callable[[Cell, Progress | None], None]  # None: the cell diverged, or failed


@dataclass(frozen=True)
class PlannedCell:
    """How a cell stands."""

    task: str
    variant: str
    seed: int
    rounds: int
    done: int
    status: str  # as recorded, or "to do", or "other settings" where another run is in the cell's folder
    seconds_left: float | None  # None: nothing is known yet


@dataclass(frozen=True)
class Plan:
    """All cells of a study and how they stand."""

    cells: tuple[PlannedCell, ...]

    @property
    def seconds_left(self) -> float | None:
        """The time that all cells still take, one after the other; None where nothing is known of some."""
        each = [cell.seconds_left for cell in self.cells]
        return None if any(seconds is None for seconds in each) else float(sum(s for s in each if s is not None))


def chosen_seeds(seeds: Any) -> list[int]:
    """The seeds that are meant by a number of them, or by a list.

    >>> chosen_seeds(3), chosen_seeds(np.array([5, 7]))
    ([0, 1, 2], [5, 7])
    """
    try:
        whole = isinstance(seeds, numbers.Integral) and not isinstance(seeds, bool)
        chosen = list(range(int(seeds))) if whole else [operator.index(seed) for seed in seeds]
    except TypeError:
        chosen = []
    if not chosen or len(set(chosen)) != len(chosen):
        raise FedpriorError(f"seeds = {seeds!r}; give a number of at least 1, or different seeds")
    if beyond := [seed for seed in chosen if not 0 <= seed < SEEDS]:  # JAX takes 32 bits: 2**32 would be 0 once more
        raise FedpriorError(f"seeds = {seeds!r}: {beyond[0]} is no seed; valid: whole numbers from 0 to {SEEDS - 1}")
    return chosen


def planned(cells: Iterable[Cell]) -> Plan:
    """How the cells stand. The time of a round is the mean of those recorded for the same task and row."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    stands: list[tuple[Cell, int, str]] = []
    for cell in cells:
        run = None if cell.folder is None else RunFolder(cell.folder)
        if run is None or not run.exists:
            stands.append((cell, 0, "to do"))
            continue
        try:
            run.check_same(cell.trial.config())
        except FedpriorError:
            stands.append((cell, 0, OTHER))
            continue
        status, at = run.status
        rows = run.rows("times.csv")
        times[cell.task, cell.variant] += [row.train_seconds + row.evaluation_seconds for row in rows]
        stands.append((cell, at if status != Status.RUNNING else max([at, *(row.round for row in rows)]), status.value))
    planned = []
    for cell, done, standing in stands:
        rounds, each = cell.trial.program.rounds, times[cell.task, cell.variant]
        left = 0 if standing == Status.DIVERGED else max(rounds - done, 0)
        seconds = 0.0 if left == 0 else left * float(np.mean(each)) if each else None
        planned.append(PlannedCell(cell.task, cell.variant, cell.seed, rounds, done, standing, seconds))
    return Plan(tuple(planned))


def reused(cells: Iterable[Cell], results: Results, watch: CellWatch, warn: Callable[[str], None]) -> list[Cell]:
    """Take the records of cells that are done, and return the others. A cell that diverged would diverge again."""
    left = []
    for cell in cells:
        run = None if cell.folder is None else RunFolder(cell.folder)
        ends = (Status.DIVERGED, (Status.FINISHED, cell.trial.program.rounds))
        if run is None or not run.exists or not {run.status, run.status[0]} & set(ends):
            left.append(cell)
            continue
        for text in run.check_same(cell.trial.config()):
            warn(f"{cell.variant}, seed {cell.seed}: {text}")
        record = run.record()
        if record.status is Status.DIVERGED:
            text = f"{cell.variant} diverged in round {record.round} (seed {cell.seed}, {run.path})"
            results.lost.append(Lost(cell.task, cell.variant, "diverged", text, record.round))
            watch(cell, None)
        else:
            results.records.append(record)
            watch(cell, Progress(record.round, record.round, None, 0.0))
    return left


def job_of(cell: Cell, options: dict[str, Any]) -> dict[str, Any]:
    """A cell as plain data, from which a worker in another process can build and run it."""
    program = cell.trial.program
    if program.task.content is None:
        raise FedpriorError(
            f"the task '{cell.task}' was made from arrays, which no other process has; run it without an executor"
        )
    if program.task.select is not None:
        raise FedpriorError(
            f"the task '{cell.task}' has a selection of its own, which no other process has; run it without an executor"
        )
    if cell.folder is None:
        raise FedpriorError("cells that run in other processes need a folder for their records; give out=")
    content = {**program.task.content, **program.task.protocol.model_dump(exclude_unset=True)}
    return {
        "task": content,
        "variant": program.variant.plain(),
        "seed": cell.seed,
        "folder": str(cell.folder),
        "options": options,
    }

"""The main table (365) by another protocol, which is never mixed with the published one: everyone tuned on validation.

Every row is the best of eight trials (`tuning.py`) of 60 rounds and two seeds, by the accuracy of the personal models on
validation samples, a fifth of each client's training samples; then it is trained on all training samples for the task's own
number of rounds. A row with FT is scored in the run of the row without it, at the same settings; one with AM is tuned
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprior.analysis.choice import Candidate, choose, ends
from fedprior.records.schema import Status
from fedprior.report.tables import Table
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.matrix import Matrix
from fedprior.reproduce.paper.numbers import BEST, LAST, entries
from fedprior.reproduce.paper.rows import ROWS, Row
from fedprior.reproduce.paper.run import close, left_out, plan
from fedprior.reproduce.paper.table1 import Table1
from fedprior.reproduce.paper.tasks import QUICK_ROUNDS, PaperTask
from fedprior.reproduce.paper.tuning import AXES, TRIALS, trials
from fedprior.reproduce.paper.writing import shown_number, write_cells, write_tables
from fedprior.study.assignment import format_value
from fedprior.study.cells import Plan, PlannedCell

if TYPE_CHECKING:
    from fedprior.study.cells import Cell, CellWatch
    from fedprior.study.results import Results
    from fedprior.study.study import Study
    from fedprior.study.sweep import Sweep

OWN, QUICK = ("mnist-mclr-released", "fmnist-mclr"), ("digits-mclr",)
QUICK_METHODS = ("fedavg", "ditto", "mh-released", "local")
ROUNDS, SEEDS = 60, 2  # of a trial
VALIDATION = 0.2
TITLE = f"everyone tuned on validation, {TRIALS} trials each"


@dataclass(frozen=True)
class Tried:
    """What came of the trials of a row on a task."""

    row: Row
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate | None:
        """What is chosen; None if all diverged."""
        return choose(self.candidates)

    @property
    def at_end(self) -> str:
        """Whether the chosen step size is the least or the largest that was tried."""
        key = AXES[self.row.method][0].keys[0]
        return "" if self.best is None else ends(self.best.setting, [c.setting for c in self.candidates]).get(key, "")


def sweeps(task: PaperTask, row: Row, quick: bool) -> Iterator[tuple[dict[str, Any], Sweep]]:
    """The trials of a row: a sweep for each value of keys that take the same value, and that value."""
    from fedprior.study.sweep import open_sweep

    rounds = QUICK_ROUNDS if quick else ROUNDS
    own = {key: value for key, value in row.changes.items() if key != "score_fine_tuned"}
    shared = {"rounds": rounds, "validation": VALIDATION, "metrics": [], "name": task.name, **task.settings, **own}
    tied = [key for axis in AXES[row.method] if len(axis.keys) > 1 for key in axis.keys]
    settings = trials(row.method)
    for fixed in unique({key: setting[key] for key in tied} for setting in settings):
        grid = [
            f"{key}={','.join(map(format_value, dict.fromkeys(setting[key] for setting in settings)))}"
            for key in settings[0]
            if key not in tied
        ]
        yield fixed, open_sweep(task.base, [row.method], grid, SEEDS, {**shared, **fixed})


def unique(settings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each of them once, in their order.

    >>> unique([{"alpha": 0.1}, {"alpha": 0.3}, {"alpha": 0.1}])
    [{'alpha': 0.1}, {'alpha': 0.3}]
    """
    return [dict(pairs) for pairs in dict.fromkeys(tuple(setting.items()) for setting in settings)]


class Tuned(Artefact):
    """All methods, each at what did best on validation samples."""

    name = "table1"
    about = "all methods, everyone tuned on validation"
    where = Table1.where

    def __init__(self) -> None:
        super().__init__()
        self._tried: dict[tuple[str, str], Tried] = {}  # by the names of the task and of the row that is trained
        self.left_out: list[str] = []  # rows that tasks do not allow, and why; known once the trials are planned
        self._allowed: dict[str, set[str]] = {}  # rows that a task's model allows, by the task's name

    def plan(self, request: Request, cells: Path) -> Plan:
        """How the trials stand. A setting that diverged with one seed is not tried with the others."""
        found = list[PlannedCell]()
        for task, rows in self._rows(request):
            for row in rows:
                for fixed, sweep in sweeps(task, row, request.quick):
                    planned = plan([sweep], cells).cells
                    over = {cell.variant for cell in planned if cell.status == Status.DIVERGED}
                    left = [cell for cell in planned if cell.variant not in over or cell.status == Status.DIVERGED]
                    found += [replace(cell, variant=f"{_called(row, fixed)} {cell.variant}") for cell in left]
        return Plan(tuple(found))

    def prepare(
        self,
        request: Request,
        cells: Path,
        *,
        watch: CellWatch,
        warn: Callable[[str], None],
        should_stop: Callable[[], bool] = lambda: False,
        command: str | None = None,
    ) -> bool:
        """Make the trials that are not there yet; False if it was stopped."""
        for task, rows in self._rows(request):
            for row in rows:
                candidates = list[Candidate]()
                for fixed, sweep in sweeps(task, row, request.quick):
                    called = _called(row, fixed)

                    def seen(cell: Cell, progress: Any, called: str = called) -> None:
                        watch(cell._replace(variant=f"{called} {cell.variant}"), progress)

                    if not sweep.try_all(cells, watch=seen, warn=warn, should_stop=should_stop, command=command):
                        return False
                    candidates += [replace(c, setting={**fixed, **c.setting}) for c in sweep.outcomes(row.method)]
                    close(sweep)
                self._tried[task.name, row.variant] = Tried(row, tuple(candidates))
        return True

    def studies(self, request: Request) -> list[Study]:
        """Every row at what was chosen for it."""
        found: list[Study] = []
        for task, rows in self._rows(request):
            chosen = [(row, self._tried[task.name, row.variant].best) for row in rows]
            at_best = [
                replace(row, changes={**row.changes, **best.setting}) for row, best in chosen if best is not None
            ]
            found += request.studies(task, at_best)
        return found

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """The table at the last round and at the best on test, what was chosen, and a line for each number."""
        tasks, rows = self._tasks(request), _wanted(request)
        cells = entries(results, tasks, rows, {})
        matrix = Matrix(f"test accuracy (%), {TITLE}", cells, tasks, rows, {}, ())
        notes = (
            "G: the global model, P: the personal ones, each on own test samples, weighted by samples",
            f"trials: {ROUNDS if not request.quick else QUICK_ROUNDS} rounds, {SEEDS} seeds, the last round counts",
            "+FT: at the settings of the row without it",
        )
        tables = [matrix.table(choice, notes) for choice in (LAST, BEST)]
        paths = write_tables(folder, self.name, tables)
        paths += write_tables(folder, f"{self.name}-chosen", [self._chosen(request)])
        return [*paths, write_cells(folder, cells.values())]

    def _chosen(self, request: Request) -> Table:
        body = []
        for task, rows in self._rows(request):
            for row in rows:
                tried = self._tried[task.name, row.variant]
                best, lost = tried.best, sum(c.diverged is not None for c in tried.candidates)
                setting = {} if best is None else best.setting
                texts = ", ".join(f"{key} = {format_value(value)}" for key, value in setting.items())
                score = shown_number(None if best is None else best.score())
                body.append((task.name, row.label, texts or "all diverged", score, tried.at_end or "-", str(lost)))
        return Table(
            f"what was chosen: {TITLE}",
            "validation: accuracy (%) of the personal models on validation samples, ± standard deviation over seeds; at an "
            f"end: whether the step size is the least or the largest that was tried; diverged: how many of {TRIALS} trials",
            ("task", "row", "chosen", "validation", "step at an end", "diverged"),
            tuple(body),
            left=3,
        )

    def _tasks(self, request: Request) -> list[PaperTask]:
        return [replace(task, coherence=False) for task in request.tasks_of(OWN, QUICK)]

    def _rows(self, request: Request) -> Iterator[tuple[PaperTask, Sequence[Row]]]:
        """The rows that are trained on each task; +FT is another model of one of them."""
        wanted = _wanted(request)
        for task in self._tasks(request):
            if task.name not in self._allowed:
                studies = request.studies(task, wanted)
                programs = [program for study in studies for program in study.programs]
                self.left_out += left_out(studies)
                self._allowed[task.name] = {program.variant.name for program in programs}
            trained = {row.variant: row for row in reversed(wanted) if row.variant in self._allowed[task.name]}
            yield task, [row for row in wanted if row is trained.get(row.variant)]


def _wanted(request: Request) -> list[Row]:
    """All rows; with ``--quick``, a few unless they are named, since each takes a compilation or more of its trials."""
    few = [row for row in ROWS if row.method in QUICK_METHODS and "AM" not in row.label]
    return request.rows_of(few if request.quick and request.methods is None else ROWS)


def _called(row: Row, fixed: dict[str, Any]) -> str:
    """A row and the values of a sweep that its own names leave out."""
    return " ".join([row.variant, *(f"{key}={format_value(value)}" for key, value in fixed.items())])

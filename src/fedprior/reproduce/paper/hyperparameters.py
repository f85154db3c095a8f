"""The paper's figures of lambda and eta (914-980), and what its Limitations say of doubled steps (534).

The accuracy of mh's global and personal models on each client's own test samples, at the last round of short runs: 5 x 5
values for linear models, 3 x 3 for networks with one hidden layer, eta alone for the CNN, as in the paper, and for the LSTM,
where the paper also varies lambda (916). The paper tells the ranges of its axes and neither the values nor the rounds; these
values are ours, from end to end of its ranges.
At lambda = 0 nothing pulls theta towards the prior, and w_i moves only where a loss gradient overwrites it, as in the
released mh; in the paper's order, the global model stays where it began.

Doubled: lg with twice its eta_alpha, from the paper's 0.01 and from the 0.05 of the released code, and meg with twice its
eta, beside lg, meg and mh, at the budget of the table of all methods, whose cells they share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedprior.report.tables import Table
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.drawing import write_captioned
from fedprior.reproduce.paper.grid_pictures import heat_maps, parallel_coordinates
from fedprior.reproduce.paper.numbers import BEST, LAST, Entry, Runs, entries, entry, mean_of, runs_by_cell
from fedprior.reproduce.paper.rows import GLOBAL, LG, MEG, MH, MH_PAPER, PERSONAL, Row
from fedprior.reproduce.paper.tasks import COLUMNS, SMALL, PaperTask
from fedprior.reproduce.paper.writing import budget_note, shown, shown_cell, write_cells, write_tables

if TYPE_CHECKING:
    from fedprior.study.results import Results
    from fedprior.study.study import Study


@dataclass(frozen=True)
class Grid:
    """What is tried on a task; without values of lambda, it stays the task's own."""

    rounds: int
    eta: tuple[float, ...]
    lam: tuple[float, ...] = ()

    def settings(self) -> Iterator[dict[str, float]]:
        """Every combination."""
        for lam in self.lam or (None,):
            for eta in self.eta:
                yield {**({} if lam is None else {"lam": lam}), "eta": eta}


LAMBDAS, ETAS = (0.0, 15.0, 30.0, 60.0, 100.0), (0.0, 0.05, 0.2, 0.5, 1.0)
FEW_LAMBDAS, FEW_ETAS = (0.0, 30.0, 100.0), (0.0, 0.05, 1.0)
LINEAR, NETWORK = Grid(60, ETAS, LAMBDAS), Grid(60, FEW_ETAS, FEW_LAMBDAS)
GRIDS = {  # by the shipped task
    "femnist-mclr": replace(LINEAR, rounds=100),
    "femnist-dnn": replace(NETWORK, rounds=100),
    "fmnist-mclr": LINEAR,
    "fmnist-dnn": NETWORK,
    "mnist-mclr": LINEAR,
    "mnist-dnn": NETWORK,
    "cifar10-cnn": Grid(40, (0.0, 0.05, 0.1, 0.25, 0.5)),
    "sent140-lstm": Grid(5, (0.0, 0.05, 0.1, 0.2, 0.4)),
    "digits-mclr": Grid(20, (0.0, 1.0), (0.0, 15.0)),
    "digits-dnn": Grid(20, (0.0, 0.5)),
}
DOUBLED = (
    *(
        Row(f"lg, eta_alpha = {value}", f"lg-released eta_alpha={value}", LG.method, {"eta_alpha": value})
        for value in (0.01, 0.02)  # the paper's, and twice that
    ),
    replace(LG, label="lg, eta_alpha = 0.05 (released)"),
    Row("lg, eta_alpha = 0.1", "lg-released eta_alpha=0.1", LG.method, {"eta_alpha": 0.1}),
    replace(MEG, label="meg, eta = 0.05"),
    Row("meg, eta = 0.1", "meg-released eta=0.1", MEG.method, {"eta": 0.1}),
    MH,
)
MODELS = (GLOBAL, PERSONAL)


def gridded(task: PaperTask) -> PaperTask:
    """The task of the cells of a grid, which are short and of one seed."""
    return replace(task, name=f"{task.name}-grid", rounds=GRIDS[task.base].rounds, seeds=1, fewer_seeds={})


def variant(row: Row, setting: dict[str, float]) -> Row:
    """The row at one setting."""
    text = " ".join(f"{key}={value:g}" for key, value in setting.items())
    return replace(row, label=f"{row.label}, {text}", variant=f"{row.variant} {text}", changes=setting)


@dataclass(frozen=True)
class Tried:
    """A setting and the accuracy of both models; None where it diverged."""

    setting: dict[str, float]
    cells: dict[str, Entry | None]  # by model

    def accuracy(self, model: str) -> float | None:
        """At the last round."""
        cell = self.cells[model]
        return mean_of(cell, LAST)


class Hyperparameters(Artefact):
    """Accuracy against lambda and eta."""

    name = "hyperparameters"
    about = "the accuracy of mh's global and personal models against lambda and eta, and what doubled steps do"
    where = "appendix, figures of lambda and eta; Limitations"

    def studies(self, request: Request) -> list[Study]:
        """The grids, and the rows with doubled steps."""
        found: list[Study] = []
        for task in self._tasks(request):
            rows = [variant(row, setting) for row in self._rows(request) for setting in GRIDS[task.base].settings()]
            found += replace(request, methods=None).studies(gridded(task), rows)
        for task in self._doubled_tasks(request):
            found += request.studies(task, DOUBLED)
        return found

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """Pictures of each grid, how far accuracy varies along each axis, and the table of doubled steps."""
        by_cell, paths, tables, cells = runs_by_cell(results), list[Path](), list[Table](), list[Entry]()
        for row in self._rows(request):
            sensitive, of_row = list[tuple[str, ...]](), list[Entry]()
            for task in self._tasks(request):
                tried = _tried(by_cell, task, row)
                of_row += [cell for one in tried for cell in one.cells.values() if cell is not None]
                for kind, figure in (("parallel", parallel_coordinates), ("heat", heat_maps)):
                    stem = f"{self.name}-{kind}-{task.name}" + ("" if row is MH else "-paper-order")
                    drawn = figure(task.column, tried, MODELS)
                    paths += write_captioned(folder, stem, drawn, _caption(task, row, tried), self.name, request)
                sensitive += sensitivity(task, tried)
            tables.append(_sensitivity_table(row, sensitive, of_row))
            cells += of_row
        doubled = [self._doubled(results, task) for task in self._doubled_tasks(request)]
        cells += [cell for line in doubled for cell in line]
        paths += write_tables(folder, self.name, tables)
        paths += write_tables(folder, f"{self.name}-doubled", [_doubled_table(doubled)]) if doubled else []
        return [*paths, write_cells(folder, cells)]

    def _tasks(self, request: Request) -> list[PaperTask]:
        return [task for task in request.tasks_of(COLUMNS, quick=("digits-mclr",)) if task.base in GRIDS]

    def _doubled_tasks(self, request: Request) -> list[PaperTask]:
        """Where further rows are affordable."""
        return [task for task in self._tasks(request) if SMALL in task.scope and request.methods is None]

    def _rows(self, request: Request) -> list[Row]:
        return request.rows_of((MH,) if request.methods is None else (MH, MH_PAPER))

    def _doubled(self, results: Results, task: PaperTask) -> list[Entry]:
        return list(entries(results, [task], [replace(row, model=PERSONAL) for row in DOUBLED], {}).values())


def _tried(by_cell: Mapping[tuple[str, str], Runs], task: PaperTask, row: Row) -> list[Tried]:
    """What came of each setting of a task's grid."""
    short, found = gridded(task), list[Tried]()
    for setting in GRIDS[task.base].settings():
        varied = variant(row, setting)
        runs = by_cell.get((short.name, varied.variant))
        each = {model: entry(short, varied.label, runs, model) if runs else None for model in MODELS}
        found.append(Tried(setting, each))
    return found


def sensitivity(task: PaperTask, tried: Sequence[Tried]) -> list[tuple[str, ...]]:
    """For each model: the lowest and highest accuracy, and the widest range along one axis with the other held."""
    lines = list[tuple[str, ...]]()
    for model in MODELS:
        known = {tuple(one.setting.items()): value for one in tried if (value := one.accuracy(model)) is not None}
        along = {key: widest_range(known, key) for key in ("lam", "eta")}
        low, high = (min(known.values()), max(known.values())) if known else (None, None)
        lost = sum(one.accuracy(model) is None for one in tried)
        ranges = (shown(along["lam"]), shown(along["eta"]))
        lines.append((task.column, "G" if model == GLOBAL else "P", shown(low), shown(high), *ranges, str(lost)))
    return lines


def widest_range(values: dict[tuple[tuple[str, float], ...], float], key: str) -> float | None:
    """The largest difference between two settings that differ in ``key`` alone; None if it was not varied.

    >>> at = lambda lam, eta: (("lam", lam), ("eta", eta))
    >>> widest_range({at(1, 0): 50.0, at(1, 1): 53.0, at(2, 0): 60.0, at(2, 1): 59.0}, "eta")
    3.0
    """
    groups: dict[tuple[tuple[str, float], ...], list[float]] = {}
    for setting, value in values.items():
        if any(name == key for name, _ in setting):
            groups.setdefault(tuple(pair for pair in setting if pair[0] != key), []).append(value)
    ranges = [float(np.ptp(group)) for group in groups.values() if len(group) > 1]
    return max(ranges, default=None)


def _sensitivity_table(row: Row, lines: list[tuple[str, ...]], cells: Sequence[Entry]) -> Table:
    return Table(
        f"{row.label}: how far accuracy (%) varies with lambda and eta, last round of short runs",
        "widest: the largest difference between two settings that differ in that one alone; own test samples, weighted; "
        + budget_note(cells),
        ("task", "model", "lowest", "highest", "widest along lambda", "widest along eta", "diverged"),
        tuple(lines),
    )


def _doubled_table(by_task: Sequence[Sequence[Entry]]) -> Table:
    body = tuple(
        (cell.task, cell.row, shown_cell(cell, LAST), shown_cell(cell, BEST)) for line in by_task for cell in line
    )
    every = [cell for line in by_task for cell in line]
    return Table(
        "doubled steps: accuracy (%) of the personal models on own test samples",
        "the paper: doubling eta_alpha (there 0.01) in lg or eta (0.05) in meg does not improve performance; "
        + budget_note(every),
        ("task", "row", "last round", "best on test"),
        body,
    )


def _caption(task: PaperTask, row: Row, tried: Sequence[Tried]) -> str:
    told = []
    for model in MODELS:
        known = [(value, one.setting) for one in tried if (value := one.accuracy(model)) is not None]
        if known:
            low, high = min(known, key=lambda pair: pair[0]), max(known, key=lambda pair: pair[0])
            words = [
                f"{value:.2f} % at " + ", ".join(f"{k} = {v:g}" for k, v in setting.items())
                for value, setting in (low, high)
            ]
            told.append(f"the {model} model from {words[0]} to {words[1]}")
    every = [cell for one in tried for cell in one.cells.values() if cell is not None]
    return (
        f"Accuracy of {row.label} on {task.column} (each client's own test samples, weighted by samples, at the last round) "
        f"for {len(tried)} settings of {_varied(task)}: {'; '.join(told)}. {budget_note(every)}."
    )


def _varied(task: PaperTask) -> str:
    """Which of lambda and eta a task's grid varies, and whether the paper's figure does so too."""
    if GRIDS[task.base].lam:
        return "lambda (lam) and eta"
    return "eta" + (", where the paper varies lambda too (from 0 to 100)" if task.base == "sent140-lstm" else "")

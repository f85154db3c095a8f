"""The paper's main table (365): all methods on all tasks, at published settings.

Rows and tasks that the paper lacks stand beside its own. The settings are the paper's where it tells them; what it does not
tell of a baseline is as that baseline's own paper or code has it (`fedprior methods NAME` says which): FedAMP takes
lambda = 1, say, pFedBayes step sizes of 0.001, and Ditto lambda = 1. What is known to differ is told in the table's notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedprior.report.tables import Table
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.matrix import Matrix
from fedprior.reproduce.paper.numbers import BEST, LAST, Entries, Entry, entries
from fedprior.reproduce.paper.published import published
from fedprior.reproduce.paper.rows import BESIDE as ROWS_BESIDE
from fedprior.reproduce.paper.rows import PAPER, ROWS, Row
from fedprior.reproduce.paper.tasks import BESIDE, COLUMNS, PaperTask
from fedprior.reproduce.paper.writing import BLANK, budget_note, write_cells, write_figure, write_tables

if TYPE_CHECKING:
    from fedprior.study.results import Results
    from fedprior.study.study import Study

NOTES = (
    "settings: the paper's, and each baseline's own published ones where it tells none",
    "G: the global model, P: the personal ones, each on own test samples, weighted by samples",
    "FedEM, which the paper marks G, predicts with each client's own mixture",
    "pFedMe and mh without further words: in the order of the released code",
    "Per-FedAvg adapts by one step, as the released code does (the paper's text: two)",
    "FedAMP takes one step on each batch (K = 1; the order of its time in the paper implies 5)",
    "MNIST without further words: with the label error of the released generator (4.56 % of all labels)",
)


def gap(cell: Entry | None) -> float | None:
    """By how many points a measured number, of the best round on test, is above the published one."""
    if cell is None or cell.published is None or cell.best is None:
        return None
    return cell.best["mean"] - cell.published


def gaps(cells: Entries, tasks: Sequence[PaperTask], rows: Sequence[Row]) -> Table:
    """The gaps of all numbers that the paper prints."""
    by_task = [(task, [gap(cells.get((task.name, row.label))) for row in rows]) for task in tasks]
    by_task = [(task, column) for task, column in by_task if any(value is not None for value in column)]
    body = [
        (row.label, *(BLANK if value is None else f"{value:+.2f}" for value in line))
        for row, line in zip(rows, zip(*(column for _, column in by_task), strict=True), strict=True)
        if any(value is not None for value in line)
    ]
    sizes = [[abs(value) for value in column if value is not None] for _, column in by_task]
    body.append(("mean of the sizes", *(f"{sum(of) / len(of):.2f}" for of in sizes)))
    return Table(
        "measured minus published",
        "points of accuracy, best round on test, as the paper reports; " + budget_note(cells.values()),
        ("method", *(task.column for task, _ in by_task)),
        tuple(body),
        left=1,
    )


class Table1(Artefact):
    """All methods on all tasks."""

    name = "table1"
    about = "all methods on all tasks, with their learning curves"
    where = "table 1"

    def studies(self, request: Request) -> list[Study]:
        """Every row on every task, as far as the budget goes."""
        found: list[Study] = []
        for task in request.tasks_of((*COLUMNS, *BESIDE)):
            found += request.studies(task, self._rows(request))
        return found

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """The table at the last round and at the best on test, and the learning curves of each task."""
        from fedprior.report.figures import learning_curves

        tasks, rows, paper = request.tasks_of((*COLUMNS, *BESIDE)), self._rows(request), published(self.name)
        cells = entries(results, tasks, rows, paper)
        matrix = Matrix("test accuracy (%) at published settings", cells, tasks, rows, paper)
        paths = write_tables(folder, self.name, [matrix.table(choice, NOTES) for choice in (LAST, BEST)])
        if any(gap(cell) is not None for cell in cells.values()):
            paths += write_tables(folder, f"{self.name}-gaps", [gaps(cells, tasks, rows)])
        for name, variants in results.groups().items():
            paths += write_figure(folder, f"curves-{name}", learning_curves(name, variants))
        return [*paths, write_cells(folder, cells.values())]

    def _rows(self, request: Request) -> list[Row]:
        """All rows; with ``--quick``, the further methods only if they are named."""
        return request.rows_of((*PAPER, *ROWS_BESIDE) if request.quick and request.methods is None else ROWS)

"""The paper's table of aggregation noise (457): the global model of mh on the global test against S.

"All hyper-parameters except for the aggregation ratios are fixed", but "random selected in a narrow range with Gaussian
variance of 0.01" (1030): the paper jitters them, and does not say which or how; here they are what they are elsewhere.
FEMNIST has 105 writers here and 198 there, so that the same S is a larger share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedprior.report.tables import Table
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.matrix import WHICH
from fedprior.reproduce.paper.numbers import BEST, LAST, Entry, entry, mean_of, runs_by_cell, statistics
from fedprior.reproduce.paper.published import published
from fedprior.reproduce.paper.rows import GLOBAL, MH, MH_PAPER, Row
from fedprior.reproduce.paper.tasks import QUICK, PaperTask
from fedprior.reproduce.paper.writing import budget_note, differences, shown, shown_cell, write_cells, write_tables

if TYPE_CHECKING:
    from fedprior.study.results import Results
    from fedprior.study.study import Study

NUMBERS, QUICK_NUMBERS = (10, 20, 50, 100), (2, 4, 10, 20)  # S
Line = list[Entry | None]
OWN = ("femnist-dnn", "femnist-mclr", "fmnist-dnn", "fmnist-mclr")


def with_aggregated(row: Row, task: PaperTask, s: int) -> Row:
    """The row with another S; with the task's own S it is the row of the other tables, and their cells are reused."""
    if s == task.aggregated:
        return row
    changes = {key: value for key, value in row.changes.items() if key != "score_fine_tuned"}  # no table has FT with it
    return replace(row, variant=f"{row.variant} S={s}", changes={**changes, "aggregated": s})


def numbers_of(task: PaperTask) -> tuple[int, ...]:
    """The S that are tried; the digits have 20 clients."""
    return QUICK_NUMBERS if task.base in QUICK else NUMBERS


class Aggregation(Artefact):
    """Accuracy against the number of clients that are aggregated."""

    name = "aggregation"
    about = "the global model of mh on the global test, against the number of clients that are aggregated"
    where = "table 3; appendix"

    def studies(self, request: Request) -> list[Study]:
        """mh on each task with each S."""
        found: list[Study] = []
        for task in request.tasks_of(OWN):
            rows = [varied for row in self._rows(request) for _, varied in self._by_number(task, row)]
            found += request.studies(task, rows)
        return found

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """A table for each order of mh, at the last round and at the best on test."""
        cells, tables = list[Entry](), list[Table]()
        for row in self._rows(request):
            by_numbers: dict[tuple[int, ...], dict[str, Line]] = {}
            for task in request.tasks_of(OWN):
                by_numbers.setdefault(numbers_of(task), {})[task.name] = self._line(results, task, row)
            for numbers, lines in by_numbers.items():
                cells += [cell for line in lines.values() for cell in line if cell is not None]
                tables += [self._table(row, numbers, lines, choice, request) for choice in (LAST, BEST)]
        return [*write_tables(folder, self.name, tables), write_cells(folder, cells)]

    def _line(self, results: Results, task: PaperTask, row: Row) -> Line:
        """The cells of a task, one for each S."""
        by_cell = runs_by_cell(results)
        printed = published(self.name).get(task.name) if row is MH else None
        line: Line = []
        for s, varied in self._by_number(task, row):
            value = printed.values.get(str(s)) if printed else None
            runs = by_cell.get((task.name, varied.variant))
            line.append(entry(task, f"{row.label}, S = {s}", runs, GLOBAL, value, data="pooled") if runs else None)
        return line

    def _rows(self, request: Request) -> list[Row]:
        return request.rows_of((MH,) if request.methods is None else (MH, MH_PAPER))

    def _by_number(self, task: PaperTask, row: Row) -> Iterator[tuple[int, Row]]:
        for s in numbers_of(task):
            yield s, with_aggregated(row, task, s)

    def _table(self, row: Row, tried: tuple[int, ...], lines: dict[str, Line], choice: str, request: Request) -> Table:
        best = choice == BEST
        body = []
        for task, line in lines.items():
            spread = statistics([mean_of(cell, choice) for cell in line])
            measured = [*(shown_cell(cell, choice) for cell in line), shown(spread.std if spread else None)]
            body.append((task, "measured", *measured))
            if best and any(cell is not None and cell.published is not None for cell in line):
                printed = published(self.name)[task]
                paper = [shown(cell.published if cell else None, 1) for cell in line]
                body.append((task, "paper", *paper, shown(printed.statistics["Std"], 1)))
        tasks = [task for task in request.tasks_of(OWN) if task.name in lines]
        every = [cell for line in lines.values() for cell in line if cell is not None]
        return Table(
            f"{row.label}: accuracy (%) of the global model on the global test against S, {WHICH[choice]}",
            "; ".join(
                ["± standard deviation over seeds; Std: over S (n - 1)", *differences(tasks), budget_note(every)]
            ),
            ("task", "", *(f"S = {s}" for s in tried), "Std"),
            tuple(body),
        )

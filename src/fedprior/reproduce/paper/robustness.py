"""The paper's table of further baselines (1066): personal models where half as many clients are aggregated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedprior.report.tables import Table
from fedprior.reproduce.paper.aggregation import with_aggregated
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.matrix import WHICH
from fedprior.reproduce.paper.numbers import BEST, LAST, Entry, entry, mean_of, runs_by_cell, statistics
from fedprior.reproduce.paper.published import published
from fedprior.reproduce.paper.rows import DITTO, FEDFOMO, FEDPAC, LOCAL, MH, PFEDHN, Row
from fedprior.reproduce.paper.tasks import PaperTask
from fedprior.reproduce.paper.writing import budget_note, differences, shown, shown_cell, write_cells, write_tables

if TYPE_CHECKING:
    from fedprior.study.results import Results
    from fedprior.study.study import Study

OWN, QUICK = ("femnist-dnn", "cifar10-cnn", "sent140-lstm"), ("digits-dnn",)
ROWS = (*(replace(row, printed=row.label) for row in (FEDPAC, PFEDHN, FEDFOMO, DITTO, MH)), LOCAL)
Pair = tuple[Entry | None, Entry | None]  # with the task's S, and with half of it


def halved(row: Row, task: PaperTask) -> Row:
    """The row with half the aggregated clients; Local aggregates none, and is what it is."""
    return row if row.method == LOCAL.method else with_aggregated(row, task, task.aggregated // 2)


def decrease(before: float | None, after: float | None) -> float | None:
    """By how many points a number falls.

    >>> decrease(64.0, 63.5)
    0.5
    """
    return None if before is None or after is None else before - after


class Robustness(Artefact):
    """Accuracy with half the aggregated clients."""

    name = "robustness"
    about = "personal models where half as many clients are aggregated, for FedPAC, pFedHN, FedFomo, Ditto and mh"
    where = "appendix, table of further baselines"

    def studies(self, request: Request) -> list[Study]:
        """Every row with S and with half of it."""
        found: list[Study] = []
        for task in request.tasks_of(OWN, QUICK):
            rows = [varied for row in request.rows_of(ROWS) for varied in (row, halved(row, task))]
            found += request.studies(task, rows, all_rows=True)
        return found

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """The table at the last round and at the best on test."""
        tasks, rows, by_cell = request.tasks_of(OWN, QUICK), request.rows_of(ROWS), runs_by_cell(results)
        pairs: dict[tuple[str, str], Pair] = {}
        for task in tasks:
            for row in rows:
                paper = published(self.name).get(row.printed or "")
                found: list[Entry | None] = []
                for column, varied in ((task.name, row), (f"{task.name} half", halved(row, task))):
                    runs = by_cell.get((task.name, varied.variant))
                    value = paper.values.get(column) if paper else None
                    s = varied.changes.get("aggregated", task.aggregated)
                    found.append(entry(task, f"{row.label}, S = {s}", runs, row.model, value) if runs else None)
                pairs[task.name, row.label] = (found[0], found[1])
        tables = [self._table(tasks, rows, pairs, choice) for choice in (LAST, BEST)]
        every = {(cell.task, cell.row): cell for pair in pairs.values() for cell in pair if cell is not None}
        return [*write_tables(folder, self.name, tables), write_cells(folder, every.values())]

    def _table(
        self, tasks: list[PaperTask], rows: list[Row], pairs: Mapping[tuple[str, str], Pair], choice: str
    ) -> Table:
        body, every = [], []
        for row in rows:
            texts, falls, paper_falls = list[str](), list[float | None](), list[float | None]()
            paper_texts: list[str] = []
            for task in tasks:
                pair = pairs[task.name, row.label]
                every += [cell for cell in pair if cell is not None]
                texts.append(" → ".join(shown_cell(cell, choice) for cell in pair))
                falls.append(decrease(*(mean_of(cell, choice) for cell in pair)))
                printed = [None if cell is None else cell.published for cell in pair]
                paper_texts.append(" → ".join(shown(x, 1) for x in printed))
                paper_falls.append(decrease(*printed))
            body.append((row.label, "measured", *texts, _average(falls)))
            if choice == BEST and any(fall is not None for fall in paper_falls):
                body.append((row.label, "paper", *paper_texts, _average(paper_falls, 1)))
        heads = (f"{task.column}, S = {task.aggregated} → {task.aggregated // 2}" for task in tasks)
        return Table(
            f"accuracy (%) of personal models on own test samples with S and with half of it, {WHICH[choice]}",
            "; ".join(
                [
                    "± standard deviation over seeds; Local aggregates nobody; average decrease: over the tasks, in points",
                    *differences(tasks),
                    budget_note(every),
                ]
            ),
            ("method", "", *heads, "average decrease"),
            tuple(body),
        )


def _average(falls: list[float | None], decimals: int = 2) -> str:
    found = statistics(falls)
    return shown(found.average if found else None, decimals)

"""A table of rows against tasks, with the statistics over tasks that the paper gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fedprior.report.tables import Column, Table
from fedprior.reproduce.paper.numbers import BEST, Entries, Statistics, mean_of, statistics
from fedprior.reproduce.paper.published import Printed
from fedprior.reproduce.paper.rows import Row
from fedprior.reproduce.paper.tasks import COLUMNS, TASKS, PaperTask
from fedprior.reproduce.paper.writing import BLANK, budget_note, differences, shown, shown_cell

WHICH = {"last": "last round", BEST: "best round on test, as the paper reports (optimistic: the test chose it)"}
PAPERS = "[ ]: the paper's, whose ± is the largest deviation of a run"
OVER_TASKS = "Avg and Std: over the paper's tasks (n - 1), H: over the hard ones, where a row has all of them"
ARROWS = {"up": " ↑", "down": " ↓"}
STATISTICS = {
    "Avg": ("all", "average"),
    "Std": ("all", "std"),
    "H.Avg": ("hard", "average"),
    "H.Std": ("hard", "std"),
}


def counted(tasks: Sequence[PaperTask]) -> tuple[list[str], list[str]]:
    """The tasks over which Avg is taken, and the hard ones among them: all of the paper's, wherever one of them is shown."""
    paper = any(task.name in COLUMNS for task in tasks)
    over = [TASKS.find(name) for name in COLUMNS] if paper else tasks
    return [task.name for task in over], [task.name for task in over if task.hard]


def row_statistics(cells: Entries, row: Row, tasks: Sequence[PaperTask], choice: str) -> dict[str, Statistics | None]:
    """Over all tasks and over the hard ones; None where the row lacks one."""
    every, hard = counted(tasks)

    def over(names: Iterable[str]) -> Statistics | None:
        return statistics([mean_of(cells.get((name, row.label)), choice) for name in names])

    return {"all": over(every), "hard": over(hard)}


@dataclass(frozen=True)
class Matrix:
    """Rows against tasks: what a table is made of."""

    title: str
    cells: Entries
    tasks: Sequence[PaperTask]
    rows: Sequence[Row]
    printed: Mapping[str, Printed]
    shown_statistics: Sequence[str] = tuple(STATISTICS)
    printed_decimals: int = 2  # of the paper's numbers
    against: str | None = None  # the row from which the others differ upwards or downwards
    more: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # further columns: heading -> row -> text

    def table(self, choice: str, notes: Sequence[str] = ()) -> Table:
        """The table at a choice of the round; the paper's values stand in brackets, and only beside the best on test."""
        rows = [row for row in self.rows if any((task.name, row.label) in self.cells for task in self.tasks)]
        every, _ = counted(self.tasks)
        first = [task for task in self.tasks if task.name in every]
        beside = [task for task in self.tasks if task.name not in every]
        head = (
            "method",
            "model",
            *(t.column for t in first),
            *self.shown_statistics,
            *(t.column for t in beside),
            *self.more,
        )
        body, values = [], []
        for row in rows:
            over = row_statistics(self.cells, row, self.tasks, choice)
            means = [mean_of(self.cells.get((t.name, row.label)), choice) for t in (*first, *beside)]
            found = [_statistic(over, name) for name in self.shown_statistics]
            texts = [self._cell(task, row, choice) for task in first]
            more = [self._cell(task, row, choice) for task in beside]
            numbers = [self._statistic(row, name, x, choice) for name, x in found]
            further = [column.get(row.label, BLANK) for column in self.more.values()]
            body.append((row.label, row.letter, *texts, *numbers, *more, *further))
            n = len(first)
            values.append((None, None, *means[:n], *(x for _, x in found), *means[n:], *[None] * len(self.more)))
        better = ["", "", *["higher"] * len(first)]
        better += ["" if name.endswith("Std") else "higher" for name in self.shown_statistics]
        better += ["higher"] * len(beside) + [""] * len(self.more)
        kept = [cell for (_, label), cell in self.cells.items() if label in {row.label for row in rows}]
        about = [
            "± standard deviation over seeds",
            *([PAPERS] if choice == BEST and self._has_paper else []),
            *([OVER_TASKS] if self.shown_statistics else []),
            *notes,
            *differences(self.tasks),
            budget_note(kept),
        ]
        return Table(
            f"{self.title}, {WHICH[choice]}",
            "; ".join(about),
            head,
            tuple(body),
            remarks=len(self.more),
            columns=tuple(Column(name, of) for name, of in zip(head, better, strict=True)),
            values=tuple(values),
            kinds=(frozenset({"all"}),) * len(body),
            label=f"{self.title}-{choice}",
        )

    @property
    def _has_paper(self) -> bool:
        return any(cell.published is not None for cell in self.cells.values())

    def _cell(self, task: PaperTask, row: Row, choice: str) -> str:
        cell = self.cells.get((task.name, row.label))
        compared = self.against is not None and row.label != self.against
        other = self.cells.get((task.name, self.against or "")) if compared else None
        text = shown_cell(cell, choice) + arrow(mean_of(cell, choice), mean_of(other, choice))
        if choice == BEST and cell is not None and cell.published is not None:
            spread = "" if cell.plus_minus is None else f" ± {cell.plus_minus:.2f}"
            text += f" [{shown(cell.published, self.printed_decimals)}{spread}{self._printed_arrow(row, task.name)}]"
        return text

    def _printed_arrow(self, row: Row, column: str) -> str:
        """The paper's own arrow; it follows from numbers with more decimals than the paper prints."""
        printed = self.printed.get(row.printed or "")
        return ARROWS.get(printed.arrows.get(column, ""), "") if printed and self.against else ""

    def _statistic(self, row: Row, name: str, value: float | None, choice: str) -> str:
        """A statistic, with the paper's where both are over the same tasks."""
        other = next((one for one in self.rows if one.label == self.against and one is not row), None)
        than = None if other is None else _statistic(row_statistics(self.cells, other, self.tasks, choice), name)[1]
        text = shown(value) + arrow(value, than)
        printed = self.printed.get(row.printed or "")
        if value is None or choice != BEST or printed is None or not set(COLUMNS) <= {t.name for t in self.tasks}:
            return text
        return f"{text} [{shown(printed.statistics.get(name), self.printed_decimals)}{self._printed_arrow(row, name)}]"


def arrow(value: float | None, than: float | None) -> str:
    """Whether a value is above or below another one, as the paper draws it.

    >>> arrow(50.8, 50.7), arrow(50.7, 50.8), arrow(1.0, 1.0), arrow(1.0, None)
    (' ↑', ' ↓', '', '')
    """
    if value is None or than is None or value == than:
        return ""
    return " ↑" if value > than else " ↓"


def _statistic(over: Mapping[str, Statistics | None], name: str) -> tuple[str, float | None]:
    whose, what = STATISTICS[name]
    found = over[whose]
    return name, None if found is None else getattr(found, what)

"""How an artefact is written: tables as CSV, Markdown and LaTeX, figures as PNG and PDF, and a line for each cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedprior.analysis.summary import Number
from fedprior.files import write_text
from fedprior.report.tables import Table, render
from fedprior.reproduce.paper.numbers import BEST, LAST, Entry, best_or_last, budget_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedprior.reproduce.paper.tasks import PaperTask

ENDINGS = {"csv": "csv", "markdown": "md", "latex": "tex"}
PICTURES = ("png", "pdf")
BLANK, DIVERGED = "-", "diverged"
FULL = {True: "yes", False: "no", None: budget_words(None)}
CELL = ("task", "row", "metric", "model", "data", "average", "round", "T", "seeds", "diverged", "full_budget")


def write_tables(folder: Path, stem: str, tables: Sequence[Table]) -> list[Path]:
    """Tables of one kind, one below the other, in each format."""
    paths = [folder / f"{stem}.{ending}" for ending in ENDINGS.values()]
    for path, format in zip(paths, ENDINGS, strict=True):
        write_text(path, render(tables, format) + "\n")
    return paths


def write_figure(folder: Path, stem: str, figure: Figure) -> list[Path]:
    """A figure as pixels and as vectors."""
    from fedprior.report.canvas import save

    paths = [folder / f"{stem}.{ending}" for ending in PICTURES]
    for path in paths:
        save(figure, path)
    return paths


def write_cells(folder: Path, entries: Iterable[Entry]) -> Path:
    """A line for each number: what it is, at which budget, and what the paper prints.

    The paper's numbers are best on test, and stand in those lines alone; its ± is the largest deviation of a run, while std
    is the standard deviation over seeds. Seeds that diverged are in no mean.
    """
    body = list[tuple[object, ...]]()
    for cell in entries:
        lost = " ".join(map(str, cell.diverged))
        for choice, number in ((LAST, cell.last), (BEST, cell.best)):
            where = (cell.task, cell.row, "accuracy", cell.model, cell.data, cell.average, choice)
            paper = (cell.published, cell.plus_minus) if choice == BEST else (None, None)
            if number is not None:
                budget = (cell.rounds, " ".join(map(str, number["seeds"])), lost, FULL[cell.full])
                body.append((*where, *budget, number["mean"], number["std"], *paper))
            elif cell.last is None:
                body.append((*where, None, "", lost, FULL[cell.full], None, None, *paper))
    head = (*CELL, "mean", "std", "published", "published_plus_minus")
    write_text(path := folder / "cells.csv", render(Table("", "", head, (), numbers=(head, *body)), "csv") + "\n")
    return path


def shown(value: float | None, decimals: int = 2) -> str:
    """A number as a cell of a table.

    >>> shown(72.046), shown(None)
    ('72.05', '-')
    """
    return BLANK if value is None else f"{value:.{decimals}f}"


def shown_number(number: Number | None, decimals: int = 2) -> str:
    """A mean over seeds with its standard deviation, where there are several.

    >>> shown_number({"mean": 98.441, "std": 0.012, "seeds": [0, 1]}), shown_number(None)
    ('98.44 ± 0.01', '-')
    """
    if number is None:
        return BLANK
    spread = "" if number["std"] is None else f" ± {number['std']:.{decimals}f}"
    return f"{number['mean']:.{decimals}f}{spread}"


def shown_cell(cell: Entry | None, choice: str) -> str:
    """What a cell says at a choice of the round, and with how many seeds the row diverged."""
    if cell is not None and cell.last is None:
        return DIVERGED
    text = shown_number(best_or_last(cell, choice))
    return f"{text} ({len(cell.diverged)} {DIVERGED})" if cell is not None and cell.diverged else text


def differences(tasks: Iterable[PaperTask]) -> list[str]:
    """How the data and models of tasks differ from the paper's."""
    by_text: dict[str, list[str]] = {}
    for task in tasks:
        if task.differs:
            by_text.setdefault(task.differs, []).append(task.name)
    return [f"{', '.join(names)}: {text}" for text, names in by_text.items()]


def budget_note(entries: Iterable[Entry]) -> str:
    """What budgets the cells of a table are of, which are the paper's, and which rows have another one than their task."""
    by_task: dict[str, dict[tuple[int, int, bool | None], list[str]]] = {}
    for cell in entries:
        if cell.last is None:
            continue
        rows = by_task.setdefault(cell.task, {}).setdefault((cell.rounds, len(cell.seeds), cell.full), [])
        rows.append(cell.row)
    budgets: dict[tuple[int, int, bool | None], list[str]] = {}
    for task, own in by_task.items():
        usual = max(own, key=lambda budget: len(own[budget]))
        budgets.setdefault(usual, []).append(task)
        for budget, rows in own.items():
            if budget != usual:
                budgets.setdefault(budget, []).append(f"{', '.join(dict.fromkeys(rows))} on {task}")
    return "; ".join(
        f"T = {rounds}, {seeds} seed{'s' * (seeds > 1)} ({budget_words(full)}): {', '.join(whose)}"
        for (rounds, seeds, full), whose in budgets.items()
    )

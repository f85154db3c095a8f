"""The paper's ablation of the personalized prior (411): without it, with either of its terms, and with both.

Non-PP is pFedMe, in the same order of steps as the rows that it is compared with. AC4PP is what the prior costs in the
paper's words; beside it stand the gradients that were counted. The last rows take mh and lg apart: what is left of mh
without the memory (eta = 0), or where the gradient step moves only the mean and not w; and lg with the step size that the
paper tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.matrix import Matrix
from fedprior.reproduce.paper.numbers import BEST, LAST, entries
from fedprior.reproduce.paper.published import published
from fedprior.reproduce.paper.rows import (
    LG,
    LG_PAPER,
    LOCAL,
    MEG,
    MEG_PAPER,
    MH,
    MH_PAPER,
    PFEDME,
    PFEDME_PAPER,
    VARIANT,
    Row,
)
from fedprior.reproduce.paper.tasks import BESIDE, COLUMNS, LINEAR, PaperTask
from fedprior.reproduce.paper.writing import write_cells, write_tables

if TYPE_CHECKING:
    from fedprior.study.results import Results
    from fedprior.study.study import Study


class Order(NamedTuple):
    """The rows that follow one order of steps; the first is without a personalized prior."""

    name: str
    rows: tuple[Row, ...]


def _named(row: Row, name: str, order: str) -> Row:
    """A row as this table calls it; only the released order is compared with the paper's numbers.

    That the released code made them is inferred: pFedMe, mh and FedAvg on MNIST with MCLR come out within 0.3 points.
    """
    return replace(row, label=name, printed=name if order == "released" else None)


RELEASED = Order(
    "released",
    (
        _named(PFEDME, "Non-PP", "released"),
        _named(LG, "lg", "released"),
        _named(MEG, "meg", "released"),
        _named(MH, "mh", "released"),
        Row("mh, eta = 0", "mh-released eta=0", "mh-released", {"eta": 0.0}, scope=LINEAR),
        Row("mh, w not overwritten", "mh-released overwrite=false", "mh-released", {"overwrite": False}, scope=LINEAR),
        Row("lg, eta_alpha = 0.01", "lg-released eta_alpha=0.01", "lg-released", {"eta_alpha": 0.01}, scope=LINEAR),
        LOCAL,
    ),
)
PAPER = Order(
    "paper",
    (
        _named(PFEDME_PAPER, "Non-PP", "paper"),
        _named(LG_PAPER, "lg", "paper"),
        _named(MEG_PAPER, "meg", "paper"),
        _named(MH_PAPER, "mh", "paper"),
        replace(VARIANT, label="mh variant (appendix)"),
        LOCAL,
    ),
)
ORDERS = (RELEASED, PAPER)
COUNTED = "more gradients than Non-PP, counted (per client and round)"
AC4PP = "AC4PP (the paper's)"


class Ablation(Artefact):
    """What each term of the personalized prior does."""

    name = "ablation"
    about = "mh without the memory, without the loss gradient, and without both"
    where = "table 2; the variant: appendix"

    def studies(self, request: Request) -> list[Study]:
        """The rows of both orders."""
        return [study for task in self._tasks(request) for study in request.studies(task, self._rows(request))]

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """A table for each order, at the last round and at the best on test."""
        tasks, paper = self._tasks(request), published(self.name)
        tables, cells, wanted = [], [], self._rows(request)
        for order in ORDERS:
            rows = [row for row in order.rows if row in wanted]
            found = entries(results, tasks, rows, paper)
            if not any(label != LOCAL.label for _, label in found):
                continue
            title = (
                f"ablation of the personalized prior, {order.name} order: accuracy (%) of personal models on own test"
            )
            more = {AC4PP: _costs(order.rows), COUNTED: _counted(results, tasks, order.rows)}
            shown = ("Avg", "H.Avg")
            matrix = Matrix(title, found, tasks, rows, paper, shown, printed_decimals=1, against="Non-PP", more=more)
            tables += [matrix.table(choice, ("arrows: against Non-PP",)) for choice in (LAST, BEST)]
            cells += [replace(cell, row=f"{cell.row}, {order.name} order") for cell in found.values()]
        return [*write_tables(folder, self.name, tables), write_cells(folder, cells)]

    def _tasks(self, request: Request) -> list[PaperTask]:
        return request.tasks_of((*COLUMNS, *BESIDE))

    def _rows(self, request: Request) -> list[Row]:
        """Those of both orders that were asked for."""
        return request.rows_of({row.variant: row for order in ORDERS for row in order.rows}.values())


def _costs(rows: Iterable[Row]) -> dict[str, str]:
    """What the paper says that the prior costs; nothing of rows that it does not have."""
    return {
        row.label: str(published("ablation")[row.label].more["cost"])
        for row in rows
        if row.label in published("ablation")
    }


def _counted(results: Results, tasks: Iterable[PaperTask], rows: tuple[Row, ...]) -> dict[str, str]:
    """How many gradients more than without a personalized prior each row was counted to take."""
    groups = results.groups()
    for task in tasks:
        variants = groups.get(task.name, {})
        took = {
            row.label: next(iter(variants[row.variant].values())).config["cost"]["gradients"]
            for row in rows
            if row.variant in variants
        }
        if rows[0].label in took:
            return {label: f"{gradients - took[rows[0].label]:+d}" for label, gradients in took.items()}
    return {}

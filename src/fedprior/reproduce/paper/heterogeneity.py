"""The paper's table of data heterogeneity (476, 1032): Fashion-MNIST with a DNN on 40 clients of equal size, label skew by
Dirichlet(alpha), all clients aggregated, one local step.

The paper does not tell T, and its 11 % at alpha = 1000 is chance: nothing has been learnt there. So the table is given
twice: after the round whose numbers are nearest to the paper's, which tells its T, and after proper training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.analysis.series import series_of
from fedprior.analysis.summary import Number, over_seeds
from fedprior.report.tables import Table
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.numbers import Entry, Seeds, entry, statistics
from fedprior.reproduce.paper.published import published
from fedprior.reproduce.paper.rows import FEDAVG, GLOBAL, LOCAL, MH, PERSONAL, PFEDME, Row
from fedprior.reproduce.paper.tasks import PaperTask
from fedprior.reproduce.paper.writing import budget_note, shown, shown_number, write_cells, write_tables

if TYPE_CHECKING:
    from fedprior.study.results import Results
    from fedprior.study.study import Study

ALPHAS, QUICK_ALPHAS = ("0.01", "0.1", "1", "10", "100", "1000"), ("0.01", "1", "1000")
ROUNDS, SEEDS = 1000, 2
Runs = dict[tuple[str, str], Seeds]  # (task, label of the row)


def _task(base: str, alpha: str, clients: int) -> PaperTask:
    partition: dict[str, Any] = {"kind": "dirichlet", "clients": clients, "alpha": float(alpha), "sizes": "equal"}
    settings = {"partition": partition, "aggregated": clients, "R": 1}
    return PaperTask(f"{base}-dirichlet-{alpha}", f"alpha = {alpha}", base, ROUNDS, SEEDS, settings=settings)


OWN = tuple(_task("fmnist-dnn", alpha, 40) for alpha in ALPHAS)
QUICK = tuple(_task("digits-dnn", alpha, 20) for alpha in QUICK_ALPHAS)


def _rows(row: Row, *models: str) -> list[Row]:
    """A row for each model, without what only table1 scores."""
    letters = {PERSONAL: "P", GLOBAL: "G"}
    names = {model: f"{row.label}-{letters[model]}" for model in models}
    return [replace(row, label=name, changes={}, model=model, printed=name) for model, name in names.items()]


ROWS = (
    *_rows(FEDAVG, GLOBAL),
    *_rows(PFEDME, PERSONAL, GLOBAL),
    *_rows(MH, PERSONAL, GLOBAL),
    *_rows(LOCAL, PERSONAL),
)


class Heterogeneity(Artefact):
    """Accuracy against label skew."""

    name = "heterogeneity"
    about = "accuracy against label skew (Dirichlet), with one local step and all clients aggregated"
    where = "table 4, line 476; appendix, line 1032"

    def studies(self, request: Request) -> list[Study]:
        """Every row at every alpha."""
        rows = self._rows(request)
        return [study for task in request.among(OWN, QUICK) for study in request.studies(task, rows)]

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """The table after the round that is nearest to the paper, and after the last."""
        tasks, rows, groups = request.among(OWN, QUICK), self._rows(request), results.groups()
        runs: Runs = {
            (task.name, row.label): seeds
            for task in tasks
            for row in rows
            if (seeds := groups.get(task.name, {}).get(row.variant)) is not None
        }
        paper = {name: row.values for name, row in published(self.name).items()}
        cells: dict[tuple[str, str], Entry] = {}
        for task in tasks:
            alpha = task.name.rpartition("-")[2]
            for row in rows:
                value = paper.get(row.label, {}).get(alpha) if not request.quick else None
                if (task.name, row.label) in runs:
                    cell = entry(task, row.label, runs[task.name, row.label], row.model, value)
                    cells |= {} if cell is None else {(task.name, row.label): cell}
        majority = {task.name: majority_accuracy(held) for task in tasks if (held := _any(runs, task)) is not None}
        rounds = dict.fromkeys([nearest_round(cells, runs, rows), None])
        tables = [self._table(tasks, rows, runs, cells, majority, at) for at in rounds]
        return [*write_tables(folder, self.name, tables), write_cells(folder, cells.values())]

    def _rows(self, request: Request) -> list[Row]:
        if request.methods is None:
            return list(ROWS)
        kept = {row.variant for row in request.rows_of((FEDAVG, PFEDME, MH, LOCAL))} | {LOCAL.variant}
        return [row for row in ROWS if row.variant in kept]

    def _table(
        self,
        tasks: Sequence[PaperTask],
        rows: Sequence[Row],
        runs: Runs,
        cells: dict[tuple[str, str], Entry],
        majority: dict[str, float],
        at: int | None,
    ) -> Table:
        body = []
        for row in rows:
            found = [_value(runs.get((task.name, row.label)), row.model, at) for task in tasks]
            over = statistics([None if number is None else number["mean"] for number in found])
            body.append((row.label, "measured", *map(shown_number, found), shown(over.average if over else None)))
            known = [
                cells[task.name, row.label].published if (task.name, row.label) in cells else None for task in tasks
            ]
            if at is not None and any(value is not None for value in known):
                mean = statistics(known)
                body.append(
                    (row.label, "paper", *(shown(x, 1) for x in known), shown(mean.average if mean else None, 1))
                )
        share = statistics(list(majority.values()))
        texts = [shown(majority.get(task.name)) for task in tasks]
        body.append(("majority class", "no training", *texts, shown(share.average if share else None)))
        which = (
            "last round" if at is None else f"round {at}, whose numbers are the nearest to the paper's (chosen by them)"
        )
        return Table(
            f"accuracy (%) on own test samples against label skew, {which}",
            "± standard deviation over seeds; Avg: over alpha; majority class: each client predicts the class that most of "
            f"its training samples have; {budget_note(cells.values())}",
            ("method", "", *(task.column for task in tasks), "Avg"),
            tuple(body),
        )


def _any(runs: Runs, task: PaperTask) -> Seeds | None:
    return next((seeds for (name, _), seeds in runs.items() if name == task.name), None)


def _value(seeds: Seeds | None, model: str, at: int | None) -> Number | None:
    """A row's accuracy after round ``at`` or, without one, after the last."""
    if seeds is None:
        return None
    curves = {seed: curve(record, model) for seed, record in seeds.items()}
    values = {seed: each[max(each) if at is None else at] for seed, each in curves.items() if each}
    return over_seeds(values) if values else None


def curve(record: Any, model: str) -> dict[int, float]:
    """Accuracy on own test samples by round."""
    return series_of(record).get((model, "own", "weighted"), {})


def nearest_round(cells: dict[tuple[str, str], Entry], runs: Runs, rows: Sequence[Row]) -> int | None:
    """The round whose numbers differ least from all that the paper prints, on average; None where it prints none."""
    models = {row.label: row.model for row in rows}
    gaps: dict[int, list[float]] = {}
    for (task, label), cell in cells.items():
        if cell.published is None:
            continue
        curves = [curve(record, models[label]) for record in runs[task, label].values()]
        for t in sorted(set.intersection(*(set(each) for each in curves))):
            gaps.setdefault(t, []).append(abs(float(np.mean([each[t] for each in curves])) - cell.published))
    whole = max((len(each) for each in gaps.values()), default=0)
    return min((t for t in gaps if len(gaps[t]) == whole), key=lambda t: float(np.mean(gaps[t])), default=None)


def majority_accuracy(seeds: Seeds) -> float:
    """The share of test samples (%) of the class that most of their client's training samples have."""
    counts = next(iter(seeds.values())).label_counts
    assert counts is not None
    hits = sum(parts["test"][int(np.argmax(parts["train"]))] for parts in counts.clients.values())
    return 100.0 * hits / sum(sum(parts["test"]) for parts in counts.clients.values())

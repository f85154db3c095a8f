"""The paper's table of data heterogeneity (476, 1032): Fashion-MNIST with a DNN on 40 clients of equal size, label skew by
Dirichlet(alpha), all clients aggregated, one local step.

The paper does not tell T, and its 11 % at alpha = 1000 is chance: nothing has been learnt there. So the table is given
twice: up to the early round whose numbers are nearest to the paper's, which tells its T, and after proper training. With
one local step, an evaluation takes longer than a round: only the early rounds, in runs of their own, are all evaluated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.analysis.series import series_of
from fedprior.report.tables import Table
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.matrix import WHICH
from fedprior.reproduce.paper.numbers import (
    BEST,
    LAST,
    Entries,
    Runs,
    Seeds,
    entry,
    mean_of,
    runs_by_cell,
    statistics,
)
from fedprior.reproduce.paper.published import published
from fedprior.reproduce.paper.rows import FEDAVG, GLOBAL, LOCAL, MH, PERSONAL, PFEDME, Row
from fedprior.reproduce.paper.tasks import PaperTask
from fedprior.reproduce.paper.writing import budget_note, shown, shown_cell, write_cells, write_tables

if TYPE_CHECKING:
    from fedprior.records.schema import RunRecord
    from fedprior.study.results import Results
    from fedprior.study.study import Study

ALPHAS, QUICK_ALPHAS = ("0.01", "0.1", "1", "10", "100", "1000"), ("0.01", "1", "1000")
ROUNDS, SEEDS = 1000, 2
EARLY, EVERY = 60, 20  # rounds among which the paper's T is looked for; rounds between later evaluations
Found = dict[tuple[str, str], Runs]  # (task, label of the row)


def _task(base: str, alpha: str, clients: int) -> PaperTask:
    partition: dict[str, Any] = {"kind": "dirichlet", "clients": clients, "alpha": float(alpha), "sizes": "equal"}
    settings = {"partition": partition, "aggregated": clients, "R": 1, "eval_every": EVERY}
    name = f"{base}-dirichlet-{alpha}"
    return PaperTask(name, f"alpha = {alpha}", base, ROUNDS, SEEDS, settings=settings, tells_rounds=False)


def early(task: PaperTask) -> PaperTask:
    """The first rounds of a task, all of which are evaluated."""
    return replace(task, name=f"{task.name}-early", rounds=EARLY, settings={**task.settings, "eval_every": 1})


def early_request(request: Request) -> Request:
    """The request for these rounds: ``--rounds`` may make them fewer, not more."""
    return request if request.rounds is None else replace(request, rounds=min(request.rounds, EARLY))


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
    where = "table 4; appendix"

    def studies(self, request: Request) -> list[Study]:
        """Every row at every alpha, looked at in every early round, and trained properly."""
        rows = self._rows(request)
        found: list[Study] = []
        for task in request.among(OWN, QUICK):
            found += early_request(request).studies(early(task), rows)
            found += request.studies(task, rows)
        return found

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """The table after the early round that is nearest to the paper, and after the last of proper training."""
        tasks, rows, by_cell = request.among(OWN, QUICK), self._rows(request), runs_by_cell(results)
        paper = {} if request.quick else {name: row.values for name, row in published(self.name).items()}

        def runs_of(named: Callable[[PaperTask], PaperTask]) -> Found:
            return {
                (task.name, row.label): runs
                for task in tasks
                for row in rows
                if (runs := by_cell.get((named(task).name, row.variant))) is not None
            }

        soon, whole = runs_of(early), runs_of(lambda task: task)
        printed = {
            (task.name, row.label): value
            for task in tasks
            for row in rows
            if (value := paper.get(row.label, {}).get(task.name.rpartition("-")[2])) is not None
        }
        at = nearest_round(printed, soon, rows)
        nearest, proper = Entries(), Entries()
        for task in tasks:
            for row in rows:
                key = (task.name, row.label)
                if key in soon:
                    runs = soon[key] if at is None else up_to(soon[key], at)
                    if (cell := entry(early(task), row.label, runs, row.model, printed.get(key))) is not None:
                        nearest[key] = cell
                if key in whole and (cell := entry(task, row.label, whole[key], row.model)) is not None:
                    proper[key] = cell
        majority = {task.name: majority_accuracy(held) for task in tasks if (held := _any(whole, task)) is not None}
        chosen = "" if at is None else ", whose numbers are the nearest to the paper's (chosen by them)"
        rounds = max((cell.rounds for cell in nearest.values()), default=0)
        tables = [
            self._table(tasks, rows, nearest, majority, f"best on test up to round {rounds}{chosen}", BEST),
            self._table(tasks, rows, proper, majority, WHICH[LAST], LAST),
        ]
        return [*write_tables(folder, self.name, tables), write_cells(folder, [*nearest.values(), *proper.values()])]

    def _rows(self, request: Request) -> list[Row]:
        if request.methods is None:
            return list(ROWS)
        kept = {row.variant for row in request.rows_of((FEDAVG, PFEDME, MH, LOCAL))} | {LOCAL.variant}
        return [row for row in ROWS if row.variant in kept]

    def _table(
        self,
        tasks: Sequence[PaperTask],
        rows: Sequence[Row],
        cells: Entries,
        majority: dict[str, float],
        which: str,
        choice: str,
    ) -> Table:
        body = []
        for row in rows:
            line = [cells.get((task.name, row.label)) for task in tasks]
            over = statistics([mean_of(cell, choice) for cell in line])
            texts = [shown_cell(cell, choice) for cell in line]
            body.append((row.label, "measured", *texts, shown(over.average if over else None)))
            known = [None if cell is None else cell.published for cell in line]
            if any(value is not None for value in known):
                mean = statistics(known)
                texts = [shown(x, 1) for x in known]
                body.append((row.label, "paper", *texts, shown(mean.average if mean else None, 1)))
        share = statistics(list(majority.values()))
        texts = [shown(majority.get(task.name)) for task in tasks]
        body.append(("majority class", "no training", *texts, shown(share.average if share else None)))
        return Table(
            f"accuracy (%) on own test samples against label skew, {which}",
            "± standard deviation over seeds; Avg: over alpha; majority class: each client predicts the class that most of "
            f"its training samples have; {budget_note(cells.values())}",
            ("method", "", *(task.column for task in tasks), "Avg"),
            tuple(body),
        )


def _any(found: Found, task: PaperTask) -> Seeds | None:
    return next((runs.finished for (name, _), runs in found.items() if name == task.name and runs.finished), None)


def up_to(runs: Runs, at: int) -> Runs:
    """The runs as they stood after round ``at``."""
    cut = {
        seed: replace(record, rows=tuple(row for row in record.rows if row.round <= at), round=at)
        for seed, record in runs.finished.items()
    }
    return runs._replace(finished=cut)


def best_so_far(record: RunRecord, model: str) -> dict[int, float]:
    """The best accuracy on own test samples up to each round: what the paper would report had it stopped there."""
    curve = series_of(record).get((model, "own", "weighted"), {})
    rounds = sorted(curve)
    return dict(zip(rounds, itertools.accumulate((curve[t] for t in rounds), max), strict=True))


def nearest_round(printed: Mapping[tuple[str, str], float], found: Found, rows: Sequence[Row]) -> int | None:
    """The round up to which the best numbers differ least from what the paper prints, on average; None if it prints none.

    The paper's number is a run's best round on test, so that is what is compared.
    """
    models = {row.label: row.model for row in rows}
    gaps: dict[int, list[float]] = {}
    for key in sorted(key for key in printed.keys() & found.keys() if found[key].finished):
        curves = [best_so_far(record, models[key[1]]) for record in found[key].finished.values()]
        for t in sorted(set.intersection(*(set(each) for each in curves))):
            gaps.setdefault(t, []).append(abs(float(np.mean([each[t] for each in curves])) - printed[key]))
    whole = max((len(each) for each in gaps.values()), default=0)
    return min((t for t in gaps if len(gaps[t]) == whole), key=lambda t: (float(np.mean(gaps[t])), t), default=None)


def majority_accuracy(seeds: Seeds) -> float:
    """The share of test samples (%) of the class that most of their client's training samples have."""
    counts = next(iter(seeds.values())).label_counts
    assert counts is not None
    hits = sum(parts["test"][int(np.argmax(parts["train"]))] for parts in counts.clients.values())
    return 100.0 * hits / sum(sum(parts["test"]) for parts in counts.clients.values())

"""The paper's figure of the generalized coherence estimate (439): how alike the clients' envelope gradients are.

What is recorded in each round is 1 - det(C)^(1/N), where C holds the cosines of the vectors w_i - theta_i of all N clients
(engine/coherence.py); the table also has log det(C), of which the paper's estimate 1 - det(C) follows. The paper filters its
curves (Savitzky and Golay 1964) and tells neither the window nor the order: here a cubic over 21 rounds, in bold; unfiltered
values are thin. "During the convergence phase" is taken to be the last fifth of the rounds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedprior.analysis.series import series_of
from fedprior.analysis.summary import over_seeds
from fedprior.errors import FedpriorError
from fedprior.report.canvas import new_figure
from fedprior.report.tables import Table
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.drawing import (
    WIDTH,
    dress,
    legend_below,
    styles,
    whole_numbers,
    write_captioned,
    write_values,
)
from fedprior.reproduce.paper.numbers import Runs, Seeds, budget_words, is_full, runs_by_cell
from fedprior.reproduce.paper.rows import COHERENT, LG, MEG, MH, PFEDME, Row
from fedprior.reproduce.paper.tasks import PaperTask
from fedprior.reproduce.paper.writing import shown_number, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedprior.records.schema import RunRecord
    from fedprior.study.results import Results
    from fedprior.study.study import Study

WINDOW, ORDER = 21, 3
OWN = ("cifar10-cnn", "mnist-dnn-released")
ROWS = (PFEDME, LG, MEG, MH)
VALUES = ("task", "row", "seed", "round", "gce", "gce_filtered", "log_det_c")
KEY = ("personal", "own", "weighted")


def filtered(values: np.ndarray) -> np.ndarray:
    """Savitzky-Golay over the last axis; a run that is shorter than the window has a shorter one, or stays as it is."""
    from scipy.signal import savgol_filter

    n = values.shape[-1]
    window = min(WINDOW, n - (n % 2 == 0))
    return values if window <= ORDER else np.asarray(savgol_filter(values, window, ORDER))


@dataclass(frozen=True)
class Curves:
    """The coherence of a row on a task, [seeds, T]."""

    label: str
    seeds: tuple[int, ...]
    clients: int
    rounds: np.ndarray
    gce: np.ndarray

    @staticmethod
    def of(row: Row, seeds: Seeds) -> Curves:
        """From the records of all seeds."""
        by_seed = {seed: _curve(record) for seed, record in sorted(seeds.items())}
        rounds = sorted(set.intersection(*(set(curve) for curve in by_seed.values())))
        values = np.array([[curve[t] for t in rounds] for curve in by_seed.values()])
        clients = int(next(iter(seeds.values())).config["run"]["clients"])
        return Curves(row.label, tuple(by_seed), clients, np.array(rounds), values)

    @property
    def log_determinants(self) -> np.ndarray:
        """log det(C), [seeds, T]."""
        from fedprior.engine.coherence import log_determinant

        return log_determinant(self.gce, self.clients)

    def at_the_end(self, values: np.ndarray) -> dict[int, float]:
        """The mean over the last fifth of the rounds, for each seed."""
        last = max(1, len(self.rounds) // 5)
        return dict(zip(self.seeds, values[:, -last:].mean(1).tolist(), strict=True))


def _curve(record: RunRecord) -> dict[int, float]:
    """The coherence by round; it cannot be added to a run later."""
    curve = series_of(record, "gce").get(KEY, {})
    if 1 not in curve:
        since = f"only since round {min(curve)}" if curve else "not"
        raise FedpriorError(
            f"the coherence of {record.where} was {since} recorded: an earlier version trained it; "
            "remove that folder and repeat the command"
        )
    return curve


def watched(task: PaperTask) -> PaperTask:
    """The task whose cells record the coherence of every round: itself, where the other tables' cells do so."""
    if task.coherence:
        return task
    return replace(task, name=f"{task.name}-gce", coherence=True)


class GCE(Artefact):
    """Coherence against rounds."""

    name = "gce"
    about = "how coherent the clients' envelope gradients are in each round, with and without a personalized prior"
    where = "figure 2"

    def studies(self, request: Request) -> list[Study]:
        """The rows with their coherence recorded in every round."""
        tasks, rows = request.tasks_of(OWN, quick=("digits-mclr",)), self._rows(request)
        return [study for task in tasks for study in request.studies(watched(task), rows)]

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """The curves, their end as a table, and all values."""
        rows, runs = self._rows(request), runs_by_cell(results)
        by_task, lost = dict[str, list[Curves]](), dict[str, str]()
        tasks = request.tasks_of(OWN, quick=("digits-mclr",))
        for task in tasks:
            found = [(row, runs.get((watched(task).name, row.variant), Runs({}))) for row in rows]
            if own := [Curves.of(row, of.finished) for row, of in found if of.finished]:
                by_task[task.column] = own
                lost[task.column] = _lost((row.label, of.diverged) for row, of in found)
        if not by_task:
            raise FedpriorError("every run diverged: there is no coherence to show; choose other --methods or --tasks")
        tables = [_table(task, by_task[task.column], lost[task.column]) for task in tasks if task.column in by_task]
        paths = write_tables(folder, self.name, tables)
        paths.append(write_values(folder, f"{self.name}-rounds", VALUES, _values(by_task)))
        return paths + write_captioned(folder, self.name, draw(by_task), _caption(by_task, lost), self.name, request)

    def _rows(self, request: Request) -> list[Row]:
        return request.rows_of(ROWS if request.methods is None else COHERENT)


def _lost(rows: Iterable[tuple[str, tuple[int, ...]]]) -> str:
    """The seeds that diverged, which are in no mean.

    >>> _lost([("mh", (1, 2)), ("lg", ()), ("meg", (0,))])
    '; diverged: mh (seeds 1, 2), meg (seed 0)'
    """
    texts = [f"{label} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})" for label, seeds in rows if seeds]
    return f"; diverged: {', '.join(texts)}" if texts else ""


def _table(task: PaperTask, curves: Iterable[Curves], lost: str) -> Table:
    """Each row at the end of training, beside pFedMe, which has no personalized prior."""
    curves = list(curves)
    plain = next((c.at_the_end(c.gce) for c in curves if c.label == PFEDME.label), {})
    body = []
    for c in curves:
        own = c.at_the_end(c.gce)
        apart = [own[seed] - plain[seed] for seed in own if seed in plain]
        log_det = over_seeds(c.at_the_end(c.log_determinants))
        gap = "" if c.label == PFEDME.label or not apart else f"{np.mean(apart):+.4f}"
        body.append((c.label, shown_number(over_seeds(own), 4), gap, shown_number(log_det, 1)))
    rounds, seeds = min(int(c.rounds[-1]) for c in curves), max(len(c.seeds) for c in curves)
    return Table(
        f"{task.column}: coherence of the envelope gradients of {curves[0].clients} clients in the last fifth of the rounds",
        f"GCE = 1 - det(C)^(1/N), C: cosines of w_i - theta_i; smaller is more diverse; T = {rounds}, "
        f"up to {seeds} seed{'s' * (seeds > 1)} ({budget_words(is_full(task, rounds, seeds))}){lost}",
        ("row", "GCE", f"minus {PFEDME.label}", "log det C"),
        tuple(body),
        left=1,
    )


def _values(by_task: dict[str, list[Curves]]) -> list[tuple[object, ...]]:
    return [
        (task, c.label, seed, int(t), *map(float, numbers))
        for task, curves in by_task.items()
        for c in curves
        for k, seed in enumerate(c.seeds)
        for t, *numbers in zip(c.rounds, c.gce[k], filtered(c.gce)[k], c.log_determinants[k], strict=True)
    ]


def draw(by_task: dict[str, list[Curves]]) -> Figure:
    """A panel for each task: filtered curves in bold, unfiltered ones thin, means over seeds."""
    figure = new_figure(WIDTH, 2.7)
    panels = figure.subplots(1, len(by_task), squeeze=False)[0]
    look = styles([c.label for curves in by_task.values() for c in curves])
    for axes, (task, curves) in zip(panels, by_task.items(), strict=True):
        dress(axes, f"{task}, {curves[0].clients} clients", "round", "GCE = 1 - det(C)$^{1/N}$")
        for c in curves:
            color, marker = look[c.label]
            mean = c.gce.mean(0)
            axes.plot(c.rounds, mean, color=color, linewidth=0.6, alpha=0.45)
            every = max(1, len(c.rounds) // 8)
            axes.plot(c.rounds, filtered(mean), color=color, linewidth=1.8, label=c.label)
            axes.lines[-1].set(marker=marker, markevery=every, markersize=4)
        whole_numbers(axes.xaxis)
        axes.margins(x=0.02)
    legend_below(figure)
    return figure


def _caption(by_task: dict[str, list[Curves]], lost: dict[str, str]) -> str:
    ends = [
        f"{task}: "
        + ", ".join(f"{c.label} {np.mean([*c.at_the_end(c.gce).values()]):.3f}" for c in curves)
        + lost[task]
        for task, curves in by_task.items()
    ]
    return (
        "Generalized coherence estimate of the clients' envelope gradients w_i - theta_i against the round, "
        "GCE = 1 - det(C)^(1/N) with the cosines C of all N clients; smaller is more diverse. Bold: Savitzky-Golay filter, "
        f"window {WINDOW}, order {ORDER}; thin: as measured; both are means over seeds. "
        f"In the last fifth of the rounds: {'; '.join(ends)}."
    )

"""The paper's figures of loss deviation per class (502, 984), of the first client, as its appendix defines it (804).

L_ic: mean loss of client i's personal model on its own test samples of class c, 0 where it has none; their mean over clients
weighs each by its number of such samples. G_ic: the same model on everybody's test samples of class c; their mean over
clients is plain. The deviations are L_ic and G_ic minus those means. Where a client has no samples of a class, its local
deviation is minus the mean loss of those who have some: it says nothing about the client.

The cells are those of the table of all methods: their last states are scored again, class by class.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprior.analysis.summary import Number, over_seeds
from fedprior.report.canvas import literal, new_figure
from fedprior.report.tables import Table
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.drawing import SMALL, WIDTH, dress, legend_below, styles, write_captioned, write_values
from fedprior.reproduce.paper.numbers import budget_words, is_full
from fedprior.reproduce.paper.rows import LOCAL, MH, PAPER, PERFEDAVG, PFEDME, Row
from fedprior.reproduce.paper.tasks import COLUMNS, PaperTask
from fedprior.reproduce.paper.writing import shown_number, write_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedprior.records.schema import RunRecord
    from fedprior.study.results import Results
    from fedprior.study.study import Study

ROWS = (*(row for row in PAPER if row.label == "FedAMP"), PFEDME, PERFEDAVG, MH, LOCAL)
FIRST = 0  # whose deviations are shown
MANY = 20  # classes beyond which the two panels stand one above the other


class Deviations(NamedTuple):
    """A client's deviations for each class [C], NaN for a class that is in nobody's test."""

    on_global: np.ndarray
    on_local: np.ndarray


def deviations(own: np.ndarray, samples: np.ndarray, pooled: np.ndarray, client: int = FIRST) -> Deviations:
    """From the mean losses per client and class on own and on everybody's test samples, and the own samples [N, C].

    What ``own`` holds where there are no samples does not matter.
    """
    own = np.where(samples > 0, own, 0.0)
    total = samples.sum(0)
    weights = np.divide(samples, total, out=np.full(samples.shape, np.nan), where=total > 0)
    return Deviations(pooled[client] - pooled.mean(0), own[client] - (weights * own).sum(0))


@dataclass(frozen=True)
class Measured:
    """The deviations of a row on a task, [seeds, C] each."""

    label: str
    seeds: tuple[int, ...]
    rounds: int
    classes: tuple[str, ...]
    held: np.ndarray  # [C] whether the client has test samples of the class
    on_global: np.ndarray
    on_local: np.ndarray

    def mean(self, which: str, held: bool) -> Number | None:
        """Over the classes that the client holds, or those that it lacks."""
        there = (self.held == held) & ~np.isnan(self.on_global).any(0)
        values = getattr(self, which)[:, there]
        return over_seeds(dict(zip(self.seeds, values.mean(1).tolist(), strict=True))) if there.any() else None


class Losses(NamedTuple):
    """Every client's mean loss on each class [N, C], NaN where there is none, and on how many own samples."""

    own: np.ndarray
    samples: np.ndarray
    pooled: np.ndarray
    classes: tuple[str, ...]


def class_losses(record: RunRecord) -> Losses:
    """Of the personal models at the end of a run."""
    from fedprior.engine.evaluate import Evaluator
    from fedprior.study.export import open_run

    result = open_run(Path(record.where))
    evaluator = Evaluator(result.trial.program.engine, metrics=["class_nll"])
    own, pooled = (scores(result.state)["personal"] for scores in (evaluator.own, evaluator.pooled))
    samples = own.sums["class_nll"].labelled
    return Losses(own.values("class_nll"), samples, pooled.values("class_nll"), own.class_names)


class Deviation(Artefact):
    """Loss deviation per class."""

    name = "deviation"
    about = "the first client's loss on each class against the mean over clients, on the global and its local test"
    where = "figure 3; appendix"
    models = True

    def studies(self, request: Request) -> list[Study]:
        """The cells of the table of all methods."""
        tasks, rows = self._tasks(request), request.rows_of(ROWS)
        return [study for task in tasks for study in request.studies(task, rows)]

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """For each task, in files of its own, a figure, a table of means over classes, and all values."""
        paths, groups, done = list[Path](), results.groups(), itertools.count(1)
        trained = [
            (task, [row for row in request.rows_of(ROWS) if row.variant in groups.get(task.name, {})])
            for task in self._tasks(request)
        ]
        of = sum(len(rows) for _, rows in trained)
        for task, rows in trained:
            measured = list[Measured]()
            for row in rows:
                measured.append(measure(row, groups[task.name][row.variant]))
                self.steps(next(done), of, f"{task.name}, {row.label}")
            if not measured:
                continue
            stem, text = f"{self.name}-{task.name}", _caption(task, measured)
            paths += write_captioned(folder, stem, draw(task, measured), text, self.name, request)
            paths += write_tables(folder, stem, [_table(task, measured)])
            lines = [line for m in measured for line in _lines(task, m)]
            paths.append(write_values(folder, f"{stem}-classes", VALUES, lines))
        return paths

    def _tasks(self, request: Request) -> list[PaperTask]:
        return request.tasks_of(COLUMNS, quick=("digits-mclr",))


def measure(row: Row, seeds: dict[int, RunRecord]) -> Measured:
    """A row's deviations at the end of every run."""
    scored = {seed: class_losses(record) for seed, record in sorted(seeds.items())}
    each = [deviations(losses.own, losses.samples, losses.pooled) for losses in scored.values()]
    on_global, on_local = (np.stack(of_seeds) for of_seeds in zip(*each, strict=True))
    first = next(iter(scored.values()))
    rounds = min(record.round for record in seeds.values())
    return Measured(row.label, tuple(scored), rounds, first.classes, first.samples[FIRST] > 0, on_global, on_local)


VALUES = ("task", "row", "seed", "class", "held", "deviation_global", "deviation_local")


def _lines(task: PaperTask, m: Measured) -> list[tuple[object, ...]]:
    return [
        (
            task.name,
            m.label,
            seed,
            name,
            "yes" if m.held[c] else "no",
            float(m.on_global[k, c]),
            float(m.on_local[k, c]),
        )
        for k, seed in enumerate(m.seeds)
        for c, name in enumerate(m.classes)
        if not np.isnan(m.on_global[k, c])
    ]


def _table(task: PaperTask, measured: list[Measured]) -> Table:
    body = []
    for m in measured:
        numbers = [m.mean(which, held) for which in Deviations._fields for held in (True, False)]
        body.append((m.label, *(shown_number(number, 3) for number in numbers)))
    rounds, seeds = measured[0].rounds, max(len(m.seeds) for m in measured)
    return Table(
        f"{task.column}: loss deviation of the first client at the end, means over the classes that it holds and lacks",
        "global: everybody's test, lower on held classes is better personalized; local: its own test, where the loss on a "
        "class that it lacks counts as 0, so that higher there is a lower mean of the others; "
        f"T = {rounds}, up to {seeds} seeds ({budget_words(is_full(task, rounds, seeds))})",
        ("row", "global, held", "global, lacking", "local, held", "local, lacking"),
        tuple(body),
        left=1,
    )


# -- the picture -------------------------------------------------------------------------------------------------------


def draw(task: PaperTask, measured: list[Measured]) -> Figure:
    """On the global and on the local test: a line for each row, over the classes; those that the client holds are shaded."""
    many = len(measured[0].classes) > MANY
    figure = new_figure(WIDTH, 5.0 if many else 2.8)
    panels = figure.subplots(2 if many else 1, 1 if many else 2, squeeze=False).ravel()
    look = styles([m.label for m in measured])
    titles = (f"{task.column}, global test", f"{task.column}, local test")
    for axes, which, title in zip(panels, Deviations._fields, titles, strict=True):
        dress(axes, title, "class", "loss minus its mean over clients")
        _shade(axes, measured[0])
        axes.axhline(0, color="#777777", linewidth=0.8)
        for m in measured:
            color, marker = look[m.label]
            axes.plot(np.arange(len(m.classes)), getattr(m, which).mean(0), f"-{marker}", color=color, label=m.label)
            axes.lines[-1].set(markersize=4, linewidth=0.8)
    legend_below(figure, columns=6)
    return figure


def _shade(axes: Axes, m: Measured) -> None:
    for c in np.flatnonzero(m.held):
        first = c == np.flatnonzero(m.held)[0]
        axes.axvspan(c - 0.5, c + 0.5, color="#EEEEEE", zorder=0, label="held by the client" if first else None)
    size = SMALL if len(m.classes) <= MANY else 5.5
    axes.set_xticks(range(len(m.classes)), [literal(name, 12) for name in m.classes], fontsize=size)
    axes.set_xlim(-0.5, len(m.classes) - 0.5)


def _caption(task: PaperTask, measured: list[Measured]) -> str:
    def told(m: Measured) -> str:
        numbers = (m.mean("on_global", True), m.mean("on_local", False))
        return f"{m.label} {shown_number(numbers[0], 3)} and {shown_number(numbers[1], 3)}"

    held = ", ".join(name for name, there in zip(measured[0].classes, measured[0].held, strict=True) if there)
    return (
        f"Loss deviation of the first client of {task.column} for each class, means over seeds: the loss of its personal "
        "model minus the mean over clients, on everybody's test samples (global) and on its own (local, where the loss on "
        f"classes that it lacks counts as 0). Shaded: classes of which it has test samples ({held}). Mean over held classes "
        f"on the global test, and over lacking ones on the local test: {'; '.join(map(told, measured))}."
    )

"""The paper's pictures of who holds which classes (878), and of the Dirichlet settings of Fashion-MNIST (1036).

Nothing is trained. The data differ from the paper's where the task's own note says so: 105 writers of FEMNIST in place of
198, other users of Sent140, and sizes of Fashion-MNIST that the released generator draws from unseeded numbers. MNIST is
shown twice: with the labels of the released generator, which are the paper's, and with correct ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.data.partitions.base import label_counts, statistics
from fedprior.report.canvas import INK, literal, new_figure
from fedprior.report.partitions import count_colours
from fedprior.report.tables import Table
from fedprior.report.words import counted
from fedprior.reproduce.paper import heterogeneity
from fedprior.reproduce.paper.artefact import Artefact, Request
from fedprior.reproduce.paper.drawing import SMALL, WIDTH, refuse, whole_numbers, write_captioned, write_values
from fedprior.reproduce.paper.tasks import PaperTask
from fedprior.reproduce.paper.writing import write_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedprior.study.results import Results
    from fedprior.study.study import Study

OWN = ("cifar10-cnn", "fmnist-mclr", "femnist-mclr", "sent140-lstm", "mnist-mclr-released", "mnist-mclr")
PARTS = ("test", "train")


@dataclass(frozen=True)
class Held:
    """Who holds how many samples of which class."""

    name: str
    title: str
    classes: tuple[str, ...]
    counts: Mapping[str, np.ndarray]  # test, train -> [N, C]
    statistics: Mapping[str, float]


def holdings(task: PaperTask, title: str) -> Held:
    """Of a task; no model is built and nothing is decoded that its partition does not need."""
    from fedprior.data.partitions import split_source
    from fedprior.study.data_file import open_source
    from fedprior.study.settings import is_task_key, read

    file = read(task.base, {key: value for key, value in task.settings.items() if is_task_key(key)})
    source = open_source(file.task.data)
    parts, n = split_source(source, file.task.partition), source.n_classes
    nobody = tuple(np.zeros(0, np.int64) for _ in parts.train)
    only = {"test": replace(parts, train=nobody), "train": replace(parts, test=nobody)}
    names = tuple(map(str, source.class_names if source.class_names is not None else range(n)))
    counts = {part: label_counts(of, n) for part, of in only.items()}
    return Held(task.name, title, names, counts, statistics(parts, n))


def title(task: PaperTask) -> str:
    """The dataset, and what is changed of it.

    >>> from fedprior.reproduce.paper.tasks import TASKS
    >>> [title(TASKS.find(name)) for name in ("mnist-mclr", "mnist-mclr-released", "cifar10-cnn")]
    ['MNIST, correct labels', 'MNIST, labels of the released generator', 'CIFAR-10']
    """
    model, _, changed = task.column.partition(", ")
    if task.settings.get("partition.labels") == "released":
        changed = "labels of the released generator"
    return ", ".join([model.rpartition(" ")[0], *([changed] if changed else [])])


class Distribution(Artefact):
    """Clients against classes."""

    name = "distribution"
    about = "who holds how many samples of which class, for each dataset and for the Dirichlet settings"
    where = "appendix, figures of the distributions"

    def studies(self, request: Request) -> list[Study]:
        """Nothing is trained."""
        refuse(self.name, request, "methods", "seeds", "rounds")
        return []

    def make(self, request: Request, results: Results, folder: Path) -> list[Path]:
        """A picture for each dataset, one of the Dirichlet settings, their statistics and all counts."""
        tasks = request.tasks_of(OWN, quick=("digits-mclr",))
        data = [holdings(task, title(task)) for task in tasks]
        skewed = [holdings(task, task.column) for task in _dirichlet_tasks(request)]
        paths = list[Path]()
        for held in data:
            figure, caption = draw([held], across=1), _caption([held])
            paths += write_captioned(folder, f"{self.name}-{held.name}", figure, caption, self.name, request)
        if skewed:
            figure, caption = draw(skewed, across=3), _caption(skewed)
            paths += write_captioned(folder, f"{self.name}-dirichlet", figure, caption, self.name, request)
        paths += write_tables(folder, self.name, [_table([*data, *skewed])])
        return [*paths, write_values(folder, f"{self.name}-counts", VALUES, _lines([*data, *skewed]))]


def _dirichlet_tasks(request: Request) -> tuple[PaperTask, ...]:
    """Those of the table of heterogeneity, unless other tasks were named."""
    return heterogeneity.QUICK if request.quick else () if request.tasks is not None else heterogeneity.OWN


def _table(data: Sequence[Held]) -> Table:
    keys = list(data[0].statistics)
    body = [(held.name, *(_number(held.statistics[key]) for key in keys)) for held in data]
    return Table(
        "how the samples are divided among the clients",
        "majority share: how often each client's most frequent class is right; label distance: total variation between a "
        "client's labels and everybody's, mean over clients",
        ("data", *(key.replace("_", " ") for key in keys)),
        tuple(body),
        left=1,
    )


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


VALUES = ("data", "part", "client", "class", "samples")


def _lines(data: Sequence[Held]) -> list[tuple[object, ...]]:
    return [
        (held.name, part, int(i), held.classes[c], int(held.counts[part][i, c]))
        for held in data
        for part in PARTS
        for i, c in np.argwhere(held.counts[part] > 0)
    ]


# -- the pictures ------------------------------------------------------------------------------------------------------


def draw(data: Sequence[Held], across: int) -> Figure:
    """Test and train side by side, ``across`` pairs in a row: classes along x and clients along y, as in the paper."""
    from matplotlib.ticker import StrMethodFormatter

    rows = -(-len(data) // across)
    figure = new_figure(WIDTH, 3.4 if rows == 1 else 0.3 + 2.5 * rows)
    panels = figure.subplots(rows, 2 * across, squeeze=False, sharey="row")
    most = max(int(counts.max()) for held in data for counts in held.counts.values())
    look: dict[str, Any] = dict(zip(("cmap", "norm"), count_colours(most), strict=True))
    for k, held in enumerate(data):
        for j, part in enumerate(PARTS):
            axes = panels[k // across, 2 * (k % across) + j]
            mesh = _panel(axes, held, part, look, small=across > 1)
            if axes.get_subplotspec().is_first_col():
                axes.set_ylabel("client", fontsize=SMALL)
    whole = StrMethodFormatter("{x:,.0f}")
    bar = figure.colorbar(
        mesh, ax=panels.ravel().tolist(), label="samples (log scale)", aspect=40, pad=0.01, format=whole
    )
    bar.ax.tick_params(labelsize=SMALL)
    bar.ax.yaxis.label.set_fontsize(SMALL)
    bar.outline.set_visible(False)
    return figure


def _panel(axes: Axes, held: Held, part: str, look: dict[str, Any], small: bool) -> Any:
    counts = held.counts[part]
    n, classes = counts.shape
    filled = np.ma.masked_equal(counts, 0)
    mesh = axes.pcolormesh(np.arange(classes + 1) - 0.5, np.arange(n + 1) - 0.5, filled, rasterized=True, **look)
    axes.set_title(
        literal(f"{held.title}, {part}".replace("alpha = ", "alpha "), 60), fontsize=SMALL - small, loc="left"
    )
    axes.set_xlabel("class", fontsize=SMALL)
    axes.set(xlim=(-0.5, classes - 0.5), ylim=(n - 0.5, -0.5))
    if classes <= 12 and not small:
        axes.set_xticks(range(classes), [literal(name, 8) for name in held.classes])
    else:
        whole_numbers(axes.xaxis)
    whole_numbers(axes.yaxis)
    axes.tick_params(labelsize=SMALL - 1, colors=INK, length=0)
    axes.spines[:].set_color("#BBBBBB")
    return mesh


def _caption(data: Sequence[Held]) -> str:
    told = [
        f"{held.title}: {counted(int(held.statistics['clients']), 'client')}, {held.statistics['train']:,} training and "
        f"{held.statistics['test']:,} test samples, {held.statistics['classes_per_client']:.1f} of {len(held.classes)} "
        f"classes per client, label distance {held.statistics['label_distance']:.2f}"
        for held in data
    ]
    return (
        "Who holds how many samples of which class: classes along the horizontal and clients along the vertical axis, test "
        f"samples left and training samples right of each pair; white is none. {'; '.join(told)}."
    )

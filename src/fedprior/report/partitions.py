"""One picture of a partition: who holds how many samples of which class, and how large the clients are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedprior.data.partitions.base import Partition, label_counts, statistics
from fedprior.report.canvas import INK, literal, new_figure, save
from fedprior.report.words import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

_FEW = 200  # clients up to which there is room for lines between them
_NAMED = 120  # clients up to which there is room for their names
_APART: dict[str, Any] = {"color": "white", "linewidth": 0.6, "zorder": 1.5}
_WHOLE_NUMBER = "{x:,.0f}"
_TRAIN, _TEST, _GRID = "#2f6f9f", "#f0b060", "#d9d9d9"  # dark and light, so that they differ in grey as well


def picture(
    partition: Partition, n_classes: int, path: Path | str, title: str, classes: Sequence[int | str] | None = None
) -> None:
    """Save what :func:`draw` draws."""
    save(draw(partition, n_classes, title, classes), Path(path))


def draw(partition: Partition, n_classes: int, title: str, classes: Sequence[int | str] | None = None) -> Figure:
    """Who holds how many samples of which class (above), and the clients' sizes (below), the largest client first.

    Both panels share the axis of clients, who are named where there is room for it; ``classes`` are the names of labels.
    """
    counts = label_counts(partition, n_classes)
    order = np.argsort(-counts.sum(1), kind="stable")
    numbers = statistics(partition, n_classes)
    figure = new_figure(9, 3.2 + min(max(3.0, 0.115 * n_classes), 12.0))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[max(3.0, 0.115 * n_classes), 2])
    total = f"{counted(partition.clients, 'client')}, {counted(int(counts.sum()), 'sample')}"
    figure.suptitle(f"{literal(title, 60)}: {total}", x=0.01, ha="left", fontweight="bold", color=INK)
    _heat_map(figure, above, counts[order], classes)
    _sizes(below, partition, order, numbers)
    _name_clients(below, [partition.ids[i] for i in order])
    return figure


def count_colours(most: int) -> tuple[Colormap, Normalize]:
    """The colours of numbers of samples from 1 to ``most``; 0 is left white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    # The palest fifth of the map is left out: one sample must not look like none.
    # On a linear scale the largest client would hide all others: sizes are heavy-tailed.
    return ListedColormap(colormaps["YlGnBu"](np.linspace(0.2, 1.0, 256))), LogNorm(vmin=1, vmax=max(2, most))


def _heat_map(
    figure: Figure, axes: Axes, counts: npt.NDArray[np.int64], names: Sequence[int | str] | None = None
) -> None:
    from matplotlib.ticker import StrMethodFormatter

    colours, scale = count_colours(int(counts.max()))
    n, classes = counts.shape
    filled = np.ma.masked_equal(counts.T, 0)
    mesh = axes.pcolormesh(np.arange(n + 1) - 0.5, np.arange(classes + 1) - 0.5, filled, norm=scale, cmap=colours)
    if n <= _FEW:
        axes.vlines(np.arange(n - 1) + 0.5, -0.5, classes - 0.5, **_APART)
    for line in np.arange(classes + 1) - 0.5:
        axes.axhline(line, color=_GRID, linewidth=0.4 if classes <= 20 else 0.15)
    axes.set(ylabel="class", ylim=(classes - 0.5, -0.5))
    _remove_frame(axes)
    if classes <= 100:
        called = [literal(name, 16) for name in names or range(classes)]
        axes.set_yticks(range(classes), called, fontsize=9 if classes <= 26 else 6)
    axes.tick_params(axis="x", labelbottom=False)
    whole_number = StrMethodFormatter(_WHOLE_NUMBER)
    bar = figure.colorbar(
        mesh, ax=axes, label="samples, train and test (log scale)", pad=0.01, aspect=30, format=whole_number
    )
    most = max(2, int(counts.max()))
    bar.set_ticks([10.0**k for k in range(len(str(most))) if k == 0 or 2 * 10**k <= most] + [most])
    bar.ax.yaxis.set_minor_formatter("")
    bar.outline.set_visible(False)


def _sizes(axes: Axes, partition: Partition, order: npt.NDArray[np.int64], numbers: dict[str, float]) -> None:
    from matplotlib.ticker import StrMethodFormatter

    train, test = (np.array([len(part[i]) for i in order]) for part in (partition.train, partition.test))
    edges = np.arange(len(order) + 1) - 0.5
    axes.stairs(train, edges, fill=True, color=_TRAIN, label=f"train, {numbers['train']:,} in all")
    axes.stairs(train + test, edges, baseline=train, fill=True, color=_TEST, label=f"test, {numbers['test']:,} in all")
    if len(order) <= _FEW:
        axes.vlines(edges[1:-1], 0, (train + test)[:-1], **_APART)
    median = numbers["size_median"]
    text = f"{median:,.1f}".removesuffix(".0")
    axes.axhline(median, color=INK, linewidth=0.8, linestyle="--", label=f"median client, {text}")
    axes.set(ylabel="samples", xlim=(-0.5, len(order) - 0.5))
    axes.yaxis.grid(True, color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(StrMethodFormatter(_WHOLE_NUMBER))
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
    _remove_frame(axes)


def _name_clients(axes: Axes, ids: Sequence[int | str]) -> None:
    """Name the clients below both panels; where there are too many of them, say in which order they stand."""
    axes.set_xlabel("clients, largest first")
    if len(ids) > _NAMED:
        axes.set_xticks([])  # places in the order would be taken for the clients' numbers
        return
    names = [literal(name, 16) for name in ids]
    upright = len(ids) * max(map(len, names)) < 90
    size = 9 if len(ids) <= 40 else 5.5
    axes.set_xticks(range(len(ids)), names, rotation=0 if upright else 90, fontsize=size)


def _remove_frame(axes: Axes) -> None:
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=INK, labelsize=9)

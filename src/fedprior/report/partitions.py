"""One picture of a partition: who holds how many samples of which class, and how large the clients are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedprior.data.partitions.base import Partition, label_counts, statistics
from fedprior.errors import FedpriorError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FEW = 200  # clients up to which there is room for lines between them
_APART: dict[str, Any] = {"color": "white", "linewidth": 0.6, "zorder": 1.5}
_WHOLE_NUMBER = "{x:,.0f}"
_TRAIN, _TEST, _INK, _GRID = "#2f6f9f", "#e0913a", "#333333", "#d9d9d9"


def picture(partition: Partition, n_classes: int, path: Path | str, title: str) -> None:
    """Draw who holds how many samples of which class (above), and the clients' sizes in order (below)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = label_counts(partition, n_classes)
    figure = Figure(figsize=(9, 6.2), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=[3, 2])
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", color=_INK)
    _heat_map(figure, above, counts)
    _sizes(below, partition, statistics(partition, n_classes))
    # A file that is moved into place when it is whole ends in .tmp until then.
    kind = Path(Path(path).name.removesuffix(".tmp")).suffix.lstrip(".") or "png"
    try:
        figure.savefig(path, format=kind)
    except (OSError, ValueError) as error:
        raise FedpriorError(f"cannot write the picture {path} ({error}); give a writable path such as p.png") from error


def _heat_map(figure: Figure, axes: Axes, counts: npt.NDArray[np.int64]) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    # The palest fifth of the map is left out: one sample must not look like none.
    colours = ListedColormap(colormaps["YlGnBu"](np.linspace(0.2, 1.0, 256)))
    # On a linear scale the largest client would hide all others: sizes are heavy-tailed.
    scale = LogNorm(vmin=1, vmax=max(2, int(counts.max())))
    n, classes = counts.shape
    filled = np.ma.masked_equal(counts.T, 0)
    mesh = axes.pcolormesh(np.arange(n + 1) - 0.5, np.arange(classes + 1) - 0.5, filled, norm=scale, cmap=colours)
    if n <= _FEW:
        axes.vlines(np.arange(n - 1) + 0.5, -0.5, classes - 0.5, **_APART)
    for line in np.arange(classes + 1) - 0.5:
        axes.axhline(line, color=_GRID, linewidth=0.4 if classes <= 20 else 0.15)
    axes.set(xlabel="client", ylabel="class", xlim=(-0.5, n - 0.5), ylim=(classes - 0.5, -0.5))
    if classes <= 20:
        axes.set_yticks(range(classes))
    _remove_frame(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    whole_number = StrMethodFormatter(_WHOLE_NUMBER)
    bar = figure.colorbar(mesh, ax=axes, label="samples (log scale)", pad=0.01, aspect=30, format=whole_number)
    bar.ax.yaxis.set_minor_formatter("")
    bar.outline.set_visible(False)


def _sizes(axes: Axes, partition: Partition, numbers: dict[str, float]) -> None:
    from matplotlib.ticker import StrMethodFormatter

    train = np.array([len(samples) for samples in partition.train])
    test = np.array([len(samples) for samples in partition.test])
    order = np.argsort(-(train + test), kind="stable")
    edges = np.arange(len(order) + 1) - 0.5
    low, high = train[order], (train + test)[order]
    axes.stairs(low, edges, fill=True, color=_TRAIN, label=f"train, {numbers['train']:,} in all")
    axes.stairs(high, edges, baseline=low, fill=True, color=_TEST, label=f"test, {numbers['test']:,} in all")
    if len(order) <= _FEW:
        axes.vlines(edges[1:-1], 0, high[:-1], **_APART)
    median = numbers["size_median"]
    axes.axhline(median, color=_INK, linewidth=0.8, linestyle="--", label=f"median client, {median:,.0f}")
    axes.set(xlabel="clients, largest first", ylabel="samples", xlim=(-0.5, len(order) - 0.5))
    axes.yaxis.grid(True, color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(StrMethodFormatter(_WHOLE_NUMBER))
    axes.set_xticks([])  # places in the order would be taken for the clients' numbers above
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
    _remove_frame(axes)


def _remove_frame(axes: Axes) -> None:
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=_INK, labelsize=9)

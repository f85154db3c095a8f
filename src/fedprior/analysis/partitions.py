"""What a partition looks like: a few numbers and one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from fedprior.data.partition import Partition
from fedprior.errors import FedpriorError

# The palest fifth of the map is left out: one sample must not look like none.
_HEAT = ListedColormap(colormaps["YlGnBu"](np.linspace(0.2, 1.0, 256)))
_FEW = 200  # clients up to which there is room for lines between them
_APART: dict[str, Any] = {"color": "white", "linewidth": 0.6, "zorder": 1.5}
_WHOLE = StrMethodFormatter("{x:,.0f}")
_TRAIN, _TEST, _INK, _GRID = "#2f6f9f", "#e0913a", "#333333", "#d9d9d9"


def statistics(partition: Partition, n_classes: int) -> dict[str, float]:
    """Sizes and label skew of the clients, train and test together.

    `majority_share`: how often guessing each client's own most frequent label is right, over all samples; what a model
    that knows the client but sees no input can reach. `label_distance`: total variation between a client's labels and
    everybody's, averaged over clients; 0 is i.i.d., and 1 - 1/C is one class each in a balanced federation.

    >>> from fedprior.data.partition import pathological
    >>> s = statistics(pathological(np.repeat(np.arange(4), 8), clients=4, classes_per_client=1), 4)
    >>> s["clients"], s["train"], s["test"], s["majority_share"], s["label_distance"]
    (4, 24, 8, 1.0, 0.75)
    """
    counts = _counts(partition, n_classes)
    sizes = counts.sum(1)
    share = counts / sizes[:, None]
    pooled = counts.sum(0) / counts.sum()
    return {
        "clients": partition.clients,
        "train": sum(map(len, partition.train)),
        "test": sum(map(len, partition.test)),
        "size_min": int(sizes.min()),
        "size_median": float(np.median(sizes)),
        "size_max": int(sizes.max()),
        "classes_per_client": float((counts > 0).sum(1).mean()),
        "majority_share": float(counts.max(1).sum() / counts.sum()),
        "label_distance": float(np.abs(share - pooled).sum(1).mean() / 2),
    }


def picture(partition: Partition, n_classes: int, path: Path | str, title: str) -> None:
    """Draw who holds how many samples of which class (above), and the clients' sizes in order (below)."""
    counts = _counts(partition, n_classes)
    figure = Figure(figsize=(9, 6.2), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=[3, 2])
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", color=_INK)
    _heat_map(figure, above, counts)
    _sizes(below, partition)
    # A file that is moved into place when it is whole ends in .tmp until then.
    kind = Path(Path(path).name.removesuffix(".tmp")).suffix.lstrip(".") or "png"
    try:
        figure.savefig(path, format=kind)
    except (OSError, ValueError) as error:
        raise FedpriorError(f"cannot write the picture {path} ({error}); give a writable path such as p.png") from error


def _counts(partition: Partition, n_classes: int) -> npt.NDArray[np.int64]:
    """Samples of each client and class, [N, C]."""
    highest = int(partition.y.max())
    if highest >= n_classes:
        raise FedpriorError(f"n_classes={n_classes}, but there is a label {highest}; valid: {highest + 1} and above")
    held = [np.concatenate(pair) for pair in zip(partition.train, partition.test, strict=True)]
    return np.stack([np.bincount(partition.y[samples], minlength=n_classes) for samples in held])


def _heat_map(figure: Figure, axes: Axes, counts: npt.NDArray[np.int64]) -> None:
    # On a linear scale the largest client would hide all others: sizes are heavy-tailed.
    scale = LogNorm(vmin=1, vmax=max(2, int(counts.max())))
    n, classes = counts.shape
    filled = np.ma.masked_equal(counts.T, 0)
    mesh = axes.pcolormesh(np.arange(n + 1) - 0.5, np.arange(classes + 1) - 0.5, filled, norm=scale, cmap=_HEAT)
    if n <= _FEW:
        axes.vlines(np.arange(n - 1) + 0.5, -0.5, classes - 0.5, **_APART)
    for line in np.arange(classes + 1) - 0.5:
        axes.axhline(line, color=_GRID, linewidth=0.4 if classes <= 20 else 0.15)
    axes.set(xlabel="client", ylabel="class", xlim=(-0.5, n - 0.5), ylim=(classes - 0.5, -0.5))
    if classes <= 20:
        axes.set_yticks(range(classes))
    _plain(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
    bar = figure.colorbar(mesh, ax=axes, label="samples (log scale)", pad=0.01, aspect=30, format=_WHOLE)
    bar.ax.yaxis.set_minor_formatter("")
    bar.outline.set_visible(False)


def _sizes(axes: Axes, partition: Partition) -> None:
    train = np.array([len(samples) for samples in partition.train])
    test = np.array([len(samples) for samples in partition.test])
    order = np.argsort(-(train + test), kind="stable")
    edges = np.arange(len(order) + 1) - 0.5
    low, high = train[order], (train + test)[order]
    axes.stairs(low, edges, fill=True, color=_TRAIN, label=f"train, {train.sum():,} in all")
    axes.stairs(high, edges, baseline=low, fill=True, color=_TEST, label=f"test, {test.sum():,} in all")
    if len(order) <= _FEW:
        axes.vlines(edges[1:-1], 0, high[:-1], **_APART)
    median = float(np.median(train + test))
    axes.axhline(median, color=_INK, linewidth=0.8, linestyle="--", label=f"median client, {median:,.0f}")
    axes.set(xlabel="clients, largest first", ylabel="samples", xlim=(-0.5, len(order) - 0.5))
    axes.yaxis.grid(True, color=_GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter(_WHOLE)
    axes.set_xticks([])  # places in the order would be taken for the clients' numbers above
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.2)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=_INK, labelsize=9)

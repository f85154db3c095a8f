"""Every client's difference from the reference, so that a client can be followed from row to row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedprior.analysis.compare import Comparison, Difference
from fedprior.analysis.paired import EQUAL
from fedprior.analysis.series import ROUNDS
from fedprior.report.canvas import COLORS, INK, PAGE, literal, new_figure, pushed_apart, save
from fedprior.report.words import counted, counted_seeds, in_unit, metric_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 3  # clients at either end that are named and followed by a line
FEW, FEW_ROWS = 40, 8  # clients and rows up to which the dots of every client are joined by a faint line
TOP, BOTTOM = -0.4, 0.16  # between which, in parts of a row, the first and the last client have their heights


def client_differences(comparison: Comparison, path: Path | None = None) -> Figure:
    """Each client's difference from the reference, one row per variant: better in blue, worse in red, equal in grey.

    A dot is a client, averaged over seeds, its area the number of its test samples. In every row a client has the same
    height, and a line joins its dots; the clients that gain least and most over all rows are named. Diamonds are means over
    clients with their 95 % intervals over seeds, if there are several: filled weighted by samples, hollow plain.
    """
    rows = {v: e.difference for v, e in comparison.variants.items() if e.difference is not None}
    models = {v: e.model for v, e in comparison.variants.items()}
    info, clients = comparison.metric, len(comparison.clients)
    row = min(1.0, (PAGE[1] - 2.0) / len(rows))  # inches; as many as a table has fit one page
    figure = new_figure(PAGE[0], 2.0 + max(row, 0.24) * len(rows))
    axes = figure.add_subplot()
    axes.axvline(0, color=INK, linewidth=1, zorder=1)
    heights = np.linspace(TOP, BOTTOM, clients) if clients > 1 else np.array([(TOP + BOTTOM) / 2])
    each = np.array([d.per_client for d in rows.values()])  # [M, N]
    each = np.where(np.isfinite(each), each, np.nan)  # a loss beyond all numbers has no place on the axis
    places = np.arange(len(rows))[:, None] + heights  # [M, N]
    for k in range(0, len(rows), 2):
        axes.axhspan(k - 0.48, k + 0.5, color="#F6F6F6", linewidth=0, zorder=0)
    if clients <= FEW and 1 < len(rows) <= FEW_ROWS:
        axes.plot(each, places, color="#999999", linewidth=0.5, alpha=0.35, zorder=1.5)
    area = (12 + 70 * np.array(comparison.samples) / max(comparison.samples)) * min(1, row / 0.6, 60 / clients)
    sign = 1 if info.higher_is_better else -1
    for k, d in enumerate(rows.values()):
        gain = sign * each[k]
        color = np.select([gain > EQUAL, gain < -EQUAL], [COLORS[0], COLORS[1]], "#888888")
        axes.scatter(each[k], places[k], s=area, c=color, alpha=0.65, linewidths=0, zorder=2)
        _means(axes, k, d, row)
    _follow(figure, axes, comparison, sign * each, each, places)
    small = row < 0.6
    axes.set_yticks(
        range(len(rows)),
        [_row_text(v, models[v], d, small) for v, d in rows.items()],
        fontsize=7 if small else 8.5,
    )
    axes.set_ylim(len(rows) - 0.4, -0.5)
    axes.set_xlabel(_caption(comparison, rows, int(np.isnan(each).sum())), fontsize=8.5)
    seeds = counted_seeds([len(d.seeds) for d in rows.values()])
    metric = literal(metric_words(info), 60)
    title = f"{literal(comparison.task)}: {metric} of every client, {ROUNDS[comparison.round]}, {seeds}"
    axes.set_title(title, loc="left", fontsize=11, pad=24)
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return save(figure, path)


def _means(axes: Axes, k: int, d: Difference, row: float) -> None:
    for mean, below, fill in ((d.weighted, 0.28, "black"), (d.mean, 0.4, "white")):
        if not np.isfinite(mean.mean):
            continue
        axes.errorbar(
            mean.mean,
            k + below,
            xerr=mean.half,
            fmt="D",
            color="black",
            markerfacecolor=fill,
            markersize=4.5 if row > 0.6 else 3.2,
            linewidth=1.2,
            zorder=3,
        )


def _row_text(variant: str, model: str, d: Difference, small: bool) -> str:
    counts = (f"{d.wins} better, {d.ties} equal,", f"{d.losses} worse")
    name = f"{literal(variant, 30)} ({model})"
    return f"{name}\n{' '.join(counts)}" if small else "\n".join((name, *counts))


def _caption(comparison: Comparison, rows: Mapping[str, Difference], infinite: int) -> str:
    info = comparison.metric
    metric, points = literal(metric_words(info), 60), "," + in_unit(info, "points") if info.unit else ""
    better = "" if info.higher_is_better else "; lower is better"
    several = any(len(d.seeds) > 1 for d in rows.values())
    intervals = ", with 95 % intervals over seeds" if several else ""
    some = len(comparison.clients) > 2 * NAMED
    named = f"\nnamed: the {NAMED} clients that gain least (dashed) and most (solid) over all rows" if some else ""
    are = "is" if infinite == 1 else "are"
    missing = f"\n{counted(infinite, 'difference')} that {are} not finite {are} not drawn" if infinite else ""
    return (
        f"difference in {metric} on own test samples from {literal(comparison.reference)}{points}{better}\n"
        f"dots: clients, each at the same height in every row (larger: more test samples)\n"
        f"◆ mean weighted by samples, ◇ plain mean{intervals}{named}{missing}"
    )


def _follow(
    figure: Figure, axes: Axes, comparison: Comparison, gain: np.ndarray, each: np.ndarray, places: np.ndarray
) -> None:
    """Name the clients that gain least and most, and draw a line through the dots of each from row to row."""
    average = gain.mean(0)
    order = np.array([i for i in np.argsort(average, kind="stable") if np.isfinite(average[i])], int)
    least, most = (order, order[:0]) if len(order) <= 2 * NAMED else (order[:NAMED], order[-NAMED:])
    shown = [*least, *most]
    figure.draw_without_rendering()  # the width of the axes is known when they have been laid out
    (left, right), width = axes.get_xlim(), axes.get_window_extent().width * 72 / figure.dpi
    names = [literal(comparison.clients[i], 16) for i in shown]
    wanted = [(each[0, i] - left) / (right - left) * width for i in shown]
    at = pushed_apart(wanted, [5.2 * len(name) + 8 for name in names], 0, width)
    for k, (i, name) in enumerate(zip(shown, names, strict=True)):
        style = "--" if i in least and len(most) else "-"
        if len(each) > 1:
            axes.plot(each[:, i], places[:, i], style, color=INK, linewidth=0.9, alpha=0.75, zorder=2.5)
        axes.annotate(
            name,
            (each[0, i], places[0, i]),
            (at[k] / width, 1.0),
            textcoords="axes fraction",
            annotation_clip=False,
            ha="center",
            va="bottom",
            fontsize=8,
            color=INK,
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.6, "linestyle": style, "relpos": (0.5, 0)},
        )

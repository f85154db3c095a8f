"""Learning curves: a metric on the clients' own test samples against the rounds, or against what a budget is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.analysis.grouping import Seeds
from fedprior.analysis.series import find_metric
from fedprior.records.schema import MetricInfo
from fedprior.report.canvas import COLORS, FAINT, INK, MARKERS, few, literal, new_figure, pushed_apart, save
from fedprior.report.curves import Curve, coinciding, gather, joined, visible
from fedprior.report.words import counted_seeds, format_count, format_value, metric_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHED, DASH_DOTTED = (0, (3.5, 1.6)), (0, (7, 2, 1.5, 2))


def learning_curves(
    task: str,
    by_variant: Mapping[str, Seeds],
    path: Path | None = None,
    *,
    metric: str = "accuracy",
    diverged: Sequence[str] = (),
) -> Figure:
    """A metric on the clients' own test samples: mean over seeds, with a band of one deviation if there are several.

    Personal models are drawn solid, global models dashed, Local as the reference. The axis shows where the curves end; what
    lies below it in early rounds is cut off. Up to as many variants as there are colours share one picture and are named at
    their ends; more of them have a panel each, before the personal models of all the others in grey. Where all runs were
    given a budget of one kind, the curves run along what was spent of it. ``diverged`` names variants that are left out.
    """
    info = find_metric([record for seeds in by_variant.values() for record in seeds.values()], metric)
    curves, along = gather(by_variant, metric)
    seeds = [len(seeds) for seeds in by_variant.values()]
    over = f"mean and one standard deviation over {counted_seeds(seeds)}" if max(seeds) > 1 else "1 seed"
    title = f"{literal(task)}: {literal(metric_words(info), 60)}, {over}"
    if diverged:
        title += f"\nnot shown, since they diverged: {few(diverged)}"
    better = "" if info.higher_is_better else "; lower is better"
    label = f"{literal(info.label, 60)} on own test samples,\nweighted by samples{better}"
    one = len(by_variant) <= len(COLORS) or not curves
    figure = _together(curves, title, label, along, info) if one else _in_panels(curves, title, label, along, info)
    return save(figure, path)


def _together(curves: list[Curve], title: str, label: str, along: str, info: MetricInfo) -> Figure:
    figure = new_figure(9.0, 4.8)
    axes = figure.add_subplot()
    low, high = visible(curves, info)
    axes.set(xlabel=along, ylim=(low, high))
    axes.set_ylabel(label, fontsize=9.5)
    axes.set_title(title, loc="left", fontsize=11)
    _dress(axes, along)
    styles = {variant: k for k, variant in enumerate(dict.fromkeys(c.variant for c in curves if not c.local))}
    groups = coinciding(curves, high - low)
    for group in groups:
        for k, curve in enumerate(group):
            _draw(axes, curve, styles.get(curve.variant, 0), (k, len(group)))
    axes.set_xlim(0, max((curve.x[-1] for curve in curves), default=1.0))
    _explain_styles(figure, curves)
    if not curves:
        axes.text(0.5, 0.5, "no value was measured", transform=axes.transAxes, ha="center")
    _name_ends(figure, axes, groups, styles, info)
    return figure


def _draw(axes: Axes, curve: Curve, style: int, place: tuple[int, int] = (0, 1), **more: Any) -> None:
    """One curve; of n that coincide, the first is drawn as ever and each other over it with every n-th dash."""
    color = INK if curve.local else COLORS[style]
    k, n = place
    if curve.local:
        dashes: Any = DASH_DOTTED
    elif k == 0:
        dashes = "-" if curve.model == "personal" else DASHED
    else:
        dash, step = (7.0, 7.0) if curve.model == "personal" else (3.5, 5.1)
        dashes = (-k * step, (dash, n * step - dash))
    step = max(1, len(curve.x) // 6)
    marker: dict[str, Any] = {"marker": MARKERS[style], "markersize": 4.5, "markevery": (style % step, step)}
    if len(curve.x) == 1:  # of points that coincide, those behind are larger
        marker = {"marker": "_" if curve.local else MARKERS[style], "markersize": 8 + 5 * (n - 1 - k), "clip_on": False}
    elif curve.local:
        marker = {}
    width = 1.8 if curve.model == "personal" and not curve.local else 1.2
    look = {
        "color": color,
        "linewidth": width,
        "zorder": 2 if curve.local and k == 0 else 3 + k / n,
        "label": curve.label,
    }
    axes.plot(curve.x, curve.mean, linestyle=dashes, dash_capstyle="butt", **{**look, **marker, **more})
    if curve.spread is not None and len(curve.x) == 1:  # a band needs two rounds
        axes.errorbar(curve.x, curve.mean, yerr=curve.spread, fmt="none", ecolor=color, capsize=4, zorder=1)
    elif curve.spread is not None:
        band = (curve.mean - curve.spread, curve.mean + curve.spread)
        strength = 0.16 if curve.model == "personal" else 0.07
        axes.fill_between(curve.x, *band, color=color, alpha=strength, linewidth=0, zorder=1)


def _dress(axes: Axes, along: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=along == "round"))
    if along != "round":
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_count(x)))


def _explain_styles(figure: Figure, curves: Sequence[Curve]) -> None:
    """What solid, dashed and dash-dotted lines are, as far as there are any."""
    from matplotlib.lines import Line2D

    models = {curve.model for curve in curves if not curve.local}
    both = {curve.variant for curve in curves if curve.model == "personal"}
    alone = [c.variant for c in curves if c.model == "global" and c.variant not in both]
    also = f" (of {few(alone, 3)}: also the personal one)" if alone else ""
    kinds: dict[str, tuple[Any, bool]] = {
        "personal models": ("-", "personal" in models),
        f"global model{also}": (DASHED, "global" in models),
        "Local, the reference": (DASH_DOTTED, any(curve.local for curve in curves)),
    }
    lines = {
        name: Line2D([], [], color=INK, linestyle=style, linewidth=1.5) for name, (style, used) in kinds.items() if used
    }
    if lines:
        figure.legend(lines.values(), lines.keys(), frameon=False, loc="outside lower left", ncols=3, fontsize=8.5)


def _name_ends(
    figure: Figure, axes: Axes, groups: list[list[Curve]], styles: Mapping[str, int], info: MetricInfo
) -> None:
    """Name every curve beside its end, the names pushed apart where ends are close."""
    low, high = axes.get_ylim()
    texts, ends = [], []
    for group in groups:
        end = float(group[0].mean[-1])
        inside = np.isfinite(end) and low <= end <= high
        texts.append(joined(group) + ("" if inside else f"\n{format_value(end, info)}, off the axis"))
        ends.append(float(np.clip(np.nan_to_num(end, nan=low), low, high)))
    figure.draw_without_rendering()  # the height of the axes is known when they have been laid out
    points = axes.get_window_extent().height * 72 / figure.dpi
    sizes = [11.5 * (text.count("\n") + 1) + 2 for text in texts]
    places = pushed_apart([(end - low) / (high - low) * points for end in ends], sizes, 0, points)
    for group, text, end, place in zip(groups, texts, ends, places, strict=True):
        early = group[0].x[-1] < 0.95 * axes.get_xlim()[1]  # a long way from its name
        line = {"arrowstyle": "-", "linewidth": 0.7 if early else 1.2, "linestyle": ":" if early else "-"}
        line["color"] = INK if group[0].local else COLORS[styles[group[0].variant]]
        axes.annotate(
            text,
            (float(group[0].x[-1]), end),
            (1.045, place / points),
            textcoords="axes fraction",
            annotation_clip=False,
            va="center",
            fontsize=9,
            color=INK,
            arrowprops={**line, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 2},
        )


def _in_panels(curves: list[Curve], title: str, label: str, along: str, info: MetricInfo) -> Figure:
    """A panel for every variant, with all the others' personal models behind and Local as the reference."""
    variants = list(dict.fromkeys(curve.variant for curve in curves))
    columns = 5
    lines = -(-len(variants) // columns)
    figure = new_figure(12.0, 1.2 + 1.9 * lines)
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)[: len(variants)]
    for empty in list(grid.flat)[len(variants) :]:
        empty.set_visible(False)
    low, high = visible(curves, info)
    for axes, variant in zip(panels, variants, strict=True):
        own = [curve for curve in curves if curve.variant == variant]
        for other in curves:
            if other.model == "personal" and not other.local:
                axes.plot(other.x, other.mean, color=FAINT, linewidth=0.8, zorder=1)
            elif other.local and other.variant != variant:
                _draw(axes, other._replace(spread=None), 0, linewidth=1.0, zorder=4)
        for curve in own:
            _draw(axes, curve, 0 if curve.model == "personal" else 1, label=curve.model, markersize=3.5)
        axes.set_title(literal(variant, 24), fontsize=9, loc="left")
        end = float(own[-1].mean[-1])
        axes.set_title(format_value(end, info), fontsize=8, loc="right", color=INK)
        if not low <= end <= high:
            edge = 0.08 if info.higher_is_better else 0.86
            axes.text(0.5, edge, "off the axis", transform=axes.transAxes, ha="center", fontsize=8, color=INK)
        axes.set_ylim(low, high)
        _dress(axes, along)
    _explain_styles(figure, curves)
    figure.supxlabel(along, fontsize=10, x=0.99, ha="right")
    figure.supylabel(label, fontsize=10)
    first, *more = title.splitlines()
    first += "; on the right of a name: where it ends"
    figure.suptitle("\n".join((first, *more)), fontsize=12, x=0.01, ha="left")
    return figure

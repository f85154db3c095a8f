"""Pictures of records. Each function returns the figure, or saves it whole or not at all where a path is given."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.analysis.compare import EQUAL, Comparison
from fedprior.analysis.grouping import Seeds
from fedprior.analysis.series import ROUNDS, find_metric, series_of
from fedprior.errors import unknown
from fedprior.files import replace_file
from fedprior.records.schema import ACCURACY, MetricInfo
from fedprior.report.names import literally
from fedprior.report.words import format_value, in_unit, metric_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB", "#000000")  # Paul Tol's "bright"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def learning_curves(
    task: str, by_variant: Mapping[str, Seeds], path: Path | None = None, *, metric: str = "accuracy"
) -> Figure:
    """A metric on the clients' own test samples against the round: mean over seeds with a band of one deviation.

    Personal models are drawn solid, global models dashed: in one picture with a colour per variant, or, if there are more
    variants than colours, in a panel per variant before the personal models of all the others in grey.
    """
    info = find_metric([record for seeds in by_variant.values() for record in seeds.values()], metric)
    curves = {variant: _curves(seeds, metric) for variant, seeds in by_variant.items()}
    seeds = max(map(len, by_variant.values()))
    title = f"{task}: mean and one standard deviation over {_counted(seeds)}"
    label = f"{metric_words(info)} on own test samples, weighted" + (f" ({info.unit})" if info.unit else "")
    few = len(by_variant) <= len(COLORS)
    figure = _together(curves, title, label) if few else _in_panels(curves, title, label, info)
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return save(literally(figure), path)


Curve = tuple[list[int], np.ndarray, np.ndarray]  # rounds, mean and deviation over seeds


def _together(curves: Mapping[str, Mapping[str, Curve]], title: str, label: str) -> Figure:
    figure = new_figure(8.0, 4.8)
    axes = figure.add_subplot()
    for color, (variant, models) in zip(COLORS, curves.items(), strict=False):
        for model, curve in models.items():
            _draw(axes, model, curve, color, f"{variant}, {model}")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set(xlabel="round", ylabel=label)
    axes.set_title(title, loc="left")
    return figure


def _in_panels(curves: Mapping[str, Mapping[str, Curve]], title: str, label: str, info: MetricInfo) -> Figure:
    columns = 5
    lines = -(-len(curves) // columns)
    figure = new_figure(12.0, 1.0 + 1.9 * lines)
    grid = figure.subplots(lines, columns, sharex=True, sharey=True)
    panels = list(grid.flat)[: len(curves)]
    for empty in list(grid.flat)[len(curves) :]:
        empty.set_visible(False)
    for axes, (variant, models) in zip(panels, curves.items(), strict=True):
        for other in curves.values():
            if "personal" in other:
                axes.plot(*other["personal"][:2], color="#DDDDDD", linewidth=0.8, zorder=1)
        for model, curve in models.items():
            _draw(axes, model, curve, COLORS[0] if model == "personal" else COLORS[1], model)
        axes.set_title(variant, fontsize=9, loc="left")
    ends = [curve[1][-1] for models in curves.values() for curve in models.values()]
    if ends and info.unit == "%" and info.higher_is_better:
        # Where they end is what they differ in; the first rounds may lie below.
        panels[0].set_ylim(max(0.0, min(ends) - 10), max(ends) + 2)
    handles = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    named = {model: handles[model] for model in ("personal", "global") if model in handles}
    figure.legend(named.values(), named.keys(), frameon=False, loc="outside upper right", ncols=2, fontsize=9)
    figure.supxlabel("round", fontsize=10)
    figure.supylabel(label, fontsize=10)
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    return figure


def _curves(seeds: Seeds, metric: str) -> dict[str, Curve]:
    """A variant's global and personal curves; a personal model that is the global one is not drawn twice."""
    series = [series_of(record, metric) for record in seeds.values()]
    drawn: dict[str, Curve] = {}
    for model in ("global", "personal"):
        curves = [each.get((model, "own", "weighted"), {}) for each in series]
        rounds = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
        values = np.array([[curve[t] for t in rounds] for curve in curves])
        if not rounds or any(np.array_equal(values.mean(0), mean) for _, mean, _ in drawn.values()):
            continue
        drawn[model] = (rounds, values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(rounds)))
    return drawn


def _counted(seeds: int) -> str:
    return f"{seeds} seed{'s' if seeds > 1 else ''}"


def _draw(axes: Axes, model: str, curve: Curve, color: str, label: str) -> None:
    rounds, mean, spread = curve
    style = "-" if model == "personal" else "--"
    axes.plot(rounds, mean, style, color=color, linewidth=1.6, label=label, zorder=3)
    axes.fill_between(rounds, mean - spread, mean + spread, color=color, alpha=0.15, linewidth=0, zorder=2)


def client_differences(comparison: Comparison, path: Path | None = None) -> Figure:
    """Each client's difference from the reference, one row per variant: better in blue, worse in red, equal in grey.

    A dot is a client, averaged over seeds, its area the number of its test samples. Diamonds are means over clients with
    their 95 % intervals over seeds, if there are several: filled weighted by samples, hollow plain.
    """
    rows = {f"{m} ({e.model})": e.difference for m, e in comparison.variants.items() if e.difference is not None}
    info = comparison.metric
    figure = new_figure(9, 1.8 + 0.95 * len(rows))
    axes = figure.add_subplot()
    axes.axvline(0, color="#333333", linewidth=1, zorder=1)
    every = [x for d in rows.values() for x in d.per_client]
    near = max(max(every) - min(every), 1.0 if info.unit == "%" else EQUAL) / 60
    area = 12 + 70 * np.array(comparison.samples) / max(comparison.samples)
    labels = []
    for y, (name, d) in enumerate(rows.items()):
        x = np.array(d.per_client)
        gain = x if info.higher_is_better else -x
        color = np.select([gain > EQUAL, gain < -EQUAL], [COLORS[0], COLORS[1]], "#888888")
        axes.scatter(x, y + _side_by_side(x, near), s=area, c=color, alpha=0.6, linewidths=0, zorder=2)
        for mean, below, fill in ((d.weighted, 0.36, "black"), (d.mean, 0.46, "white")):
            axes.errorbar(
                mean.mean,
                y + below,
                xerr=mean.half,
                fmt="D",
                color="black",
                markerfacecolor=fill,
                markersize=4.5,
                linewidth=1.2,
                zorder=3,
            )
        labels.append(f"{name}\n{d.wins} better, {d.ties} equal,\n{d.losses} worse; {_counted(len(d.seeds))}")
    axes.set_yticks(range(len(rows)), labels, fontsize=8.5)
    axes.set_ylim(len(rows) - 0.4, -0.5)
    points = "," + in_unit(info, "points") if info.unit else ""
    axes.set_xlabel(
        f"difference in {metric_words(info)} on own test samples from {comparison.reference}{points}\n"
        "dots: clients (larger: more samples); ◆ mean weighted by samples, ◇ plain mean, with 95 % intervals over seeds",
        fontsize=8.5,
    )
    axes.set_title(f"{comparison.task}: every client, {ROUNDS[comparison.round]}", loc="left")
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return save(literally(figure), path)


def _side_by_side(x: np.ndarray, width: float) -> np.ndarray:
    """How far to move dots from their line so that those within ``width`` of each other do not hide one another."""
    place, bins = np.zeros(len(x)), np.round(x / width)
    for b in np.unique(bins):
        inside = np.flatnonzero(bins == b)
        step = min(0.08, 0.6 / len(inside))
        place[inside] = step * (np.arange(len(inside)) - (len(inside) - 1) / 2)
    return place


def parallel_coordinates(
    task: str,
    sweeps: Mapping[str, Mapping[str, Any]],
    about: str,
    path: Path | None = None,
    *,
    info: MetricInfo = ACCURACY,
) -> Figure:
    """Every setting of a sweep as a line through its values to its number on validation; a panel per method.

    ``sweeps``: method -> what ``choice.summarize_sweep`` gives; ``about`` says what number it is. Values stand side by side
    at equal distances, so that decades and names read alike; at each of them the lines are fanned out, the better the
    higher.
    """
    sweeps = {method: sweep for method, sweep in sweeps.items() if sweep["cells"][0]["setting"]}
    columns = 1 + max(len(sweep["cells"][0]["setting"]) for sweep in sweeps.values())
    figure = new_figure(1.2 + 2.1 * max(columns, 3), 3.9 * len(sweeps))
    panels = figure.subplots(len(sweeps), 1, squeeze=False)[:, 0]
    for axes, (method, sweep) in zip(panels, sweeps.items(), strict=True):
        _settings_panel(axes, sweep, info)
        chosen = "" if sweep["chosen"] is None else ", the chosen one in red"
        axes.set_title(f"{task}, {method}: {len(sweep['cells'])} settings{chosen}", loc="left", pad=10)
    figure.supxlabel(about, fontsize=8, x=0.01, ha="left")
    return save(literally(figure), path)


def _settings_panel(axes: Axes, sweep: Mapping[str, Any], info: MetricInfo) -> None:
    """Draw one method's settings between heights 0 and 1, the best on top; what diverged ends below."""
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    cells, keys = sweep["cells"], list(sweep["cells"][0]["setting"])
    means = [cell["validation"]["mean"] for cell in cells if cell["validation"]]
    low, high = (min(means), max(means)) if means else (0.0, 100.0)
    if high - low < 1e-9:
        low, high = low - 1, high + 1
    bottom, top = (low, high) if info.higher_is_better else (high, low)
    nowhere = -0.28
    ends = np.array(
        [(c["validation"]["mean"] - bottom) / (top - bottom) if c["validation"] else nowhere for c in cells]
    )
    heights = np.stack(
        [*(_fanned([c["setting"][key] for c in cells], ends, axes, k) for k, key in enumerate(keys)), ends]
    )
    along = np.linspace(0, 1, 40)
    bend = along * along * (3 - 2 * along)  # a line leaves and reaches an axis level: so it can be followed
    for i in np.argsort(ends, kind="stable"):
        chosen, diverged = cells[i]["setting"] == sweep["chosen"], not cells[i]["validation"]
        color = COLORS[1] if chosen else "#999999" if diverged else colormaps["viridis"](0.85 * (1 - ends[i]))
        width, layer = (3.2, 4) if chosen else (1.3 if len(cells) < 40 else 0.8, 2)
        for k, (a, b) in enumerate(itertools.pairwise(heights[:, i])):
            style = "--" if diverged else "-"
            axes.plot(k + along, a + (b - a) * bend, style, color=color, linewidth=width, zorder=layer)
        axes.plot(len(keys), ends[i], "x" if diverged else "o", color=color, markersize=2 + 2 * width, zorder=layer)
        if chosen:
            text = format_value(cells[i]["validation"]["mean"], info)
            number = axes.annotate(text, (len(keys), ends[i]), (-8, 8), textcoords="offset points")
            number.set(color=color, fontweight="bold", ha="right", zorder=5)
    axes.vlines(range(len(keys) + 1), -0.15, 1.15, color="#333333", linewidth=1, zorder=3)
    axes.set_xticks(range(len(keys) + 1), [*keys, f"validation {info.label}"])
    axes.xaxis.tick_top()
    ticks = {(t - bottom) / (top - bottom): f"{t:g}" for t in MaxNLocator(5).tick_values(low, high) if low <= t <= high}
    if len(means) < len(cells):
        ticks[nowhere] = "diverged"
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.yaxis.tick_right()
    axes.hlines(list(ticks), len(keys), len(keys) + 0.03, color="#333333", linewidth=1)
    axes.set(xlim=(-0.35, len(keys) + 0.03), ylim=(min(*ticks, -0.15) - 0.04, 1.17))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _fanned(values: list[Any], ends: np.ndarray, axes: Axes, at: int) -> np.ndarray:
    """Label one swept key's axis with its values, and give each line its height there."""
    ticks = list(dict.fromkeys(values))
    if not any(isinstance(tick, str | bool) for tick in ticks):
        ticks.sort()
    step = 1 / max(len(ticks) - 1, 1)
    heights = np.zeros(len(values))
    for k, tick in enumerate(ticks):
        middle = k * step if len(ticks) > 1 else 0.5
        here = np.array([i for i, value in enumerate(values) if value == tick])
        spread = min(0.03 * (len(here) - 1), 0.22 * step, 0.12)
        heights[here[np.argsort(ends[here], kind="stable")]] = middle + np.linspace(-spread, spread, len(here))
        text = f"{tick:g}" if isinstance(tick, float) else str(tick)
        label = axes.annotate(text, (at, middle), (-7, 0), textcoords="offset points", zorder=5)
        label.set(ha="right", va="center", bbox={"color": "white", "alpha": 0.9, "pad": 1.5})
    return heights


def save(figure: Figure, path: Path | None) -> Figure:
    """Write a figure whole or not at all, unless there is no path; the ending names the format."""
    if path is None:
        return figure
    kind = path.suffix.lstrip(".") or "png"
    if kind not in (valid := figure.canvas.get_supported_filetypes()):
        raise unknown(f"kind of picture ({path.name})", kind, valid)
    replace_file(path, lambda p: figure.savefig(p, format=kind, dpi=150))
    return figure

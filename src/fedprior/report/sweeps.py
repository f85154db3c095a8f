"""What a sweep tried: a line along the values of one setting, or parallel coordinates through those of several."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.records.schema import ACCURACY, MetricInfo
from fedprior.report.canvas import COLORS, INK, literal, new_figure, save
from fedprior.report.words import counted, counted_seeds, format_setting, format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

CHOSEN = COLORS[1]
NOWHERE = -0.28  # where in parts of the axis a line ends whose setting diverged


def sweep_picture(
    task: str,
    sweeps: Mapping[str, Mapping[str, Any]],
    about: str,
    path: Path | None = None,
    *,
    info: MetricInfo = ACCURACY,
) -> Figure:
    """Every setting of a sweep with its number on validation; a panel per method.

    ``sweeps``: method -> what ``choice.summarize_sweep`` gives; ``about`` says what number it is. Where one setting varies,
    its values are the x axis. Where several do, each tried combination is a line through its values to its number: values
    stand side by side at equal distances, so that decades and names read alike; at each of them the lines are fanned out,
    the better the higher.
    """
    sweeps = {method: sweep for method, sweep in sweeps.items() if sweep["cells"][0]["setting"]}
    columns = 1 + max((len(sweep["cells"][0]["setting"]) for sweep in sweeps.values()), default=1)
    tall = [3.4 if len(sweep["cells"][0]["setting"]) == 1 else 3.9 for sweep in sweeps.values()] or [3.4]
    figure = new_figure(1.8 + 2.1 * max(columns, 3), sum(tall))
    panels = figure.subplots(len(tall), 1, squeeze=False, height_ratios=tall)[:, 0]
    if not sweeps:
        panels[0].set_axis_off()
        panels[0].set_title(f"{literal(task)}: nothing was varied", loc="left")
    for axes, (method, sweep) in zip(panels, sweeps.items(), strict=False):
        one = len(sweep["cells"][0]["setting"]) == 1
        (_line_panel if one else parallel_panel)(axes, sweep, info)
        tried = counted(len(sweep["cells"]), "value" if one else "setting")
        chosen = "" if sweep["chosen"] is None else ", the chosen one in red"
        axes.set_title(f"{literal(task)}, {literal(method)}: {tried}{chosen}", loc="left", pad=10)
    figure.supxlabel(literal(about, 400), fontsize=8, x=0.01, ha="left")
    return save(figure, path)


def _number(cell: Mapping[str, Any]) -> float | None:
    """What a setting is chosen by; None if it diverged."""
    number = cell["validation"]
    return float(number["mean"]) if number and np.isfinite(number["mean"]) else None


# -- one setting -------------------------------------------------------------------------------------------------------


def is_name(value: Any) -> bool:
    """Whether the value of a setting has no place among numbers, such as that of one that is off."""
    return isinstance(value, bool) or not isinstance(value, int | float)


def scale_of(values: Sequence[Any]) -> str:
    """How the values of a setting are laid out: "log" where they are geometric, "linear" where they are even, or "names".

    >>> scale_of([0.01, 0.03, 0.1]), scale_of([5, 10, 15, 20]), scale_of([0.0, 0.001, 1.0]), scale_of(["w", "theta"])
    ('log', 'linear', 'names', 'names')
    """
    if any(is_name(value) or not np.isfinite(value) for value in values):
        return "names"
    x = np.unique(np.asarray(values, float))
    if len(x) < 3:
        return "log" if len(x) == 2 and x[0] > 0 and x[1] / x[0] >= 8 else "linear"

    def unevenness(places: np.ndarray) -> float:
        steps = np.diff(places)
        return float(steps.max() / steps.min())

    if x[0] > 0 and unevenness(np.log(x)) < unevenness(x):
        return "log"
    return "linear" if unevenness(x) < 8 else "names"


def _line_panel(axes: Axes, sweep: Mapping[str, Any], info: MetricInfo) -> None:
    """One setting: its values along x, its numbers as a line with deviations over seeds, what diverged at the edge."""
    ((key, _),) = sweep["cells"][0]["setting"].items()
    values = [cell["setting"][key] for cell in sweep["cells"]]
    scale = scale_of(values)
    named = any(map(is_name, values))
    order = list(range(len(values))) if named else sorted(range(len(values)), key=lambda i: values[i])
    x = np.empty(len(values))
    x[order] = np.arange(len(values)) if scale == "names" else [values[i] for i in order]
    means = [_number(cell) for cell in sweep["cells"]]
    y = np.array([np.nan if mean is None else mean for mean in means])
    spread = np.array([(cell["validation"] or {}).get("std") or 0.0 for cell in sweep["cells"]])
    line = "" if named else "-"
    axes.plot(x[order], y[order], f"{line}o", color=COLORS[0], markersize=5, zorder=2)
    if spread.any():
        axes.errorbar(x, y, yerr=spread, fmt="none", ecolor=COLORS[0], capsize=3, zorder=2)
    axes.set_xscale("log" if scale == "log" else "linear")
    axes.set_xticks(x[order], [literal(format_setting(values[i]), 16) for i in order])
    axes.minorticks_off()
    axes.margins(x=0.08, y=0.15)
    diverged = [i for i, mean in enumerate(means) if mean is None]
    edge = axes.get_xaxis_transform()
    axes.plot(
        x[diverged], np.full(len(diverged), 0.03), "x", color="#777777", markersize=8, transform=edge, label="diverged"
    )
    for i in diverged:
        note = axes.annotate("diverged", (x[i], 0.03), (0, 7), xycoords=edge, textcoords="offset points")
        note.set(ha="center", fontsize=8, color="#777777")
    for i, cell in enumerate(sweep["cells"]):
        if cell["setting"] == sweep["chosen"] and means[i] is not None:
            axes.plot(x[i], y[i], "o", color=CHOSEN, markersize=10, zorder=3, label="chosen")
            number = axes.annotate(
                format_value(means[i], info), (x[i], y[i] + spread[i]), (0, 8), textcoords="offset points"
            )
            number.set(color=CHOSEN, fontweight="bold", ha="center", zorder=4)
    seeds = [len(cell["validation"]["seeds"]) for cell in sweep["cells"] if cell["validation"]]
    over = f",\nmean and one standard deviation over {counted_seeds(seeds)}" if spread.any() else ""
    better = "" if info.higher_is_better else " (lower is better)"
    axes.set_xlabel(
        literal(key)
        + (" (log scale)" if scale == "log" else " (evenly spaced)" if scale == "names" and not named else "")
    )
    axes.set_ylabel(f"validation {literal(info.label, 60)}{better}{over}", fontsize=8.5)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


# -- several settings --------------------------------------------------------------------------------------------------


def _colors() -> Colormap:
    """Dark for the best, and without the palest part, which does not show on white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"](np.linspace(0.85, 0, 256)))


def parallel_panel(axes: Axes, sweep: Mapping[str, Any], info: MetricInfo, what: str = "validation") -> None:
    """Draw one method's settings between heights 0 and 1, the best on top; what diverged ends below.

    ``what``: of what the numbers under "validation" are, where that is something else.
    """
    cells, keys = sweep["cells"], list(sweep["cells"][0]["setting"])
    numbers = [_number(cell) for cell in cells]
    means = [number for number in numbers if number is not None]
    low, high = (min(means), max(means)) if means else (0.0, 1.0)
    if high - low < 1e-9:
        low, high = low - 1, high + 1
    bottom, top = (low, high) if info.higher_is_better else (high, low)
    ends = np.array([NOWHERE if number is None else (number - bottom) / (top - bottom) for number in numbers])
    heights = np.stack(
        [*(_fanned([c["setting"][key] for c in cells], ends, axes, k) for k, key in enumerate(keys)), ends]
    )
    colors = _colors()
    along = np.linspace(0, 1, 40)
    bend = along * along * (3 - 2 * along)  # a line leaves and reaches an axis level: so it can be followed
    for i in np.argsort(ends, kind="stable"):
        chosen, diverged = cells[i]["setting"] == sweep["chosen"], numbers[i] is None
        color = CHOSEN if chosen else "#999999" if diverged else colors(ends[i])
        width, layer = (3.2, 4) if chosen else (1.3 if len(cells) < 40 else 0.8, 2)
        for k, (a, b) in enumerate(itertools.pairwise(heights[:, i])):
            style = "--" if diverged else "-"
            axes.plot(k + along, a + (b - a) * bend, style, color=color, linewidth=width, zorder=layer)
        axes.plot(len(keys), ends[i], "x" if diverged else "o", color=color, markersize=2 + 2 * width, zorder=layer)
        if chosen:
            text = format_value(numbers[i], info)
            number = axes.annotate(text, (len(keys), ends[i]), (-8, 8), textcoords="offset points")
            number.set(color=color, fontweight="bold", ha="right", zorder=5)
    axes.vlines(range(len(keys) + 1), -0.15, 1.15, color=INK, linewidth=1, zorder=3)
    axes.set_xticks(range(len(keys) + 1), [*(literal(key) for key in keys), f"{what} {literal(info.label, 60)}"])
    axes.xaxis.tick_top()
    axes.set(xlim=(-0.35, len(keys) + 0.03), ylim=(min(-0.15, *ends) - 0.04, 1.17))
    axes.set_yticks([NOWHERE] * (len(means) < len(cells)), ["diverged"] * (len(means) < len(cells)))
    axes.yaxis.tick_right()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    _color_scale(axes, bottom, top, info)


def _color_scale(axes: Axes, bottom: float, top: float, info: MetricInfo) -> None:
    """The scale of the last axis in the colours of the lines, at the heights where they end."""
    from matplotlib.ticker import MaxNLocator

    low, high = sorted((bottom, top))
    scale = axes.inset_axes((len(axes.get_xticks()) - 1 + 0.03, 0.0, 0.06, 1.0), transform=axes.transData)
    scale.imshow(
        np.linspace(0, 1, 256)[:, None], cmap=_colors(), aspect="auto", origin="lower", extent=(0, 1, bottom, top)
    )
    scale.set_xticks([])
    scale.set_yticks([t for t in MaxNLocator(5).tick_values(low, high) if low <= t <= high])
    scale.yaxis.tick_right()
    scale.spines[:].set_visible(False)
    if not info.higher_is_better:
        scale.set_ylabel("lower is better", fontsize=8)
        scale.yaxis.set_label_position("right")


def _fanned(values: list[Any], ends: np.ndarray, axes: Axes, at: int) -> np.ndarray:
    """Label one swept key's axis with its values, and give each line its height there."""
    ticks = list(dict.fromkeys(values))
    if not any(map(is_name, ticks)):
        ticks.sort()
    step = 1 / max(len(ticks) - 1, 1)
    heights = np.zeros(len(values))
    for k, tick in enumerate(ticks):
        middle = k * step if len(ticks) > 1 else 0.5
        here = np.array([i for i, value in enumerate(values) if value == tick])
        spread = min(0.03 * (len(here) - 1), 0.22 * step, 0.12)
        heights[here[np.argsort(ends[here], kind="stable")]] = middle + np.linspace(-spread, spread, len(here))
        label = axes.annotate(
            literal(format_setting(tick), 16), (at, middle), (-7, 0), textcoords="offset points", zorder=5
        )
        label.set(ha="right", va="center", bbox={"color": "white", "alpha": 0.9, "pad": 1.5})
    return heights

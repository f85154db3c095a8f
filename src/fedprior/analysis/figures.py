"""Pictures of records."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedprior.analysis.compare import EQUAL, Comparison
from fedprior.analysis.tables import ROUNDS, Series
from fedprior.errors import unknown
from fedprior.records import replace_file

COLORS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB", "#000000")  # Paul Tol's "bright"


def learning_curves(task: str, runs: dict[str, dict[int, Series]], path: Path) -> None:
    """Accuracy on the clients' own test samples against the round: mean over seeds with a band of one deviation.

    Personal models are drawn solid, global models dashed: in one picture with a colour per method, or, if there are more
    methods than colours, in a panel per method before the personal models of all the others in grey.
    """
    curves = {method: _curves(by_seed) for method, by_seed in runs.items()}
    together = len(runs) <= len(COLORS)
    columns = 1 if together else 5
    lines = -(-len(runs) // columns)
    size = (8.0, 4.8) if together else (12.0, 1.0 + 1.9 * lines)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    if together:
        axes = figure.add_subplot()
        for color, (method, models) in zip(COLORS, curves.items(), strict=False):
            for model, curve in models.items():
                _draw(axes, model, curve, color, f"{method}, {model}")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        panels = [axes]
    else:
        grid = figure.subplots(lines, columns, sharex=True, sharey=True)
        panels = list(grid.flat)[: len(runs)]
        for empty in list(grid.flat)[len(runs) :]:
            empty.set_visible(False)
        for axes, (method, models) in zip(panels, curves.items(), strict=True):
            for other in curves.values():
                if "personal" in other:
                    axes.plot(*other["personal"][:2], color="#DDDDDD", linewidth=0.8, zorder=1)
            for model, curve in models.items():
                _draw(axes, model, curve, COLORS[0] if model == "personal" else COLORS[1], model)
            axes.set_title(method, fontsize=9, loc="left")
        ends = [curve[1][-1] for models in curves.values() for curve in models.values()]
        if ends:  # where they end is what they differ in; the first rounds may lie below
            panels[0].set_ylim(max(0.0, min(ends) - 10), max(ends) + 2)
        handles = {line.get_label(): line for axes in panels for line in axes.get_lines()}
        shown = {model: handles[model] for model in ("personal", "global") if model in handles}
        figure.legend(shown.values(), shown.keys(), frameon=False, loc="outside upper right", ncols=2, fontsize=9)
    for axes in panels:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    seeds = max(len(by_seed) for by_seed in runs.values())
    title = f"{task}: mean and one standard deviation over {seeds} seed{'s' if seeds > 1 else ''}"
    if together:
        panels[0].set(xlabel="round", ylabel="accuracy on own test samples, weighted (%)")
        panels[0].set_title(title, loc="left")
    else:
        figure.supxlabel("round", fontsize=10)
        figure.supylabel("accuracy on own test samples, weighted (%)", fontsize=10)
        figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    save(figure, path)


Curve = tuple[list[int], np.ndarray, np.ndarray]  # rounds, mean and deviation over seeds


def _curves(by_seed: dict[int, Series]) -> dict[str, Curve]:
    """A method's global and personal curves; a personal model that is the global one is not drawn twice."""
    found: dict[str, Curve] = {}
    for model in ("global", "personal"):
        curves = [series.get((model, "own", "weighted"), {}) for series in by_seed.values()]
        rounds = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
        values = np.array([[curve[t] for t in rounds] for curve in curves])
        if not rounds or any(np.array_equal(values.mean(0), mean) for _, mean, _ in found.values()):
            continue
        found[model] = (rounds, values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(rounds)))
    return found


def _draw(axes: Axes, model: str, curve: Curve, color: str, label: str) -> None:
    rounds, mean, spread = curve
    style = "-" if model == "personal" else "--"
    axes.plot(rounds, mean, style, color=color, linewidth=1.6, label=label, zorder=3)
    axes.fill_between(rounds, mean - spread, mean + spread, color=color, alpha=0.15, linewidth=0, zorder=2)


def client_differences(found: Comparison, path: Path) -> None:
    """Each client's difference from the reference, one row per method: better in blue, worse in red, equal in grey.

    A dot is a client, averaged over seeds, its area the number of its test samples. Diamonds are means over clients with
    their 95 % intervals over seeds, if there are several: filled weighted by samples, hollow plain.
    """
    rows = {f"{m} ({e.model})": e.difference for m, e in found.methods.items() if e.difference is not None}
    figure = Figure(figsize=(9, 1.8 + 0.95 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.axvline(0, color="#333333", linewidth=1, zorder=1)
    every = [x for d in rows.values() for x in d.per_client]
    near = max(max(every) - min(every), 1.0) / 60
    area = 12 + 70 * np.array(found.samples) / max(found.samples)
    labels = []
    for y, (name, d) in enumerate(rows.items()):
        x = np.array(d.per_client)
        color = np.select([x > EQUAL, x < -EQUAL], [COLORS[0], COLORS[1]], "#888888")
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
        seeds = f"{len(d.seeds)} seed{'s' if len(d.seeds) > 1 else ''}"
        labels.append(f"{name}\n{d.wins} better, {d.ties} equal,\n{d.losses} worse; {seeds}")
    axes.set_yticks(range(len(rows)), labels, fontsize=8.5)
    axes.set_ylim(len(rows) - 0.4, -0.5)
    axes.set_xlabel(
        f"difference in accuracy on own test samples from {found.reference}, in points\n"
        "dots: clients (larger: more samples); ◆ mean weighted by samples, ◇ plain mean, with 95 % intervals over seeds",
        fontsize=8.5,
    )
    axes.set_title(f"{found.task}: every client, {ROUNDS[found.round]}", loc="left")
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    save(figure, path)


def _side_by_side(x: np.ndarray, width: float) -> np.ndarray:
    """How far to move dots from their line so that those within ``width`` of each other do not hide one another."""
    place, bins = np.zeros(len(x)), np.round(x / width)
    for b in np.unique(bins):
        inside = np.flatnonzero(bins == b)
        step = min(0.08, 0.6 / len(inside))
        place[inside] = step * (np.arange(len(inside)) - (len(inside) - 1) / 2)
    return place


def parallel_coordinates(task: str, swept: dict[str, dict[str, Any]], about: str, path: Path) -> None:
    """Every setting of a sweep as a line through its values to its validation accuracy; a panel per method.

    ``swept``: method -> {"cells": [{"setting", "validation"}], "chosen"}; ``about`` says what accuracy it is. Values stand
    side by side at equal distances, so that decades and names read alike; at each of them the lines are fanned out, the
    more accurate the higher.
    """
    swept = {method: found for method, found in swept.items() if found["cells"][0]["setting"]}
    columns = 1 + max(len(found["cells"][0]["setting"]) for found in swept.values())
    figure = Figure(figsize=(1.2 + 2.1 * max(columns, 3), 3.9 * len(swept)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (method, found) in zip(figure.subplots(len(swept), 1, squeeze=False)[:, 0], swept.items(), strict=True):
        _settings_panel(axes, found)
        chosen = "" if found["chosen"] is None else ", the chosen one in red"
        axes.set_title(f"{task}, {method}: {len(found['cells'])} settings{chosen}", loc="left", pad=10)
    figure.supxlabel(about, fontsize=8, x=0.01, ha="left")
    save(figure, path)


def _settings_panel(axes: Axes, found: dict[str, Any]) -> None:
    """Draw one method's settings between heights 0 and 1; what diverged ends below."""
    cells, keys = found["cells"], list(found["cells"][0]["setting"])
    means = [cell["validation"]["mean"] for cell in cells if cell["validation"]]
    low, high = (min(means), max(means)) if means else (0.0, 100.0)
    if high - low < 1e-9:
        low, high = low - 1, high + 1
    nowhere = -0.28
    ends = np.array([(c["validation"]["mean"] - low) / (high - low) if c["validation"] else nowhere for c in cells])
    heights = np.stack(
        [*(_fanned([c["setting"][key] for c in cells], ends, axes, k) for k, key in enumerate(keys)), ends]
    )
    along = np.linspace(0, 1, 40)
    bend = along * along * (3 - 2 * along)  # a line leaves and reaches an axis level: so it can be followed
    for i in np.argsort(ends, kind="stable"):
        chosen, diverged = cells[i]["setting"] == found["chosen"], not cells[i]["validation"]
        color = COLORS[1] if chosen else "#999999" if diverged else colormaps["viridis"](0.85 * (1 - ends[i]))
        width, layer = (3.2, 4) if chosen else (1.3 if len(cells) < 40 else 0.8, 2)
        for k, (a, b) in enumerate(itertools.pairwise(heights[:, i])):
            style = "--" if diverged else "-"
            axes.plot(k + along, a + (b - a) * bend, style, color=color, linewidth=width, zorder=layer)
        axes.plot(len(keys), ends[i], "x" if diverged else "o", color=color, markersize=2 + 2 * width, zorder=layer)
        if chosen:
            number = axes.annotate(f"{max(means):.2f}", (len(keys), ends[i]), (-8, 8), textcoords="offset points")
            number.set(color=color, fontweight="bold", ha="right", zorder=5)
    axes.vlines(range(len(keys) + 1), -0.15, 1.15, color="#333333", linewidth=1, zorder=3)
    axes.set_xticks(range(len(keys) + 1), [*keys, "validation accuracy (%)"])
    axes.xaxis.tick_top()
    ticks = {(t - low) / (high - low): f"{t:g}" for t in MaxNLocator(5).tick_values(low, high) if low <= t <= high}
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


def save(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all; the ending names the format."""
    kind = path.suffix.lstrip(".") or "png"
    if kind not in (valid := figure.canvas.get_supported_filetypes()):
        raise unknown(f"kind of picture ({path.name})", kind, valid)
    replace_file(path, lambda p: figure.savefig(p, format=kind, dpi=150))

"""Pictures of records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedprior.analysis.tables import Series
from fedprior.errors import unknown
from fedprior.records import replace_file

COLORS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB", "#000000")  # Paul Tol's "bright"


def learning_curves(task: str, runs: dict[str, dict[int, Series]], path: Path) -> None:
    """Accuracy on the clients' own test samples against the round: mean over seeds with a band of one deviation.

    Personal models are drawn solid, global models dashed, in one colour per method.
    """
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for color, (method, by_seed) in zip([COLORS[i % len(COLORS)] for i in range(len(runs))], runs.items(), strict=True):
        drawn: list[np.ndarray] = []
        for model, style in (("global", "--"), ("personal", "-")):
            curves = [series.get((model, "own", "weighted"), {}) for series in by_seed.values()]
            rounds = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
            if not rounds:
                continue
            values = np.array([[curve[t] for t in rounds] for curve in curves])
            mean, spread = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(rounds))
            if any(np.array_equal(mean, other) for other in drawn):
                continue  # FedAvg's personal model is its global one
            drawn.append(mean)
            axes.plot(rounds, mean, style, color=color, linewidth=1.6, label=f"{method}, {model}")
            axes.fill_between(rounds, mean - spread, mean + spread, color=color, alpha=0.15, linewidth=0)
    seeds = max(len(by_seed) for by_seed in runs.values())
    axes.set_xlabel("round")
    axes.set_ylabel("accuracy on own test samples, weighted (%)")
    axes.set_title(f"{task}: mean and one standard deviation over {seeds} seed{'s' if seeds > 1 else ''}", loc="left")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all; the ending names the format."""
    kind = path.suffix.lstrip(".") or "png"
    if kind not in (valid := figure.canvas.get_supported_filetypes()):
        raise unknown(f"kind of picture ({path.name})", kind, valid)
    replace_file(path, lambda p: figure.savefig(p, format=kind, dpi=150))

"""Pictures of what `theory` measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.report.figures import COLORS, save
from fedprior.reproduce.convex import N, quadratic
from fedprior.reproduce.theory import R, Table, slopes, step_bound

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _axes(title: str, x: str, y: str) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y, xscale="log", yscale="log")
    axes.set_title(title, loc="left")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw(rates: Table, radii: Table, steps: Table, folder: Path) -> list[Path]:
    """The three pictures."""
    figure, axes = _axes("Theorem 1: error of the average iterate", "rounds T", r"$F(\bar w^{(T)}) - F(w^*)$")
    for color, (problem, s, slope, half) in zip(COLORS, slopes(rates), strict=False):
        rows = [r for r in rates if (r["problem"], r["S"]) == (problem, s)]
        t, e = [float(r["T"]) for r in rows], [float(r["error"]) for r in rows]
        style = "-o" if s < N else "--s"
        axes.plot(t, e, style, color=color, label=f"{problem}, S = {s} of {N}: slope {slope:.2f} ± {half:.2f}")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    paths = [folder / "theory-rate.png", folder / "theory-radius.png", folder / "theory-step.png"]
    save(figure, paths[0])

    figure, axes = _axes(
        "Theorem 2: distance of personal models from $w^*$", r"$\lambda$", r"mean $\|\theta_i - w^*\|^2$"
    )
    lam = [float(r["lambda"]) for r in radii]
    names = ("exact", "noisy", "4 sigma^2 / lambda^2")
    for color, key in zip(COLORS, names, strict=False):
        label = {
            "exact": "exact proximal point",
            "noisy": "5 steps on batches of 2",
            "4 sigma^2 / lambda^2": r"$4\sigma_{F,*}^2/\lambda^2$",
        }[key]
        axes.plot(
            lam,
            [float(r[key]) for r in radii],
            "-o" if key != "4 sigma^2 / lambda^2" else ":",
            color=color,
            label=label,
        )
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    save(figure, paths[1])

    setting = quadratic(lam=2.0)
    bounds = step_bound(setting, R)
    figure, axes = _axes(
        "Theorem 1: below and above the step-size bound", r"$\tilde\alpha_m$", r"$F(w^{(300)}) - F(w^*)$"
    )
    x, y = [float(r["step"]) for r in steps], [min(float(r["error of w^(T)"]), 1e6) for r in steps]
    axes.plot(x, np.maximum(y, 1e-20), "-o", color=COLORS[0])
    for color, key in ((COLORS[1], "bound"), (COLORS[2], "2 / L_F")):
        axes.axvline(bounds[key], color=color, linestyle="--", label=f"{key} = {bounds[key]:.3g}")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    save(figure, paths[2])
    return paths

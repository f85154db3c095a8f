"""Pictures of what `theory` measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprior.report.canvas import COLORS, new_figure, save
from fedprior.reproduce.theorems.convex import quadratic
from fedprior.reproduce.theorems.measure import Measured, R, conditions
from fedprior.reproduce.theorems.rate import Curve, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#777777"


def _dress(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set(xlabel=x, ylabel=y, xscale="log", yscale="log")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _slope_text(curve: Curve) -> str:
    """The slope of a curve with its interval over seeds, which one where nothing is random does not have."""
    value, low, high = (f"{round(x, 2) + 0.0:.2f}" for x in curve.slope())
    n = len(curve.errors)
    return f"slope {value}" + (f" [{low}, {high}], {n} seeds" if n > 1 else ", nothing is random")


def _plot(axes: Axes, curve: Curve, color: str, marker: str) -> None:
    label = f"{curve.name.replace('w*', '$w^*$')}: {_slope_text(curve)}"
    _with_bars(axes, curve.x, curve.mean, curve.half, f"-{marker}", color=color, label=label)


def _with_bars(axes: Axes, x: Any, y: Any, half: Any, style: str, **more: Any) -> None:
    """Points with intervals, cut where the lower end would leave a logarithmic axis; without where nothing is random."""
    y, half = np.asarray(y, float), np.asarray(half, float)
    if half.any():
        axes.errorbar(x, y, yerr=[np.minimum(half, 0.95 * y), half], fmt=style, capsize=3, markersize=4, **more)
    else:
        axes.plot(x, y, style, markersize=4, **more)


def _note(axes: Axes, text: str, at: tuple[float, float], shift: tuple[float, float], **style: Any) -> None:
    axes.annotate(text, at, shift, textcoords="offset points", **{"color": GREY, "fontsize": 8, **style})


def _reference(axes: Axes, x: np.ndarray, y: float, *powers: float) -> None:
    """Grey dashed lines of given slopes that leave one point, each named beyond its end."""
    ends = np.array([x.min(), x.max()], float)
    for power in powers:
        heights = y * (ends / ends[0]) ** power
        axes.plot(ends, heights, linestyle=(0, (6, 3)), color=GREY, linewidth=1, zorder=1, label=f"_slope {power:g}")
        _note(axes, f"slope {power:g}", (ends[1], heights[1]), (3, 0), va="center")


def rate(measured: Measured) -> Figure:
    """The error against T with sampled clients, against N, and against T with all of them."""
    figure = new_figure(13, 4.6)
    left, middle, right = figure.subplots(1, 3, width_ratios=(4, 3, 3))
    _dress(left, "Theorem 1: S < N clients, R = 1", "rounds T", r"$F(\bar w^{(T)}) - F(w^*)$, mean and 95 %")
    sampled = [curve for curve in measured.rounds if len(curve.errors) > 1]
    for curve, color, marker in zip(sampled, COLORS, "os^", strict=False):
        _plot(left, curve, color, marker)
    _reference(left, sampled[0].x, 0.25 * sampled[0].mean[0], -1, -0.5)
    least = conditions(quadratic(), 1).rounds
    left.axvline(least, color=COLORS[0], linewidth=1, linestyle="--")  # of the first curve
    shown = {"xycoords": ("data", "axes fraction"), "color": COLORS[0]}
    _note(left, "blue: inside with $\\beta$ = 1\nfrom here on", (least, 0.99), (3, 0), va="top", **shown)
    _dress(middle, "... against the number of clients", "clients N", "")
    along = [c for c in measured.clients if c.along == "N"]
    for curve, color, marker in zip(along, (COLORS[0], COLORS[5]), "os", strict=False):
        _plot(middle, curve, color, marker)
        middle.plot(curve.x, curve.bounds * curve.mean[0] / curve.bounds[0], "--", color=color, linewidth=1, zorder=1)
    middle.plot([], [], "--", color=GREY, linewidth=1, label="(N/S - 1) / (N - 1), scaled to the first point")
    _reference(middle, along[0].x, 0.4 * along[0].mean[0], -1, -0.5)
    middle.set_xticks(along[0].x, [str(n) for n in along[0].x])
    middle.minorticks_off()
    _dress(right, "... all clients, R = 2, $\\beta$ = 1", "rounds T", "")
    for curve in (curve for curve in measured.rounds if len(curve.errors) == 1):
        _plot(right, curve, COLORS[3], "D")
        _reference(right, curve.x, 0.25 * curve.mean[0], -2, -1)
    for axes in (left, middle, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize=8)
    return figure


def _against_lambda(axes: Axes, table: Table) -> None:
    lam = [row["lambda"] for row in table]
    stepped = next(key for key in table[0] if key.startswith("eta = ") and key != "eta = 0")
    _dress(axes, "Theorem 2: personal models against $\\lambda$", r"$\lambda$", r"$\max_i \|\theta_i - w^*\|^2$")
    shown = (
        ("eta = 0", "identity mean", COLORS[0], "-o"),
        ("bound", "bound, identity mean", COLORS[0], ":"),
        ("noisy", "5 steps on batches of 2, mean and 95 %", COLORS[4], "-s"),
        (stepped, rf"lg, $\eta_\alpha$ = {stepped.split()[-1]}", COLORS[1], "-^"),
        (f"bound, {stepped}", "bound, lg", COLORS[1], ":"),
    )
    for key, label, color, style in shown:
        half = [row.get(f"{key} ±95 %", 0.0) for row in table]
        _with_bars(axes, lam, [row[key] for row in table], half, style, color=color, label=label)
    large = np.array([row["lambda"] for row in table if row["lambda"] >= 10])
    _reference(axes, large, 0.2 * next(row["eta = 0"] for row in table if row["lambda"] == large[0]), -2, -1)


def _against_eta(axes: Axes, table: Table) -> None:
    _dress(axes, r"... against the meta-step, $\lambda$ = 100", r"$\eta$ (lg: $\eta_\alpha$; mh: both)", "")
    styles = {"lg": (COLORS[1], "-^"), "meg": (COLORS[2], "-D"), "mh": (COLORS[5], "-v")}
    rows = {mean: [r for r in table if r["mean"] == mean and r["eta"] > 0] for mean in styles}
    for mean, (color, style) in styles.items():
        if rows[mean]:
            eta = [r["eta"] for r in rows[mean]]
            axes.plot(eta, [r["distance"] for r in rows[mean]], style, color=color, markersize=4, label=mean)
            axes.plot(eta, [r["bound"] for r in rows[mean]], ":", color=color, label=f"bound, {mean}")
            axes.plot(eta, [r["2 (eta G)²"] for r in rows[mean]], "--", color=color, linewidth=1)
    axes.plot([], [], "--", color=GREY, linewidth=1, label=r"the bound's term $2\,\eta^2 G_\Phi^2$, same colours")
    axes.set_ylim(bottom=1e-4)
    plain = next(row["distance"] for row in table if row["eta"] == 0)
    axes.axhline(plain, color=GREY, linewidth=1)
    _note(axes, r"$\eta$ = 0", (0.99, plain), (0, -10), xycoords=("axes fraction", "data"), ha="right")


def radius(measured: Measured) -> Figure:
    """The personal models' distance against lambda and eta."""
    figure = new_figure(11, 4.8)
    left, right = figure.subplots(1, 2)
    _against_lambda(left, measured.radius)
    _against_eta(right, measured.meta)
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize=8, ncols=2)
    return figure


def step(measured: Measured) -> Figure:
    """The error against the step, and where the bound lies."""
    setting = quadratic()
    limits = {"the theorem's bound": conditions(setting, R).bound, "$2R / L_F$": 2 * R / setting.l_envelope}
    figure = new_figure(6.6, 4.2)
    axes = figure.add_subplot()
    _dress(
        axes,
        f"Theorem 1: the step, with S = N and R = {R} (nothing is random)",
        r"$\tilde\alpha_m$",
        r"$F(w^{(300)}) - F(w^*)$",
    )
    shown = [row for row in measured.steps if row["error"] < 1e6]
    x, y = np.array([r["step"] for r in shown]), np.array([max(r["error"], 1e-20) for r in shown])
    axes.plot(x, y, "-o", color=COLORS[0], markersize=4)
    if (best := int(y.argmin())) < len(x) - 1:
        _reference(axes, x[best:], 0.3 * y[best], 2)  # of client drift
    for color, (name, limit), side in zip((COLORS[1], COLORS[2]), limits.items(), ("left", "right"), strict=True):
        axes.axvline(limit, color=color, linestyle="--")
        shift = (4 if side == "left" else -4, 0)
        _note(
            axes,
            f"{name} = {limit:.2g}",
            (limit, 0.02),
            shift,
            xycoords=("data", "axes fraction"),
            ha=side,
            color=color,
        )
    return figure


def draw(measured: Measured, folder: Path) -> list[Path]:
    """Save the three pictures."""
    paths = {folder / f"theory-{part.__name__}.png": part for part in (rate, radius, step)}
    for path, part in paths.items():
        save(part(measured), path)
    return list(paths)

"""The pictures of `theory`, from curves that are made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedprior.reproduce.theorems.measure import Measured
from fedprior.reproduce.theorems.pictures import radius, rate, step
from fedprior.reproduce.theorems.rate import Curve

X = np.array([100.0, 400.0, 1600.0])


def falling(name: str, along: str, power: float, seeds: int) -> Curve:
    """Errors x^power, which scatter over seeds by a tenth."""
    scatter = np.linspace(0.9, 1.1, seeds)[:, None] if seeds > 1 else np.ones((1, 1))
    return Curve(name, along, X, scatter * X**power, np.ones(3), 10.0 * X**power, np.ones(3))


def measured() -> Measured:
    table = [
        {
            **{"lambda": lam, "eta = 0": lam**-2.0, "bound": 2 * lam**-2.0, "noisy": 1.2 * lam**-2.0},
            **{"noisy ±95 %": 0.3 * lam**-2.0, "eta = 0.05": 1.0, "bound, eta = 0.05": 2.0},
        }
        for lam in (1.0, 10.0, 100.0)
    ]
    meta = [
        {"mean": "lg", "eta": eta, "distance": 0.1 + eta, "bound": 1.0, "2 (eta G)²": 2 * eta**2}
        for eta in (0, 0.1, 0.2)
    ]
    return Measured(
        rounds=[falling("sampled", "T", -1, 5), falling("all", "T", -2, 1)],
        clients=[falling("S = N / 4", "N", -1, 5), falling("S = 2", "N", 0, 5)],
        beta=[],
        radius=table,
        meta=meta,
        limit=[],
        deviation=[],
        steps=[{"step": s, "error": e} for s, e in ((0.001, 1.0), (0.1, 1e-6), (0.2, 4e-6))],
        bounds=[],
    )


def guides(axes: Any) -> dict[str, float]:
    """The slope on log-log axes of every line that says that it is a reference, by what stands beside it."""
    named = {}
    for line in axes.lines:
        if (label := str(line.get_label())).startswith("_slope"):
            x, y = np.log(line.get_xdata()), np.log(line.get_ydata())
            named[label.removeprefix("_")] = float((y[1] - y[0]) / (x[1] - x[0]))
            assert label.removeprefix("_") in {text.get_text() for text in axes.texts}
            assert line.get_linestyle() == "--"
    return named


def bars_of(axes: Any, label: str) -> list[tuple[float, float]]:
    """The error bars of a curve whose name begins so, as (low, high)."""
    (found,) = (c for c in axes.containers if str(c.get_label()).startswith(label))
    return [(float(bar[0, 1]), float(bar[1, 1])) for bar in found.lines[2][0].get_segments()]


def panels_of(figure: Figure) -> list[Any]:
    figure.canvas.draw()
    return list(figure.axes)


def test_reference_lines_have_the_slopes_that_they_name() -> None:
    left, middle, right = panels_of(rate(measured()))
    for axes in (left, middle):
        assert guides(axes) == pytest.approx({"slope -1": -1, "slope -0.5": -0.5})
    assert guides(right) == pytest.approx({"slope -2": -2, "slope -1": -1})
    assert guides(panels_of(radius(measured()))[0]) == pytest.approx({"slope -2": -2, "slope -1": -1})
    assert guides(panels_of(step(measured()))[0]) == pytest.approx({"slope 2": 2})


def test_points_have_the_intervals_of_the_tables() -> None:
    left, _, right = panels_of(rate(measured()))
    curve = measured().rounds[0]
    table = [(row["error"] - row["±95 %"], row["error"] + row["±95 %"]) for row in curve.table()]
    assert np.array(bars_of(left, "sampled")) == pytest.approx(np.array(table))
    assert table[0][1] > table[0][0]
    labels = [text.get_text() for text in left.get_legend().get_texts()]
    assert any(label.startswith("sampled: slope -1.00 [") and label.endswith("5 seeds") for label in labels)
    assert "all: slope -2.00, nothing is random" in [text.get_text() for text in right.get_legend().get_texts()]


def test_what_scatters_of_the_personal_models_has_intervals() -> None:
    left, _ = panels_of(radius(measured()))
    bars = bars_of(left, "5 steps on batches of 2")
    assert np.array(bars) == pytest.approx(np.array([(0.9 * s, 1.5 * s) for s in (1.0, 1e-2, 1e-4)]))

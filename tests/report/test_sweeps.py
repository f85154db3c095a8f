"""The picture of a sweep, from settings whose numbers are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from fedprior.records.schema import NLL
from fedprior.report import figures
from fedprior.report.canvas import COLORS
from fedprior.report.sweeps import scale_of
from report.drawings import inside_page, panels_of, texts_of

SETTINGS = [{"lam": lam, "start": start} for lam in (100.0, 0.001) for start in ("w", "theta")]


def number(mean: float, std: float | None = None) -> dict[str, Any]:
    return {"mean": mean, "std": std, "seeds": [0] if std is None else [0, 1, 2]}


def sweep(chosen: int) -> dict[str, Any]:
    numbers = [number(m) for m in (80.0, 90.5, 70.0)]
    cells = [{"setting": s, "validation": n} for s, n in zip(SETTINGS, [*numbers, None], strict=True)]
    return {
        "pfedme": {"cells": cells, "chosen": SETTINGS[chosen]},
        "fedavg": {"cells": [{"setting": {}}], "chosen": {}},
    }


def one_key(key: str, numbers: dict[Any, dict[str, Any] | None], chosen: Any) -> dict[str, Any]:
    cells = [{"setting": {key: value}, "validation": n} for value, n in numbers.items()]
    return {"mh": {"cells": cells, "chosen": None if chosen is None else {key: chosen}}}


def red_lines(axes: Any) -> list[Any]:
    return [line for line in axes.lines if to_hex(line.get_color()) == COLORS[1].lower()]


# -- one setting -------------------------------------------------------------------------------------------------------

ALPHA = {0.1: number(91.0, 0.2), 0.01: number(85.0, 0.4), 1.0: None, 0.03: number(89.0, 0.3)}


def test_a_sweep_of_one_setting_is_a_line_along_its_values() -> None:
    figure = figures.sweep_picture("task", one_key("alpha", ALPHA, 0.1), "accuracy")
    (axes,) = panels_of(figure)
    line = axes.lines[0]
    assert (line.get_xdata().tolist(), line.get_linestyle()) == ([0.01, 0.03, 0.1, 1.0], "-")
    assert line.get_ydata()[:3].tolist() == [85, 89, 91]
    assert np.isnan(line.get_ydata()[3])
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "alpha (log scale)")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.01", "0.03", "0.1", "1"]
    marked = {line.get_label(): line for line in axes.lines}
    assert marked["diverged"].get_xdata().tolist() == [1.0]
    assert (marked["chosen"].get_xdata(), marked["chosen"].get_ydata()) == ([0.1], [91])
    assert {"diverged", "91.00"} <= {text.get_text() for text in axes.texts}
    bars = axes.collections[0].get_segments()  # in the order of the cells
    assert [(bar[0, 0], bar[1, 1] - bar[0, 1]) for bar in bars if len(bar)] == [
        (pytest.approx(x), pytest.approx(height)) for x, height in ((0.1, 0.4), (0.01, 0.8), (0.03, 0.6))
    ]
    assert "one standard deviation over 3 seeds" in axes.get_ylabel()
    assert inside_page(figure)


@pytest.mark.parametrize(
    ("values", "scale", "note"),
    [
        ((5, 10, 15, 20), "linear", "x"),
        ((1, 10), "log", "x (log scale)"),
        ((0.0, 0.001, 0.1), "linear", "x (evenly spaced)"),
        (("w", "theta"), "linear", "x"),
        ((True, False), "linear", "x"),
    ],
)
def test_the_scale_is_that_of_the_values(values: tuple[Any, ...], scale: str, note: str) -> None:
    numbers: dict[Any, Any] = {value: number(80.0 + k) for k, value in enumerate(values)}
    (axes,) = panels_of(figures.sweep_picture("task", one_key("x", numbers, None), "accuracy"))
    assert (axes.get_xscale(), axes.get_xlabel()) == (scale, note)
    named = isinstance(values[0], str | bool)
    assert axes.lines[0].get_linestyle() == ("None" if named else "-")  # names have no order
    assert not axes.collections  # one seed has no deviation
    assert "deviation" not in axes.get_ylabel()


def test_every_value_diverged_and_nothing_varied() -> None:
    figure = figures.sweep_picture("task", one_key("alpha", {0.1: None, 1.0: None}, None), "accuracy")
    (axes,) = panels_of(figure)
    assert [text.get_text() for text in axes.texts] == ["diverged", "diverged"]
    assert "chosen" not in axes.get_title(loc="left")
    nothing = figures.sweep_picture("task", {"fedavg": {"cells": [{"setting": {}}], "chosen": {}}}, "accuracy")
    assert "task: nothing was varied" in texts_of(nothing)


def test_odd_values_are_drawn_as_they_are() -> None:
    values: dict[Any, Any] = {"$a^2$": number(1.0), "_b": number(2.0)}
    texts = texts_of(figures.sweep_picture("$t$_", one_key("$key$", values, None), "$about$", info=NLL))
    assert {"$a^2$", "_b", "$key$", "$about$", "$t$_, mh: 2 values"} <= set(texts)
    assert "validation nll (lower is better)" in texts


# -- several settings --------------------------------------------------------------------------------------------------


def test_every_combination_is_a_line() -> None:
    figure = figures.sweep_picture("task", sweep(1), "accuracy")  # one without a swept key shows nothing
    (axes,) = panels_of(figure)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["lam", "start", "validation accuracy (%)"]
    places = {text.get_text(): text.xy for text in axes.texts}
    assert places["0.001"][1] < places["100"][1]  # numbers in their order, whatever that of the grid
    assert np.concatenate([line.get_ydata() for line in red_lines(axes)])[-1] == 1.0  # it ends at the top
    assert "90.50" in places
    ends = sorted(float(line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1)
    assert ends[1:] == pytest.approx([0.0, 10 / 20.5, 1.0])
    assert ends[0] < 0  # what diverged
    assert "diverged" in [label.get_text() for label in axes.get_yticklabels()]


def test_the_colours_have_a_scale_at_the_heights_of_the_lines() -> None:
    figure = figures.sweep_picture("task", sweep(1), "accuracy")
    (axes,) = panels_of(figure)
    (scale,) = axes.child_axes
    figure.draw_without_rendering()
    assert scale.get_ylim() == (70, 90.5)
    for value, height in ((70, 0), (90.5, 1)):
        in_scale, in_panel = scale.transData.transform((0, value))[1], axes.transData.transform((0, height))[1]
        assert in_scale == pytest.approx(in_panel)
    (image,) = scale.images
    for line in axes.lines:
        if len(line.get_xdata()) == 1 and line not in red_lines(axes) and line.get_ydata()[0] >= 0:
            assert to_hex(line.get_color()) == to_hex(image.cmap(float(line.get_ydata()[0])))


def test_the_best_setting_is_on_top_where_lower_is_better() -> None:
    (axes,) = panels_of(figures.sweep_picture("task", sweep(2), "nll", info=NLL))
    assert axes.get_xticklabels()[-1].get_text() == "validation nll"
    assert np.concatenate([line.get_ydata() for line in red_lines(axes)])[-1] == 1.0
    assert "70.000" in {text.get_text() for text in axes.texts}
    (scale,) = axes.child_axes
    assert scale.get_ylim() == (90.5, 70)
    assert scale.get_ylabel() == "lower is better"


def test_a_setting_may_be_off() -> None:
    assert scale_of([None, 0.1, 1.0]) == "names"
    numbers: dict[Any, dict[str, Any] | None] = {None: number(80.0), 0.1: number(90.0), 1.0: number(70.0)}
    figure = figures.sweep_picture("toy", one_key("clip", numbers, 0.1), "validation")
    assert {"null", "0.1", "1"} <= set(texts_of(figure))
    cells = [
        {"setting": {"clip": clip, "lam": lam}, "validation": number(80.0 + lam)}
        for clip in (None, 0.1)
        for lam in (1.0, 2.0)
    ]
    figures.sweep_picture("toy", {"mh": {"cells": cells, "chosen": cells[0]["setting"]}}, "validation")

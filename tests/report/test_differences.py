"""The picture of a comparison, from differences that are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from analysis.handmade import MACRO_F1, evaluated, record
from matplotlib.colors import to_hex

from fedprior.analysis.compare import Comparison, Interval, compare
from fedprior.records.schema import ACCURACY, NLL, ClientId, MetricInfo
from fedprior.report import figures
from fedprior.report.canvas import COLORS, PAGE
from fedprior.report.differences import NAMED
from report.drawings import inside_page, overlapping, panels_of, texts_of

SAMPLES = (10, 20, 40, 10)
BY_SEED = {
    "local": ((50, 60, 70, 80), (60, 60, 80, 80), (40, 60, 75, 90)),
    "fedavg": ((60, 60, 60, 80), (70, 60, 65, 70), (50, 60, 70, 90)),
    "mh": ((70, 60, 70, 90), (70, 60, 70, 90), (50, 60, 85, 60)),
}


def compared(info: MetricInfo = ACCURACY, names: Sequence[ClientId] | None = None, seeds: int = 3) -> Comparison:
    return compare(
        [
            record(
                variant, seed, *evaluated([{info.name: values}], SAMPLES, metrics=(info,), names=names), metrics=(info,)
            )
            for variant, by_seed in BY_SEED.items()
            for seed, values in enumerate(by_seed[:seeds])
        ],
        metric=info.name,
    )


def many(clients: int, methods: int) -> Comparison:
    """One seed; a client's gain is its number, and a little of the method's."""
    runs = [record("local", 0, *evaluated([{"accuracy": [50.0] * clients}], [10] * clients))]
    for m in range(methods):
        values = [50 + 10 * i / clients + 0.1 * ((m * i) % 7) for i in range(clients)]
        runs.append(record(f"method{m}", 0, *evaluated([{"accuracy": values}], [10] * clients)))
    return compare(runs)


def dots_of(axes: Any, clients: int) -> list[np.ndarray]:
    """Where the dots of each row are."""
    return [np.asarray(c.get_offsets()) for c in axes.collections if len(c.get_offsets()) == clients]


def test_the_picture_has_a_dot_for_every_client() -> None:
    comparison = compared()
    (axes,) = panels_of(figures.client_differences(comparison))
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "fedavg (personal)\n1 better, 1 equal,\n2 worse",
        "mh (personal)\n1 better, 2 equal,\n1 worse",
    ]
    for dots, variant in zip(dots_of(axes, 4), ("fedavg", "mh"), strict=True):
        d = comparison.variants[variant].difference
        assert d is not None
        assert dots[:, 0] == pytest.approx(d.per_client)
        assert len({tuple(place) for place in dots.round(6).tolist()}) == 4  # none is hidden behind another
    assert "difference in accuracy on own test samples from local (personal), in points" in axes.get_xlabel()
    assert "with 95 % intervals over seeds" in axes.get_xlabel()
    assert axes.get_title(loc="left") == "toy: accuracy of every client, last round, 3 seeds"
    (axes,) = panels_of(figures.client_differences(compared(seeds=1)))
    assert "interval" not in axes.get_xlabel()


def test_a_client_can_be_followed_across_rows() -> None:
    figure = figures.client_differences(comparison := many(20, 4))
    (axes,) = panels_of(figure)
    rows = dots_of(axes, 20)
    for k, row in enumerate(rows):
        assert row[:, 1] - k == pytest.approx(rows[0][:, 1])  # the same height in every row
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2", "17", "18", "19"]  # the worst and the best
    lines = {tuple(np.round(line.get_xdata(), 6)): line for line in axes.lines if line.get_alpha() == 0.75}
    assert len(lines) == 2 * NAMED
    for text in axes.texts:
        i = comparison.clients.index(int(text.get_text()))
        assert text.xy == pytest.approx(rows[0][i])
        line = lines[tuple(np.round([row[i, 0] for row in rows], 6))]
        assert line.get_linestyle() == ("--" if i < NAMED else "-")
    assert "the 3 clients that gain least (dashed) and most (solid)" in axes.get_xlabel()


def test_the_worst_are_named_whichever_way_they_lie() -> None:
    values = [0.1 * i for i in range(8)]
    runs = [
        record(name, 0, *evaluated([{"nll": v}], [10] * 8, metrics=(NLL,)))
        for name, v in (("local", [0.4] * 8), ("mh", values))
    ]
    (axes,) = panels_of(figures.client_differences(compare(runs, metric="nll")))
    assert {t.get_text() for t in axes.texts if t.arrow_patch.get_linestyle() == "--"} == {"5", "6", "7"}


@pytest.mark.parametrize(("clients", "methods"), [(20, 25), (100, 25), (100, 3), (1, 1), (3, 2)])
def test_it_fits_a_page(clients: int, methods: int) -> None:
    figure = figures.client_differences(many(clients, methods))
    width, height = figure.get_size_inches()
    assert (width, height) <= PAGE
    assert height <= PAGE[1] + 1e-6
    assert inside_page(figure)
    (axes,) = panels_of(figure)
    assert overlapping(axes.get_yticklabels()) == 0
    assert overlapping(axes.texts) == 0
    assert min(label.get_fontsize() for label in axes.get_yticklabels()) >= 7


def test_clients_are_called_what_their_owners_call_them() -> None:
    names = ["$x^2$ & <b>", "_St. C_", r"\frac{1}^", "a\nb"]
    texts = texts_of(figures.client_differences(compared(names=names)))
    assert {"$x^2$ & <b>", "_St. C_", r"\frac{1}^", r"a\nb"} <= set(texts)


def test_better_is_blue_whichever_way_it_lies() -> None:
    def colors(info: MetricInfo) -> list[str]:
        (axes,) = panels_of(figures.client_differences(compared(info)))
        first = next(c for c in axes.collections if len(c.get_offsets()) == 4)
        return [to_hex(color) for color in first.get_facecolors()]

    blue, red, grey = COLORS[0].lower(), COLORS[1].lower(), "#888888"
    assert colors(ACCURACY) == colors(MACRO_F1) == [blue, grey, red, red]  # fedavg: +10, 0, -10 and -3.3
    assert colors(NLL) == [red, grey, blue, blue]
    (axes,) = panels_of(figures.client_differences(compared(NLL)))
    assert "difference in nll on own test samples from local (personal); lower is better\n" in axes.get_xlabel()
    (axes,) = panels_of(figures.client_differences(compared(MACRO_F1)))
    assert "difference in macro f1 on own test samples from local (personal)\n" in axes.get_xlabel()


def test_a_loss_beyond_all_numbers_is_told() -> None:
    comparison = compared(NLL)
    entry = comparison.variants["mh"]
    assert entry.difference is not None
    lost = replace(entry.difference, per_client=[0.3, math.inf, 0.5, 0.1], mean=Interval(math.inf, None, None))
    variants = {**comparison.variants, "mh": replace(entry, difference=lost)}
    figure = figures.client_differences(replace(comparison, variants=variants))
    (axes,) = panels_of(figure)
    assert "1 difference that is not finite is not drawn" in axes.get_xlabel()
    assert {text.get_text() for text in axes.texts} == {"0", "2", "3"}
    figure.canvas.draw()


def test_a_row_without_any_finite_difference_names_nobody() -> None:
    comparison = compared(NLL)
    entry = comparison.variants["mh"]
    assert entry.difference is not None
    nowhere = Interval(math.inf, None, None)
    lost = replace(entry.difference, per_client=[math.inf] * 4, weighted=nowhere, mean=nowhere)
    variants = {**comparison.variants, "mh": replace(entry, difference=lost)}
    figure = figures.client_differences(replace(comparison, variants=variants))
    (axes,) = panels_of(figure)
    assert "4 differences that are not finite are not drawn" in axes.get_xlabel()
    assert not axes.texts
    figure.canvas.draw()

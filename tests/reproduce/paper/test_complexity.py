"""Exponents of known ratios, memory counted by hand, and the table of generators against closed forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedprior.priors import PRIORS
from fedprior.reproduce.paper.complexity import ORDERS, QUICK, Scaling, Setting, draw, open_program
from fedprior.reproduce.paper.generators import MU, X, generators

from .quick import made


def test_the_exponent_of_a_power_law() -> None:
    values = (10, 20, 40, 80)
    ratio = np.array(values) / 10.0
    times = np.outer([0.9, 1.0, 1.1], ratio**0.5)
    scaling = Scaling("mh", "N", values, times, ratio**2, 1, 1)
    assert scaling.time_slope.value == pytest.approx(0.5)
    assert scaling.memory_slope == pytest.approx(2)


def test_every_method_is_in_the_legend() -> None:
    ratios = np.array([[1.0, 2.0]])
    scalings = [
        Scaling(label, factor, (1, 2), ratios, ratios[0], 1, 1) for label, factor in (("FedEM", "M"), ("mh", "N"))
    ]
    figure = draw(scalings)
    (legend,) = figure.legends
    assert {text.get_text() for text in legend.get_texts()} == {"FedEM", "mh", "proportional"}
    assert [axes.get_xlabel() for axes in figure.axes] == ["clients N", "components M"]


@pytest.mark.parametrize("n", [2, 4])
def test_memory_by_hand(n: int) -> None:
    """mh: theta and the memory of each client, the server's w, and an upload each; D = 784 * 10 + 10."""
    setting = Setting(open_program(QUICK, "mh-released", {"N": n, "R": 1, "K": 1}))
    assert setting.memory() == (2 * n + 1 + n) * (784 * 10 + 10) * 4


def test_every_method_has_the_factors_of_its_order() -> None:
    from fedprior.methods import keys

    for order in ORDERS.values():
        assert set(order.time) - {"N"} <= set(keys(order.method))


def test_generators_are_those_of_the_families() -> None:
    table = generators()
    rows = {line[0]: line for line in table.body}
    assert set(rows) == set(PRIORS)
    assert rows["bernoulli"][1:5] == ("x log x + (1 - x) log(1 - x)", "logit(x)", "log(1 + e^s)", "1 / (1 + e^-s)")
    expected = {
        "gaussian": 0.5 * (X - MU) ** 2,
        "bernoulli": X * np.log(X / MU) + (1 - X) * np.log((1 - X) / (1 - MU)),
        "poisson": X * np.log(X / MU) - X + MU,
        "exponential": X / MU - np.log(X / MU) - 1,
    }
    for name, value in expected.items():
        assert float(rows[name][-2]) == pytest.approx(value, abs=1e-4)


@pytest.mark.slow
def test_quick(tmp_path: Path) -> None:
    files, _ = made("complexity", tmp_path)
    assert {"complexity.png", "complexity.pdf", "complexity.md", "generators.tex"} <= set(files)
    lines = files["complexity-ratios.csv"].read_text().splitlines()
    assert len(lines) == 1 + 3 * (1 + 3)  # FedEM in M; mh in N, R and K

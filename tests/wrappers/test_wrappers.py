"""The table of wrappers: which setting switches which on, in which order, and what is valid."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import InTurn, Quadratic, vector

from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.wrappers import WRAPPERS, checked, in_force, wrap

KEY = jax.random.key(0)


def test_what_is_there() -> None:
    assert WRAPPERS.names() == ["beta", "fine_tune", "fine_tune_step"]
    assert {name: (w.kind, w.default, w.needs_global_model, w.part_of) for name, w in WRAPPERS.items()} == {
        "beta": (float, 1.0, True, None),
        "fine_tune": (int, 0, False, None),
        "fine_tune_step": (float, None, False, "fine_tune"),
    }
    for name, wrapper in WRAPPERS.items():
        if wrapper.default is not None:
            assert checked(name, wrapper.default) == wrapper.default == wrapper.about.inert
        assert wrapper.about.source


def test_names_are_listed_without_jax() -> None:
    code = "import sys; from fedprior.wrappers import WRAPPERS; assert 'beta' in WRAPPERS; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_settings_switch_wrappers_on() -> None:
    method = make("fedavg", alpha=0.1)
    plain = method.algorithm()
    for settings in ({}, {"beta": 1.0, "fine_tune": 0, "rounds": 3}):
        assert wrap(plain, settings, method) is plain
    both = wrap(plain, {"fine_tune": 2, "beta": 2.0}, method)
    assert both._replace(merge=plain.merge, personal_model=plain.personal_model) == plain
    merged = both.merge(vector(3.0), Vector(jnp.array([[2.0], [2.0]])), jnp.full(2, 0.5), jnp.arange(2), KEY)
    assert merged.tree.tolist() == [1.0]
    data = InTurn(np.array([[1.0, 2.0], [1.0, 2.0]]))
    _, models = both.personal_model(Quadratic(1), (), vector(3.0), data, KEY)
    assert float(models.tree[0, 0]) == pytest.approx(1 + 2 * 0.8**2, rel=1e-6)  # of the method's own step size, 0.1


@pytest.mark.parametrize(
    ("settings", "method", "alpha"),
    [
        ({"fine_tune": 1}, make("fedavg", alpha=0.1), 0.1),  # the method's own
        ({"fine_tune": 1, "fine_tune_step": 0.3}, make("fedavg", alpha=0.1), 0.3),
        ({"fine_tune": 1}, make("pfedbayes", samples=0), 0.01),  # its alpha is Adam's
        ({"fine_tune": 1, "fine_tune_step": 0.2}, make("pfedbayes", samples=0), 0.2),
    ],
)
def test_the_step_of_fine_tuning(settings: dict[str, Any], method: Any, alpha: float) -> None:
    """From 3 on f = (w - 1)^2: 3 - 4 alpha."""
    wrapped, start = wrap(method.algorithm(), settings, method), method.client(vector(3.0), KEY)
    _, models = wrapped.personal_model(Quadratic(1), start, vector(3.0), InTurn(np.array([[1.0, 2.0]])), KEY)
    assert float(models.tree[0, 0]) == pytest.approx(3 - 4 * alpha, rel=1e-6)


def test_a_further_setting_does_nothing_by_itself() -> None:
    method = make("fedavg")
    plain = method.algorithm()
    assert wrap(plain, {"fine_tune_step": 0.3}, method) is plain
    assert in_force({"fine_tune_step": 0.3, "beta": 2.0}, method) == {"beta": 2.0}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("beta", 0.0, "beta = 0.0 is not valid; it must be a finite number above 0"),
        ("beta", "2", r"beta = '2' has the wrong type \(str\); it must be float"),
        ("beta", True, "beta = True has the wrong type"),
        ("fine_tune", -1, "fine_tune = -1 is not valid; it must be a whole number of at least 0"),
        ("fine_tune", 1.5, r"fine_tune = 1.5 has the wrong type \(float\); it must be int"),
        ("fine_tune_step", 0, "fine_tune_step = 0.0 is not valid; it must be a finite number above 0"),
        ("gamma", 1, "unknown wrapper 'gamma'"),
    ],
)
def test_nonsense_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        checked(name, value)


def test_a_whole_number_stands_for_a_float() -> None:
    assert isinstance(checked("beta", 2), float)

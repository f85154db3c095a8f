"""The LSTM as the paper describes it and as its code was released, against PyTorch; and its own derivative rule."""

from __future__ import annotations

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from fedprior.models.base import Frozen
from fedprior.models.lstm import LSTM

from .support import KEY, Case, check_against_torch, check_initial_distribution, check_outputs, leaves, quick_draws

pytestmark = pytest.mark.xdist_group("models-lstm")  # compiled functions are shared
NAMES = ("paper", "released")
VECTORS = np.random.default_rng(1).normal(scale=0.4, size=(30, 6)).astype(np.float32)
HIDDEN, WIDTH = 10, 21


@cache
def given(name: str) -> Case:
    with quick_draws():
        model = LSTM(VECTORS, hidden=HIDDEN, head_width=WIDTH, bidirectional=name == "released", key=KEY)
    rng = np.random.default_rng(2)
    return Case(model, rng.integers(0, len(VECTORS), (6, 7)).astype(np.int32), rng.integers(0, 2, 6))


def torch_module(name: str) -> Any:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Words(nn.Module):  # type: ignore[name-defined, misc, unused-ignore]
        def __init__(self, both: bool) -> None:
            super().__init__()
            self.both = both
            self.lstm = nn.LSTM(VECTORS.shape[1], HIDDEN, num_layers=2, batch_first=True, bidirectional=both)
            self.top = nn.Sequential(
                nn.Linear((4 if both else 1) * HIDDEN, WIDTH), nn.LeakyReLU(0.1), nn.Linear(WIDTH, 2)
            )

        def forward(self, x: Any) -> Any:
            outputs, (final, _) = self.lstm(torch.tensor(VECTORS)[x.long()])
            last = outputs[:, -1]
            return self.top(torch.cat([last, final[-1], final[-2]], 1) if self.both else last)

    return Words(name == "released")


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_head_of_the_features(name: str) -> None:
    check_outputs(given(name))


@pytest.mark.parametrize("name", NAMES)
def test_initial_distribution_is_pytorchs(name: str) -> None:
    check_initial_distribution(given(name).model, HIDDEN)


@pytest.mark.parametrize("name", NAMES)
def test_equals_torch(name: str) -> None:
    check_against_torch(given(name), torch_module(name))


def test_word_vectors_are_not_trained() -> None:
    model, gradient = given("paper").model, given("paper").outputs().gradient
    assert isinstance(model, LSTM)
    assert isinstance(gradient, LSTM)
    assert isinstance(model.vectors, Frozen)
    assert all(leaf.shape != VECTORS.shape for leaf in leaves(model))
    np.testing.assert_array_equal(gradient.vectors.array, 0)


def test_the_arrays_of_a_layer_differ() -> None:
    model = given("paper").model
    assert isinstance(model, LSTM)
    layer = model.cells[1][0]
    assert not np.array_equal(layer.input_weight, layer.hidden_weight)
    assert not np.array_equal(layer.input_bias, layer.hidden_bias)
    assert not np.array_equal(layer.hidden_weight, model.cells[0][0].hidden_weight)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_derivatives_of_all_kinds() -> None:
    """The recurrence has a derivative rule of its own: compare with differences, forward with reverse, second order."""
    with quick_draws():
        model = LSTM(VECTORS[:, :3], hidden=4, head_width=5, key=KEY)
    x, y = given("paper").x[:3, :4], given("paper").y[:3]
    params, static = eqx.partition(model, eqx.is_inexact_array, is_leaf=lambda leaf: isinstance(leaf, Frozen))
    params, static = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), (params, static))
    start, unravel = jax.flatten_util.ravel_pytree(params)
    way = jnp.asarray(np.random.default_rng(3).normal(size=start.shape))
    step = 1e-5 * way

    def value(p: jax.Array) -> jax.Array:
        whole = eqx.combine(unravel(p), static, is_leaf=lambda leaf: isinstance(leaf, Frozen))
        return -jnp.take_along_axis(jax.nn.log_softmax(whole.logits(x)), y[:, None], 1).mean()

    def slope(p: jax.Array) -> jax.Array:
        return jax.jvp(value, (p,), (way,))[1]

    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(value)))(jnp.stack([start - step, start, start + step]))
    forward = jax.jit(slope)(start)
    assert float(forward) == pytest.approx(float(gradients[1] @ way), rel=1e-10)
    assert float(forward) == pytest.approx(float(values[2] - values[0]) / 2e-5, rel=1e-6)
    second = jax.jit(lambda p: jax.jvp(jax.grad(value), (p,), (way,))[1])(start)
    np.testing.assert_allclose(second, jax.jit(jax.grad(slope))(start), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(second, (gradients[2] - gradients[0]) / 2e-5, rtol=1e-5, atol=1e-7)

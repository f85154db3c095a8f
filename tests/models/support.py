"""What the tests of single models share: one program per model, PyTorch's numbers, and PyTorch's initial distribution."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fedprior.models import base, cnn, lstm
from fedprior.models.base import Frozen, Linear, Model

KEY, OTHER_KEY = jax.random.key(0), jax.random.key(1)


def draw_with_numpy(key: Array, shape: tuple[int, ...], fan_in: int) -> Array:
    seed = np.asarray(jax.random.key_data(key))
    bound = 1 / math.sqrt(fan_in)
    return jnp.asarray(np.random.default_rng(seed).uniform(-bound, bound, shape), jnp.float32)


@contextlib.contextmanager
def quick_draws() -> Iterator[None]:
    """Let models draw their arrays with numpy, by the same keys: JAX takes seconds to compile the draws of a model.

    JAX's own draw is tested by itself, in test_base.py.
    """
    with contextlib.ExitStack() as stack:
        for module in (base, cnn, lstm):
            stack.enter_context(mock.patch.object(module, "uniform", draw_with_numpy))
        yield


class Outputs(NamedTuple):
    features: Array
    logits: Array
    loss: Array
    gradient: Model  # frozen arrays included


class Case(NamedTuple):
    """A model and a batch."""

    model: Model
    x: np.ndarray
    y: np.ndarray

    def outputs(self) -> Outputs:
        return evaluate(self.model, self.x, self.y)


@eqx.filter_jit
def evaluate(model: Model, x: Any, y: Any) -> Outputs:
    """Everything that is compared, in one program."""

    def loss(model: Model) -> tuple[Array, tuple[Array, Array]]:
        features, logits = model.features(x), model.logits(x)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean(), (features, logits)

    (value, (features, logits)), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(model)
    return Outputs(features, logits, value, gradient)


def trained(model: Model) -> Any:
    return eqx.filter(model, eqx.is_inexact_array, is_leaf=lambda x: isinstance(x, Frozen))


def leaves(model: Model) -> list[Array]:
    return jax.tree.leaves(trained(model))


def check_outputs(given: Case) -> None:
    """The logits are the head of the features, and a batch is its samples."""
    model, outputs = given.model, given.outputs()
    assert isinstance(model.head, Linear)
    assert outputs.features.shape == (len(given.x), model.head.weight.shape[1])
    expected = np.asarray(outputs.features) @ np.asarray(model.head.weight).T + np.asarray(model.head.bias)
    np.testing.assert_allclose(outputs.logits, expected, rtol=1e-5, atol=1e-6)
    for i in (0, 2):  # the other samples of a batch have no part in a sample's logits, and there need not be others
        copies = evaluate(model, np.repeat(given.x[i : i + 1], len(given.x), 0), given.y).logits
        np.testing.assert_allclose(copies, np.repeat(outputs.logits[i : i + 1], len(given.x), 0), rtol=1e-5, atol=1e-6)
    assert jax.eval_shape(model.logits, given.x[:1]).shape == outputs.logits[:1].shape
    # the head's weight and bias are the last leaves: PyTorch's order
    assert [leaf.shape for leaf in leaves(model)[-2:]] == [model.head.weight.shape, model.head.bias.shape]


def check_against_torch(given: Case, module: Any, x: np.ndarray | None = None) -> None:
    """Logits, loss and gradients of the same model written with torch.nn; ``x``: the batch as PyTorch lays it out."""
    import torch

    parameters, ours = list(module.parameters()), leaves(given.model)
    assert [tuple(p.shape) for p in parameters] == [leaf.shape for leaf in ours]
    with torch.no_grad():
        for parameter, leaf in zip(parameters, ours, strict=True):
            parameter.copy_(torch.tensor(np.asarray(leaf)))
    logits = module(torch.tensor(given.x if x is None else x))
    value = torch.nn.functional.cross_entropy(logits, torch.tensor(given.y, dtype=torch.int64))
    expected = torch.autograd.grad(value, parameters)

    outputs = given.outputs()
    np.testing.assert_allclose(outputs.logits, logits.detach().numpy(), rtol=1e-5, atol=2e-6)
    assert float(outputs.loss) == pytest.approx(value.item(), rel=1e-5)
    for got, want in zip(leaves(outputs.gradient), expected, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5 * want.abs().max().item())


def check_initial_distribution(model: Model, lstm_hidden: int | None = None) -> None:
    """U(-b, b) with b = 1/sqrt(fan_in), and 1/sqrt(hidden) for everything in an LSTM layer."""
    last_weight_fan = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(trained(model)):
        field = jax.tree_util.keystr(path)
        if "cells" in field:
            assert lstm_hidden is not None
            fan = lstm_hidden
        elif leaf.ndim > 1:
            fan = last_weight_fan = math.prod(leaf.shape[1:])
        else:
            fan = last_weight_fan  # a bias follows its weight and has its bound
        bound = 1 / math.sqrt(fan)
        values = np.asarray(leaf)
        assert np.abs(values).max() <= bound, field
        if values.size >= 200:
            assert np.abs(values).max() > 0.97 * bound, field
            # a uniform's variance is bound^2 / 3; its sample variance has a relative deviation of sqrt(0.8 / n)
            assert values.var() == pytest.approx(bound**2 / 3, rel=5 * math.sqrt(0.8 / values.size)), field
            assert abs(values.mean()) < 5 * bound / math.sqrt(3 * values.size), field

"""Models: sizes, initial distribution, and equality with the PyTorch modules they stand for."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

from fedprior.errors import FedpriorError
from fedprior.models import CNN, DNN, LSTM, MCLR, MODELS, Frozen, Linear, Model, build, options
from fedprior.problem import Batch, Classifier, Problem

KEY = jax.random.key(0)
VECTORS = np.random.default_rng(1).normal(scale=0.4, size=(30, 50)).astype(np.float32)
RELEASED = {"bidirectional": True, "head_width": 5000}


def split(model: Model) -> tuple[Model, Model]:
    return eqx.partition(model, eqx.is_inexact_array, is_leaf=lambda x: isinstance(x, Frozen))


def leaves(model: Model) -> list[jax.Array]:
    return jax.tree.leaves(split(model)[0])


def make(name: str) -> Model:
    return {
        "mclr": lambda: MCLR(784, 10, key=KEY),
        "dnn": lambda: DNN(784, 10, key=KEY),
        "cnn": lambda: CNN(key=KEY),
        "lstm": lambda: LSTM(VECTORS, key=KEY),
        "released lstm": lambda: LSTM(VECTORS, **RELEASED, key=KEY),
    }[name]()


NAMES = ["mclr", "dnn", "cnn", "lstm", "released lstm"]


def batch(name: str, size: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    if "lstm" in name:
        return rng.integers(0, len(VECTORS), (size, 25)).astype(np.int32), rng.integers(0, 2, size)
    shape = (32, 32, 3) if name == "cnn" else (784,)
    return rng.normal(size=(size, *shape)).astype(np.float32), rng.integers(0, 10, size)


def loss(params: Model, static: Model, x: np.ndarray, y: np.ndarray) -> jax.Array:
    model = eqx.combine(params, static, is_leaf=lambda x: isinstance(x, Frozen))
    return -jnp.take_along_axis(jax.nn.log_softmax(model.logits(jnp.asarray(x))), jnp.asarray(y)[:, None], 1).mean()


@eqx.filter_jit
def outputs(model: Model, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return model.features(x), model.logits(x)


@pytest.mark.parametrize(
    ("name", "settings", "shape", "classes", "vectors", "count"),
    [
        ("mclr", {}, (784,), 10, None, 7_850),
        ("mclr", {}, (28, 28), 62, None, 48_670),
        ("dnn", {}, (784,), 10, None, 79_510),
        ("dnn", {}, (28, 28, 1), 62, None, 84_762),
        ("cnn", {}, (32, 32, 3), 10, None, 62_006),
        ("lstm", RELEASED, (25,), 2, VECTORS, 1_116_602),
        ("lstm", {}, (25,), 2, VECTORS, 46_102),
    ],
)
def test_parameter_counts(name, settings, shape, classes, vectors, count):
    model = build(name, settings, shape, classes, vectors, KEY)
    assert isinstance(model, MODELS[name])
    assert sum(leaf.size for leaf in leaves(model)) == count


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_head_of_the_features(name):
    model, (x, _) = make(name), batch(name)
    features, logits = outputs(model, jnp.asarray(x))
    assert features.shape == (6, model.head.weight.shape[1])
    assert isinstance(model.head, Linear)
    np.testing.assert_allclose(logits, model.head(features), rtol=1e-6, atol=1e-6)
    # the head's weight and bias are the last leaves: PyTorch's order
    assert [leaf.shape for leaf in leaves(model)[-2:]] == [model.head.weight.shape, model.head.bias.shape]
    if name == "mclr":
        np.testing.assert_array_equal(features, x)


@pytest.mark.parametrize("name", NAMES)
def test_initial_distribution_is_pytorchs(name):
    # By name and shape: the bound is 1/sqrt(fan_in), and 1/sqrt(hidden) for everything in an LSTM cell.
    params = split(make(name))[0]
    last_weight_fan = None
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        field = jax.tree_util.keystr(path)
        if "cells" in field:
            fan = 50
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


def test_a_key_decides_the_start_and_layers_differ():
    one, same, other = DNN(784, 10, key=KEY), DNN(784, 10, key=KEY), DNN(784, 10, key=jax.random.key(1))
    np.testing.assert_array_equal(one.hidden.weight, same.hidden.weight)
    assert not np.array_equal(one.hidden.weight, other.hidden.weight)
    cell = LSTM(VECTORS, key=KEY).cells[1][0]
    assert not np.array_equal(cell.input_weight, cell.hidden_weight)
    assert not np.array_equal(cell.input_bias, cell.hidden_bias)


def test_word_vectors_are_not_trained():
    model, (x, y) = make("lstm"), batch("lstm")
    assert isinstance(model.vectors, Frozen)
    assert all(leaf.shape != VECTORS.shape for leaf in leaves(model))
    whole = eqx.filter_jit(jax.grad(lambda m: loss(*split(m), x, y)))(model)
    np.testing.assert_array_equal(whole.vectors.array, 0)


def torch_module(name: str) -> Any:
    """The same model written with torch.nn; parameters in the order of our leaves."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Words(nn.Module):
        def __init__(self, both: bool, width: int) -> None:
            super().__init__()
            self.both = both
            self.lstm = nn.LSTM(50, 50, num_layers=2, batch_first=True, bidirectional=both)
            self.top = nn.Sequential(nn.Linear(200 if both else 50, width), nn.LeakyReLU(0.1), nn.Linear(width, 2))

        def forward(self, x: Any) -> Any:
            outputs, (final, _) = self.lstm(torch.tensor(VECTORS)[x.long()])
            last = outputs[:, -1]
            return self.top(torch.cat([last, final[-1], final[-2]], 1) if self.both else last)

    if name == "mclr":
        return nn.Linear(784, 10)
    if name == "dnn":
        return nn.Sequential(nn.Linear(784, 100), nn.LeakyReLU(0.1), nn.Linear(100, 10))
    if name == "cnn":
        return nn.Sequential(
            nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
        )  # fmt: skip
    return Words("released" in name, 5000 if "released" in name else 100)


def check_against_torch(name: str, x: np.ndarray, y: np.ndarray) -> None:
    module = torch_module(name)
    import torch

    model = make(name)
    parameters = list(module.parameters())
    assert [tuple(p.shape) for p in parameters] == [leaf.shape for leaf in leaves(model)]
    with torch.no_grad():
        for parameter, leaf in zip(parameters, leaves(model), strict=True):
            parameter.copy_(torch.tensor(np.asarray(leaf)))
    logits = module(torch.tensor(x.transpose(0, 3, 1, 2).copy() if name == "cnn" else x))
    value = torch.nn.functional.cross_entropy(logits, torch.tensor(y, dtype=torch.int64))
    expected = torch.autograd.grad(value, parameters)

    np.testing.assert_allclose(outputs(model, jnp.asarray(x))[1], logits.detach().numpy(), rtol=1e-5, atol=2e-6)
    ours, gradient = eqx.filter_jit(jax.value_and_grad(loss))(*split(model), x, y)
    assert float(ours) == pytest.approx(value.item(), rel=1e-5)
    for got, want in zip(jax.tree.leaves(gradient), expected, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-4, atol=1e-5 * want.abs().max().item())


@pytest.mark.parametrize("name", NAMES)
def test_equals_torch(name):
    check_against_torch(name, *batch(name))


def test_cnn_equals_torch_on_flat_image_regions():
    """Equal patches tie in the pooling: all of one image, half of another, and saturated stripes."""
    x, y = batch("cnn")
    x[0], x[1, :, 16:], x[2, ::4] = 0.7, -1.0, 1.0
    check_against_torch("cnn", x, y)


@pytest.mark.slow
def test_lstm_derivatives_of_all_kinds():
    """The recurrence has a derivative rule of its own: compare with differences, forward with reverse, second order."""
    model = LSTM(VECTORS[:, :3], hidden=4, head_width=5, key=KEY)
    x, y = batch("lstm", 3)
    with jax.enable_x64(True):
        params, static = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), split(model))
        start, unravel = jax.flatten_util.ravel_pytree(params)
        way = jnp.asarray(np.random.default_rng(3).normal(size=start.shape))

        def value(p: jax.Array) -> jax.Array:
            return loss(unravel(p), static, x[:, :4], y)

        def slope(p: jax.Array) -> jax.Array:
            return jax.jvp(value, (p,), (way,))[1]

        value = jax.jit(value)
        gradient, forward = jax.jit(jax.grad(value)), jax.jit(slope)(start)
        step = 1e-5 * way
        assert float(forward) == pytest.approx(float(gradient(start) @ way), rel=1e-10)
        assert float(forward) == pytest.approx(float(value(start + step) - value(start - step)) / 2e-5, rel=1e-6)
        second = jax.jit(lambda p: jax.jvp(jax.grad(value), (p,), (way,))[1])(start)
        np.testing.assert_allclose(second, jax.jit(jax.grad(slope))(start), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(
            second, (gradient(start + step) - gradient(start - step)) / 2e-5, rtol=1e-5, atol=1e-7
        )


@pytest.mark.parametrize("name", ["cnn", "lstm", "released lstm"])
def test_a_batch_is_its_samples(name):
    model, (x, _) = make(name), jax.tree.map(jnp.asarray, batch(name, 3))
    one_by_one = np.concatenate([outputs(model, x[i : i + 1])[1] for i in range(3)])
    np.testing.assert_allclose(outputs(model, x)[1], one_by_one, rtol=1e-5, atol=1e-6)


def test_other_image_sizes():
    model = build("cnn", {}, (28, 20, 1), 7, None, KEY)
    assert jax.eval_shape(model.logits, jnp.ones((2, 28, 20, 1))).shape == (2, 7)


def test_options_and_their_defaults():
    assert options("mclr") == options("cnn") == {}
    assert options("lstm") == {"hidden": 50, "layers": 2, "head_width": 100, "bidirectional": False, "slope": 0.1}
    model = build("lstm", {"layers": 3, "hidden": 7, "slope": 0}, (25,), 4, VECTORS, KEY)
    assert len(model.cells) == 3
    assert jax.eval_shape(model.logits, jnp.zeros((2, 25), jnp.int32)).shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "settings", "shape", "classes", "vectors", "message"),
    [
        ("dnnn", {}, (784,), 10, None, "unknown model 'dnnn' .did you mean 'dnn'"),
        ("dnn", {"hiden": 3}, (784,), 10, None, "unknown option of model 'dnn' 'hiden' .did you mean 'hidden'"),
        ("mclr", {"hidden": 3}, (784,), 10, None, "'mclr' has no options; given: hidden"),
        ("dnn", {"hidden": 0}, (784,), 10, None, "at least 1, not 0"),
        ("dnn", {"hidden": 3.5}, (784,), 10, None, "whole number .default 100., not 3.5"),
        ("dnn", {"slope": "steep"}, (784,), 10, None, "a number .default 0.1., not 'steep'"),
        ("lstm", {"bidirectional": 1}, (25,), 2, VECTORS, "true or false, not 1"),
        ("cnn", {}, (784,), 10, None, r"takes images .*not \(784,\)"),
        ("cnn", {}, (30, 30, 3), 10, None, "multiples of 4, at least 16, not 30 x 30"),
        ("cnn", {}, (12, 12, 3), 10, None, "multiples of 4, at least 16, not 12 x 12"),
        ("lstm", {}, (25,), 2, None, "needs word vectors"),
        ("lstm", {}, (25, 3), 2, VECTORS, r"word indices \[T\]"),
        ("mclr", {}, (25,), 2, VECTORS, "takes numbers, and this data set is made of word indices; use 'lstm'"),
        ("mclr", {}, (), 10, None, "needs inputs"),
        ("mclr", {}, (784,), 1, None, "at least two classes"),
    ],
)
def test_bad_input_is_named(name, settings, shape, classes, vectors, message):
    with pytest.raises(FedpriorError, match=message):
        build(name, settings, shape, classes, vectors, KEY)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("start_is_mu", [False, True])
@pytest.mark.parametrize("build", [lambda key: MCLR(30, 4, key=key), lambda key: DNN(30, 4, hidden=7, key=key)])
def test_proximal_steps_without_the_first_weights_are_the_plain_ones(build: Any, start_is_mu: bool) -> None:
    problem = Classifier(build, 4)
    rng = np.random.default_rng(0)
    mask = np.array([1.0, 1, 1, 1, 1, 0])  # a short batch
    batch = Batch(jnp.asarray(rng.normal(size=(6, 5, 6))), jnp.array([0, 1, 2, 3, 1, 0]), jnp.asarray(mask))
    mu = problem.init(jax.random.key(1))
    start = mu if start_is_mu else problem.init(jax.random.key(2))
    fast = problem.proximal_steps(mu, start, batch, 3.0, 0.05, 7)
    plain = Problem.proximal_steps(problem, mu, start, batch, 3.0, 0.05, 7)
    assert float((fast - plain).norm()) < 1e-13
    assert float((fast - start).norm()) > 1e-2

"""The problem made from a model: what is trained, the loss, the head, and the proximal loop without the first weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from fedprior.core.batch import Batch
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.models.base import Frozen, Linear, Model
from fedprior.models.classifier import Classifier
from fedprior.models.mlp import DNN, MCLR

from .support import KEY, OTHER_KEY, quick_draws


class PerSample(eqx.Module):
    """Maps one sample, has a frozen array and one of whole numbers, and names no head."""

    weight: Array
    scale: Frozen
    order: Array

    def __init__(self, weight: Any) -> None:
        self.weight, self.scale, self.order = jnp.asarray(weight), Frozen(jnp.array([2.0, 1.0])), jnp.array([1, 0])

    def __call__(self, x: Array) -> Array:
        return self.weight @ (self.scale.array * x)[self.order]


class Headed(eqx.Module):
    """Maps one sample, as Equinox's own modules do; its features are nowhere to be had."""

    head: Any
    body: eqx.nn.Linear

    def __call__(self, x: Array) -> Array:
        return self.head(jnp.tanh(self.body(x)))


class Parted(Headed):
    """The same with features, of one sample too."""

    def features(self, x: Array) -> Array:
        return jnp.tanh(self.body(x))


class Summed(Headed):
    """Its features are not what its head reads."""

    def features(self, x: Array) -> Array:
        return jnp.sum(jnp.tanh(self.body(x)), keepdims=True)


def parted(kind: type[Headed], head: Any = None) -> Classifier:
    layer = eqx.nn.Linear(4, 3, key=KEY)
    return Classifier(kind(layer if head is None else head, eqx.nn.Linear(5, 4, key=KEY)), 3)


WEIGHT = np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]], np.float32)
BATCH = Batch(jnp.array([[1.0, 2.0], [0.0, 1.0], [9.0, 9.0]]), jnp.array([0, 2, 1]), jnp.array([1.0, 1.0, 0.0]))


def small(name: str) -> Classifier:
    def build(key: Array) -> Model:
        with quick_draws():
            return MCLR(30, 4, key=key) if name == "mclr" else DNN(30, 4, hidden=7, key=key)

    return Classifier(build, 4)


def test_a_ready_model_starts_every_run_from_its_weights() -> None:
    problem = Classifier(PerSample(WEIGHT), 3)
    w = problem.init(KEY)
    assert problem.init(OTHER_KEY) is w
    assert [leaf.shape for leaf in jax.tree.leaves(w)] == [
        (3, 2)
    ]  # neither frozen arrays nor whole numbers are trained
    assert isinstance(problem.model(w), PerSample)


def test_logits_and_loss_by_hand() -> None:
    """A model without a method for batches is mapped over the samples; a masked sample does not count."""
    problem = Classifier(PerSample(WEIGHT), 3)
    w = problem.init(KEY)
    scores = np.asarray(BATCH.x)[:, ::-1] * np.array([1.0, 2.0]) @ WEIGHT.T
    np.testing.assert_allclose(problem.logits(w, BATCH.x), scores, rtol=1e-6)
    losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(3), BATCH.y]
    np.testing.assert_allclose(problem.losses(w, BATCH), losses, rtol=1e-5, atol=1e-6)
    assert float(problem.loss(w, BATCH)) == pytest.approx(losses[:2].mean(), rel=1e-5)


def test_a_function_of_a_key_starts_each_run_anew() -> None:
    problem = small("mclr")
    one, same, other = (problem.init(key).tree.head.weight for key in (KEY, KEY, OTHER_KEY))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


class Constant(eqx.Module):
    """Its weight is a number of Python's, which nothing trains."""

    weight: float = 2.0

    def __call__(self, x: Array) -> Array:
        return self.weight * x


@pytest.mark.parametrize("model", [Constant(), lambda key: Constant()])
def test_a_model_that_has_nothing_to_train_is_told(model: Any) -> None:
    with pytest.raises(
        FedpriorError, match="the model Constant has nothing to train; hold its weights as floating-point"
    ):
        Classifier(model, 2)


def test_a_model_without_a_head_is_told() -> None:
    problem = Classifier(PerSample(WEIGHT), 3)
    with pytest.raises(FedpriorError, match="the model PerSample names no last layer; give it a Linear called head"):
        problem.head(problem.init(KEY))


@pytest.mark.parametrize(
    ("kind", "head", "message"),
    [
        (Headed, None, "the model Headed has a head, but no method features that gives what the head reads; give it a"),
        (
            Parted,
            eqx.nn.MLP(4, 3, 4, 1, key=KEY),
            "Parted has a head that is no linear layer, but a MLP; give it a Linear",
        ),
    ],
)
def test_a_head_by_itself_is_not_enough(kind: type[Headed], head: Any, message: str) -> None:
    problem = parted(kind, head)
    w = problem.init(KEY)
    assert problem.logits(w, jnp.ones((2, 5))).shape == (2, 3)  # for most methods the model is good
    with pytest.raises(FedpriorError, match=message):
        problem.head(w)


def test_the_features_of_a_model_of_single_samples_are_mapped_over_the_batch() -> None:
    problem, x = parted(Parted), jnp.arange(30.0).reshape(6, 5) / 30
    w = problem.init(KEY)
    body = w.tree.body
    np.testing.assert_allclose(problem.features(w, x), np.tanh(x @ body.weight.T + body.bias), rtol=1e-5)
    with pytest.raises(
        FedpriorError, match=r"features of the model Summed have the shape \(6, 1\) for a batch of 6; its h"
    ):
        parted(Summed).features(parted(Summed).init(KEY), x)


def test_the_head_and_the_features_it_reads() -> None:
    problem = small("dnn")
    w, x = problem.init(KEY), jnp.ones((2, 30))
    head = problem.head(w)
    assert problem.head_shape(w) == (4, 7)
    assert [leaf.shape for leaf in jax.tree.leaves(head)] == [(4, 7), (4,)]
    assert problem.features(w, x).shape == (2, 7)
    replaced = problem.with_head(w, 2.0 * head)
    np.testing.assert_allclose(problem.logits(replaced, x), 2 * problem.logits(w, x), rtol=1e-6)
    np.testing.assert_array_equal(replaced.tree.hidden.weight, w.tree.hidden.weight)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("samples", [4, 6, 7])  # one slice, two of three, and none that is not tiny
def test_a_gradient_in_slices_is_the_gradient(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a short batch, one of whose slices is all filling, and of samples that count in part."""
    monkeypatch.setattr(MCLR, "samples_per_slice", 5)
    problem, rng = Classifier(lambda key: MCLR(5, 3, key=key), 3), np.random.default_rng(0)
    mask = jnp.asarray(np.array([1.0, 0.5, 1, 0, 0, 0, 0])[:samples])
    batch = Batch(jnp.asarray(rng.normal(size=(samples, 5))), jnp.asarray(rng.integers(0, 3, samples)), mask)
    w = problem.init(KEY).map(lambda x: x.astype(jnp.float64))
    sliced, plain = jax.jit(lambda w: (problem.grad(w, batch), Problem.grad(problem, w, batch)))(w)
    assert float((sliced - plain).norm()) < 1e-14
    assert float(plain.norm()) > 1e-2
    scans = str(jax.make_jaxpr(lambda w: problem.grad(w, batch))(w)).count("scan[")
    assert scans == (samples == 6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["mclr", "dnn"])
def test_proximal_steps_without_the_first_weights_are_the_plain_ones(name: str) -> None:
    """From the prior's mean itself and from elsewhere, on a short batch."""
    problem, rng = small(name), np.random.default_rng(0)
    mask = np.array([1.0, 1, 1, 1, 1, 0])
    batch = Batch(jnp.asarray(rng.normal(size=(6, 5, 6))), jnp.array([0, 1, 2, 3, 1, 0]), jnp.asarray(mask))
    mu, elsewhere = (problem.init(key).map(lambda x: x.astype(jnp.float64)) for key in (KEY, OTHER_KEY))

    @jax.jit
    def steps(mu: Vector, elsewhere: Vector) -> list[tuple[Vector, Vector]]:
        return [
            (
                problem.proximal_steps(mu, start, batch, 3.0, 0.05, 7),
                Problem.proximal_steps(problem, mu, start, batch, 3.0, 0.05, 7),
            )
            for start in (mu, elsewhere)
        ]

    for start, (fast, plain) in zip((mu, elsewhere), steps(mu, elsewhere), strict=True):
        assert float((fast - plain).norm()) < 1e-13
        assert float((fast - start).norm()) > 1e-2


class Centred(DNN):
    """The first layer sees something else than the input."""

    def features(self, x: Array) -> Array:
        return super().features(x - 0.5)


class Moved(MCLR):
    """The same by way of the logits."""

    def logits(self, x: Array) -> Array:
        return super().logits(x - 0.5)


class Mixed(Centred, DNN):
    """A subclass of a subclass."""


class Scaled(Linear):
    """No plain linear layer."""

    def __call__(self, x: Array) -> Array:
        return super().__call__(3 * x)


class Rescaled(MCLR):
    """The first layer itself is another one."""

    def __init__(self, in_size: int, n_classes: int, *, key: Array) -> None:
        self.head = Scaled(in_size, n_classes, key=key)  # type: ignore[call-arg, arg-type]


class Sharper(DNN):
    """It says anew that its first layer reads the input."""

    reads_input: ClassVar[str] = "hidden"

    def features(self, x: Array) -> Array:
        return 2 * super().features(x)


@pytest.mark.parametrize("kind", [Centred, Moved, Mixed, Rescaled, Sharper])
def test_proximal_steps_of_a_subclass_are_the_plain_ones(kind: Callable[..., Model]) -> None:
    with quick_draws():
        problem = Classifier(kind(30, 4, key=KEY), 4)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 30)), jnp.float32)
    batch, w = Batch(x, jnp.array([0, 1, 2, 3, 1, 0]), jnp.ones(6)), problem.init(KEY)
    fast, plain = (
        steps(w, w, batch, 3.0, 0.05, 3) for steps in (problem.proximal_steps, partial(Problem.proximal_steps, problem))
    )
    assert float((fast - plain).norm()) < 1e-5 < 1e-2 < float((fast - w).norm())
    assert (problem.rest.input_layer is None) == (kind is not Sharper)


class Doubled(Classifier):
    """A classifier with a loss of its own."""

    def losses(self, w: Vector, batch: Batch) -> Array:
        """Twice the cross-entropy."""
        return 2 * super().losses(w, batch)


@pytest.mark.usefixtures("float64")
def test_proximal_steps_follow_the_loss_of_a_subclass() -> None:
    """Steps on twice the loss are steps of twice the length with half the pull."""
    rng = np.random.default_rng(0)
    batch = Batch(jnp.asarray(rng.normal(size=(4, 6))), jnp.asarray([0, 1, 2, 1]), jnp.ones(4))
    kinds: tuple[Callable[..., Classifier], ...] = (Classifier, Doubled)
    plain, doubled = (kind(lambda key: MCLR(6, 3, key=key), 3) for kind in kinds)
    w = plain.init(jax.random.key(0))
    fast, expected = doubled.proximal_steps(w, w, batch, 3.0, 0.05, 3), plain.proximal_steps(w, w, batch, 1.5, 0.1, 3)
    assert float((fast - expected).norm()) < 1e-12 < 1e-2 < float((fast - w).norm())

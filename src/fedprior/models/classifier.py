"""A problem from any Equinox model: softmax classification, with a proximal loop that exploits a linear first layer."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from fedprior.core.batch import Batch
from fedprior.core.method import Mixture
from fedprior.core.problem import Problem
from fedprior.core.vectors import Scalar, Vector, row
from fedprior.errors import FedpriorError, first_line
from fedprior.models.base import Frozen, Model, Shift

ModelBuilder = Callable[[Array], eqx.Module]  # a function of a key


def _cross_entropy(logits: Array, y: Array) -> Array:
    """-log p(y) of scores [B, C] and labels [B]: [B]."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)[:, 0]


def _shapes(tree: Any) -> list[Any]:
    """The leaves that are array shapes rather than arrays."""
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.ShapeDtypeStruct)]


def _is_inexact(leaf: Any) -> bool:
    return eqx.is_inexact_array(leaf) or (
        isinstance(leaf, jax.ShapeDtypeStruct) and bool(jnp.issubdtype(leaf.dtype, jnp.inexact))
    )


def _trainable(model: eqx.Module) -> Any:
    """A tree of the model's shape that marks what is trained: floating-point arrays that are not wrapped in Frozen."""
    return jax.tree.map(
        lambda leaf: not isinstance(leaf, Frozen) and _is_inexact(leaf),
        model,
        is_leaf=lambda leaf: isinstance(leaf, Frozen),
    )


def slice_size(samples: int, most: int) -> int:
    """The size of equal slices of a batch: the largest that is at most ``most``, or the whole batch if all are tiny.

    >>> slice_size(400, 64), slice_size(100, 64), slice_size(20, 64), slice_size(101, 64)
    (50, 50, 20, 101)
    """
    size = max(size for size in range(1, most + 1) if samples % size == 0)
    return size if 4 * size >= most else samples


def log_probabilities(problem: Problem, mixture: Mixture, x: Array) -> Array:
    """The logarithm of a mixture's class probabilities [B, C]: the one place where a model is asked what a sample is."""
    weights, models = mixture
    parts = [jnp.log(weights[m]) + jax.nn.log_softmax(problem.logits(row(models, m), x)) for m in range(len(weights))]
    return parts[0] if len(parts) == 1 else jax.nn.logsumexp(jnp.stack(parts), axis=0)


def check_model(model: object) -> None:
    """Refuse what is neither an Equinox module nor a function that builds one."""
    if not isinstance(model, eqx.Module) and (hasattr(model, "state_dict") or not callable(model)):
        raise FedpriorError(
            f"the model is a {type(model).__module__}.{type(model).__name__}; give an Equinox module, or a function of "
            "a key that builds one: lambda key: eqx.nn.Linear(64, 10, key=key)"
        )


def outline(build: ModelBuilder) -> object:
    """The model that is built, of its arrays only the shapes, which takes no time to compile."""
    key = jax.random.key(0)
    try:
        return eqx.filter_eval_shape(build, key)
    except TypeError:  # it asks for values
        built = build(key)
        return eqx.filter_eval_shape(lambda: built)


def _built(build: ModelBuilder) -> eqx.Module:
    """The model that is built; of arrays that are trained only the shapes, which takes no time to compile."""
    key = jax.random.key(0)
    try:
        with contextlib.suppress(ValueError):  # what is not written in Python may have no signature
            inspect.signature(build).bind(key)
    except TypeError as error:
        raise FedpriorError(
            f"what builds the model must be a function of a key, and this one is not: {error}"
        ) from error
    built = outline(build)
    if isinstance(built, eqx.Module) and _shapes(eqx.filter(built, _trainable(built), inverse=True)):
        built = build(key)  # values that are not trained are part of the problem
    if not isinstance(built, eqx.Module):
        kind = f"{type(built).__module__}.{type(built).__name__}"
        raise FedpriorError(f"the model that is built is a {kind}; it must be an Equinox module")
    return built


def _reads_batches(model: Any) -> bool:
    """Whether a model is called on whole batches; any other is given one sample at a time."""
    return hasattr(model, "logits")


class Classifier(Problem):
    """Softmax classification with any Equinox model.

    ``model`` is a function of a key that builds the model, or a model, from whose weights every run then starts. A model
    with a method ``logits`` is called on whole batches, and so is its ``features``; any other is called on one sample, and
    both are mapped over the batch.

    >>> problem = Classifier(lambda key: eqx.nn.Linear(3, 2, key=key), n_classes=2)
    >>> w = problem.init(jax.random.key(0))
    >>> w.size, problem.logits(w, jnp.ones((5, 3))).shape
    (8, (5, 2))
    """

    rest: Any  # the model without its trained arrays; a field, so that frozen arrays are not compiled into the program
    start: Vector | None  # the weights of a model that was given ready-made
    build: ModelBuilder | None = eqx.field(static=True)
    n_classes: int = eqx.field(static=True)

    def __init__(self, model: ModelBuilder | eqx.Module, n_classes: int):
        given = isinstance(model, eqx.Module)
        check_model(model)
        built = cast(eqx.Module, model) if given else _built(cast(ModelBuilder, model))
        params, self.rest = eqx.partition(built, _trainable(built))
        if not jax.tree.leaves(params):
            raise FedpriorError(
                f"the model {type(built).__name__} has nothing to train; hold its weights as floating-point arrays, "
                "which are neither Python's own numbers nor wrapped in Frozen"
            )
        self.start = Vector(params) if given else None
        self.build = None if given else cast(ModelBuilder, model)
        self.n_classes = n_classes

    def check_reads(self, x: Any, classes: Sequence[object]) -> None:
        """Refuse samples that the model cannot read, and a model without a score for each class."""
        one = jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)
        try:
            scores = jax.eval_shape(lambda key, x: self.logits(self.init(key), x), jax.random.key(0), one).shape
        except (TypeError, ValueError, IndexError) as error:
            raise FedpriorError(
                f"the model cannot read samples of shape {x.shape[1:]} ({first_line(error)})"
            ) from error
        if len(scores) != 2:
            raise FedpriorError(
                f"the model gives an array of shape {scores[1:]} for a sample; it must give a score for each class, "
                f"of shape ({len(classes)},)"
            )
        if scores[1] < len(classes):
            listed = ", ".join(map(str, classes[:10])) + (", ..." if len(classes) > 10 else "")
            raise FedpriorError(
                f"the model gives {scores[1]} scores, and there are {len(classes)} classes ({listed}); give it as many "
                "outputs, or correct the labels"
            )

    def init(self, key: Array) -> Vector:
        """Draw the model's own initial parameters; those of a given model are the same for every key."""
        if self.build is None:
            assert self.start is not None
            return self.start
        model = self.build(key)
        return Vector(eqx.filter(model, _trainable(model)))

    def model(self, w: Vector) -> Any:
        """Put the parameters back into the model."""
        return eqx.combine(w.tree, self.rest, is_leaf=lambda leaf: leaf is None)

    def losses(self, w: Vector, batch: Batch) -> Array:
        """Cross-entropy of each sample [B]."""
        return _cross_entropy(self.logits(w, batch.x), batch.y)

    def grad(self, w: Vector, batch: Batch) -> Vector:
        """The gradient of f(w; B), added up over slices of the batch where the model asks for that."""
        most = self.rest.samples_per_slice if isinstance(self.rest, Model) else None
        size = len(batch.x) if most is None else slice_size(len(batch.x), most)
        if size == len(batch.x):
            return super().grad(w, batch)

        def add(total: Vector, part: tuple[Batch, Array]) -> tuple[Vector, None]:
            samples, weight = part
            return total + jax.grad(lambda w: jnp.sum(weight * self.losses(w, samples)))(w), None

        slices = jax.tree.map(lambda a: a.reshape(-1, size, *a.shape[1:]), (batch, batch.weight))
        return cast(Vector, lax.scan(add, jax.tree.map(jnp.zeros_like, w), slices)[0])

    def logits(self, w: Vector, x: Array) -> Array:
        """Scores [B, C]."""
        model = self.model(w)
        return cast(Array, model.logits(x) if _reads_batches(model) else jax.vmap(model)(x))

    def proximal_steps(self, mu: Vector, start: Vector, batch: Batch, lam: Scalar, alpha: Scalar, K: int) -> Vector:
        """K proximal steps on one batch x [B, in], which leave out the weights W [out, in] of a layer that reads the input.

        The steps only ever add combinations of the batch's own samples to W, so W = M + a (W0 - M) + c x with a scalar
        a, coefficients c [out, B] and mu's weights M, and W x^T = M x^T + a (W0 - M) x^T + c (x x^T): the loop works
        on [out, B] and [B, B], and W is made once at its end. For the DNN this is a third of the flops. Without such a
        layer, where this would save nothing, or with another loss than the cross-entropy, the plain loop is run.
        """
        first = self.rest.input_layer if isinstance(self.rest, Model) and self._has_own_loss else None
        x = batch.x.reshape(len(batch.x), -1)
        if first is None or K < 2 or x.shape[0] >= x.shape[1]:
            return super().proximal_steps(mu, start, batch, lam, alpha, K)

        def weight(tree: Any) -> Array:
            return cast(Array, getattr(tree, first).weight)

        def without(w: Vector) -> Vector:
            return Vector(eqx.tree_at(weight, w.tree, jnp.zeros((0,))))

        def loss(others: Vector, z: Array) -> Array:
            model = self.model(others)
            shift = Shift(getattr(model, first).bias)
            return jnp.sum(
                batch.weight
                * _cross_entropy(eqx.tree_at(lambda m: getattr(m, first), model, shift).logits(z.T), batch.y)
            )

        M, W0, gram, pull = weight(mu.tree), weight(start.tree), x @ x.T, without(mu)
        z_mu = M @ x.T  # [out, B]
        z_away = jnp.zeros_like(z_mu) if start is mu else W0 @ x.T - z_mu

        def step(_: Array, carry: tuple[Vector, Array, Array]) -> tuple[Vector, Array, Array]:
            others, a, c = carry
            slope, z_slope = jax.grad(loss, argnums=(0, 1))(others, z_mu + a * z_away + c @ gram)
            return (
                others - alpha * (slope + lam * (others - pull)),
                a - alpha * lam * a,
                c - alpha * (z_slope + lam * c),
            )

        others, a, c = lax.fori_loop(0, K, step, (without(start), jnp.ones((), x.dtype), jnp.zeros_like(z_mu)))
        W = (M if start is mu else M + a * (W0 - M)) + c @ x
        return Vector(eqx.tree_at(weight, others.tree, W))

    @property
    def _has_own_loss(self) -> bool:
        """Whether the loss and its gradient are those of this class, and not of a subclass."""
        defined = ("loss", "losses", "grad", "logits")
        return all(getattr(type(self), name) is getattr(Classifier, name) for name in defined)

    def features(self, w: Vector, x: Array) -> Array:
        """Input of the model's last linear layer [B, d]."""
        model, wanted = self.model(w), (len(x), self.head_shape(w)[1])
        z = cast(Array, model.features(x) if _reads_batches(model) else jax.vmap(model.features)(x))
        if z.shape != wanted:
            raise FedpriorError(
                f"the features of the model {type(w.tree).__name__} have the shape {z.shape} for a batch of {len(x)}; its "
                f"head reads {wanted}. A model without a method logits is given one sample at a time, in features too"
            )
        return z

    def head(self, w: Vector) -> Vector:
        """The parameters of ``model.head``, which must be a linear layer that reads ``model.features``."""
        name, head = type(w.tree).__name__, getattr(w.tree, "head", None)
        if head is None:
            said = "names no last layer"
        elif not callable(getattr(w.tree, "features", None)):
            said = "has a head, but no method features that gives what the head reads"
        elif getattr(getattr(head, "weight", None), "ndim", 0) != 2:
            said = f"has a head that is no linear layer, but a {type(head).__name__}"
        else:
            return Vector(head)
        raise FedpriorError(f"the model {name} {said}; give it a Linear called head and a method features")

    def with_head(self, w: Vector, head: Vector) -> Vector:
        """The parameters with those of ``model.head`` replaced."""
        return Vector(eqx.tree_at(lambda m: m.head, w.tree, head.tree))

    def head_shape(self, w: Vector) -> tuple[int, int]:
        """Number of classes and of features."""
        classes, features = w.tree.head.weight.shape
        return classes, features

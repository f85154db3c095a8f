"""Parameters as elements of a vector space, and the few operations on them that methods share.

A model's parameters stay a tree of arrays (slicing one flat array inside a round costs several times the gradient), but
the mathematics wants to say ``w - alpha * g``. :class:`Vector` is that tree with the arithmetic of a vector space.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

Tree = Any  # any pytree of arrays
T = TypeVar("T")
Scalar = float | Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Vector:
    """A tree of arrays with the arithmetic of a vector space.

    >>> w = Vector({"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)})
    >>> g = Vector({"a": jnp.array([1.0, 1.0]), "b": jnp.array(1.0)})
    >>> (w - 0.5 * g).tree["a"].tolist(), float(w @ g)
    ([0.5, 1.5], 6.0)
    """

    tree: Tree

    __array_ufunc__ = None  # numpy scalars on the left hand over to __rmul__ and friends

    def map(self, f: Callable[..., Any], *others: Vector) -> Vector:
        """Apply ``f`` to each array (and the matching arrays of ``others``)."""
        return Vector(jax.tree.map(f, self.tree, *(o.tree for o in others)))

    def _binary(self, f: Callable[[Any, Any], Array], other: Vector | Scalar) -> Vector:
        return self.map(f, other) if isinstance(other, Vector) else self.map(lambda x: f(x, other))

    def __add__(self, other: Vector | Scalar) -> Vector:
        return self._binary(lambda a, b: a + b, other)

    def __sub__(self, other: Vector | Scalar) -> Vector:
        return self._binary(lambda a, b: a - b, other)

    def __mul__(self, other: Vector | Scalar) -> Vector:
        return self._binary(lambda a, b: a * b, other)

    def __truediv__(self, other: Vector | Scalar) -> Vector:
        return self._binary(lambda a, b: a / b, other)

    def __rmul__(self, other: Scalar) -> Vector:
        return self.map(lambda x: other * x)

    def __neg__(self) -> Vector:
        return self.map(lambda x: -x)

    def __matmul__(self, other: Vector) -> Array:
        return sum(jax.tree.leaves(self.map(lambda a, b: jnp.sum(a * b), other).tree), jnp.zeros(()))

    def norm(self) -> Array:
        """Euclidean norm over all entries."""
        return jnp.sqrt(self @ self)

    @property
    def size(self) -> int:
        """The dimension D of the space."""
        return sum(math.prod(x.shape) for x in jax.tree.leaves(self.tree))


def row(stacked: T, i: int | Array) -> T:
    """Take entry ``i`` of a stacked tree."""
    return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, i, keepdims=False), stacked)


def put_row(stacked: T, i: int | Array, value: T) -> T:
    """Return the stacked tree with entry ``i`` replaced (in place inside a compiled loop)."""
    return jax.tree.map(lambda x, v: lax.dynamic_update_index_in_dim(x, v.astype(x.dtype), i, 0), stacked, value)


def stack_one(tree: T) -> T:
    """Give every array a leading axis of length one: a mixture of a single component."""
    return jax.tree.map(lambda x: x[None], tree)


def weighted_mean(stacked: T, weights: Array) -> T:
    """Average over the leading axis, weights [S] summing to one.

    >>> weighted_mean(Vector(jnp.array([[0.0, 2.0], [4.0, 2.0]])), jnp.array([0.25, 0.75])).tree.tolist()
    [3.0, 2.0]
    """
    return jax.tree.map(lambda x: jnp.tensordot(weights.astype(x.dtype), x, axes=1), stacked)


def ravel(w: Vector) -> Array:
    """Flatten to one array [D]: for the edges only (distances in ``merge``, checkpoints, the wire)."""
    return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(w.tree)])


def gradient_steps(grad: Callable[[Vector], Vector], w: Vector, alpha: Scalar, steps: int) -> Vector:
    """``steps`` times w <- w - alpha grad(w), for a gradient that stays the same function.

    >>> float(gradient_steps(lambda x: x - 4.0, Vector(jnp.array(0.0)), 0.5, 2).tree)
    3.0
    """
    return lax.fori_loop(0, steps, lambda _, x: x - alpha * grad(x), w)


def optimize(
    grad: Callable[[Vector, Array], Vector],
    w: Vector,
    picks: Array,
    optimizer: optax.GradientTransformation,
    memory: optax.OptState | None = None,
) -> tuple[Vector, optax.OptState]:
    """One optimizer step per pick: w <- w + update(grad(w, pick)); returns w and the optimizer's state."""

    def step(carry: tuple[Vector, optax.OptState], pick: Array) -> tuple[tuple[Vector, optax.OptState], None]:
        w, memory = carry
        update, memory = optimizer.update(grad(w, pick), memory, w)
        return (optax.apply_updates(w, update), memory), None

    start = (w, optimizer.init(w) if memory is None else memory)
    (w, memory), _ = lax.scan(step, start, picks)
    return w, memory


OPTIMIZERS = ("sgd", "adabelief", "adagrad", "adam", "adamax", "adamw", "lamb", "lion", "nadam", "rmsprop", "yogi")


def optimizer(name: str | optax.GradientTransformation, alpha: float) -> optax.GradientTransformation:
    """An optax optimizer by name with step size ``alpha``, or the given one as it is."""
    return getattr(optax, name)(alpha) if isinstance(name, str) else name

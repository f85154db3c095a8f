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


def rows(stacked: T, ids: Array) -> T:
    """Take entries ``ids`` of a stacked tree."""
    return jax.tree.map(lambda x: x[ids], stacked)


def put_rows(stacked: T, ids: Array, values: T) -> T:
    """Return the stacked tree with entries ``ids`` replaced."""
    return jax.tree.map(lambda x, v: x.at[ids].set(v.astype(x.dtype)), stacked, values)


def repeat(tree: T, n: int) -> T:
    """Stack n copies."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (n, *x.shape)), tree)


def select(condition: Array, a: T, b: T) -> T:
    """``a`` where the condition holds, else ``b``."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def stack_one(tree: T) -> T:
    """Give every array a leading axis of length one: a mixture of a single component."""
    return jax.tree.map(lambda x: x[None], tree)


def weighted_mean(stacked: T, weights: Array) -> T:
    """Average over the leading axis, weights [S] summing to one; weights [T, S] give T averages.

    >>> weighted_mean(Vector(jnp.array([[0.0, 2.0], [4.0, 2.0]])), jnp.array([0.25, 0.75])).tree.tolist()
    [3.0, 2.0]
    """
    return jax.tree.map(lambda x: jnp.tensordot(weights.astype(x.dtype), x, axes=1), stacked)


def inner_products(a: Vector, b: Vector) -> Array:
    """All <a_i, b_j> of two stacks [S, ...] and [N, ...]: one matrix product per array, [S, N].

    >>> inner_products(Vector(jnp.array([[1.0, 2.0]])), Vector(jnp.array([[3.0, 4.0], [0.0, 1.0]]))).tolist()
    [[11.0, 2.0]]
    """
    parts = a.map(lambda x, y: x.reshape(len(x), -1) @ y.reshape(len(y), -1).T, b)
    return sum(jax.tree.leaves(parts.tree), jnp.zeros(()))


def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """c_0 + c_1 x + c_2 x^2 + ...

    >>> float(polynomial((1.0, 0.0, 2.0), jnp.array(3.0)))
    19.0
    """
    value = jnp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value * x + c
    return value

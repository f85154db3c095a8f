"""Parameters as vectors: the laws of a vector space, and the shared operations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jax.flatten_util import ravel_pytree

from fedprior.core.vectors import (
    Vector,
    inner_products,
    polynomial,
    put_row,
    put_rows,
    repeat,
    row,
    rows,
    select,
    stack_one,
    weighted_mean,
)

numbers = st.floats(-100, 100, width=32)
trees = arrays(np.float32, 6, elements=numbers).map(
    lambda a: Vector({"a": jnp.asarray(a[:4].reshape(2, 2)), "b": jnp.asarray(a[4:])})
)
STACKED = Vector(jnp.arange(6.0).reshape(3, 2))


def flat(v: Vector) -> np.ndarray:
    return np.array(ravel_pytree(v)[0])


@settings(max_examples=50, deadline=None)
@given(trees, trees, numbers)
def test_arithmetic_is_that_of_the_flat_vector(v: Vector, u: Vector, c: float) -> None:
    x, y = flat(v), flat(u)
    for ours, theirs in (
        (v + u, x + y),
        (v - u, x - y),
        (c * v, c * x),
        (v * c, x * c),
        (np.float32(c) * v, c * x),  # type: ignore[operator]
        (jnp.float32(c) * v, c * x),
        (-v, -x),
        (v * u, x * y),
        (v / 2, x / 2),
        (v - 1.0, x - 1),
    ):
        np.testing.assert_allclose(flat(ours), theirs, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(float(v @ u), x @ y, rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(float(v.norm()), np.linalg.norm(x), rtol=1e-5, atol=1e-18)  # squares below 1e-38 vanish
    assert v.size == 6


def test_it_is_a_pytree_that_survives_jit_grad_and_scan() -> None:
    v = Vector({"a": jnp.array([1.0, 2.0])})
    assert jax.grad(lambda x: x @ x)(v).tree["a"].tolist() == [2.0, 4.0]
    assert jax.jit(lambda x: 2 * x)(v).tree["a"].tolist() == [2.0, 4.0]
    assert jax.lax.scan(lambda x, _: (x + v, None), v, jnp.arange(3))[0].tree["a"].tolist() == [4.0, 8.0]


def test_rows() -> None:
    assert row(STACKED, 1).tree.tolist() == [2, 3]
    assert put_row(STACKED, 2, Vector(jnp.array([9.0, 8.0]))).tree.tolist() == [[0, 1], [2, 3], [9, 8]]
    ids = jnp.array([2, 0])
    assert rows(STACKED, ids).tree.tolist() == [[4, 5], [0, 1]]
    assert put_rows(STACKED, ids, Vector(-jnp.ones((2, 2)))).tree.tolist() == [[-1, -1], [2, 3], [-1, -1]]
    assert repeat(row(STACKED, 0), 2).tree.tolist() == [[0, 1], [0, 1]]
    assert stack_one(row(STACKED, 0)).tree.tolist() == [[0, 1]]
    for condition in (True, False):
        assert select(jnp.array(condition), STACKED, -STACKED).tree[2, 1] == (5 if condition else -5)


def test_means() -> None:
    assert weighted_mean(STACKED, jnp.array([0.5, 0.25, 0.25])).tree.tolist() == [1.5, 2.5]
    assert weighted_mean(STACKED, jnp.array([[1.0, 0, 0], [0, 0.5, 0.5]])).tree.tolist() == [[0, 1], [3, 4]]


def test_products_of_all_pairs_are_those_of_the_flat_vectors() -> None:
    rng = np.random.default_rng(0)
    a, b = (Vector({"x": rng.normal(size=(n, 2, 3)), "y": rng.normal(size=(n,))}) for n in (2, 4))
    flat_a, flat_b = (
        np.concatenate([v.tree["x"].reshape(len(v.tree["y"]), -1), v.tree["y"][:, None]], 1) for v in (a, b)
    )
    np.testing.assert_allclose(inner_products(a, b), flat_a @ flat_b.T, rtol=1e-5)


def test_a_polynomial_is_that_of_numpy() -> None:
    x = jnp.linspace(-2, 2, 9)
    np.testing.assert_allclose(
        polynomial((1.0, -3.0, 0.0, 0.5), x), np.polyval([0.5, 0, -3, 1], x), rtol=1e-5, atol=1e-6
    )

"""Parameters as vectors: the laws of a vector space, and the shared operations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedprior.vectors import Vector, gradient_steps, put_row, ravel, row, weighted_mean

numbers = st.floats(-100, 100, width=32)
trees = arrays(np.float32, 6, elements=numbers).map(
    lambda a: Vector({"a": jnp.asarray(a[:4].reshape(2, 2)), "b": jnp.asarray(a[4:])})
)


@settings(max_examples=50, deadline=None)
@given(trees, trees, numbers)
def test_arithmetic_is_that_of_the_flat_vector(v: Vector, u: Vector, c: float) -> None:
    x, y = np.array(ravel(v)), np.array(ravel(u))
    for ours, theirs in (
        (v + u, x + y),
        (v - u, x - y),
        (c * v, c * x),
        (v * c, x * c),
        (np.float32(c) * v, c * x),
        (jnp.float32(c) * v, c * x),
        (-v, -x),
        (v * u, x * y),
        (v / 2, x / 2),
        (v - 1.0, x - 1),
    ):
        np.testing.assert_allclose(np.array(ravel(ours)), theirs, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(float(v @ u), x @ y, rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(float(v.norm()), np.linalg.norm(x), rtol=1e-5, atol=1e-18)  # squares below 1e-38 vanish
    assert v.size == 6


def test_it_is_a_pytree_that_survives_jit_grad_and_scan() -> None:
    v = Vector({"a": jnp.array([1.0, 2.0])})
    assert jax.grad(lambda x: x @ x)(v).tree["a"].tolist() == [2.0, 4.0]
    assert jax.jit(lambda x: 2 * x)(v).tree["a"].tolist() == [2.0, 4.0]


def test_rows_and_means() -> None:
    stacked = Vector(jnp.arange(6.0).reshape(3, 2))
    assert row(stacked, 1).tree.tolist() == [2, 3]
    assert put_row(stacked, 2, Vector(jnp.array([9.0, 8.0]))).tree.tolist() == [[0, 1], [2, 3], [9, 8]]
    assert weighted_mean(stacked, jnp.array([0.5, 0.25, 0.25])).tree.tolist() == [1.5, 2.5]


def test_gradient_steps_follow_the_geometric_law() -> None:
    """On 1/2 h (x - c)^2, n steps leave (1 - alpha h)^n of the distance."""
    x = gradient_steps(lambda x: 2.0 * (x - 3.0), Vector(jnp.array([7.0])), 0.1, 5)
    assert float(x.tree[0]) == pytest.approx(3 + 4 * 0.8**5, rel=1e-5)

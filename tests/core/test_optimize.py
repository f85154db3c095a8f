"""Gradient steps against the geometric law, by hand, and with optimizers whose memory goes on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import InTurn, Quadratic, assert_close, vector

from fedprior.core.optimize import OPTIMIZERS, gradient_steps, local_steps, make_optimizer, optimize
from fedprior.core.vectors import Vector

# f(w) = h/2 (w - c)^2 with (c, h) of three batches: slopes 2 (w - 1), 2 (w - 7) and w
BATCHES = np.array([[1.0, 2.0], [7.0, 2.0], [0.0, 1.0]])
GRAD = Quadratic(1).grad


def test_gradient_steps_follow_the_geometric_law() -> None:
    """On 1/2 h (x - c)^2, n steps leave (1 - alpha h)^n of the distance."""
    x = gradient_steps(lambda x: 2.0 * (x - 3.0), vector(7.0), 0.1, 5)
    assert float(x.tree[0]) == pytest.approx(3 + 4 * 0.8**5, rel=1e-5)


@pytest.mark.usefixtures("float64")
def test_local_steps_by_hand() -> None:
    """3 - .1 * 4 = 2.6, then 2.6 + .1 * 8.8 = 3.48, then 3.48 - .1 * 3.48; a pull of (w - 3) / 2 adds to each slope."""
    w, _ = local_steps(GRAD, vector(3.0), InTurn(BATCHES), 3, 0.1)
    assert_close(w, vector(3.132))
    w, _ = local_steps(GRAD, vector(3.0), InTurn(BATCHES), 2, 0.1, pull=lambda w: 0.5 * (w - 3.0))
    assert_close(w, vector(3.5))  # 2.6, then 2.6 - .1 (-8.8 - .2)


@pytest.mark.usefixtures("float64")
def test_the_next_steps_take_the_next_batches_and_the_memory() -> None:
    data = InTurn(BATCHES)
    w, memory = local_steps(GRAD, vector(3.0), data, 1, 0.1, optax.sgd(0.1, momentum=0.5))
    w, _ = local_steps(GRAD, w, data, 2, 0.1, optax.sgd(0.1, momentum=0.5), memory)
    whole, _ = local_steps(GRAD, vector(3.0), InTurn(BATCHES), 3, 0.1, optax.sgd(0.1, momentum=0.5))
    assert_close(w, whole)
    afresh, _ = local_steps(GRAD, vector(2.6), InTurn(BATCHES[1:]), 2, 0.1, optax.sgd(0.1, momentum=0.5))
    assert abs(float((w - afresh).tree[0])) > 0.01


@pytest.mark.usefixtures("float64")
def test_a_step_takes_a_tree_of_arrays_that_belong_together() -> None:
    picks = (np.array([1.0, 2.0]), np.array([10.0, 20.0]))
    w, _ = optimize(lambda w, pick: vector(0.0) + pick[0] * pick[1], vector(0.0), picks, make_optimizer("sgd", 0.1))
    assert_close(w, vector(-5.0))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_goes_down(name: str) -> None:
    def descend(w: Vector) -> Vector:
        return local_steps(GRAD, w, InTurn(np.tile(BATCHES[:1], (20, 1))), 20, 0.05, name)[0]

    w = jax.jit(descend)(vector(3.0))
    assert float(Quadratic(1).losses(w, InTurn(BATCHES).batch(jnp.array([0])))[0]) < 4


def test_an_optimizer_that_is_given_is_used_as_it_is() -> None:
    given = optax.sgd(0.25)
    assert make_optimizer(given, 99.0) is given
    assert float(local_steps(GRAD, vector(3.0), InTurn(BATCHES), 1, 99.0, given)[0].tree[0]) == 2.0

"""Reptile: a round by hand, FedAvg with uniform weights at eps = 1, and personal models that leave no trace."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Quadratic, assert_close, blobs, engine_of, local, quadratics, rounds, vector, view

from fedprior.core.vectors import Vector
from fedprior.engine.evaluate import Evaluator
from fedprior.errors import FedpriorError
from fedprior.methods import make

DATA = quadratics(np.array([[1.0], [5.0]]), np.array([[2.0], [1.0]]), [3, 1])


@pytest.mark.usefixtures("float64")
def test_reptile_by_hand() -> None:
    """From w = 3 the clients go to 3 - .1 * 4 = 2.6 and 3 + .1 * 2 = 3.2; half way to 2.9, whatever their sizes: 2.95."""
    method = make("reptile", R=1, alpha=0.1, eps=0.5)
    ups = [local(method, Quadratic(1), (), vector(3.0), partial(view, DATA, i))[1].tree for i in (0, 1)]
    assert_close(ups, [[2.6], [3.2]])
    shares, ids = jnp.array([0.75, 0.25]), jnp.array([0, 1])
    merged = method.merge(vector(3.0), Vector(jnp.stack(ups)), shares, ids, jax.random.key(0))
    assert float(merged.tree[0]) == pytest.approx(2.95, abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_a_whole_step_is_fedavg_with_uniform_weights() -> None:
    problem, data = blobs()
    shared = {"R": 4, "alpha": 0.1}
    whole = rounds(engine_of(problem, make("reptile", eps=1.0, **shared), data, batch_size=8, aggregated=3), 3)
    fedavg = engine_of(problem, make("fedavg", **shared), data, batch_size=8, aggregated=3, weights="uniform")
    assert_close(whole.server, rounds(fedavg, 3).server)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("adapt", [0, 2])
def test_adapting_sees_training_samples_and_keeps_nothing(adapt: int) -> None:
    """Training samples lie at 1, those of the test at 100. Each step from w leaves 1 - .1 * 2 of the distance to 1."""
    far = quadratics(np.array([[100.0], [100.0]]), np.array([[2.0], [1.0]]), [3, 1])
    method = make("reptile", R=1, alpha=0.1, adapt=adapt)
    engine = engine_of(Quadratic(1), method, dataclasses.replace(DATA, test=far.train), batch_size=4)
    state = rounds(engine, 1)
    before = jax.tree.map(np.array, state)
    _, models = Evaluator(engine).personal_model(state, 0)
    w = before.server.tree[0]
    assert float(models.tree[0, 0]) == pytest.approx(1 + 0.8**adapt * (w - 1), abs=1e-12)
    assert_close(state, before, rtol=0, atol=0)


def test_bad_settings() -> None:
    for eps in (0.0, 1.5):
        with pytest.raises(FedpriorError, match=rf"Reptile: eps = {eps} is not valid; .* above 0 and at most 1"):
            make("reptile", eps=eps)
    with pytest.raises(FedpriorError, match=r"Reptile: adapt = -1 is not valid; .* at least 0"):
        make("reptile", adapt=-1)

"""Local: each client's own optimum, and an optimizer whose memory goes on across rounds."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest
from toys import Quadratic, engine_of, quadratics, rounds, states_of

from fedprior.methods import make

DATA = quadratics(np.array([[1.0], [5.0]]), np.array([[2.0], [1.0]]), [3, 1])


@pytest.mark.usefixtures("float64")
def test_it_reaches_each_clients_own_optimum() -> None:
    engine = engine_of(Quadratic(1), make("local", R=5, alpha=0.3), DATA, batch_size=4)
    np.testing.assert_allclose(states_of(rounds(engine, 40), 2).v.tree[:, 0], [1.0, 5.0], atol=1e-9)


def test_momentum_goes_on_across_rounds() -> None:
    engine = engine_of(Quadratic(1), make("local", R=1, optimizer=optax.sgd(0.1, momentum=0.5)), DATA, batch_size=4)
    state = engine.init(0)
    v, trace = float(states_of(state, 2).v.tree[0, 0]), 0.0
    for _ in range(3):
        state, _ = engine.step(state)
        trace = 0.5 * trace + 2 * (v - 1)
        v -= 0.1 * trace
        assert float(states_of(state, 2).v.tree[0, 0]) == pytest.approx(v, rel=1e-5)


def test_there_is_nothing_to_share() -> None:
    engine = engine_of(Quadratic(1), make("local", R=1), DATA, batch_size=4)
    state = rounds(engine, 1)
    assert jax.tree.leaves(state.server) == []
    assert engine.global_model(state) is None

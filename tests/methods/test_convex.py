"""Where the methods go on federated quadratics, whose optima are known. (pFedMe and pFedBreD: test_pfedbred.py.)"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Quadratic, engine_of, quadratics, states_of

from fedprior.engine.round import State
from fedprior.methods import make

# f_i(w) = 1/2 sum_d h_id (w_d - c_id)^2, as different from client to client as they may be
C = np.array([[1.0, -2.0], [4.0, 0.5], [-3.0, 2.0]])
H = np.array([[0.5, 1.0], [2.0, 1.5], [1.0, 0.5]])
SIZES = [2, 5, 3]
DATA = quadratics(C, H, SIZES)


def settle(name: str, count: int, state: State | None = None, weights: str = "samples", **settings: Any) -> State:
    """The state after ``count`` rounds of a method with everyone, going on from ``state``."""
    one = jax.devices()[:1]
    engine = engine_of(Quadratic(2), make(name, **settings), DATA, batch_size=8, weights=weights, devices=one)
    state = state or engine.init(0)
    for _ in range(count):
        state, _ = engine.step(state)
    return state


def optimum(weight: np.ndarray | list[int]) -> np.ndarray:
    """The minimum of sum_i weight_i f_i."""
    h = np.array(weight, float)[:, None] * H
    return (h * C).sum(0) / h.sum(0)


def drifted(alpha: float, R: int, weight: np.ndarray | list[int]) -> np.ndarray:
    """Where FedAvg settles: R steps leave (1 - alpha h)^R of the way to c_i, so h_i counts as 1 - (1 - alpha h_i)^R."""
    h = np.array(weight, float)[:, None] * (1 - (1 - alpha * H) ** R)
    return (h * C).sum(0) / h.sum(0)


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_fedavg_with_decreasing_steps_approaches_the_pooled_optimum() -> None:
    state, gaps = None, []
    for alpha, count in ((0.3, 20), (0.1, 30), (0.03, 80)):
        state = settle("fedavg", count, state, R=5, alpha=alpha)
        w = np.array(state.server.tree)
        np.testing.assert_allclose(w, drifted(alpha, 5, SIZES), atol=1e-6)
        gaps.append(np.linalg.norm(w - optimum(SIZES)))
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]
    assert gaps[2] < 0.1


@pytest.mark.usefixtures("float64")
def test_scaffold_has_no_drift_where_fedavg_has_one() -> None:
    shared: dict[str, Any] = {"R": 5, "alpha": 0.2}
    scaffold = settle("scaffold", 40, **shared).server.w  # uniform by itself
    fedavg = settle("fedavg", 20, weights="uniform", **shared).server
    np.testing.assert_allclose(np.array(scaffold.tree), optimum([1, 1, 1]), atol=1e-9)
    np.testing.assert_allclose(np.array(fedavg.tree), drifted(0.2, 5, [1, 1, 1]), atol=1e-9)
    assert np.linalg.norm(np.array(fedavg.tree) - optimum([1, 1, 1])) > 0.3


@pytest.mark.usefixtures("float64")
def test_ditto_settles_between_each_client_and_all() -> None:
    lam = 0.7
    state = settle("ditto", 60, R=1, alpha=0.3, lam=lam)
    w = optimum(SIZES)
    np.testing.assert_allclose(np.array(state.server.tree), w, atol=1e-9)
    np.testing.assert_allclose(states_of(state, 3).tree, (H * C + lam * w) / (H + lam), atol=1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_fedu_approaches_the_minimum_of_losses_and_ties() -> None:
    """The ordered pairs count a tie twice, and each end moves: (eta / 8) 2 * 2 (w_k - w_l) = (eta / 2) (w_k - w_l)."""
    eta, graph = 3.0, jnp.array([[0.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.5, 0.0, 0.0]])

    def objective(w: jax.Array) -> jax.Array:
        ties = graph * jnp.sum((w[:, None] - w[None, :]) ** 2, axis=2)
        return jnp.sum(H * (w - C) ** 2) / 2 + eta / 8 * jnp.sum(ties)

    @jax.jit
    def newton(w: jax.Array) -> jax.Array:  # one step is exact on a quadratic
        slope, curvature = jax.grad(objective)(w), jax.hessian(objective)(w)
        return w - jnp.linalg.solve(curvature.reshape(w.size, w.size), slope.ravel()).reshape(w.shape)

    best = newton(jnp.zeros(C.shape))
    gaps = []
    for alpha, count in ((0.1, 40), (0.05, 80)):
        state = settle("fedu", count, R=2, alpha=alpha, eta=eta, graph=graph)
        gaps.append(np.linalg.norm(np.array(state.server.w.tree) - best))
    assert gaps[1] < 0.3
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1)

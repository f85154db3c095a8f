"""FedAvg and Local: steps by hand, fixed points, and optimizers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import Quadratic, quadratics, rounds, view

from fedprior.engine import Engine
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.tricks import FineTuned, Relaxed
from fedprior.vectors import Vector

DATA = quadratics(np.array([[1.0], [5.0]]), np.array([[2.0], [1.0]]), [3, 1])


@pytest.mark.usefixtures("float64")
def test_fedavg_by_hand() -> None:
    """w = 3. Client 0: 3 - .1 * 2 * 2 = 2.6, then 2.6 - .1 * 2 * 1.6 = 2.28. Client 1: 3.2, then 3.38. Weights 3:1."""
    engine = Engine(Quadratic(1), make("fedavg", R=2, alpha=0.1), DATA, batch_size=4)
    state = engine.init(0)
    state = state._replace(server=jax.device_put(Vector(jnp.array([3.0])), engine.fleet.same))
    state, info = engine.step(state)
    assert float(state.server.tree[0]) == pytest.approx((3 * 2.28 + 3.38) / 4, abs=1e-12)
    assert float(info["moved"]) == pytest.approx((0.72 + 0.38) / 2, abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_uniform_weights_and_relaxation() -> None:
    """With R = 1: clients at 2.6 and 3.2, uniform mean 2.9; beta = 2 goes twice as far: 2 * 2.9 - 3 = 2.8."""
    base = make("fedavg", R=1, alpha=0.1)
    for method, expected in (
        (base, 2.9),
        (Relaxed(base, 1.0), 2.9),
        (Relaxed(base, 2.0), 2.8),
        (Relaxed(base, 0.5), 2.95),
    ):
        engine = Engine(Quadratic(1), method, DATA, batch_size=4, weights="uniform")
        state = engine.init(0)
        state = state._replace(server=jax.device_put(Vector(jnp.array([3.0])), engine.fleet.same))
        assert float(engine.step(state)[0].server.tree[0]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("wrap", [Relaxed, FineTuned])
def test_a_wrapper_trains_whom_its_base_trains(wrap: type[Relaxed] | type[FineTuned]) -> None:
    for name in ("fedavg", "pfedme"):
        base = make(name)
        assert wrap(base).participation == base.participation
        assert Engine(Quadratic(1), wrap(base), DATA).participation == base.participation[0]


def test_relaxation_needs_a_global_model_and_a_positive_beta() -> None:
    engine = Engine(Quadratic(1), Relaxed(make("local"), 2.0), DATA, batch_size=4)
    with pytest.raises(FedpriorError, match="global model, and Local has none"):
        engine.step(engine.init(0))
    with pytest.raises(FedpriorError, match="beta = 0"):
        Relaxed(make("fedavg"), 0.0)


@pytest.mark.usefixtures("float64")
def test_local_reaches_each_clients_own_optimum() -> None:
    engine = Engine(Quadratic(1), make("local", R=5, alpha=0.3), DATA, batch_size=4)
    state = rounds(engine, 40)
    np.testing.assert_allclose(np.array(state.clients["v"].tree)[:2, 0], [1.0, 5.0], atol=1e-9)


@pytest.mark.usefixtures("float64")
def test_fedavg_with_one_step_reaches_the_pooled_optimum() -> None:
    """R = 1 is gradient descent on the weighted sum: (3 * 2 * 1 + 1 * 1 * 5) / (3 * 2 + 1 * 1) = 11 / 7."""
    engine = Engine(Quadratic(1), make("fedavg", R=1, alpha=0.2), DATA, batch_size=4)
    assert float(rounds(engine, 200).server.tree[0]) == pytest.approx(11 / 7, abs=1e-9)


def test_optimizers_by_name_and_as_given_objects() -> None:
    """Adam's first step has length alpha whatever the gradient; momentum kept by Local goes on across rounds."""
    method = make("fedavg", R=1, alpha=0.1, optimizer="adam")
    _, w, _ = jax.jit(lambda d: method.local(Quadratic(1), (), d, view(DATA), jax.random.key(0)))(
        Vector(jnp.array([3.0]))
    )
    assert float(w.tree[0]) == pytest.approx(2.9, abs=1e-5)
    momentum = make("local", R=1, optimizer=optax.sgd(0.1, momentum=0.5))
    engine = Engine(Quadratic(1), momentum, DATA, batch_size=4)
    state = engine.init(0)
    v = float(np.array(state.clients["v"].tree)[0, 0])
    trace = 0.0
    for _ in range(3):
        state, _ = engine.step(state)
        trace = 0.5 * trace + 2 * (v - 1)
        v -= 0.1 * trace
        assert float(np.array(state.clients["v"].tree)[0, 0]) == pytest.approx(v, rel=1e-5)
    with pytest.raises(FedpriorError, match="optimizer = 'adamm' is not valid; valid: sgd"):
        make("fedavg", optimizer="adamm")

"""FedAvg: steps by hand, the pooled optimum at one step a round, and optimizers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import Quadratic, engine_of, local, quadratics, rounds, vector, view

from fedprior.core.hyper import without_effect
from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.fedavg import FedAvg

DATA = quadratics(np.array([[1.0], [5.0]]), np.array([[2.0], [1.0]]), [3, 1])


@pytest.mark.usefixtures("float64")
def test_fedavg_by_hand() -> None:
    """w = 3. Client 0: 3 - .1 * 2 * 2 = 2.6, then 2.6 - .1 * 2 * 1.6 = 2.28. Client 1: 3.2, then 3.38. Weights 3:1."""
    for weights, expected in (("samples", (3 * 2.28 + 3.38) / 4), ("uniform", (2.28 + 3.38) / 2)):
        engine = engine_of(Quadratic(1), make("fedavg", R=2, alpha=0.1), DATA, batch_size=4, weights=weights)
        state = engine.init(0)
        state = state._replace(server=engine.placement.replicate(Vector(jnp.array([3.0]))))
        state, info = engine.step(state)
        assert float(state.server.tree[0]) == pytest.approx(expected, abs=1e-12)
        assert float(info["moved"]) == pytest.approx((0.72 + 0.38) / 2, abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_with_one_step_it_reaches_the_pooled_optimum() -> None:
    """R = 1 is gradient descent on the weighted sum: (3 * 2 * 1 + 1 * 1 * 5) / (3 * 2 + 1 * 1) = 11 / 7."""
    engine = engine_of(Quadratic(1), make("fedavg", R=1, alpha=0.2), DATA, batch_size=4)
    assert float(rounds(engine, 200).server.tree[0]) == pytest.approx(11 / 7, abs=1e-9)


def test_optimizers_by_name_and_as_given_objects() -> None:
    """Adam's first step has length alpha whatever the gradient; an optimizer that is given has its own step size."""
    for settings in ({"alpha": 0.1, "optimizer": "adam"}, {"alpha": 9.0, "optimizer": optax.adam(0.1)}):
        _, w, _ = local(make("fedavg", R=1, **settings), Quadratic(1), (), vector(3.0), lambda: view(DATA))
        assert float(w.tree[0]) == pytest.approx(2.9, abs=1e-5)


def test_bad_settings() -> None:
    with pytest.raises(FedpriorError, match="optimizer = 'adamm' is not valid; valid: sgd"):
        make("fedavg", optimizer="adamm")
    with pytest.raises(FedpriorError, match="FedAvg: R = 0 is not valid; it must be a whole number of at least 1"):
        make("fedavg", R=0)
    unbounded: list[Any] = [-0.1, float("nan"), float("inf"), np.float32(-1)]
    for alpha in unbounded:
        with pytest.raises(
            FedpriorError, match=r"FedAvg: alpha = .* is not valid; it must be a finite number of at least 0"
        ):
            FedAvg(alpha=alpha)
    own = make("fedavg", optimizer=optax.sgd(0.1))
    assert without_effect(own) == {"alpha": "alpha needs an optimizer given by name"}
    assert without_effect(make("fedavg", alpha=0.0)) == {"alpha": "alpha = 0 switches its part off"}

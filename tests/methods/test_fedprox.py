"""FedProx: steps by hand, and FedAvg at mu = 0."""

from __future__ import annotations

import numpy as np
import pytest
from toys import Quadratic, assert_close, blobs, engine_of, local, quadratics, rounds, vector, view

from fedprior.core.hyper import without_effect
from fedprior.errors import FedpriorError
from fedprior.methods import make


@pytest.mark.usefixtures("float64")
def test_fedprox_by_hand() -> None:
    """f = (w - 1)^2 from the received w = 3: 3 - .1 * 4 = 2.6, then 2.6 - .1 (3.2 + .5 (2.6 - 3)) = 2.3."""
    data = quadratics(np.array([[1.0]]), np.array([[2.0]]), [1])
    method = make("fedprox", R=2, alpha=0.1, mu=0.5)
    _, w, info = local(method, Quadratic(1), (), vector(3.0), lambda: view(data, batch=1))
    assert float(w.tree[0]) == pytest.approx(2.3, abs=1e-12)
    assert float(info["moved"]) == pytest.approx(0.7, abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_without_a_pull_it_is_fedavg() -> None:
    problem, data = blobs()
    shared = {"R": 4, "alpha": 0.1}
    prox, plain = (
        rounds(engine_of(problem, method, data, batch_size=8, aggregated=3), 3)
        for method in (make("fedprox", mu=0.0, **shared), make("fedavg", **shared))
    )
    assert_close(prox.server, plain.server)


def test_bad_settings() -> None:
    with pytest.raises(FedpriorError, match=r"FedProx: mu = -1.0 is not valid; it must be .* at least 0"):
        make("fedprox", mu=-1.0)
    assert without_effect(make("fedprox", mu=0.0)) == {"mu": "mu = 0 switches its part off"}

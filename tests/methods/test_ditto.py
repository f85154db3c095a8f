"""Ditto: steps of both models by hand, and what it contains: Local at lam = 0, and FedAvg."""

from __future__ import annotations

import numpy as np
import pytest
from toys import (
    InTurn,
    Quadratic,
    assert_close,
    blobs,
    engine_of,
    local,
    quadratics,
    rounds,
    states_of,
    vector,
    view,
)

from fedprior.core.hyper import without_effect
from fedprior.errors import FedpriorError
from fedprior.methods import make


@pytest.mark.usefixtures("float64")
def test_ditto_by_hand() -> None:
    """f = (x - 1)^2, received w = 3, own v = 5, lam = 2; the anchor stays at 3 while w_i moves.

    v = 5 - .1 (8 + 2 * 2) = 3.8, then 3.8 - .1 (5.6 + 2 * .8) = 3.08;   w_i = 3 - .1 * 4 = 2.6, then 2.28.
    """
    data = quadratics(np.array([[1.0]]), np.array([[2.0]]), [1])
    method = make("ditto", R=2, alpha=0.1, lam=2.0)
    v, w, info = local(method, Quadratic(1), vector(5.0), vector(3.0), lambda: view(data, batch=1))
    assert_close((v, w), (vector(3.08), vector(2.28)))
    assert_close(info, {"moved": 0.72, "personal": 0.08})


@pytest.mark.usefixtures("float64")
def test_without_a_pull_it_is_local() -> None:
    problem, data = blobs()
    ditto, alone = (
        rounds(engine_of(problem, make(name, R=4, alpha=0.1, **settings), data, batch_size=8, aggregated=3), 3)
        for name, settings in (("ditto", {"lam": 0.0}), ("local", {}))
    )
    assert_close(states_of(ditto, 5), states_of(alone, 5).v)


@pytest.mark.usefixtures("float64")
def test_its_global_part_is_fedavg() -> None:
    """The pull acts on v_i only, and both see the same batches: from one point, without a pull, they stay together."""
    x, w = np.random.default_rng(0).uniform(0.5, 2.0, (4, 6)), vector(3.0, -1.0, 0.5)
    shared = {"R": 4, "alpha": 0.1}
    _, fedavg, _ = local(make("fedavg", **shared), Quadratic(3), (), w, lambda: InTurn(x))
    for lam, together in ((0.0, True), (2.0, False)):
        v, up, _ = local(make("ditto", lam=lam, **shared), Quadratic(3), w, w, lambda: InTurn(x))
        assert_close(up, fedavg)
        assert (float((v - up).norm()) < 1e-12) == together


def test_bad_settings() -> None:
    with pytest.raises(FedpriorError, match=r"Ditto: lam = -1.0 is not valid; it must be .* at least 0"):
        make("ditto", lam=-1.0)
    assert without_effect(make("ditto", lam=0.0)) == {"lam": "lam = 0 switches its part off"}

"""pFedMe by hand, and what lambda does. (Fixed points, and that it is a case of pFedBreD: test_pfedbred.py.)"""

from __future__ import annotations

import numpy as np
import pytest
from toys import Quadratic, assert_close, local, quadratics, vector, view

from fedprior.errors import FedpriorError
from fedprior.methods import make

DATA = quadratics(np.array([[1.0]]), np.array([[2.0]]), [1])  # f(x) = (x - 1)^2
W, THETA = 3.0, 5.0


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("name", "w", "theta"),
    [
        # from theta = 5: 5 - .1 (8 + 2 (5 - 3)) = 3.8, then 3.8 - .1 (5.6 + 2 (3.8 - 3)) = 3.08;  w = 3 - .5 * 2 (3 - 3.08)
        ("pfedme", 3.08, 3.08),
        # from w = 3:     3 - .1 (4 + 0) = 2.6, then 2.6 - .1 (3.2 + 2 (2.6 - 3)) = 2.36;          w = 3 - .5 * 2 (3 - 2.36)
        ("pfedme-released", 2.36, 2.36),
    ],
)
def test_one_step_by_hand(name: str, w: float, theta: float) -> None:
    method = make(name, R=1, K=2, lam=2.0, alpha=0.1, alpha_m=0.5)
    client, up, info = local(method, Quadratic(1), vector(THETA), vector(W), lambda: view(DATA, batch=1))
    assert_close((client, up), (vector(theta), vector(w)))
    assert_close(info, {"moved": abs(w - W), "personal": 0.0})


@pytest.mark.usefixtures("float64")
def test_a_large_lambda_ties_the_personal_model_to_the_global_one() -> None:
    gaps = []
    for lam in (10.0, 1000.0):
        method = make("pfedme", R=1, K=200, lam=lam, alpha=0.5 / lam, alpha_m=0.0)
        client, _, _ = local(method, Quadratic(1), vector(THETA), vector(W), lambda: view(DATA, batch=1))
        gaps.append(abs(float(client.tree[0]) - W))
        assert gaps[-1] == pytest.approx(2 * (W - 1) / (2 + lam), rel=1e-9)  # theta = (h c + lam w) / (h + lam)
    assert gaps[1] < 0.01 * W


def test_bad_settings() -> None:
    for settings, message in (
        ({"start": "mu"}, "start = 'mu' is not valid; valid: theta, w"),
        ({"K": 0}, "K = 0 is not valid; it must be a whole number of at least 1"),
        ({"lam": -1.0}, "lam = -1.0 is not valid; it must be a finite number of at least 0"),
    ):
        with pytest.raises(FedpriorError, match=f"PFedMe: {message}"):
            make("pfedme", **settings)

"""pFedBreD and pFedMe against closed forms, hand-computed steps and each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Quadratic, blobs, engine_of, federation, quadratics, rounds, view

from fedprior.core.hyper import without_effect
from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.pfedbred import Client, Order, PFedBreD
from fedprior.priors.gaussians import DiagonalGaussian
from fedprior.priors.means import MEANS, RMD, find_mean

# One client with f(x) = (x - 1)^2, so grad f(x) = 2 (x - 1); w = 3, theta = 5, m = 4.
STEP = {"R": 1, "K": 1, "lam": 2.0, "alpha": 0.1, "alpha_m": 0.5}
W, THETA, MEMORY = 3.0, 5.0, 4.0


def one_step(name: str, data: Any, batch: int, **settings: Any) -> tuple[float, float]:
    """(w, theta) after one local iteration."""
    method = make(name, **STEP, **settings)
    client: Any = Vector(jnp.array([THETA]))
    if isinstance(method, PFedBreD):
        client = Client(client, Vector(jnp.array([MEMORY])) if method.mean in ("meg", "mh") else None)
    down = Vector(jnp.array([W]))
    local = jax.jit(lambda c, d: method.local(Quadratic(1), c, d, view(data, batch=batch), jax.random.key(0)))
    client, w, _ = local(client, down)
    theta = client.theta if isinstance(client, Client) else client
    if isinstance(client, Client) and client.memory is not None:
        assert float(client.memory.tree[0]) == float(w.tree[0])  # m <- w_{i,R}
    return float(w.tree[0]), float(theta.tree[0])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("name", "settings", "w", "theta"),
    [
        # paper order: the proximal step starts at theta = 5, where grad f = 8
        # mu = 3;                      theta = 5 - .1 (8 + 2 (5 - 3)) = 3.8;     w = 3 - .5 * 2 (3 - 3.8)
        ("pfedme", {}, 3.8, 3.8),
        # mu = 3 - .25 * 4 = 2;        theta = 5 - .1 (8 + 2 (5 - 2)) = 3.6;     w = 3 - (2 - 3.6)
        ("lg", {"eta_alpha": 0.25}, 4.6, 3.6),
        # mu = 3 - .1 (4 - 5) = 3.1;   theta = 5 - .1 (8 + 2 * 1.9) = 3.82;      w = 3 - (3.1 - 3.82)
        ("meg", {"eta": 0.1}, 3.72, 3.82),
        # mu = 3 - 1 + .1 = 2.1;       theta = 5 - .1 (8 + 2 * 2.9) = 3.62;      w = 3 - (2.1 - 3.62)
        ("mh", {"eta": 0.1, "eta_alpha": 0.25}, 4.52, 3.62),
        # released order
        # starts at w = 3:             theta = 3 - .1 (4 + 0) = 2.6;             w = 3 - (3 - 2.6)
        ("pfedme-released", {}, 2.6, 2.6),
        # mu = 3 - .05 * 4 = 2.8, starts there: theta = 2.8 - .1 (3.6 + 0) = 2.44;  w = 3 - (2.8 - 2.44)
        ("lg-released", {}, 2.64, 2.44),
        # mu = 3.1, starts at w = 3:   theta = 3 - .1 (4 - 2 * .1) = 2.62;       w = 3 - (3.1 - 2.62)
        ("meg-released", {"eta": 0.1}, 2.52, 2.62),
        # u = 3 - .25 * 4 = 2, w' = 3 - .25 * 2 = 2.5, mu = 2.5 + .1 = 2.6, starts at w':
        #                              theta = 2.5 - .1 (3 - 2 * .1) = 2.22;     w = 2.5 - (2.6 - 2.22)
        ("mh-released", {"eta": 0.1, "eta_alpha": 0.25}, 2.12, 2.22),
    ],
)
def test_one_step_by_hand(name: str, settings: dict[str, Any], w: float, theta: float) -> None:
    data = quadratics(np.array([[1.0]]), np.array([[2.0]]), [1])
    assert one_step(name, data, 1, **settings) == pytest.approx((w, theta), abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_mh_released_uses_its_two_batches_in_order() -> None:
    """u from the first batch; the step from u and the proximal loop on the second."""
    centres = np.array([1.0, 7.0])
    data = federation(np.array([[1.0, 2.0], [7.0, 2.0]]), np.zeros(2), [2])
    first, second = (centres[int(i)] for i in jax.jit(lambda: view(data, batch=1).draw(2))()[:, 0])
    assert first != second
    u = W - 0.25 * 2 * (W - first)
    w = W - 0.25 * 2 * (u - second)
    mu = w - 0.1 * (MEMORY - THETA)
    theta = w - 0.1 * (2 * (w - second) + 2 * (w - mu))
    expected = (w - 0.5 * 2 * (mu - theta), theta)
    assert one_step("mh-released", data, 1, eta=0.1, eta_alpha=0.25) == pytest.approx(expected, abs=1e-12)


CENTRES = np.array([[1.0, -2.0], [4.0, 0.5], [-3.0, 2.0]])
CURVATURES = np.array([[0.5, 1.0], [2.0, 1.5], [1.0, 0.25]])
COPIES = [2, 5, 3]


def fixed_point(gradient: bool, memory: bool, lam: float, alpha_m: float, eta: float, eta_alpha: float) -> np.ndarray:
    """Solve the method's fixed-point equations with R = 1 for (w, theta_i), coordinate by coordinate.

    mu_i = w - eta_alpha h_i (w - c_i) - eta (m_i - theta_i);  h_i (theta_i - c_i) + lam (theta_i - mu_i) = 0;
    m_i = w - alpha_m lam (mu_i - theta_i);  sum_i p_i m_i = w.    Unknowns: w, then mu_i, theta_i, m_i.
    """
    p, n = np.array(COPIES) / sum(COPIES), len(COPIES)
    found = []
    for c, h in zip(CENTRES.T, CURVATURES.T, strict=True):
        A, b = np.zeros((3 * n + 1, 3 * n + 1)), np.zeros(3 * n + 1)
        for i in range(n):
            mu, theta, m = 1 + i, 1 + n + i, 1 + 2 * n + i
            A[i, [mu, 0]] = 1, -1 + gradient * eta_alpha * h[i]
            A[i, m], A[i, theta] = memory * eta, -memory * eta
            b[i] = gradient * eta_alpha * h[i] * c[i]
            A[n + i, theta], A[n + i, mu], b[n + i] = h[i] + lam, -lam, h[i] * c[i]
            A[2 * n + i, m], A[2 * n + i, 0], A[2 * n + i, mu], A[2 * n + i, theta] = (
                1,
                -1,
                alpha_m * lam,
                -alpha_m * lam,
            )
            A[3 * n, m] = p[i]
        A[3 * n, 0] -= 1
        x = np.linalg.solve(A, b)
        found.append(np.concatenate([x[:1], x[1 + n : 1 + 2 * n]]))
    return np.array(found).T  # [1 + N, d]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("name", "gradient", "memory"), [("pfedme", 0, 0), ("lg", 1, 0), ("meg", 0, 1), ("mh", 1, 1)])
def test_fixed_points_on_federated_quadratics(name: str, gradient: int, memory: int) -> None:
    hyper = {"lam": 1.5, "alpha_m": 0.4, "eta": 0.2, "eta_alpha": 0.1}
    expected = fixed_point(bool(gradient), bool(memory), **hyper)
    if name == "pfedme":  # the well-known form: sum_i p_i h_i / (h_i + lam) (w - c_i) = 0
        weight = np.array(COPIES)[:, None] * CURVATURES / (CURVATURES + hyper["lam"])
        np.testing.assert_allclose(expected[0], (weight * CENTRES).sum(0) / weight.sum(0), rtol=1e-12)
        del hyper["eta"], hyper["eta_alpha"]
    method = make(name, R=1, K=10, alpha=0.25, **hyper)
    engine = engine_of(Quadratic(2), method, quadratics(CENTRES, CURVATURES, COPIES), batch_size=8)
    state = rounds(engine, 400)
    theta = state.clients.theta if isinstance(state.clients, Client) else state.clients
    np.testing.assert_allclose(np.array(state.server.tree), expected[0], atol=1e-9)
    np.testing.assert_allclose(np.array(theta.tree)[:3], expected[1:], atol=1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("name", "start"), [("pfedme", "theta"), ("pfedme-released", "w")])
def test_pfedme_is_pfedbred_with_a_spherical_gaussian_and_the_identity_mean(name: str, start: str) -> None:
    """Two files, one update: on a classifier with ragged clients, partial aggregation and several rounds."""
    problem, data = blobs()
    shared = {"R": 4, "K": 3, "lam": 7.0, "alpha": 0.05, "alpha_m": 0.03}
    bred = make("pfedbred", mean="identity", start=start, **shared)
    a, b = (
        rounds(engine_of(problem, method, data, batch_size=8, aggregated=3), 4)
        for method in (make(name, **shared), bred)
    )
    for x, y in zip(jax.tree.leaves((a.server, a.clients)), jax.tree.leaves((b.server, b.clients.theta)), strict=True):
        np.testing.assert_allclose(np.array(x), np.array(y), rtol=1e-12, atol=1e-13)


def test_order_says_what_is_not_given_by_itself() -> None:
    assert PFedBreD(mean="identity", order="released").order_in_force == Order(start="w")
    assert PFedBreD(mean="mh", order="released").order_in_force == Order("w", 2, inner=True, overwrite=True)
    assert PFedBreD(mean="mh", order="released", overwrite=False).order_in_force.overwrite is False
    lg = PFedBreD(mean="lg", order="released")
    assert lg.order_in_force == Order(start="mu", eta_alpha=0.05, eta_inner=0.05)
    assert PFedBreD(mean="lg").order_in_force == Order()
    assert PFedBreD(mean="lg", eta_alpha=0.2).order_in_force == Order(eta_alpha=0.2, eta_inner=0.2)
    assert PFedBreD(mean="lg", eta_alpha=0.2, eta_inner=0.3).order_in_force == Order(eta_alpha=0.2, eta_inner=0.3)
    assert lg.in_force()["eta_alpha"] == 0.05
    assert lg.in_force()["R"] == lg.R


def test_a_mean_equal_to_one_of_the_released_code_has_its_order() -> None:
    for name in ("identity", "lg", "meg", "mh"):
        mean = replace(MEANS.find(name))
        assert mean is not MEANS.find(name)
        ours, theirs = PFedBreD(mean=mean, order="released"), PFedBreD(mean=name, order="released")
        assert ours.order_in_force == theirs.order_in_force != PFedBreD(mean=mean).order_in_force
    own = PFedBreD(mean=RMD(lambda problem, w, batch: w @ w), order="released")
    assert own.order_in_force == Order()
    assert without_effect(own)["order"] == "order needs a mean that the released code has"


@pytest.mark.parametrize("mean", ["mh-variant", RMD(lambda problem, w, batch: w @ w, inner=True)])
def test_the_inner_step_of_a_mean_is_in_force_and_may_be_left_out(mean: Any) -> None:
    whole, without = PFedBreD(mean=mean), PFedBreD(mean=mean, inner=False)
    assert whole.mean_in_force == find_mean(mean)
    assert whole.in_force()["inner"] is True
    assert without.mean_in_force == replace(find_mean(mean), inner=False)
    assert without.in_force()["inner"] is False
    assert "eta_inner" in without_effect(without).keys() - without_effect(whole).keys()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": "mhh"}, "mean = 'mhh' is not valid; valid: identity, lg, meg, mh, mh-variant, or a Mean"),
        ({"mean": None}, "mean = None is not valid"),
        ({"prior": "cauchy"}, "prior = 'cauchy' is not valid; valid: gaussian, .*, or a Prior"),
        ({"prior": 3}, "prior = 3 is not valid"),
        ({"order": "new"}, "order = 'new' is not valid; valid: paper, released"),
        ({"gradient": "none"}, "gradient = 'none' is not valid; valid: first_order, exact"),
        ({"start": "m"}, "start = 'm' is not valid; valid: theta, w, mu"),
        ({"batches": 3}, "batches = 3 is not valid; valid: 1, 2"),
        ({"w_init": None}, "w_init = None is not valid; valid: received, own"),
        ({"theta_init": "own"}, "theta_init = 'own' is not valid; valid: last, received"),
        ({"solver": "newton"}, "solver = 'newton' is not valid; valid: sgd, "),
        ({"tol": -1.0}, "tol = -1.0 is not valid; it must be a finite number of at least 0"),
        ({"eta_alpha": -0.1}, "eta_alpha = -0.1 is not valid; it must be a finite number of at least 0"),
        ({"K": 0}, "K = 0 is not valid; it must be a whole number of at least 1"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=f"PFedBreD: {message}"):
        PFedBreD(**settings)


# -- what one batch alone, one prior alone, or a client with a history does not show -----------------------------------

TWO_SAMPLES = federation(np.array([[1.0, 2.0], [7.0, 2.0]]), np.zeros(2), [2])  # f = (x - 1)^2 or (x - 7)^2


@pytest.mark.usefixtures("float64")
def test_in_the_papers_order_mean_and_proximal_loop_share_each_batch() -> None:
    """mu = 3 - .5 (3 - c) + .1, theta = 5 - .1 (2 (5 - c) + 2 (5 - mu)), w = 3 - (mu - theta), all with the first c."""
    c = (1.0, 7.0)[int(jax.jit(lambda: view(TWO_SAMPLES, batch=1).draw(1))()[0, 0])]
    mu = W - 0.25 * 2 * (W - c) - 0.1 * (MEMORY - THETA)
    theta = THETA - 0.1 * (2 * (THETA - c) + 2 * (THETA - mu))
    expected = (W - 0.5 * 2 * (mu - theta), theta)
    assert one_step("mh", TWO_SAMPLES, 1, eta=0.1, eta_alpha=0.25) == pytest.approx(expected, abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_any_prior_sees_the_same_batches() -> None:
    """A precision of 1 is the spherical prior, by the loop that all other priors take."""
    same = DiagonalGaussian(Vector(np.ones(1)))
    assert not same.spherical
    results = [one_step("mh-released", TWO_SAMPLES, 1, eta=0.1, eta_alpha=0.25, prior=p) for p in ("gaussian", same)]
    assert results[1] == pytest.approx(results[0], abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_a_newcomer_starts_from_what_it_received() -> None:
    """theta = m = w = 3: mu = 3 - .25 * 4 = 2; theta = 3 - .1 (4 + 2 (3 - 2)) = 2.4; m = 3 - (2 - 2.4) = 3.4."""
    data = quadratics(np.array([[1.0]]), np.array([[2.0]]), [1])
    method = make("mh", **STEP, eta=0.1, eta_alpha=0.25)
    join = jax.jit(lambda w: method.join(Quadratic(1), w, view(data, batch=1), jax.random.key(0)))
    client = join(Vector(jnp.array([W])))
    assert float(client.theta.tree[0]) == pytest.approx(2.4, abs=1e-12)
    assert float(client.memory.tree[0]) == pytest.approx(3.4, abs=1e-12)

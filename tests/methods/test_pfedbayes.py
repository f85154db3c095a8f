"""pFedBayes: a round by hand, its slopes against autodiff; certain weights are Local's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from toys import Quadratic, blobs, local, quadratics, view

from fedprior.core.hyper import without_effect
from fedprior.core.random import noise
from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.pfedbayes import Client, Gaussian, deviation

KEY = jax.random.key(0)
ONE = quadratics(np.array([[1.0]]), np.array([[2.0]]), [3])  # three samples of f = (w - 1)^2
SGD = {"R": 1, "K": 1, "optimizer": "sgd", "alpha": 0.1, "alpha_m": 0.2, "zeta": 1.0}


def gaussian(m: Any, sigma: Any) -> Gaussian:
    return Gaussian(m=Vector(np.array(m)), rho=Vector(np.log(np.expm1(np.array(sigma)))))


def kl(q: Any, p: Any) -> Any:
    """KL(q || p) of two Gaussians given by m and rho, as the textbook has it."""
    sq, sp = (x.rho.map(jax.nn.softplus) for x in (q, p))

    def entry(mq: Any, sq: Any, mp: Any, sp: Any) -> Any:
        return jnp.sum(jnp.log(sp / sq) + (sq**2 + (mq - mp) ** 2) / (2 * sp**2) - 0.5)

    return sum(jax.tree.leaves(q.m.map(entry, sq, p.m, sp).tree), jnp.zeros(()))


@pytest.mark.usefixtures("float64")
def test_client_by_hand() -> None:
    """Three samples of f = (w - 1)^2, q = N(3, 1), q_w = N(2, 4), no noise, zeta = R = 1; the loss is the batch's sum.

    m:    3 - .1 (3 * 4 + (3 - 2) / 4) = 1.775
    rho:  sigma's slope is 1 / 4 - 1, and softplus' slope where it is 1 is 1 - 1 / e
    q_w:  m_w's slope is (2 - 1.775) / 4, that of sigma_w = 2 is 1 / 2 - (sigma^2 + .225^2) / 2^3
    """
    method = make("pfedbayes", noise=0.0, **SGD)
    client = Client(gaussian([3.0], [1.0]), None)
    client, up, _ = local(method, Quadratic(1), client, gaussian([2.0], [2.0]), lambda: view(ONE))
    assert float(client.q.m.tree[0]) == pytest.approx(1.775, abs=1e-8)
    rho = np.log(np.e - 1) + 0.1 * 0.75 * (1 - 1 / np.e)
    assert float(client.q.rho.tree[0]) == pytest.approx(rho, abs=1e-8)
    sigma = np.log1p(np.exp(rho))
    assert float(up.m.tree[0]) == pytest.approx(2 - 0.2 * 0.225 / 4, abs=1e-8)
    slope = (1 / 2 - (sigma**2 + 0.225**2) / 8) * (1 - np.exp(-2))
    assert float(up.rho.tree[0]) == pytest.approx(np.log(np.expm1(2.0)) - 0.2 * slope, abs=1e-8)


def test_merge_by_hand() -> None:
    ups = Gaussian(m=Vector(jnp.array([[4.0], [8.0]])), rho=Vector(jnp.array([[-4.0], [0.0]])))
    server = make("pfedbayes").merge((), ups, jnp.array([0.75, 0.25]), jnp.array([0, 4]), KEY)
    assert (server.m.tree.tolist(), server.rho.tree.tolist()) == ([5.0], [-3.0])


@pytest.mark.usefixtures("float64")
def test_slopes_are_those_of_the_objective() -> None:
    """One step of q on sum_B loss(m + sigma eps) + (zeta / R) KL(q || q_w), then one of q_w, by autodiff."""
    problem, data = blobs()
    method, rng = make("pfedbayes", noise=0.7, **{**SGD, "zeta": 3.0}), np.random.default_rng(0)
    w = problem.init(KEY)
    q, q_w = (Gaussian(m=w.map(draw), rho=w.map(draw)) for draw in [lambda x: rng.normal(size=x.shape)] * 2)
    client, up, _ = local(method, problem, Client(q, None), q_w, lambda: view(data, 0))

    @jax.jit
    def expected(q: Any, q_w: Any) -> Any:
        mine = view(data, 0)  # a client with fewer samples than a batch: 3 in place of 8
        batch = mine.batch(mine.draw(1)[0])
        step_key = jax.random.split(jax.random.key(0), 1)[0]
        eps = 0.7 * noise(jax.random.fold_in(step_key, 0), q.m)

        def objective(q: Any) -> Any:
            drawn = q.m + q.rho.map(jax.nn.softplus) * eps
            return jnp.sum(batch.mask * problem.losses(drawn, batch)) + 3.0 * kl(q, q_w)

        q = jax.tree.map(lambda x, g: x - 0.1 * g, q, jax.grad(objective)(q))
        return q, jax.tree.map(lambda x, g: x - 0.2 * 3.0 * g, q_w, jax.grad(lambda p: kl(q, p))(q_w))

    found = jax.tree.leaves((client.q, up))
    for x, y in zip(found, jax.tree.leaves(expected(q, q_w)), strict=True):
        np.testing.assert_allclose(np.array(x), np.array(y), rtol=1e-6, atol=1e-7)  # the samples are single precision


@pytest.mark.usefixtures("float64")
def test_divergence_is_the_integral() -> None:
    (m, s), (m_w, s_w) = (0.3, 0.7), (-0.5, 1.3)
    q, p = stats.norm(m, s), stats.norm(m_w, s_w)
    expected = integrate.quad(lambda x: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), -10, 10)[0]
    one = float(kl(gaussian([m], [s]), gaussian([m_w], [s_w])))
    assert one == pytest.approx(expected, rel=1e-8)
    assert float(kl(gaussian([m, m], [s, s]), gaussian([m_w, m_w], [s_w, s_w]))) == pytest.approx(2 * one)


def test_single_precision_is_enough() -> None:
    """For all rho that are let in, softplus and its slope are right."""
    rho = np.array([-20.0, -3.0, 0.0, 29.9, 30.1, 80.0])
    assert all(make("pfedbayes", rho=float(r)) for r in rho)
    sigma, rise = jax.jit(deviation)(Vector(jnp.array(rho)))
    np.testing.assert_allclose(sigma.tree, np.logaddexp(0, rho), rtol=1e-6)
    np.testing.assert_allclose(rise.tree, 1 / (1 + np.exp(-rho)), rtol=1e-6)


@pytest.mark.usefixtures("float64")
def test_with_certain_weights_and_untied_the_mean_is_locals() -> None:
    """Every batch is full, so a step alpha on the sum over 8 samples is one of 8 alpha on their mean."""
    problem, data = blobs((8, 16))
    w, alone = problem.init(KEY), make("local", R=6, alpha=0.08)
    bayes = make("pfedbayes", rho=-20.0, **{**SGD, "R": 6, "zeta": 0.0, "alpha": 0.01})
    client, up, _ = local(bayes, problem, bayes.client(w, KEY), bayes.server(problem, w, 2, KEY), lambda: view(data, 1))
    expected, _, _ = local(alone, problem, alone.client(w, KEY), (), lambda: view(data, 1))
    for x, y in zip(jax.tree.leaves(client.q.m), jax.tree.leaves(expected.v), strict=True):
        np.testing.assert_allclose(np.array(x), np.array(y), atol=1e-7)
    for x, y in zip(jax.tree.leaves(up.m), jax.tree.leaves(w), strict=True):
        assert np.array_equal(x, y)  # with zeta = 0 the server's stays where it was


def test_the_optimizers_memory_goes_on_only_where_it_is_kept() -> None:
    """A first step of Adam has length alpha: from 1.5 past the optimum to .8, and then back by alpha or less."""
    for keep in (False, True):
        method = make("pfedbayes", R=1, K=1, noise=0.0, zeta=0.0, keep=keep, alpha=0.7)
        w = Vector(jnp.array([1.5]))
        client, down = method.client(w, KEY), method.server(Quadratic(1), w, 1, KEY)
        play = jax.jit(lambda c, d, m=method: m.local(Quadratic(1), c, d, view(ONE), KEY)[0])
        client = play(client, down)
        assert float(client.q.m.tree[0]) == pytest.approx(0.8, abs=1e-4)
        again = float(play(client, down).q.m.tree[0])
        assert (again == pytest.approx(1.5, abs=1e-4)) == (not keep)


# -- what it predicts with, newcomers, nonsense ------------------------------------------------------------------------


def test_personal_model_is_drawn() -> None:
    q = Client(gaussian(np.full(20_000, 2.0, np.float32), np.full(20_000, 0.5, np.float32)), None)
    weights, models = make("pfedbayes", samples=2).personal_model(Quadratic(1), q, (), view(ONE), KEY)
    assert weights.tolist() == [0.5, 0.5]
    for x in np.array(models.tree):
        assert stats.kstest(x, stats.norm(2, 0.5).cdf).pvalue > 0.01
    assert abs(np.corrcoef(np.array(models.tree))[0, 1]) < 0.03
    weights, models = make("pfedbayes", samples=0).personal_model(Quadratic(1), q, (), view(ONE), KEY)
    assert weights.tolist() == [1.0]
    assert np.all(np.array(models.tree) == 2)


def test_a_newcomer_fits_q_to_the_servers() -> None:
    method = make("pfedbayes", noise=0.0, **SGD)
    server = method.server(Quadratic(1), Vector(jnp.array([3.0])), 7, KEY)
    down = method.send(server, None, KEY)
    assert all(7 not in x.shape for x in jax.tree.leaves(down))
    client = jax.jit(lambda d: method.join(Quadratic(1), d, view(ONE), KEY))(down)
    assert float(client.q.m.tree[0]) == pytest.approx(3 - 0.1 * 3 * 4)  # from the server's: no pull yet


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rho": float("-inf")}, "PFedBayes: rho = -inf is not valid; it must be a finite number of at least -20"),
        ({"rho": -50.0}, "rho = -50.0 is not valid; it must be a finite number of at least -20"),
        ({"rho": float("nan")}, "rho = nan"),
        ({"noise": -1.0}, "noise = -1.0 is not valid; it must be a finite number of at least 0"),
        ({"zeta": -1.0}, "zeta = -1.0 is not valid; it must be a finite number of at least 0"),
        ({"samples": -1}, "samples = -1 is not valid; it must be a whole number of at least 0"),
        ({"optimizer": "adan"}, "optimizer = 'adan' is not valid; valid: sgd"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        make("pfedbayes", **settings)
    assert without_effect(make("pfedbayes", zeta=0.0)) == {"zeta": "zeta = 0 switches its part off"}

"""FedAMP and HeurFedAMP: the cloud's weights and the clients' steps by hand, against a plain loop, and switched off."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from toys import Quadratic, blobs, local, quadratics, view

from fedprior.core.method import Method
from fedprior.core.vectors import Vector, row
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.fedamp import FedAMP, Server

KEY = jax.random.key(0)


def cloud(method: Method, w: np.ndarray) -> np.ndarray:
    """u after everyone uploaded w [N, D]."""
    server = Server(w=Vector(np.zeros_like(w)), u=Vector(np.zeros_like(w)), seen=np.zeros(len(w), bool))  # type: ignore[arg-type]
    merged = jax.jit(method.merge)(server, Vector(w), np.ones(len(w)) / len(w), np.arange(len(w)), KEY)
    return np.array(merged.u.tree)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("steps", [{"R": 2, "K": 1}, {"R": 1, "K": 2}])
def test_client_by_hand(steps: dict[str, int]) -> None:
    """f = (w - 1)^2, w = 3, u = 4: 3 - .1 (4 + .5 (3 - 4)) = 2.65, then 2.65 - .1 (3.3 + .5 (2.65 - 4)) = 2.3875."""
    data = quadratics(np.array([[1.0]]), np.array([[2.0]]), [3])
    method = make("fedamp", alpha=0.1, lam=0.5, **steps)
    w, up, _ = local(method, Quadratic(1), Vector(jnp.array([3.0])), Vector(jnp.array([4.0])), lambda: view(data))
    assert float(w.tree[0]) == float(up.tree[0]) == pytest.approx(2.3875, abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_cloud_by_hand() -> None:
    """sigma = 1 / ln 2 makes A'(x) = ln 2 / 2^x, and a = .5 / ln 2 makes weights of 2^-(x + 1) for squared distances x.

    w = 0, 1, 3: squared distances 1, 9 and 4, so weights 1/4, 1/1024 and 1/32.
    """
    sigma = 1 / np.log(2)
    w = np.array([[0.0], [1.0], [3.0]])
    u = [1 / 4 + 3 / 1024, (1 - 1 / 4 - 1 / 32) + 3 / 32, 3 * (1 - 1 / 32 - 1 / 1024) + 1 / 32]
    np.testing.assert_allclose(cloud(make("fedamp", sigma=sigma, a=0.5 * sigma, keep=0.5), w)[:, 0], u, rtol=1e-12)
    # a too large a step is cut to where the client in the middle keeps half: its 9/32 become 16/32
    u = w[:, 0] + 16 / 9 * (np.array(u) - w[:, 0])
    for a in (5.0 * sigma, None):
        np.testing.assert_allclose(cloud(make("fedamp", sigma=sigma, a=a, keep=0.5), w)[:, 0], u, rtol=1e-12)


def test_models_that_have_hardly_moved_attend_by_their_distances() -> None:
    """In float32, the products of models as large as these are off by a hundred times the distances between them."""
    rng = np.random.default_rng(0)
    w = (rng.normal(size=2000) + 1e-4 * rng.normal(size=(4, 2000)) * np.arange(1, 5)[:, None]).astype(np.float32)
    distance = ((w[:, None].astype(float) - w[None, :]) ** 2).sum(-1)
    others = ~np.eye(4, dtype=bool)
    slope = np.where(others, np.exp(-distance / np.median(distance[others])), 0)
    expected = 0.9 * slope / slope.sum(1).max()
    weights = FedAMP().attention(Vector(jnp.asarray(w)), jnp.ones(4, bool), jnp.asarray(others))
    np.testing.assert_allclose(weights, expected, rtol=1e-3)


@pytest.mark.usefixtures("float64")
def test_heuristic_cloud_by_hand() -> None:
    """Cosines 0, 1 and 0, sigma = ln 3: exponentials 1, 3 and 1. u_0 = .2 (1, 0) + .8 (1/4 (0, 2) + 3/4 (3, 0))."""
    w = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    u = cloud(make("heurfedamp", sigma=float(np.log(3)), xi=0.2), w)
    np.testing.assert_allclose(u, [[2.0, 0.4], [1.6, 0.4], [1.2, 0.4]], rtol=1e-12)


def weights_in_a_plain_loop(method: Any, w: np.ndarray, seen: list[int]) -> np.ndarray:
    """xi [N, N], entry by entry."""
    n, xi = len(w), np.zeros((len(w), len(w)))
    far = {(i, j): float(np.sum((w[i] - w[j]) ** 2)) for i in range(n) for j in range(n)}
    among_seen = [d for (i, j), d in far.items() if i != j and i in seen and j in seen]
    for i in range(n):
        for j in (j for j in seen if j != i):
            if hasattr(method, "xi"):
                xi[i, j] = np.exp(method.sigma * w[i] @ w[j] / np.linalg.norm(w[i]) / np.linalg.norm(w[j]))
            else:
                sigma = float(np.median(among_seen)) if method.sigma is None else method.sigma
                xi[i, j] = np.exp(-far[i, j] / sigma) / sigma
    if hasattr(method, "xi"):
        xi *= (1 - method.xi) / xi.sum(1, keepdims=True)
    else:
        most = (1 - method.keep) / xi.sum(1).max()
        xi *= most if method.a is None else min(method.a, most)
    return xi + np.diag(1 - xi.sum(1))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedamp", {"keep": 0.3}),
        ("fedamp", {"sigma": 4.0, "a": 0.5}),
        ("fedamp", {"sigma": 4.0, "a": 1e3, "keep": 0.0}),
        ("heurfedamp", {"xi": 0.25, "sigma": 3.0}),
    ],
)
def test_cloud_in_a_plain_loop(name: str, settings: dict[str, float]) -> None:
    """Three of six clients upload, one did before: everyone's cloud model is made of the models of these four."""
    rng, ids, seen = np.random.default_rng(0), [1, 3, 4], [0, 1, 3, 4]
    w, u, new = (rng.normal(size=(n, 4)) for n in (6, 6, 3))
    w[[2, 5]] = w[2]  # the start, at which those never seen are
    known = np.array([True, False, False, False, False, False])

    def tree(x: np.ndarray) -> Vector:
        return Vector({"a": x[:, :3].reshape(-1, 3, 1), "b": x[:, 3]})

    method = make(name, **settings)
    begun = Server(w=tree(w), u=tree(u), seen=known)  # type: ignore[arg-type]
    server = jax.jit(method.merge)(begun, tree(new), np.ones(3) / 3, np.array(ids), KEY)
    w[ids] = new
    xi = weights_in_a_plain_loop(method, w, seen)
    np.testing.assert_allclose(xi.sum(1), 1)
    assert np.diag(xi).min() >= getattr(method, "xi", getattr(method, "keep", 0)) - 1e-12
    assert xi.min() >= -1e-12
    assert xi[0, 2] == xi[0, 5] == xi[2, 5] == 0  # nobody attends to a client that was never seen
    assert np.flatnonzero(server.seen).tolist() == seen
    for found, expected in ((server.w, w), (server.u, xi @ w)):
        flat = np.concatenate([np.array(found.tree["a"]).reshape(6, 3), np.array(found.tree["b"])[:, None]], axis=1)
        np.testing.assert_allclose(flat, expected, rtol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("name", "settings"), [("fedamp", {"keep": 1.0}), ("heurfedamp", {"xi": 1.0})])
def test_without_attention_a_client_is_pulled_to_its_own_model_at_the_rounds_start(
    name: str, settings: dict[str, float]
) -> None:
    problem, data = blobs()
    R, alpha, lam, n = 3, 0.1, 2.0, data.n_clients
    method = make(name, R=R, alpha=alpha, lam=lam, **settings)
    w0 = problem.init(KEY)

    @jax.jit
    def both(server: Any, w: Vector, plain: Vector, t: Any) -> tuple[Any, Vector, Vector]:
        """A round of the method, and the same by a plain loop."""

        def of_one(each: Any) -> tuple[Vector, Vector]:
            i, w, start = each
            w, _, _ = method.local(
                problem, w, method.send(method.outbox(server), i, KEY), view(data, i, cursor=R * t), KEY
            )
            mine = view(data, i, cursor=R * t)
            picks = mine.draw(R)

            def step(r: Any, x: Vector) -> Vector:
                return x - alpha * (problem.grad(x, mine.batch(picks[r])) + lam * (x - start))

            return w, lax.fori_loop(0, R, step, start)

        w, plain = lax.map(of_one, (jnp.arange(n), w, plain))
        return method.merge(server, w, jnp.full(n, 1 / n), jnp.arange(n), KEY), w, plain

    server = method.server(problem, w0, n, KEY)
    w = expected = server.w
    for t in range(3):
        server, w, expected = both(server, w, expected, t)
    assert float((row(w, 1) - row(w, 3)).norm()) > 0.1
    for x, y in zip(jax.tree.leaves((w, server.u)), jax.tree.leaves((expected, expected)), strict=True):
        np.testing.assert_allclose(np.array(x), np.array(y), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["fedamp", "heurfedamp"])
def test_alone_or_all_alike_nothing_is_divided_by_zero(name: str) -> None:
    for w in (np.ones((1, 2)), np.ones((3, 2)), np.zeros((3, 2))):
        np.testing.assert_allclose(cloud(make(name), w), w, rtol=1e-6)


@pytest.mark.usefixtures("float64")
def test_a_newcomer_gets_the_mean_model_and_trains_from_it() -> None:
    data = quadratics(np.array([[1.0]]), np.array([[2.0]]), [3])
    method = make("fedamp", R=1, alpha=0.1, lam=0.5)
    server = Server(w=Vector(jnp.ones((7, 1))), u=Vector(jnp.arange(7.0)[:, None]), seen=jnp.ones(7, bool))
    down = method.send(method.outbox(server), None, KEY)
    assert down.tree.tolist() == [3.0]
    w = jax.jit(lambda d: method.join(Quadratic(1), d, view(data), KEY))(down)
    assert float(w.tree[0]) == pytest.approx(2.6)  # 3 - .1 * 4


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("fedamp", {"sigma": 0.0}, "FedAMP: sigma = 0.0 is not valid; it must be a finite number above 0"),
        ("fedamp", {"sigma": -1.0}, "sigma = -1.0"),
        ("fedamp", {"a": 0.0}, "a = 0.0 is not valid; it must be a finite number above 0"),
        ("fedamp", {"keep": 1.5}, "keep = 1.5 is not valid; it must be a finite number of at least 0 and at most 1"),
        ("heurfedamp", {"xi": 2.0}, "HeurFedAMP: xi = 2.0 is not valid; it must be a finite number of at least 0"),
        ("heurfedamp", {"sigma": None}, "sigma = None is not valid; it must be a finite number above 0"),
        ("heurfedamp", {"sigma": -1.0}, "sigma = -1.0 is not valid; it must be a finite number above 0"),
        ("heurfedamp", {"a": 0.5}, "a = 0.5 is not valid; HeurFedAMP has no such step: leave it out, and set xi"),
        ("heurfedamp", {"keep": 0.3}, "keep = 0.3 is not valid; HeurFedAMP keeps xi"),
    ],
)
def test_nonsense_is_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        make(name, **settings)

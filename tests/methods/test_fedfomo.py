"""FedFomo: what a client takes and what the server offers, by hand; without offers it is Local on four fifths."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Quadratic, blobs, engine_of, local, quadratics, view

from fedprior.core.hyper import without_effect
from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.fedfomo import Offers, Server, Upload

KEY = jax.random.key(0)
ONE = quadratics(np.array([[0.0]]), np.array([[2.0]]), [5])  # f = w^2, one sample held out and four to train on


def offers(*w: float, there: Any = True) -> Offers:
    return Offers(
        w=Vector(jnp.array(w)[:, None]),
        ids=jnp.arange(len(w)),
        there=jnp.broadcast_to(jnp.array(there), (len(w),)),
    )


@pytest.mark.usefixtures("float64")
def test_client_by_hand() -> None:
    """w = 3 with loss 9; offered 1, 2 and 5 with losses 1, 4 and 25, at distances 2, 1 and 2: gains 4, 5 and -8."""
    method = make("fedfomo", R=1, alpha=0.1, M=3)
    w, up, info = local(method, Quadratic(1), Vector(jnp.array([3.0])), offers(1.0, 2.0, 5.0), lambda: view(ONE))
    gain = np.array([8, 5, -16]) / (np.array([2, 1, 2]) + 1e-5)
    np.testing.assert_allclose(up.gain, gain, rtol=1e-12)
    start = 3 + (gain[0] * (1 - 3) + gain[1] * (2 - 3)) / (gain[0] + gain[1])
    assert start == pytest.approx(3 - 13 / 9, abs=1e-5)
    assert float(w.tree[0]) == float(up.w.tree[0]) == pytest.approx(start - 0.1 * 2 * start, abs=1e-12)
    assert float(info["helpful"]) == 2


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "down", [offers(5.0, -4.0, 3.0), offers(1.0, 2.0, 0.0, there=False)], ids=["worse", "not there"]
)
def test_what_does_not_help_is_not_taken(down: Offers) -> None:
    w, up, _ = local(
        make("fedfomo", R=1, alpha=0.1, M=3), Quadratic(1), Vector(jnp.array([3.0])), down, lambda: view(ONE)
    )
    assert float(w.tree[0]) == pytest.approx(2.4, abs=1e-6)  # 3 - .1 * 6
    assert np.all(up.gain == 0) == (not np.any(down.there))


@pytest.mark.usefixtures("float64")
def test_without_offers_it_is_local_on_four_fifths() -> None:
    problem, data = blobs()
    w, fomo = problem.init(KEY), make("fedfomo", M=0, R=6, alpha=0.1)
    down = fomo.send(fomo.server(problem, w, 5, KEY), jnp.int32(3), KEY)
    alone = make("local", R=6, alpha=0.1)
    found, _, _ = local(fomo, problem, w, down, lambda: view(data, 3))
    expected, _, _ = local(alone, problem, alone.client(w, KEY), (), lambda: view(data, 3).split(0.2)[0])
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected.v), strict=True):
        np.testing.assert_allclose(np.array(x), np.array(y), rtol=1e-13)


def state(seen: list[int], P: np.ndarray, t: int = 0) -> Server:
    n = len(P)
    seen_by_now = np.isin(np.arange(n), seen)
    return Server(w=Vector(np.arange(n, dtype=float)[:, None]), seen=seen_by_now, P=P, t=np.int32(t))  # type: ignore[arg-type]


def test_what_the_server_offers() -> None:
    """The models that served best, or random ones in eps (1 - decay)^t of the offers; every model once."""
    P = np.zeros((6, 6))
    P[2] = [1.0, 5.0, 9.0, -3.0, 7.0, 8.0]
    method, keys = make("fedfomo", M=3, eps=0.4, decay=0.5), jax.random.split(KEY, 4000)
    send = jax.jit(jax.vmap(method.send, (None, None, 0)))

    def offered(seen: list[int], t: int) -> Offers:
        return jax.device_get(send(state(seen, P, t), 2, keys))

    best = offered([0, 1, 2, 3, 5], 100)  # not itself, nor 4, which has not uploaded
    assert np.all(best.ids == [5, 1, 0])
    assert np.all(best.w.tree[:, :, 0] == [5.0, 1.0, 0.0])
    assert np.all(best.there)
    few = offered([2, 3], 0)
    assert set(few.ids[few.there]) == {3}
    assert np.all(few.there.sum(1) == 1)
    assert not np.any(offered([], 0).there)  # the first round
    for t, eps in ((0, 0.4), (2, 0.1)):
        down = offered([0, 1, 2, 3, 5], t)
        shares = np.bincount(down.ids[:, 0], minlength=6) / len(keys)
        expected = eps / 4 * np.array([1, 1, 0, 1, 0, 1]) + (1 - eps) * (np.arange(6) == 5)
        np.testing.assert_allclose(shares, expected, atol=0.03)
        assert all(len(set(i[ok])) == len(set(i)) == ok.sum() for i, ok in zip(down.ids, down.there, strict=True))


def test_merge_by_hand() -> None:
    """Clients 1 and 3 upload; what models gained for them is added up."""
    method = make("fedfomo", M=2)
    ups = Upload(
        w=Vector(jnp.array([[10.0], [30.0]])),
        ids=jnp.array([[0, 2], [1, 0]]),
        gain=jnp.array([[0.5, -1.0], [2.0, 0.25]]),
    )
    server = jax.jit(method.merge)(state([2], np.ones((4, 4))), ups, jnp.full(2, 0.5), jnp.array([1, 3]), KEY)
    assert server.w.tree[:, 0].tolist() == [0.0, 10.0, 2.0, 30.0]
    assert server.seen.tolist() == [False, True, True, True]
    assert server.P.tolist() == [[1, 1, 1, 1], [1.5, 1, 0, 1], [1, 1, 1, 1], [1.25, 3, 1, 1]]
    assert int(server.t) == 1


@pytest.mark.usefixtures("float64")
def test_a_newcomer_is_offered_the_mean_of_the_uploads() -> None:
    method = make("fedfomo", M=2, R=1, alpha=0.1)
    down = jax.jit(lambda s: method.send(s, None, KEY))(state([1, 2, 6], np.zeros((7, 7))))
    assert all(7 not in x.shape for x in jax.tree.leaves(down))
    assert down.w.tree[0, 0] == pytest.approx(3.0)
    assert down.there.tolist() == [True, False]
    w = jax.jit(lambda d: method.join(Quadratic(1), d, view(ONE), jax.random.key(1)))(down)
    own = float(Quadratic(1).init(jax.random.key(1)).tree[0])
    assert abs(own) < 3  # so that the mean is of no help: a step from its own start
    assert float(w.tree[0]) == pytest.approx(0.8 * own)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"M": -1}, "FedFomo: M = -1 is not valid; it must be a whole number of at least 0"),
        ({"fraction": 1.0}, "fraction = 1.0 is not valid; it must be a finite number above 0 and below 1"),
        ({"eps": 1.5}, "eps = 1.5 is not valid; it must be a finite number of at least 0 and at most 1"),
        ({"decay": -0.1}, "decay = -0.1"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        make("fedfomo", **settings)


def test_more_candidates_than_clients_are_refused() -> None:
    problem, data = blobs()
    with pytest.raises(FedpriorError, match="M = 5 models to choose from, but a client has 4 others; valid: 0 to 4"):
        engine_of(problem, make("fedfomo", M=5), data)
    assert without_effect(make("fedfomo", M=0)) == {"M": "M = 0 switches its part off"}

"""FedFomo: what a client takes and what the server offers, by hand; without offers it is Local that may step back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Quadratic, blobs, engine_of, local, quadratics, view

from fedprior.core.hyper import without_effect
from fedprior.core.vectors import Vector
from fedprior.data.view import ClientData
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.fedfomo import Client, Offers, Server, Upload

KEY = jax.random.key(0)
TWO = quadratics(np.zeros((1, 2)), np.full((1, 2), 2.0), [5])  # f = |w|^2, one sample held out and four to train on
FOMO = make("fedfomo", R=1, alpha=0.1, M=2)


def at(x: float, y: float = 0.0) -> Vector:
    return Vector(jnp.array([x, y]))


def offers(*w: tuple[float, float], there: Any = True) -> Offers:
    counts = jnp.broadcast_to(jnp.array(there), (len(w),))
    return Offers(w=Vector(jnp.array(w)), ids=jnp.arange(len(w)), there=counts)


@pytest.mark.usefixtures("float64")
def test_client_by_hand() -> None:
    """Before its last training it was at (3, 0), with loss 9, and since then at (2, 0), with loss 4: a gain of 5 / 1.

    Of the offers, (1, 2) has loss 5 at a distance of 2 + 2: a gain of 1. (5, 0) has loss 25 at 2: -8. The helpful ones get
    1/6 and 5/6, and the two offers are reported as 1 and -8 over |1 - 8 + 5| = 2.
    """
    client, up, info = local(
        FOMO, Quadratic(2), Client(at(2.0), at(3.0)), offers((1.0, 2.0), (5.0, 0.0)), lambda: view(TWO)
    )
    start = np.array([3 - 2 / 6 - 5 / 6, 2 / 6])
    np.testing.assert_allclose(client.before.tree, start, rtol=1e-12)
    for trained in (client.w, up.w):
        np.testing.assert_allclose(trained.tree, 0.8 * start, rtol=1e-12)  # w - .1 * 2 w
    np.testing.assert_allclose(up.gain, [0.5, -4.0], rtol=1e-12)
    assert float(info["helpful"]) == 1


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("down", "own", "start"),
    [
        (offers((5.0, 0.0), (-4.0, 0.0)), 2.0, 2.0),  # worse than before: it goes on from its own
        (offers((1.0, 0.0), (0.0, 0.0), there=False), 2.0, 2.0),  # not there
        (offers((5.0, 0.0), (-4.0, 0.0)), 3.5, 3.0),  # its training was of no use either, and is thrown back
        (offers((3.0, 0.0), (3.0, 0.0)), 3.0, 3.0),  # all where it was: nothing is divided by zero
    ],
)
def test_what_does_not_help_is_not_taken(down: Offers, own: float, start: float) -> None:
    client, up, _ = local(FOMO, Quadratic(2), Client(at(own), at(3.0)), down, lambda: view(TWO))
    np.testing.assert_allclose(client.before.tree, [start, 0.0], atol=1e-12)
    np.testing.assert_allclose(client.w.tree, [0.8 * start, 0.0], atol=1e-12)
    assert np.isfinite(up.gain).all()


def four_fifths(whole: Callable[[], ClientData]) -> ClientData:
    return whole().split(0.2)[0]


@pytest.mark.usefixtures("float64")
def test_without_offers_it_is_local_on_four_fifths_that_may_step_back() -> None:
    """Two rounds on the same samples: the held-out loss falls, so that the second goes on where the first ended."""
    problem, data = blobs()
    w, fomo = problem.init(KEY), make("fedfomo", M=0, R=6, alpha=0.01)
    down = fomo.send(fomo.server(problem, w, 5, KEY), jnp.int32(3), KEY)
    alone = make("local", R=6, alpha=0.01)
    mine, expected = fomo.client(w, KEY), alone.client(w, KEY)
    for cursor in (0, 6):
        whole = functools.partial(view, data, 3, cursor=cursor)
        mine, _, _ = local(fomo, problem, mine, down, whole)
        expected, _, _ = local(alone, problem, expected, (), functools.partial(four_fifths, whole))
        for x, y in zip(jax.tree.leaves(mine.w), jax.tree.leaves(expected.v), strict=True):
            np.testing.assert_allclose(np.array(x), np.array(y), rtol=1e-12)


def test_a_client_with_one_sample_only_takes() -> None:
    data = quadratics(np.zeros((1, 2)), np.full((1, 2), 2.0), [1])
    client, _, _ = local(
        FOMO, Quadratic(2), Client(at(3.0), at(3.0)), offers((1.0, 0.0), (4.0, 0.0)), lambda: view(data)
    )
    assert client.w.tree.tolist() == client.before.tree.tolist() == [1.0, 0.0]


def state(there: list[int], P: np.ndarray, t: int = 0) -> Server:
    n = len(P)
    mask = np.isin(np.arange(n), there)
    return Server(w=Vector(np.arange(n, dtype=float)[:, None]), there=mask, P=P, t=np.int32(t))  # type: ignore[arg-type]


def test_what_the_server_offers() -> None:
    """The models that served best, or random ones in eps - decay t of the offers, at least none; every model once."""
    P = np.zeros((6, 6))
    P[2] = [1.0, 5.0, 9.0, -3.0, 7.0, 8.0]
    method, keys = make("fedfomo", M=3, eps=0.4, decay=0.1), jax.random.split(KEY, 4000)
    send = jax.jit(jax.vmap(method.send, (None, None, 0)))

    def offered(seen: list[int], t: int) -> Offers:
        return jax.device_get(send(state(seen, P, t), 2, keys))

    best = offered([0, 1, 2, 3, 5], 100)  # not itself, nor 4, which did not upload in the last round
    assert np.all(best.ids == [5, 1, 0])
    assert np.all(best.w.tree[:, :, 0] == [5.0, 1.0, 0.0])
    assert np.all(best.there)
    few = offered([2, 3], 0)
    assert set(few.ids[few.there]) == {3}
    assert np.all(few.there.sum(1) == 1)
    assert not np.any(offered([], 0).there)  # the first round
    for t, eps in ((0, 0.4), (3, 0.1)):
        down = offered([0, 1, 2, 3, 5], t)
        shares = np.bincount(down.ids[:, 0], minlength=6) / len(keys)
        expected = eps / 4 * np.array([1, 1, 0, 1, 0, 1]) + (1 - eps) * (np.arange(6) == 5)
        np.testing.assert_allclose(shares, expected, atol=0.03)
        assert all(len(set(i[ok])) == len(set(i)) == ok.sum() for i, ok in zip(down.ids, down.there, strict=True))


def test_merge_by_hand() -> None:
    """Clients 1 and 3 upload, and only they did in the last round; what models gained for them is added up."""
    method = make("fedfomo", M=2)
    ups = Upload(
        w=Vector(jnp.array([[10.0], [30.0]])),
        ids=jnp.array([[0, 2], [1, 0]]),
        gain=jnp.array([[0.5, -1.0], [2.0, 0.25]]),
    )
    server = jax.jit(method.merge)(state([2], np.ones((4, 4))), ups, jnp.full(2, 0.5), jnp.array([1, 3]), KEY)
    assert server.w.tree[:, 0].tolist() == [0.0, 10.0, 2.0, 30.0]
    assert server.there.tolist() == [False, True, False, True]
    assert server.P.tolist() == [[1, 1, 1, 1], [1.5, 1, 0, 1], [1, 1, 1, 1], [1.25, 3, 1, 1]]
    assert int(server.t) == 1


@pytest.mark.usefixtures("float64")
def test_a_newcomer_is_offered_the_mean_of_the_uploads() -> None:
    method = make("fedfomo", M=2, R=1, alpha=0.1)
    down = jax.jit(lambda s: method.send(s, None, KEY))(state([1, 2, 6], np.zeros((7, 7))))
    assert all(7 not in x.shape for x in jax.tree.leaves(down))
    assert down.w.tree[0, 0] == pytest.approx(3.0)
    assert down.there.tolist() == [True, False]
    one = quadratics(np.array([[0.0]]), np.array([[2.0]]), [5])
    w = jax.jit(lambda d: method.join(Quadratic(1), d, view(one), jax.random.key(1)).w)(down)
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

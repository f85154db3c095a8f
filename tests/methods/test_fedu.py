"""FedU: a tie by hand, ties that last however long a client is away, Local without a graph, and graphs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Quadratic, assert_close, blobs, engine_of, local, quadratics, rounds, states_of, vector, view

from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.fedu import Tied

GRAPH = jnp.array([[0.0, 2.0, 0.5], [2.0, 0.0, 1.0], [0.5, 1.0, 0.0]])
KEY = jax.random.key(0)


def start(method: Any, n: int) -> Any:
    """The server's state before the first of n clients' models, all at 7, is tied."""
    return jax.jit(lambda: method.server(Quadratic(1), vector(7.0), n, KEY))()


def tie(method: Any, server: Any, ids: list[int], *models: float) -> Any:
    """A merge of the uploads ``models`` of clients ``ids``."""
    shares = np.full(len(ids), 1 / len(ids))
    merge = jax.jit(lambda *given: method.merge(*given, KEY))
    return merge(server, Vector(np.array(models)[:, None]), shares, np.array(ids))


@pytest.mark.usefixtures("float64")
def test_a_tie_by_hand() -> None:
    """Clients 0 and 2 at 1 and 2, a_02 = .5, alpha R eta / 2 = .4: both move .4 * .5 * 1 at once; client 1 is not asked."""
    method = make("fedu", R=2, alpha=0.1, eta=4.0, graph=GRAPH)
    server = tie(method, start(method, 3), [0, 2], 1.0, 2.0)
    assert_close(server.w, Vector(np.array([[1.2], [7.0], [1.8]])))
    # all three: 1.2 + .4 (2 (3 - 1.2) + .5 (1.8 - 1.2)),  3 - .4 (2 (3 - 1.2) + 1 (3 - 1.8)),  1.8 + .4 (1.2 - .3)
    server = tie(method, server, [0, 1, 2], 1.2, 3.0, 1.8)
    assert_close(server.w, Vector(np.array([[2.76], [1.08], [2.16]])))


@pytest.mark.usefixtures("float64")
def test_a_client_goes_on_from_the_newest_of_its_models() -> None:
    """f = (w - 1)^2, one step of .1. Tied to 3 in the first round, the client may be away for the second, or train alone."""
    data = quadratics(np.array([[1.0]] * 3), np.array([[2.0]] * 3), [1] * 3)
    method = make("fedu", R=1, alpha=0.1, eta=20.0, graph="full")  # alpha R eta / 2 = 1: two clients change places
    server = tie(method, start(method, 3), [0, 1], 5.0, 3.0)

    def train(client: Any, server: Any) -> Any:
        down = method.send(server, jnp.array(0), KEY)
        _, models = method.personal_model(Quadratic(1), client, down, view(data), KEY)
        return float(models.tree[0, 0]), local(method, Quadratic(1), client, down, lambda: view(data))[0]

    own = Tied(vector(5.0), jnp.zeros((), jnp.int32))
    personal, alone = train(own, server)
    assert (personal, float(alone.w.tree[0])) == pytest.approx((3.0, 2.6))  # from 3, not from 5
    server = tie(method, server, [1, 2], 8.0, 9.0)
    personal, away = train(own, server)
    assert (personal, float(away.w.tree[0])) == pytest.approx((3.0, 2.6))  # it was away: the tie is not lost
    personal, alone = train(alone, server)
    assert (personal, float(alone.w.tree[0])) == pytest.approx((2.6, 2.28))  # it trained alone: its own is newer


@pytest.mark.usefixtures("float64")
def test_without_a_graph_it_is_local() -> None:
    problem, data = blobs()
    ours, alone = (
        rounds(engine_of(problem, make(name, R=4, alpha=0.1, **settings), data, batch_size=8, aggregated=3), 3)
        for name, settings in (("fedu", {"graph": "empty"}), ("local", {}))
    )
    assert_close(states_of(ours, 5).w, states_of(alone, 5).v)


def test_graphs() -> None:
    def weights(graph: str | jax.Array, n: int) -> np.ndarray:
        return np.array(start(make("fedu", graph=graph), n).a)

    assert_close(weights("full", 3), 1 - np.eye(3))
    assert_close(weights("empty", 3), np.zeros((3, 3)))
    assert_close(weights(GRAPH + jnp.eye(3), 3), GRAPH)  # nobody is tied to itself
    drawn = weights("random", 40)
    assert_close(drawn, drawn.T)
    others = drawn[~np.eye(40, dtype=bool)]
    assert ((others == 0) | ((others >= 0.25) & (others < 1))).all()
    assert (others == 0).mean() == pytest.approx(1 / 8, abs=0.04)  # of means of two uniform numbers
    assert others.mean() == pytest.approx(1 / 2 - 1 / 48, abs=0.03)
    assert drawn.diagonal().max() == 0


def test_bad_graphs() -> None:
    for graph, message in (
        ("ring", r"graph = 'ring' is not valid; valid: random, full, empty, or an array of weights \[N, N\]"),
        (jnp.ones((2, 3)), r"a graph of shape \(2, 3\) is not valid; weights a_kl must be \[N, N\]"),
        (jnp.triu(GRAPH), r"graph\[0, 1\] = 2 beside graph\[1, 0\] = 0 is not valid; a_kl must equal a_lk"),
        (-GRAPH, r"graph\[0, 1\] = -2 beside graph\[1, 0\] = -2 is not valid; weights must be finite and at least 0"),
        (GRAPH * jnp.nan, r"graph\[0, 0\] = nan beside graph\[0, 0\] = nan is not valid; weights must be finite"),
        (
            [[0.0, 1.0], [1.0]],
            r"graph = \[\[0\.0, 1\.0\], \[1\.0\]\] is not valid; valid: random, full, empty, or an array",
        ),
        (None, r"graph = None is not valid; valid: random, full, empty, or an array of weights"),
    ):
        with pytest.raises(FedpriorError, match=f"FedU: {message}"):
            make("fedu", graph=graph)
    data = quadratics(np.ones((2, 1)), np.ones((2, 1)), [1, 1])
    with pytest.raises(FedpriorError, match="FedU: a graph of 3 clients was given, but there are 2"):
        engine_of(Quadratic(1), make("fedu", graph=GRAPH), data)

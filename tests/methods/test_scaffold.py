"""SCAFFOLD: a round by hand, FedAvg at one step a round, and the server's c as the mean of all clients'."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Quadratic, assert_close, blobs, engine_of, local, quadratics, rounds, states_of, vector, view

from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.scaffold import Message, Server


@pytest.mark.usefixtures("float64")
def test_a_client_by_hand() -> None:
    """f = (w - 1)^2, w = 3, c_i = .5, c = 1.5, so that each gradient gets 1 more.

    y = 3 - .1 (4 + 1) = 2.5, then 2.5 - .1 (3 + 1) = 2.1;   c_i = .5 - 1.5 + (3 - 2.1) / (2 * .1) = 3.5 = (4 + 3) / 2.
    """
    data = quadratics(np.array([[1.0]]), np.array([[2.0]]), [1])
    down = Message(w=vector(3.0), c=vector(1.5))
    method = make("scaffold", R=2, alpha=0.1)
    client, up, info = local(method, Quadratic(1), vector(0.5), down, lambda: view(data, batch=1))
    assert_close(client, vector(3.5))
    assert_close(up, Message(w=vector(-0.9), c=vector(3.0)))
    assert_close(info, {"moved": 0.9, "correction": 1.0})


@pytest.mark.usefixtures("float64")
def test_the_server_by_hand() -> None:
    """Two of four clients: w = 3 + .5 (-.9 + .3) / 2 = 2.85;   c = 1.5 + (2 / 4) (3 + 1) / 2 = 2.5, whatever the sizes."""
    server = Server(w=vector(3.0), c=vector(1.5), N=jnp.array(4.0))
    ups = Message(w=Vector(jnp.array([[-0.9], [0.3]])), c=Vector(jnp.array([[3.0], [1.0]])))
    shares, ids = jnp.array([0.9, 0.1]), jnp.array([1, 3])
    merged = make("scaffold", eta_g=0.5).merge(server, ups, shares, ids, jax.random.key(0))
    assert_close(merged, (vector(2.85), vector(2.5), 4.0))


@pytest.mark.usefixtures("float64")
def test_with_everyone_and_one_step_it_is_fedavg() -> None:
    """The mean of c - c_i is 0, so corrections cancel; clients have several batches, so they are not 0 one by one."""
    problem, data = blobs()
    ours, fedavg = (
        rounds(engine_of(problem, make(name, R=1, alpha=0.1), data, batch_size=8, weights="uniform"), 4)
        for name in ("scaffold", "fedavg")
    )
    assert_close(ours.server.w, fedavg.server)
    assert max(np.abs(x).max() for x in jax.tree.leaves(states_of(ours, 5))) > 1e-2


@pytest.mark.usefixtures("float64")
def test_c_is_the_mean_of_all_clients_always() -> None:
    problem, data = blobs()
    engine = engine_of(problem, make("scaffold", R=3, alpha=0.1), data, batch_size=8, aggregated=2)
    state = engine.init(0)
    for _ in range(5):
        state, _ = engine.step(state)
        assert_close(state.server.c, jax.tree.map(lambda c: c.mean(0), states_of(state, 5)))


def test_bad_settings() -> None:
    for name in ("alpha", "eta_g"):
        with pytest.raises(FedpriorError, match=rf"Scaffold: {name} = 0.0 is not valid; .* above 0"):
            make("scaffold", **{name: 0.0})
    problem, data = blobs()
    with pytest.raises(FedpriorError, match=r"participation 'all' makes no sense for .*; valid: sampled"):
        engine_of(problem, make("scaffold"), data, participation="all")

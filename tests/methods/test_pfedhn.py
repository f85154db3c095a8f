"""pFedHN: its server's step is the gradient of <h(v_i; phi), delta_i>, by hand, by differences and with its optimizer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from toys import Quadratic, blobs, local, quadratics, view

from fedprior.core.vectors import Vector, row
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.pfedhn import CLIP, Hypernetwork, Net, PFedHN, Server, generate

KEY = jax.random.key(0)
PLAIN = {"momentum": 0.0, "decay": 0.0}


def test_client_by_hand() -> None:
    """f = (w - 1)^2 from theta = 3: 2.6, then 2.28; the upload is how far it came down."""
    data = quadratics(np.array([[1.0]]), np.array([[2.0]]), [3])
    client, up, _ = local(
        make("pfedhn", R=2, alpha=0.1), Quadratic(1), (), Vector(jnp.array([3.0])), lambda: view(data)
    )
    assert float(up.tree[0]) == pytest.approx(0.72, abs=1e-6)
    assert client == ()


def small() -> Net:
    """Two clients, one hidden layer: z = relu(v, -v), theta = z_1 / 2 + 7 z_2 + 1."""
    phi = Hypernetwork(
        W=Vector(jnp.array([[0.5, 7.0]])),
        b=Vector(jnp.array([1.0])),
        hidden=[(jnp.array([[1.0], [-1.0]]), jnp.zeros(2))],
    )
    return Net(phi, jnp.array([[2.0], [-3.0]]))


def flat(net: Any) -> list[list[float]]:
    """v, the hidden layer's weights and biases, and the head's."""
    (W, b), phi = net.phi.hidden[0], net.phi
    return [np.ravel(x).tolist() for x in (net.v, W, b, phi.W.tree, phi.b.tree)]


# Client 0: v = 2, so z = (2, 0) and theta = 2. delta = 3: dW = 3 z, db = 3, dz = 3 (.5, 7), of which relu passes 1.5 to
# v, to the first hidden weight (times v) and to the first hidden bias.
START = [[2.0, -3.0], [1.0, -1.0], [0.0, 0.0], [0.5, 7.0], [1.0]]
SLOPE = [[1.5, 0.0], [3.0, 0.0], [1.5, 0.0], [6.0, 0.0], [3.0]]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("size", "settings", "step"),
    [
        (3.0, PLAIN, lambda p, g: p - 0.1 * g),
        (3.0, {"momentum": 0.0, "decay": 0.5}, lambda p, g: p - 0.1 * (g + 0.5 * p)),  # decay: all of the network
        (-300.0, PLAIN, lambda p, g: p + 0.1 * g * CLIP / np.sqrt(58.5)),  # |slope|^2 = 58.5, cut to length 50
    ],
)
def test_server_by_hand(size: float, settings: dict[str, Any], step: Any) -> None:
    method, net = PFedHN(alpha_m=0.1, **settings), small()
    assert float(generate(net.phi, net.v[0]).tree[0]) == 2.0
    server = Server(net, method._outer.init(net))
    server = jax.jit(method.merge)(server, Vector(np.array([[size]])), np.ones(1), np.array([0]), KEY)
    for found, p, g in zip(flat(server.net), START, SLOPE, strict=True):
        np.testing.assert_allclose(found, step(np.array(p), np.array(g)), rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_all_clients_of_a_round_make_one_step_with_their_mean() -> None:
    """Both slopes are taken at the same network. Client 1: v = -3, so z = (0, 3), and delta = -2 passes -14 back.

    The next round's slope is added to .9 of this one's; with S = 1 that is the paper's order of one client after the other.
    """
    method, net = PFedHN(alpha_m=0.01, momentum=0.9, decay=0.0), small()
    other = [[0.0, -14.0 * -1.0], [0.0, -14.0 * -3.0], [0.0, -14.0], [0.0, -2.0 * 3.0], [-2.0]]
    mean = [(np.array(a) + np.array(b)) / 2 for a, b in zip(SLOPE, other, strict=True)]
    merge, server = jax.jit(method.merge), Server(net, method._outer.init(net))
    deltas = Vector(np.array([[3.0], [-2.0]]))
    once = merge(server, deltas, np.array([0.9, 0.1]), np.array([0, 1]), KEY)
    p = [np.array(x) - 0.01 * g for x, g in zip(START, mean, strict=True)]
    for found, expected in zip(flat(once.net), p, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)

    twice = jax.jit(method.merge)(once, Vector(np.array([[3.0]])), np.ones(1), np.array([0]), KEY)
    v, (a, _), (b, _), (W, _) = p[0][0], p[1], p[2], p[3]
    z = a * v + b  # of client 0 at the network that the first round left
    assert z > 0
    then = [[3 * W * a, 0], [3 * W * v, 0], [3 * W, 0], [3 * z, 0], [3.0]]
    for found, x, first, g in zip(flat(twice.net), p, mean, then, strict=True):
        np.testing.assert_allclose(found, x - 0.01 * (0.9 * first + np.array(g)), rtol=1e-12)


@pytest.mark.parametrize(("ending", "layers"), [("linear", 4), ("relu", 3)])
def test_the_fourth_layer_has_no_relu(ending: str, layers: int) -> None:
    """A last layer that gives -1 everywhere: relu makes it 0, and the heads give their biases."""
    method, problem = make("pfedhn", ending=ending), Quadratic(2)
    phi = method.server(problem, problem.init(KEY), 3, KEY).net.phi
    assert len(phi.hidden) == layers
    last = (jnp.zeros_like(phi.hidden[-1][0]), -jnp.ones_like(phi.hidden[-1][1]))
    theta = generate(phi._replace(hidden=[*phi.hidden[:-1], last]), jnp.ones(1)).tree
    heads = np.array(phi.W.tree).sum(-1) if ending == "linear" else 0.0
    np.testing.assert_allclose(theta, np.array(phi.b.tree) - heads, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("float64")
def test_server_step_by_differences() -> None:
    """On the network as it is: the slope along random directions, and none for the embeddings of other clients."""
    problem, rng, i = Quadratic(6), np.random.default_rng(0), 3
    method = make("pfedhn", alpha_m=1.0, **PLAIN)
    server = jax.device_get(jax.jit(lambda: method.server(problem, problem.init(KEY), 9, KEY))())
    assert server.net.v.shape == (9, 3)
    assert [W.shape for W, _ in server.net.phi.hidden] == [(100, 3), *[(100, 100)] * 3]
    net, delta = server.net, Vector(rng.normal(size=6))
    new = jax.jit(method.merge)(server, Vector(delta.tree[None]), np.ones(1), np.array([i]), KEY).net
    slope = jax.tree.map(lambda x, y: np.array(x - y), net, new)
    assert 0.1 < float(jnp.sqrt(sum(np.sum(x**2) for x in jax.tree.leaves(slope)))) < CLIP
    others = np.arange(9) != i
    assert np.all(slope.v[others] == 0)
    assert np.all(slope.v[i] != 0)
    surrogate = jax.jit(lambda net: generate(net.phi, net.v[i]) @ delta)
    for _ in range(3):
        along = jax.tree.map(lambda x: rng.normal(size=x.shape), net)
        ends = [float(surrogate(jax.tree.map(lambda x, d, e=e: x + e * d, net, along))) for e in (1e-6, -1e-6)]
        expected = sum(float(np.sum(s * d)) for s, d in zip(*map(jax.tree.leaves, (slope, along)), strict=True))
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.usefixtures("float64")
def test_a_newcomer_fits_only_its_embedding() -> None:
    """Its model is h of that embedding, and gets better; by hand, the first step is v - alpha_m J^T grad f."""
    problem, data = blobs()
    method = make("pfedhn", R=30, alpha_m=5.0)
    server = jax.jit(lambda: method.server(problem, problem.init(KEY), 7, KEY))()
    down = method.send(method.outbox(server), None, KEY)
    assert all(7 not in x.shape for x in jax.tree.leaves(down))
    np.testing.assert_allclose(down.v, np.array(server.net.v).mean(0))

    @jax.jit
    def join(down: Any) -> Any:
        mine = view(data, 4, batch=40)
        v = method.join(problem, down, mine, KEY)
        models = [generate(down.phi, v), generate(down.phi, down.v)]
        everything = view(data, 4, batch=40)
        batch = everything.batch(everything.draw(1)[0])
        used = row(method.personal_model(problem, v, down, mine, KEY)[1], 0)
        return v, ravel_pytree(used - models[0])[0], [problem.loss(w, batch) for w in models]

    v, difference, (after, before) = join(down)
    assert v.shape == down.v.shape
    assert np.all(np.array(difference) == 0)
    assert float(after) < float(before) - 1e-3
    # by hand on the small network: theta = 2 at v = 2, f = (theta - 1)^2, slope 2 times d theta / d v = 1/2
    one = quadratics(np.array([[1.0]]), np.array([[2.0]]), [3])
    step = make("pfedhn", R=1, alpha_m=0.1)
    small_down = Net(small().phi, jnp.array([2.0]))
    v = jax.jit(lambda d: step.join(Quadratic(1), d, view(one), KEY))(small_down)
    assert v.tolist() == [pytest.approx(1.9)]


def test_personal_model_is_what_the_server_makes() -> None:
    method, net = make("pfedhn"), small()
    down = method.send(net, jnp.int32(1), KEY)
    weights, models = method.personal_model(
        Quadratic(1), (), down, view(quadratics(np.ones((1, 1)), np.ones((1, 1)), [1])), KEY
    )
    assert (weights.tolist(), models.tree.tolist()) == ([1.0], [[22.0]])  # z = (0, 3): 7 * 3 + 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"momentum": 1.0},
            "PFedHN: momentum = 1.0 is not valid; it must be a finite number of at least 0 and below 1",
        ),
        ({"decay": -1.0}, "decay = -1.0 is not valid; it must be a finite number of at least 0"),
        ({"R": 0}, "R = 0 is not valid; it must be a whole number of at least 1"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        make("pfedhn", **settings)

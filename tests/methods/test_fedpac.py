"""FedPAC: a round by hand, class statistics against numpy, the quadratic program against a solver of scipy's."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array
from jax.sharding import PartitionSpec as P
from scipy.optimize import minimize
from toys import blobs, engine_of, federation, local, view

from fedprior.core.vectors import Vector
from fedprior.engine.placement import Placement
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.fedpac import Client, Message, Upload, combinations, on_simplex, without_small
from fedprior.models.classifier import Classifier
from fedprior.models.mlp import DNN, MCLR

KEY = jax.random.key(0)


def dnn(hidden: Any, hidden_bias: Any, head: Any, head_bias: Any) -> Vector:
    arrays = [np.array(x, float) for x in (hidden, hidden_bias, head, head_bias)]
    problem, _ = blobs(d=arrays[0].shape[1], classes=len(arrays[2]), hidden=len(arrays[0]))
    return Vector(jax.tree.unflatten(jax.tree.structure(problem.init(KEY).tree), arrays))


def message(w: Vector, c: Any, known: Any) -> Message:
    return Message(w=w, c=jnp.array(c, float), known=jnp.array(known), t=jnp.int32(0))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("align", "known"), [("sum", True), ("mean", True), ("sum", False)])
def test_client_by_hand(align: str, known: bool) -> None:
    """One sample x = 2 of class 0; features z = (2, 0), a head of zeros: both probabilities are 1/2.

    head:       slopes -+ 1/2 z and -+ 1/2; a step of .1 leads to weights +-(.1, 0), biases +-.05, logits +-.25
    extractor:  dz_1 = -.2 (1 - p), p = sigmoid(.5); the class mean (1, 0) adds lam * 2 (2 - 1) = 1, if it is known
    """
    problem, _ = blobs(d=1, classes=2, hidden=2)
    w = dnn([[1], [0]], [0, 0], np.zeros((2, 2)), [0, 0])
    data = federation(np.array([[2.0]]), np.zeros(1), [1])
    method = make("fedpac", R=1, R_head=1, alpha=0.1, alpha_head=0.1, lam=0.5 if align == "sum" else 1.0, align=align)
    client = Client(w, jnp.int32(0))
    _, up, _ = local(method, problem, client, message(w, [[1, 0], [9, 9]], [known, False]), lambda: view(data))
    np.testing.assert_allclose(up.head.tree.weight, [[0.1, 0], [-0.1, 0]], atol=1e-12)
    np.testing.assert_allclose(up.head.tree.bias, [0.05, -0.05], atol=1e-12)
    slope = -0.2 * (1 - 1 / (1 + np.exp(-0.5))) + known
    np.testing.assert_allclose(up.w.tree.hidden.weight, [[1 - 0.1 * slope * 2], [0]], atol=1e-12)
    np.testing.assert_allclose(up.w.tree.hidden.bias, [-0.1 * slope, 0], atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_server_by_hand() -> None:
    """H differs by 2 and V = (1, 2): diag V + G is diag(1, 2 + 4) for client 4 and diag(1 + 4, 2) for client 1.

    So the weights are (6, 1) / 7 and (2, 5) / 7. Class 0: 3 and 1 samples, feature sums 6 and 4; nobody has class 1.
    """
    method, one = make("fedpac"), dnn([[1]], [0], [[1], [0]], [0, 0])
    ups = Upload(
        w=jax.tree.map(lambda x: np.stack([x, 5 * x]), one),
        head=Vector(jax.tree.map(lambda x: np.stack([x, 8 * x]), one.tree.head)),
        H=jnp.array([[[0.0], [0.0]], [[2.0], [0.0]]]),
        V=jnp.array([1.0, 2.0]),
        counts=jnp.array([[3.0, 0.0], [1.0, 0.0]]),
        sums=jnp.array([[[6.0], [0.0]], [[4.0], [0.0]]]),
    )
    problem, _ = blobs(d=1, classes=2, hidden=1)
    server = method.server(problem, one, 7, KEY)
    newcomer = method.send(server, None, KEY)
    assert all(7 not in x.shape for x in jax.tree.leaves(newcomer))
    server = jax.jit(method.merge)(server, ups, np.array([0.75, 0.25]), np.array([4, 1]), KEY)
    assert float(server.w.tree.hidden.weight[0, 0]) == pytest.approx(0.75 * 1 + 0.25 * 5)
    made = np.array(server.heads.tree.weight)[:, 0, 0]
    np.testing.assert_allclose(made[[4, 1]], [(6 * 1 + 1 * 8) / 7, (2 * 1 + 5 * 8) / 7], rtol=1e-6)
    assert made[[0, 2, 3, 5, 6]].tolist() == [1] * 5
    assert server.c.tolist() == [[2.5], [0.0]]
    assert server.known.tolist() == [True, False]
    # a class that is not seen in a round keeps its mean
    ups = ups._replace(counts=jnp.array([[0.0, 0.0], [0.0, 2.0]]), sums=jnp.array([[[0.0], [0.0]], [[0.0], [3.0]]]))
    server = jax.jit(method.merge)(server, ups, np.array([0.75, 0.25]), np.array([4, 1]), KEY)
    assert server.c.tolist() == [[2.5], [1.5]]
    assert server.known.tolist() == [True, True]


@pytest.mark.usefixtures("float64")
def test_a_combined_head_waits_for_its_client() -> None:
    """Used once, whenever the client trains or is tested next; then the client's own head is newer."""
    problem, _ = blobs(d=1, classes=2, hidden=1)
    method, w = make("fedpac"), dnn([[1]], [0], [[1], [0]], [0, 0])
    server = method.server(problem, w, 3, KEY)
    heads = jax.tree.map(lambda x: x + 7, server.heads)
    server = server._replace(heads=heads, made=np.array([1, 2, 0]), t=2)
    trained = Client(w, jnp.int32(0))

    def head(client: Any, i: int) -> float:
        _, model = method.personal_model(problem, client, method.send(server, i, KEY), None, KEY)  # type: ignore[arg-type]
        return float(model.tree.head.weight[0, 0, 0])

    assert [head(trained, i) for i in range(3)] == [8.0, 8.0, 1.0]
    assert [head(trained._replace(t=jnp.int32(1)), i) for i in range(3)] == [1.0, 8.0, 1.0]


@pytest.mark.usefixtures("float64")
def test_class_statistics_in_numpy() -> None:
    """Of 150 samples without class 2: H and V at the received extractor, counts and sums at the trained one."""
    problem, data = blobs((3, 150), classes=4, hidden=6)
    y = np.where(data.train.y == 2, 0, np.asarray(data.train.y))
    data = federation(np.asarray(data.train.x, float), y, (3, 150), 4)
    w = problem.init(KEY)
    method = make("fedpac", R=3, R_head=2, alpha=0.1)
    down = message(w, np.zeros((4, 6)), [False] * 4)
    client, up, _ = local(method, problem, Client(w, jnp.int32(0)), down, lambda: view(data, 1))

    def features(w: Vector) -> np.ndarray:
        z = data.train.x[3:] @ np.array(w.tree.hidden.weight).T + np.array(w.tree.hidden.bias)
        return np.where(z > 0, z, 0.1 * z)

    y, n = y[3:], 150
    z, after = features(w), features(client.w)
    p = np.array([np.mean(y == k) for k in range(4)])
    mu = np.array([z[y == k].mean(0) if p[k] else np.zeros(6) for k in range(4)])
    np.testing.assert_allclose(up.H, p[:, None] * mu, rtol=1e-6, atol=1e-12)
    V = (sum(p[k] * np.mean(np.sum(z[y == k] ** 2, 1)) for k in (0, 1, 3)) - np.sum(p**2 * np.sum(mu**2, 1))) / n
    assert float(up.V) == pytest.approx(V, rel=1e-6)
    np.testing.assert_allclose(up.counts, n * p)
    np.testing.assert_allclose(up.sums, [after[y == k].sum(0) for k in range(4)], rtol=1e-6, atol=1e-9)
    assert np.all(np.array(up.sums[2]) == 0)
    assert not np.allclose(z, after, rtol=1e-2)


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.bits
def test_many_features_are_rounded_alike_alone_and_among_others() -> None:
    """The compiler splits sums over more than 32 features in a program of two devices, and not in that of one client."""
    problem, data = blobs((150,), hidden=60)
    method = make("fedpac")

    def spread(w: Vector) -> Array:
        down = message(w, np.zeros((3, 60)), [False] * 3)
        return method.local(problem, Client(w, jnp.int32(0)), down, view(data), KEY)[1].V

    alone, everywhere = jax.jit(spread), jax.jit(Placement(2).shard_map(spread, P(), P()))
    for seed in range(10):
        w = jax.device_get(problem.init(jax.random.key(seed)))
        assert float(alone(w)) == float(everywhere(w)), f"seed {seed}"


def test_each_phase_leaves_the_other_part_alone() -> None:
    problem, data = blobs(hidden=4)
    w = problem.init(KEY)
    down, client = message(w, np.ones((3, 4)), [True, False, True]), Client(w, jnp.int32(0))
    garbage = message(w, [[1] * 4, [1e6] * 4, [1] * 4], [True, False, True])  # an unknown class has no mean to use
    for still, moving in (("alpha", "alpha_head"), ("alpha_head", "alpha")):
        method = make("fedpac", R=3, R_head=2, **{still: 0.0, moving: 0.1})
        play = jax.jit(lambda d, m=method: m.local(problem, client, d, view(data, 3), KEY)[1].w.tree)
        found = play(down)
        assert same(found.hidden, w.tree.hidden) == (still == "alpha")
        assert same(found.head, w.tree.head) == (still == "alpha_head")
        assert same(found, play(garbage))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("S", [2, 7, 20])
def test_combinations_solve_their_quadratic_program(S: int) -> None:
    rng = np.random.default_rng(S)
    shares = rng.dirichlet(np.full(5, 0.3), S)[:, :, None]
    H = shares * rng.normal(size=(5, 8)) * (1 + 0.1 * rng.normal(size=(S, 5, 8)))
    V = 10 ** rng.uniform(-4, -1, S)
    found = np.array(jax.jit(combinations)(H, V))
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)
    assert found.min() >= 0
    for i in (0, S - 1):
        G = np.array(
            [[sum((H[i, k] - H[j, k]) @ (H[i, k] - H[m, k]) for k in range(5)) for m in range(S)] for j in range(S)]
        )
        M, a = np.diag(V) + G, found[i]
        scale = np.abs(M).max()
        best = minimize(
            lambda a, M=M / scale: (a @ M @ a, 2 * M @ a),
            np.full(S, 1 / S),
            jac=True,
            bounds=[(0, 1)] * S,
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": lambda a: np.ones(S)},
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        assert a @ M @ a == pytest.approx(scale * best.fun, rel=1e-6)


def test_small_weights_are_set_to_zero() -> None:
    given = jnp.array([[0.5, 0.4995, 0.0005], [0.2, 0.3, 0.5]])
    np.testing.assert_allclose(without_small(given), [[0.5 / 0.9995, 0.4995 / 0.9995, 0], [0.2, 0.3, 0.5]], rtol=1e-6)


def test_the_simplex_is_met_where_optax_meets_it() -> None:
    """Rows near, far and inside, and rows that need many turns: each turn leaves out one entry of a geometric series."""
    rng = np.random.default_rng(0)
    X = np.concatenate(
        [rng.normal(size=(20, 30)) * 10.0 ** rng.uniform(-3, 3, (20, 1)), 3.0 ** np.arange(30)[None] / 3**20]
    )
    X = np.concatenate([X, rng.dirichlet(np.ones(30), 3)]).astype(np.float32)
    expected = jax.vmap(optax.projections.projection_simplex)(X)
    found = jax.jit(on_simplex)(X)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    np.testing.assert_allclose(np.array(jax.jit(on_simplex)(X / 100)).sum(1), 1, atol=1e-4)


def test_a_newcomer_fits_a_head_to_the_mean_extractor() -> None:
    problem, data = blobs(hidden=4)
    method, w = make("fedpac", alpha_head=0.3), problem.init(KEY)
    down = method.send(method.server(problem, w, 5, KEY), None, KEY)

    @jax.jit
    def join(down: Any) -> tuple[Any, Any]:
        mine = view(data, 4, batch=40)
        _, models = method.personal_model(problem, method.join(problem, down, mine, KEY), down, mine, KEY)
        everything = view(data, 4, batch=40)
        batch = everything.batch(everything.draw(1)[0])
        model = jax.tree.map(lambda x: x[0], models)
        return model, (problem.loss(w, batch), problem.loss(model, batch))

    model, (before, after) = join(down)
    assert same(model.tree.hidden, w.tree.hidden)
    assert float(after) < float(before) - 0.05


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"R_head": 0}, "FedPAC: R_head = 0 is not valid; it must be a whole number of at least 1"),
        ({"alpha_head": -0.1}, "alpha_head = -0.1 is not valid; it must be a finite number of at least 0"),
        ({"align": "max"}, "align = 'max' is not valid; valid: sum, mean"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        make("fedpac", **settings)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda key: MCLR(5, 3, key=key), "this model has only a last layer; use a model with hidden layers"),
        (
            lambda key: eqx.nn.Linear(5, 3, key=key),
            "the model Linear names no last layer; give it a Linear called head",
        ),
    ],
)
def test_a_model_without_extractor_or_head_is_refused(model: Any, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        engine_of(Classifier(model, 3), make("fedpac"), blobs()[1])
    engine_of(Classifier(lambda key: DNN(5, 3, key=key), 3), make("fedpac"), blobs()[1])


@pytest.mark.parametrize("clients", [1000, 1001, 5000])
def test_of_thousands_of_small_weights_some_are_kept(clients: int) -> None:
    even = np.full(clients, 1 / clients, np.float32)
    uneven = even * np.linspace(0.5, 1.5, clients, dtype=np.float32)
    kept = np.asarray(without_small(jnp.asarray(np.stack([even, even * (1 - 1e-6), uneven]))))
    np.testing.assert_allclose(np.sum(kept, axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(kept[:2], 1 / clients, rtol=1e-4)
    assert 0.4 * clients < np.sum(kept[2] > 0) < 0.6 * clients


@pytest.mark.parametrize("S", [1, 2, 3, 20])
@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-4])
def test_of_clients_that_are_all_alike_weights_are_weights(S: int, apart: float) -> None:
    """Clients with one and the same sample, V = 0: what tells them apart is lost in the rounding of single precision."""
    rng = np.random.default_rng(0)
    for scale in (0.0, 1.0, 1e4):
        H = scale * rng.normal(size=(1, 3, 50)) * (1 + apart * rng.normal(size=(S, 3, 1)))
        a = jax.jit(lambda H, V: without_small(combinations(H, V)))(H.astype(np.float32), np.zeros(S, np.float32))
        np.testing.assert_allclose(np.sum(a, axis=1), 1, rtol=1e-3)
        assert np.min(a) >= 0

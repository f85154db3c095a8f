"""Server relaxation: a step by hand, nothing at beta = 1, and only where there is a global model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Quadratic, assert_close, blobs, engine_of, quadratics, rounds, states_of, vector

from fedprior.core.vectors import Vector
from fedprior.engine.engine import Engine
from fedprior.errors import FedpriorError
from fedprior.methods import METHODS, make
from fedprior.methods.scaffold import Message, Server
from fedprior.wrappers.relaxation import relax

DATA = quadratics(np.array([[1.0], [5.0]]), np.array([[2.0], [1.0]]), [3, 1])
KEY = jax.random.key(0)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("beta", "expected"), [(1.0, 2.9), (2.0, 2.8), (0.5, 2.95)])
def test_a_round_by_hand(beta: float, expected: float) -> None:
    """From w = 3, with R = 1: clients at 2.6 and 3.2, uniform mean 2.9; beta = 2 goes twice as far: 2 * 2.9 - 3 = 2.8."""
    algorithm = relax(make("fedavg", R=1, alpha=0.1).algorithm(), beta)
    engine = Engine(Quadratic(1), algorithm, DATA, batch_size=4, weights="uniform")
    state = engine.init(0)
    state = state._replace(server=engine.placement.replicate(vector(3.0)))
    assert float(engine.step(state)[0].server.tree[0]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_only_the_global_model_is_relaxed() -> None:
    """SCAFFOLD: w = 3 - .3 = 2.7 goes on to 2.4, and c = 1.5 + (2 / 4) 2 = 2.5 stays."""
    server = Server(w=vector(3.0), c=vector(1.5), N=jnp.array(4.0))
    ups = Message(w=Vector(jnp.array([[-0.9], [0.3]])), c=Vector(jnp.array([[3.0], [1.0]])))
    merge = relax(make("scaffold").algorithm(), 2.0).merge
    merged = merge(server, ups, jnp.array([0.9, 0.1]), jnp.array([1, 3]), KEY)
    assert_close(merged, Server(w=vector(2.4), c=vector(2.5), N=jnp.array(4.0)))


@pytest.mark.bits
@pytest.mark.parametrize(
    "name", ["fedavg", "mh", *(pytest.param(name, marks=pytest.mark.slow) for name in ("scaffold", "pfedbayes"))]
)
def test_at_one_it_changes_no_bits(name: str) -> None:
    problem, data = blobs()
    method = make(name, R=2)
    plain = engine_of(problem, method, data, batch_size=8, aggregated=3)
    relaxed = Engine(problem, relax(method.algorithm(), 1.0), data, batch_size=8, aggregated=3)
    a, b = rounds(plain, 2), rounds(relaxed, 2)
    for x, y in zip(*(jax.tree.leaves((s.server, states_of(s, 5))) for s in (a, b)), strict=True):
        assert np.array_equal(x, y)


def test_it_replaces_nothing_but_the_merge() -> None:
    for name in ("fedavg", "pfedme"):
        plain = make(name).algorithm()
        relaxed = relax(plain, 2.0)
        assert relaxed.merge != plain.merge
        assert relaxed._replace(merge=plain.merge) == plain


def test_it_needs_a_global_model() -> None:
    problem, data = blobs(hidden=4)
    without = []
    for name in {entry.cls: name for name, entry in reversed(METHODS.items())}.values():  # a name for each class
        method = make(name, **({"M": 2} if name == "fedfomo" else {}))
        server = jax.eval_shape(lambda m=method: m.server(problem, problem.init(KEY), data.n_clients, KEY))
        if method.global_model(server) is None:
            without.append(name)
    assert sorted(without) == ["fedamp", "fedem", "fedfomo", "fedu", "heurfedamp", "local", "pfedhn"]
    for called, name in (("Local has none", "Local"), ("this method has none; leave beta out", "this method")):
        with pytest.raises(FedpriorError, match=f"beta acts on a global model, and {called}"):
            relax(make("local").algorithm(), 2.0, name).merge((), (), jnp.ones(1), jnp.zeros(1, int), KEY)


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_beta_must_be_a_finite_number_above_zero(beta: float) -> None:
    with pytest.raises(FedpriorError, match=f"beta = {beta} is not valid; it must be a finite number above 0"):
        relax(make("fedavg").algorithm(), beta)

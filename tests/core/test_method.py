"""What an author of a method gets without writing it, and the tuple of functions that the engine runs."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from toys import InTurn, Quadratic, assert_close, blobs, vector, view

from fedprior.core.batch import Data
from fedprior.core.hyper import hyper
from fedprior.core.method import Algorithm, Info, Method, Mixture, at_values, single
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector, weighted_mean
from fedprior.errors import FedpriorError
from fedprior.methods import METHODS, keys, make
from fedprior.wrappers.relaxation import relax

KEY = jax.random.key(0)


class Halfway(Method):
    """Each client goes ``share`` of the way from its state to its first sample's centre."""

    share: float = hyper(0.5, least=0, most=1)
    shift: float | None = hyper(None)

    def client(self, w0: Vector, key: Array) -> Vector:
        return w0

    def local(self, problem: Problem, client: Vector, down: Vector, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        c = Vector(data.batch(data.draw(1)[0]).x[0, :1])
        w = client + self.share * (c - client) + (0.0 if self.shift is None else self.shift)
        return w, w, {}

    def personal_model(self, problem: Problem, client: Vector, down: Vector, data: Data, key: Array) -> Mixture:
        return single(client)


class Bare(Method):
    """Says of itself only what a client does: nothing."""

    def local(self, problem: Problem, client: Tree, down: Vector, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        return client, down, {}


def test_an_algorithm_holds_all_functions_of_a_method() -> None:
    functions = {name for name, _ in inspect.getmembers(Method, inspect.isfunction) if not name.startswith("_")}
    assert set(Algorithm._fields) == functions - {"algorithm", "in_force"} | {"participation"}
    for name in METHODS:
        method = make(name)
        for field, function in method.algorithm()._asdict().items():
            assert function == getattr(method, field)


def test_what_a_method_need_not_say() -> None:
    method, w0 = Bare(), vector(3.0)
    a = method.algorithm()
    assert a.participation == ("sampled", "all")
    assert a.check(Quadratic(1), w0) is None
    assert a.client(w0, KEY) == ()
    assert a.server(Quadratic(1), w0, 5, KEY) is w0
    assert a.outbox(w0) is w0
    assert a.send(w0, jnp.array(2), KEY) is a.send(w0, None, KEY) is w0
    ups = Vector(jnp.array([[2.0], [4.0]]))
    assert_close(a.merge(w0, ups, jnp.array([0.75, 0.25]), jnp.array([0, 1]), KEY), vector(2.5))
    assert a.with_global_model(w0, vector(9.0)).tree.tolist() == [9.0]
    assert a.join(Quadratic(1), w0, InTurn(np.ones((1, 2))), KEY) == ()  # a client that keeps nothing, joined or not
    assert Halfway(share=0.1).in_force() == {"share": 0.1, "shift": None}
    with pytest.raises(NotImplementedError):
        Method().local(Quadratic(1), (), w0, InTurn(np.ones((1, 2))), KEY)


def test_the_servers_state_is_the_global_model_if_it_is_a_model() -> None:
    w0 = vector(3.0)
    assert Halfway().global_model(w0) is w0
    assert Halfway().global_model({"w": w0}) is None
    assert Halfway().global_model(()) is None


def test_a_model_is_not_put_in_the_place_of_a_server_that_holds_more() -> None:
    """AM on a method that says what its global model is, and not how it is replaced."""

    class Counting(Bare):
        def global_model(self, server: Any) -> Vector:
            return server["w"]

        def merge(self, server: Any, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
            return {"w": weighted_mean(ups, weights), "rounds": server["rounds"] + 1}

    relaxed = relax(Counting().algorithm(), 2.0)
    ups, server = Vector(jnp.array([[2.0], [4.0]])), {"w": vector(3.0), "rounds": 0}
    with pytest.raises(
        FedpriorError, match=r"Counting: the server holds more than its global model \(dict\).*write with_"
    ):
        relaxed.merge(server, ups, jnp.full(2, 0.5), jnp.arange(2), KEY)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_whether_it_weighs_clients(name: str) -> None:
    """By a merge of two clients' first uploads with other weights."""
    problem, data = blobs((3, 9), hidden=2 if name == "fedpac" else 0)
    preset = METHODS.find(name).preset
    small = {key: 1 for key in ("R", "K", "M") if key in keys(name) and key not in preset}
    method = make(name, **small)

    @jax.jit
    def merged(weights: Array) -> Tree:
        w0 = problem.init(KEY)
        server = method.server(problem, w0, 2, KEY)

        def upload(i: int) -> Tree:
            down = method.send(method.outbox(server), jnp.int32(i), KEY)
            return method.local(problem, method.client(w0, KEY), down, view(data, i), KEY)[1]

        ups = jax.tree.map(lambda *x: jnp.stack(x), upload(0), upload(1))
        return method.merge(server, ups, weights, jnp.arange(2), KEY)

    one, other = (jax.tree.leaves(merged(jnp.array(weights))) for weights in ([0.5, 0.5], [0.1, 0.9]))
    differs = any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert differs == method.weighted


@pytest.mark.usefixtures("float64")
def test_a_newcomer_takes_a_round_of_its_own_from_what_it_received() -> None:
    data = InTurn(np.array([[1.0, 1.0]]))
    assert_close(Halfway().join(Quadratic(1), vector(3.0), data, KEY), vector(2.0))


def test_a_personal_model_that_is_one_model() -> None:
    weights, models = single(vector(1.0, 2.0))
    assert (weights.tolist(), models.tree.tolist()) == ([1.0], [[1.0, 2.0]])


def test_a_method_is_a_value() -> None:
    method = Halfway(share=0.25)
    assert method == Halfway(share=0.25) != Halfway()
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.share = 0.5
    with pytest.raises(FedpriorError, match=r"share = 2\.0 is not valid"):
        dataclasses.replace(method, share=2.0)


def test_numbers_may_be_replaced_unchecked_and_traced() -> None:
    method = Halfway()
    assert at_values(method, {}) is method
    replaced = at_values(method, {"share": 7.0, "shift": 1.0})  # not valid, and in place of None
    assert (replaced.share, replaced.shift) == (7.0, 1.0)  # type: ignore[attr-defined]
    assert (method.share, method.shift) == (0.5, None)
    same = at_values(make("mh"), {"alpha": 0.5})  # others of its fields have the same value, 0.01
    assert (same.alpha, same.alpha_m) == (0.5, 0.01)  # type: ignore[attr-defined]

    @jax.jit
    def step(share: Array) -> Vector:
        local = at_values(method, {"share": share}).algorithm().local
        return local(Quadratic(1), vector(3.0), vector(3.0), InTurn(np.array([[1.0, 1.0]])), KEY)[0]

    for share in (0.5, 0.25):
        assert float(step(jnp.array(share)).tree[0]) == pytest.approx(3 - 2 * share)

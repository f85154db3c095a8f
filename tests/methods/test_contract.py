"""What every registered method must keep, without anyone writing it again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load
from toys import SIZES, blobs, engine_of, rounds, view

from fedprior.core.random import Purpose, key_for
from fedprior.core.vectors import row
from fedprior.data.federation import Federation, Samples
from fedprior.engine.engine import Engine
from fedprior.engine.evaluate import Evaluator
from fedprior.engine.round import State, client_round, keys_for, message, server_round
from fedprior.engine.selection import find_selection
from fedprior.methods import METHODS, keys, make
from fedprior.models.classifier import Classifier
from fedprior.records.checkpoint import to_bytes, unpack

pytestmark = pytest.mark.bits
DEFAULT = [(name, make(name).participation[0]) for name in METHODS]
CLASS = {name: entry.cls for name, entry in METHODS.items()}
OTHER = list({(CLASS[name], mode): (name, mode) for name in METHODS for mode in make(name).participation[1:]}.values())


def cases(pairs: list[tuple[str, str]], *marks: Any) -> list[Any]:
    """A group of tests per case, so that one worker compiles its engines once."""
    return [pytest.param(*pair, marks=[pytest.mark.xdist_group("-".join(pair)), *marks]) for pair in pairs]


# A few kinds in their default mode: one global model, pFedBreD, control variates of which only the sampled change, a
# mixture, and a server that makes models. The other names and modes go with the slow tests.
KINDS = ("fedavg", "mh-released", "scaffold", "fedem", "pfedhn")
QUICK = [pair for pair in DEFAULT if pair[0] in KINDS]
REST = [pair for pair in DEFAULT + OTHER if pair not in QUICK]
CASES = cases(QUICK) + cases(REST, pytest.mark.slow)
FEW = [pair for pair in DEFAULT if pair[0] in ("fedavg", "mh-released")]
DEVICES = cases([*FEW, ("scaffold", "sampled")])
DEVICES += cases([pair for pair in QUICK + REST if pair not in [case.values for case in DEVICES]], pytest.mark.slow)
CHUNKED = cases(FEW) + cases([pair for pair in QUICK + REST if pair not in FEW], pytest.mark.slow)
N, S = len(SIZES), 3
ODD = (1, 2, 131, 64, 19, 257)  # one sample, two, a power of two, less and more than the 128 of a pass over all samples
HIDDEN = {"fedpac": 4}  # it is not defined for a model without hidden layers


@functools.cache
def engine(name: str, mode: str, devices: int = 2, **options: Any) -> Engine:
    problem, data = blobs(hidden=HIDDEN.get(name, 0))
    return engine_with({"R": 4, "K": 2, "M": 2}, problem, data, name, mode, devices, aggregated=S, **options)


@functools.cache
def odd_engine(name: str, mode: str) -> Engine:
    """Other shapes: ten classes, clients of all sizes, three components of a mixture, S = 4 of 6."""
    problem, data = blobs(ODD, d=17, classes=10, hidden=HIDDEN.get(name, 0))
    return engine_with({"R": 7, "K": 3, "M": 3}, problem, data, name, mode, 2, aggregated=4)


def engine_with(
    given: dict[str, int], problem: Classifier, data: Federation, name: str, mode: str, devices: int, **options: Any
) -> Engine:
    preset = METHODS.find(name).preset
    own = {key: value for key, value in given.items() if key in keys(name) and key not in preset}
    placed = {"participation": mode, "devices": jax.devices()[:devices]}
    return engine_of(problem, make(name, **own), data, batch_size=8, **placed, **options)


def copy(tree: Any) -> Any:
    """A copy on the host: the engine reuses a state's memory for the next one."""
    return jax.tree.map(np.array, tree)


def host(tree: Any) -> list[np.ndarray]:
    return [np.array(x) for x in jax.tree.leaves(tree)]


def same(a: Any, b: Any) -> bool:
    left, right = host(a), host(b)
    return len(left) == len(right) and all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_mapped_over_clients_is_bit_equal_to_one_client_at_a_time(name: str, mode: str) -> None:
    check_one_at_a_time(engine(name, mode), 3)


@pytest.mark.parametrize(("name", "mode"), cases(QUICK + REST, pytest.mark.slow))
def test_so_it_is_for_other_shapes_and_more_rounds(name: str, mode: str) -> None:
    check_one_at_a_time(odd_engine(name, mode), 6)


def by_itself(e: Engine) -> Callable[[State, int], Any]:
    """(state, i) -> client i's part of the coming round as another process would run it: state, cursor, upload and info.

    What it receives is made by one program and its work is done by another, as on a deployed client.
    """

    @e.compiler
    def told(sent: State, i: jax.Array) -> Any:
        return message(e.algorithm_at(sent.values), sent.server, sent.seed, sent.round, i)

    @e.compiler
    def work(arrays: Any, samples: Samples, i: jax.Array, client: Any, cursor: Any, down: Any, sent: State) -> Any:
        algorithm, keys = e.algorithm_at(sent.values), keys_for(sent.seed, sent.round, i)
        return client_round(e.rebuild(arrays), algorithm, samples, i, e.batch_size, client, cursor, down, keys)

    def one_client(state: State, i: int) -> Any:
        outbox = e.algorithm_at(state.values).outbox(state.server)
        arrays, samples, local = jax.device_get((e.problem_arrays, e.samples, state._replace(server=outbox)))
        index, sent = jnp.asarray(i, jnp.int32), local._replace(clients=(), cursor=())
        return work(arrays, samples, index, row(local.clients, i), local.cursor[i], told(sent, index), sent)

    return one_client


def check_one_at_a_time(e: Engine, count: int) -> None:
    """The states, cursors and uploads of all clients, and the server's state, against each client's part by itself."""
    state, mode, clients = e.init(1), e.participation, range(e.federation.n_clients)
    one_client = by_itself(e)
    merge = jax.jit(lambda state, ups, ids, sizes: server_round(e.algorithm, state, ups, ids, sizes, "samples"))
    for t in range(count):
        before = copy(state)
        run, sizes = jax.random.wrap_key_data(before.seed), np.asarray(e.federation.train.size)
        drawn = find_selection(e.selection)(
            key_for(run, Purpose.SELECT, t), jnp.int32(t), jnp.asarray(sizes), e.aggregated
        )
        ids = np.sort(np.array(drawn))
        alone = {i: copy(one_client(state, i)) for i in clients}
        state, _ = e.step(state)
        after = copy(state)
        for i in clients:
            trained = mode == "all" or i in ids
            expected = alone[i][0] if trained else row(before.clients, i)
            assert same(row(after.clients, i), expected), f"client {i}, round {t}"
            assert after.cursor[i] == (alone[i][1] if trained else before.cursor[i])
        ups = jax.tree.map(lambda *x: np.stack(x), *[alone[i][2] for i in ids])
        assert same(merge(before, ups, ids.astype(np.int32), sizes[ids]), after.server), f"server, round {t}"


@pytest.mark.parametrize(("name", "mode"), DEVICES)
def test_devices_and_bytes_change_nothing(name: str, mode: str) -> None:
    """Any number of devices and a round trip through bytes before each round give the same bits."""

    def through_bytes(e: Engine) -> Any:
        place = e.placement
        return lambda state: place.from_host(unpack(load(to_bytes(place.to_host(state))), e.host_template()))

    def end(e: Engine, **options: Any) -> bytes:
        return to_bytes(e.placement.to_host(rounds(e, 3, **options)))

    one, two = engine(name, mode, 1), engine(name, mode, 2)
    reference = end(one)
    assert end(two) == reference
    assert end(two, between=through_bytes(two)) == reference
    assert end(two, seed=1) != reference


@pytest.mark.parametrize(("name", "mode"), CHUNKED)
def test_chunked_vmap_agrees(name: str, mode: str) -> None:
    plain, chunked = rounds(engine(name, mode), 3), rounds(engine(name, mode, clients_per_vmap=2), 3)
    for a, b in zip(host(plain.server), host(chunked.server), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(host(plain.clients), host(chunked.clients), strict=True):
        np.testing.assert_allclose(a[:N], b[:N], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_state_changes_stays_finite_and_models_have_the_right_shape(name: str, mode: str) -> None:
    e = engine(name, mode)
    start, end = copy(e.init(0)), copy(rounds(e, 3))
    assert all(np.isfinite(x).all() for x in host((end.server, end.clients)))
    lasting = bool(host(start.clients))
    shared = bool(host(start.server))
    assert lasting or shared
    if lasting:
        trained = end.cursor[:N] > 0
        for i in range(N):
            assert same(row(end.clients, i), row(start.clients, i)) == (not trained[i])
    if shared:
        assert not same(end.server, start.server)
    w0 = e.problem.init(jax.random.key(0))
    state: State = rounds(e, 1)
    w = e.algorithm.global_model(state.server)
    if w is not None:
        assert [x.shape for x in jax.tree.leaves(w)] == [x.shape for x in jax.tree.leaves(w0)]
    weights, models = Evaluator(e).personal_model(state, 1)
    assert np.isclose(float(np.sum(weights)), 1)
    assert [x.shape for x in jax.tree.leaves(models)] == [(len(weights), *x.shape) for x in jax.tree.leaves(w0)]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_join_gives_a_newcomer_its_state(name: str, mode: str) -> None:
    e = engine(name, mode)
    state = copy(rounds(e, 1))
    problem, data = blobs(seed=5, hidden=HIDDEN.get(name, 0))
    key = jax.random.key(3)
    down = e.algorithm.send(e.algorithm.outbox(state.server), None, key)
    joined = jax.jit(lambda d: e.algorithm.join(problem, d, view(data, 2), key))(down)
    if expected := host(row(state.clients, 0)):  # of a method whose clients keep nothing, a newcomer may keep something
        assert [x.shape for x in host(joined)] == [x.shape for x in expected]
    assert all(np.isfinite(x).all() for x in host(joined))
    weights, _ = jax.jit(lambda c, d: e.algorithm.personal_model(problem, c, d, view(data, 2), key))(joined, down)
    assert np.isclose(float(np.sum(weights)), 1)

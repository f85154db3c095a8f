"""A round, seen by one client and by the server. A deployed client trains with this file alone.

What a client does depends on what it received, its two keys (the order of its batches, for the whole run; this round's),
its cursor and its own state, and on nothing else: the same function is mapped over clients in a simulation and called once
per message by a client in another process.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedprior.core.method import Algorithm, Info, Mixture
from fedprior.core.problem import Problem
from fedprior.core.random import Purpose, key_for
from fedprior.core.vectors import Tree, Vector
from fedprior.data.federation import Samples
from fedprior.data.view import ClientData
from fedprior.engine.selection import Selection

WEIGHTS = ("samples", "uniform")


class State(NamedTuple):
    """Everything a run is, between two rounds."""

    round: Array  # rounds done
    seed: Array  # the run's key, as data
    server: Tree  # on the first device
    clients: Tree  # the method's states [N', ...], N' = N filled up to a multiple of the devices
    cursor: Any  # [N'] batches each client has drawn since the run began
    values: Tree = ()  # hyper-parameters that the compiled program takes as data: those of a sweep


class Keys(NamedTuple):
    """The randomness of one client in one round."""

    order: Array  # of its batches, the same in every round
    local: Array  # this round's


def server_start(problem: Problem, algorithm: Algorithm, seed: Array, n_clients: int) -> tuple[Vector, Tree]:
    """The model from which everyone starts, and the server's state before the first round."""
    run = jax.random.wrap_key_data(seed)
    w0 = problem.init(key_for(run, Purpose.INIT))
    return w0, algorithm.server(problem, w0, n_clients, key_for(run, Purpose.SERVER))


def client_start(algorithm: Algorithm, w0: Vector, seed: Array, i: Array) -> Tree:
    """The state of client i before the first round."""
    return algorithm.client(w0, key_for(jax.random.wrap_key_data(seed), Purpose.CLIENT, i))


def chosen(select: Selection, seed: Array, t: Array, sizes: Array, aggregated: int) -> Array:
    """The clients whose uploads are merged in round t, in ascending order."""
    key = key_for(jax.random.wrap_key_data(seed), Purpose.SELECT, t)
    return jnp.sort(select(key, t, sizes, aggregated)).astype(jnp.int32)


def keys_for(seed: Array, t: Array, i: Array) -> Keys:
    """The keys of client i in round t of the run with this seed."""
    run = jax.random.wrap_key_data(seed)
    return Keys(key_for(run, Purpose.BATCHES, i), key_for(run, Purpose.LOCAL, t, i))


def message(algorithm: Algorithm, outbox: Tree, seed: Array, t: Array, i: Array) -> Tree:
    """What the server sends to client i in round t."""
    return algorithm.send(outbox, i, key_for(jax.random.wrap_key_data(seed), Purpose.SEND, t, i))


class JoinKeys(NamedTuple):
    """The randomness of one newcomer."""

    send: Array  # of what it receives
    order: Array  # of its batches
    join: Array
    model: Array  # of its personal model


def join_keys(seed: Array, t: Array, number: Array) -> JoinKeys:
    """The keys of the newcomer of this number after round t."""
    return JoinKeys(*jax.random.split(key_for(jax.random.wrap_key_data(seed), Purpose.JOIN, t, number), 4))


def welcome(algorithm: Algorithm, outbox: Tree, keys: JoinKeys) -> Tree:
    """What the server sends to a newcomer."""
    return lax.optimization_barrier(algorithm.send(outbox, None, keys.send))


def client_join(problem: Problem, algorithm: Algorithm, down: Tree, data: ClientData, keys: JoinKeys) -> Tree:
    """The state of a newcomer, from what it received and its own samples."""
    return lax.optimization_barrier(algorithm.join(problem, down, data, keys.join))


def client_round(
    problem: Problem,
    algorithm: Algorithm,
    samples: Samples,
    at: Array | int,
    batch_size: int,
    client: Tree,
    cursor: Array,
    down: Tree,
    keys: Keys,
) -> tuple[Tree, Array, Tree, Info]:
    """One client's part of a round -> its new state, cursor, upload and diagnostics.

    ``at``: which of the clients in ``samples`` it is; a deployed client holds its own samples alone, at 0.
    """
    data = ClientData(samples, at, batch_size, keys.order, cursor)
    # The barriers keep the compiler from fusing a client's mathematics with its surroundings, which could change bits.
    client, down = lax.optimization_barrier((client, down))
    client, up, info = lax.optimization_barrier(algorithm.local(problem, client, down, data, keys.local))
    return client, cursor + data.drawn, up, info


def evaluation_key(seed: Array, t: Array, i: Array) -> Array:
    """The key with which client i makes its personal model after round t."""
    return key_for(jax.random.wrap_key_data(seed), Purpose.EVALUATE, t, i)


def client_model(
    problem: Problem,
    algorithm: Algorithm,
    samples: Samples,
    at: Array | int,
    batch_size: int,
    client: Tree,
    down: Tree,
    order: Array,
    key: Array,
) -> Mixture:
    """A client's personal model; it may draw training batches, from a stream of evaluation's own.

    ``order``: the key of the client's batches in training, so that its samples are split as they were there.
    """
    data = ClientData(samples, at, batch_size, key, 0, split_key=order)
    return algorithm.personal_model(problem, client, down, data, key)


def server_round(algorithm: Algorithm, state: State, ups: Tree, ids: Array, sizes: Array, weights: str) -> Tree:
    """The server's part of a round: uploads [S, ...] of clients ids [S] with sizes [S] -> its new state."""
    key = key_for(jax.random.wrap_key_data(state.seed), Purpose.MERGE, state.round)
    share = sizes.astype(jnp.result_type(float)) if weights == "samples" else jnp.ones(sizes.shape)
    server, ups, share = lax.optimization_barrier((state.server, ups, share / jnp.sum(share)))
    return lax.optimization_barrier(algorithm.merge(server, ups, share, ids, key))

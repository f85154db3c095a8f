"""The parts of a round that the server and a site run, compiled: the same functions that a simulation maps over clients."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.core.method import Mixture, single
from fedprior.core.vectors import Tree, Vector
from fedprior.data.federation import Samples
from fedprior.engine.evaluate import Sums, everything, measure
from fedprior.engine.metrics import measured
from fedprior.engine.round import (
    State,
    chosen,
    client_model,
    client_round,
    client_start,
    evaluation_key,
    keys_for,
    message,
    server_round,
    server_start,
)
from fedprior.engine.selection import find_selection
from fedprior.study.program import Program


def seed_data(seed: int) -> np.ndarray:
    """The run's key, as data."""
    return np.asarray(jax.random.key_data(jax.random.key(seed)))


class Programs:
    """What is compiled of a program, and the shapes of what travels.

    ``batch_size``: the length of a batch, which all sites share and which depends on the largest of them (None: as the
    program's own federation has it, which is the server's).
    """

    def __init__(self, program: Program, n_clients: int, batch_size: int | None = None):
        self.program, self.algorithm, self.n_clients = program, program.algorithm_at({}), n_clients
        self.problem, self.protocol = program.task.problem, program.protocol
        self.aggregated = program.protocol.aggregated or n_clients
        self.batch_size = program.batch_size if batch_size is None else batch_size
        self.trains_all = program.engine.participation == "all"
        self.metrics, self.compiler = measured(self.protocol.metrics), program.engine.compiler
        self._arrays = eqx.filter(self.problem, eqx.is_array)

    def with_problem(self, function: Any) -> Any:
        """A compiled function of the problem and more, which takes the problem's arrays as an argument."""
        rest = eqx.filter(self.problem, eqx.is_array, inverse=True)
        compiled = self.compiler(lambda arrays, *more: function(eqx.combine(arrays, rest), *more))
        return lambda *more: compiled(self._arrays, *more)

    # -- the server's ----------------------------------------------------------------------------------------------------

    def start(self, seed: np.ndarray) -> State:
        """The server before the first round."""
        server = self.with_problem(lambda p, s: server_start(p, self.algorithm, s, self.n_clients)[1])(seed)
        return State(jnp.zeros((), jnp.int32), jnp.asarray(seed), jax.device_get(server), (), ())

    @cached_property
    def choose(self) -> Any:
        """(state, sizes) -> the clients whose uploads are merged, in ascending order."""
        select = find_selection(self.protocol.selection)
        return self.compiler(lambda state, sizes: chosen(select, state.seed, state.round, sizes, self.aggregated))

    @cached_property
    def _message(self) -> Any:
        return self.compiler(lambda outbox, seed, t, i: message(self.algorithm, outbox, seed, t, i))

    def down(self, state: State, i: int) -> Tree:
        """What client i receives."""
        return self._message(self.algorithm.outbox(state.server), state.seed, state.round, np.int32(i))

    @cached_property
    def merge(self) -> Any:
        """(state, uploads [S, ...], ids [S], sizes [N]) -> the state after the round."""

        def merged(state: State, ups: Tree, ids: Array, sizes: Array) -> State:
            server = server_round(self.algorithm, state, ups, ids, sizes[ids], self.protocol.weights)
            return state._replace(round=state.round + 1, server=server)

        return self.compiler(merged)

    def shared(self, state: State) -> Vector | None:
        """The global model, or None."""
        return self.algorithm.global_model(state.server)

    # -- a site's --------------------------------------------------------------------------------------------------------

    @cached_property
    def client_start(self) -> Any:
        """(seed, i) -> client i's state and cursor before the first round."""

        def begin(problem: Any, seed: Array, i: Array) -> tuple[Tree, Array]:
            w0, _ = server_start(problem, self.algorithm, seed, self.n_clients)
            return client_start(self.algorithm, w0, seed, i), jnp.zeros((), jnp.int32)

        return self.with_problem(begin)

    @cached_property
    def local(self) -> Any:
        """(samples, client, cursor, down, seed, t, i) -> client, cursor, upload, diagnostics."""

        def train(
            problem: Any, samples: Samples, client: Tree, cursor: Array, down: Tree, seed: Array, t: Array, i: Array
        ) -> Any:
            keys = keys_for(seed, t, i)
            return client_round(problem, self.algorithm, samples, 0, self.batch_size, client, cursor, down, keys)

        return self.with_problem(train)

    @cached_property
    def model(self) -> Any:
        """(samples, client, down, seed, t, i) -> client i's personal model after round t."""
        return self.with_problem(self._model)

    def _model(
        self, problem: Any, samples: Samples, client: Tree, down: Tree, seed: Array, t: Array, i: Array
    ) -> Mixture:
        order, key = keys_for(seed, t, i).order, evaluation_key(seed, t, i)
        return client_model(problem, self.algorithm, samples, 0, self.batch_size, client, down, order, key)

    @cached_property
    def score(self) -> Any:
        """(train, test, client, down, global model, seed, t, i) -> every metric's sums on the site's own test samples."""
        return self.with_problem(self._sums)

    def _sums(
        self,
        problem: Any,
        train: Samples,
        test: Samples,
        client: Tree,
        down: Tree,
        shared: Vector | None,
        seed: Array,
        t: Array,
        i: Array,
    ) -> Sums:
        models = {"personal": self._model(problem, train, client, down, seed, t, i)}
        if shared is not None:
            models["global"] = single(shared)
        return measure(self.metrics, problem, models, everything(test, 0))

    # -- the shapes of what travels and of what is kept -------------------------------------------------------------------

    @cached_property
    def like(self) -> dict[str, Any]:
        """The shapes and types of: state, down, shared (model), client (with its cursor), up, info, sums."""
        train = self.program.task.federation.train
        one = Samples(train.x, train.y, jnp.asarray(train.start)[:1], jnp.asarray(train.size)[:1])

        def everything_once(seed: Array) -> dict[str, Any]:
            t = i = jnp.zeros((), jnp.int32)
            w0, server = server_start(self.problem, self.algorithm, seed, self.n_clients)
            down = message(self.algorithm, self.algorithm.outbox(server), seed, t, i)
            client, shared = client_start(self.algorithm, w0, seed, i), self.algorithm.global_model(server)
            _, _, up, info = client_round(
                self.problem, self.algorithm, one, 0, self.batch_size, client, t, down, keys_for(seed, t, i)
            )
            sums = self._sums(self.problem, one, one, client, down, shared, seed, t, i)
            own = {"client": client, "cursor": t}
            state = State(t, seed, server, (), ())
            return {"state": state, "down": down, "shared": shared, "client": own, "up": up, "info": info, "sums": sums}

        return jax.eval_shape(everything_once, seed_data(0))

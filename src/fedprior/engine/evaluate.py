"""The evaluation grid: {global, personal, fine-tuned} x {own, pooled, validation} x {weighted, mean, worst decile}.

It reads states and never writes them.

- fine-tuned: the personal models after further steps, where these are scored besides.
- own: each client's model on that client's own test samples; pooled: on the union of all clients' test samples;
  validation: on that client's own validation samples, where there are any.
- weighted: by the client's number of samples; mean: every client counts the same; worst decile: the mean over the tenth
  of the clients that fare worst (at least one client). For a metric that is no mean over samples, such as F1, weighted is
  its value on all clients' predictions together.

The global model on pooled data is one model on one set: its three averages coincide. A personal model may be a mixture;
it predicts with the mixture's probabilities.

Newcomers were held out of training. Each joins the finished federation with what the server sends to anyone and its own
training samples; `newcomer` is the personal model that it then has, `newcomer-global` the global model, on its own test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec as P

from fedprior.core.batch import SAMPLES_PER_STEP, Batch
from fedprior.core.method import Algorithm, Mixture, single
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector, row
from fedprior.data.federation import Federation, Samples
from fedprior.data.view import ClientData
from fedprior.engine.engine import Engine
from fedprior.engine.metrics import Metric, measured
from fedprior.engine.placement import CLIENTS, Placement
from fedprior.engine.round import (
    State,
    client_join,
    client_model,
    evaluation_key,
    join_keys,
    keys_for,
    message,
    welcome,
)
from fedprior.engine.score import Score
from fedprior.errors import FedpriorError
from fedprior.models.classifier import log_probabilities
from fedprior.records.schema import FINE_TUNED, NEWCOMERS

Sums = dict[str, dict[str, Tree]]  # model -> metric -> its statistic


class Evaluator:
    """Scores the states of one engine on the federation's test samples (or on the validation samples).

    ``newcomers``: clients held out of training, who join only to be scored on their own test samples. ``tuned``: the
    algorithm with further steps of the personal models, which are then scored on own samples besides.
    """

    def __init__(
        self,
        engine: Engine,
        data: str = "test",
        newcomers: Federation | None = None,
        metrics: Sequence[str] | None = None,
        tuned: Callable[[Tree], Algorithm] | None = None,
    ):
        self.engine, self.data, self.joining, self.tuned = engine, data, newcomers, tuned
        self.metrics = measured(metrics)
        if getattr(engine.federation, data) is None:
            raise FedpriorError("the federation has no validation samples; give a validation fraction above 0")

    def own(self, state: State) -> dict[str, Score]:
        """Every client's personal model, and the global model where there is one, on each client's own samples."""
        e = self.engine
        sums = self._own(self._seen(state), e.global_model(state), e.problem_arrays, e.samples, self._samples)
        return {model: self._score(of, self.count) for model, of in sums.items()}

    def pooled(self, state: State) -> dict[str, Score]:
        """Every client's personal model on the union of all samples: N times the cost of ``own``."""
        sums = self._pooled(self._seen(state), self.engine.problem_arrays, self.engine.samples, self._samples)
        return {model: self._score(of, np.full_like(self.count, self.count.sum())) for model, of in sums.items()}

    def newcomers(self, state: State) -> dict[str, Score]:
        """Each newcomer's personal model after it joined, and the global model where there is one, on its own samples."""
        sent, shared = self.engine.sent(state), self.engine.global_model(state)  # nothing of other clients
        sums = self._new(sent, shared, self.engine.problem_arrays, self._held_out)
        return {model: self._score(of, np.asarray(self._held_out[1].size)) for model, of in sums.items()}

    def personal_model(self, state: State, i: int) -> Mixture:
        """One client's personal model."""
        arrays, train, state = jax.device_get((self.engine.problem_arrays, self.engine.samples, state))
        outbox = self.engine.algorithm_at(state.values).outbox(state.server)
        sent = state._replace(server=outbox, clients=(), cursor=())
        return self._model(arrays, train, sent, jnp.asarray(i, jnp.int32), row(state.clients, i))

    def newcomer_model(self, state: State, i: int) -> Mixture:
        """The personal model of the i-th newcomer after it joined, as it is scored."""
        assert self.joining is not None
        arrays, train, state = jax.device_get((self.engine.problem_arrays, self._held_out[0], state))
        outbox = self.engine.algorithm_at(state.values).outbox(state.server)
        sent = state._replace(server=outbox, clients=(), cursor=())
        return self._join(arrays, train, sent, jnp.asarray(i, jnp.int32), jnp.asarray(self.joining.numbers[i]))

    # -- what lies on the devices, and the programs ------------------------------------------------------------------------

    @cached_property
    def count(self) -> np.ndarray:
        """Samples of each client [N]."""
        return np.asarray(getattr(self.engine.federation, self.data).size)

    @cached_property
    def _samples(self) -> Samples:
        return self.engine.federation.placed(self.data, self.engine.placement.same)

    @cached_property
    def _held_out(self) -> tuple[Samples, Samples, Array]:
        assert self.joining is not None
        same = self.engine.placement.same
        train, test = (self.joining.placed(part, same) for part in ("train", "test"))
        return train, test, self.engine.placement.replicate(self.joining.numbers)

    @cached_property
    def _joining_placement(self) -> Placement:
        assert self.joining is not None
        placement = self.engine.placement
        return Placement(self.joining.n_clients, placement.devices, placement.clients_per_vmap)

    @cached_property
    def _own(self) -> Any:
        specs = (_BY_CLIENT, P(), P(), P(), P())
        return self.engine.compiler(self.engine.placement.shard_map(self._score_own, specs, P(CLIENTS)))

    @cached_property
    def _pooled(self) -> Any:
        specs = (_BY_CLIENT, P(), P(), P())
        return self.engine.compiler(self.engine.placement.shard_map(self._score_pooled, specs, P(CLIENTS)))

    @cached_property
    def _new(self) -> Any:
        return self.engine.compiler(self._joining_placement.shard_map(self._score_newcomers, P(), P(CLIENTS)))

    @cached_property
    def _model(self) -> Any:
        def model(arrays: Any, train: Samples, sent: State, i: Array, client: Tree) -> Mixture:
            return self._personal(self.engine.rebuild(arrays), sent, train, i, client)

        return self.engine.compiler(model)

    @cached_property
    def _join(self) -> Any:
        def join(arrays: Any, train: Samples, sent: State, i: Array, number: Array) -> Mixture:
            return self._joined(self.engine.rebuild(arrays), sent, train, i, number)

        return self.engine.compiler(join)

    def _seen(self, state: State) -> State:
        """The state as the devices see it."""
        return self.engine.sent(state)._replace(clients=state.clients, cursor=state.cursor)

    def _score(self, sums: dict[str, Tree], count: np.ndarray) -> Score:
        """Per-client sums without the idle slots, whole numbers as they are and others in double precision."""

        def trim(x: Array) -> np.ndarray:
            host = np.asarray(x)[: len(count)]
            return host if np.issubdtype(host.dtype, np.integer) else host.astype(np.float64)

        names = tuple(map(str, self.engine.federation.classes))
        return Score(jax.tree.map(trim, sums), count, names)

    # -- run once per device -------------------------------------------------------------------------------------------

    def _personal(
        self,
        problem: Problem,
        sent: State,
        train: Samples,
        i: Array,
        client: Tree,
        at: Callable[[Tree], Algorithm] | None = None,
    ) -> Mixture:
        """Client i's personal model after the round, as the engine's algorithm or another one makes it."""
        algorithm = (at or self.engine.algorithm_at)(sent.values)
        down = message(algorithm, sent.server, sent.seed, sent.round, i)
        order, key = keys_for(sent.seed, sent.round, i).order, evaluation_key(sent.seed, sent.round, i)
        return client_model(problem, algorithm, train, i, self.engine.batch_size, client, down, order, key)

    def _joined(self, problem: Problem, sent: State, train: Samples, i: Array, number: Array) -> Mixture:
        """Newcomer i's personal model, from what the server sends to anyone and its own samples."""
        algorithm, keys = self.engine.algorithm_at(sent.values), join_keys(sent.seed, sent.round, number)
        down = welcome(algorithm, sent.server, keys)
        data = ClientData(train, i, self.engine.batch_size, keys.order, 0)
        client = client_join(problem, algorithm, down, data, keys)
        return algorithm.personal_model(problem, client, down, data, keys.model)

    def _score_own(self, state: State, shared: Vector | None, arrays: Any, train: Samples, test: Samples) -> Sums:
        problem = self.engine.rebuild(arrays)

        def score(i: Array, client: Tree) -> Sums:
            models = {"personal": self._personal(problem, state, train, i, client)}
            if self.tuned is not None:
                models[FINE_TUNED] = self._personal(problem, state, train, i, client, self.tuned)
            if shared is not None:
                models["global"] = single(shared)
            return measure(self.metrics, problem, models, everything(test, i))

        return self.engine.placement.map_block(score, state.clients)

    def _score_pooled(self, state: State, arrays: Any, train: Samples, test: Samples) -> Sums:
        problem = self.engine.rebuild(arrays)
        together = Samples(test.x, test.y, jnp.zeros((1,), jnp.int32), jnp.sum(test.size)[None])
        samples = everything(together, 0)

        def score(i: Array, client: Tree) -> Sums:
            personal = self._personal(problem, state, train, i, client)
            return measure(self.metrics, problem, {"personal": personal}, samples)

        return self.engine.placement.map_block(score, state.clients)

    def _score_newcomers(
        self, sent: State, shared: Vector | None, arrays: Any, held_out: tuple[Samples, Samples, Array]
    ) -> Sums:
        problem, (train, test, numbers) = self.engine.rebuild(arrays), held_out

        def score(i: Array) -> Sums:
            models = {NEWCOMERS[0]: self._joined(problem, sent, train, i, numbers[i])}
            if shared is not None:
                models[NEWCOMERS[1]] = single(shared)
            return measure(self.metrics, problem, models, everything(test, i))

        return self._joining_placement.map_block(score)


_BY_CLIENT = State(P(), P(), P(), P(CLIENTS), P(CLIENTS), P())  # type: ignore[arg-type]


def measure(metrics: Mapping[str, Metric], problem: Problem, models: Mapping[str, Mixture], data: ClientData) -> Sums:
    """Every metric's statistic of each model, summed over all of one client's samples."""

    def statistics(batch: Batch) -> Sums:
        log_p = {model: log_probabilities(problem, mixture, batch.x) for model, mixture in models.items()}
        return {
            model: {name: metric.statistic(p, batch) for name, metric in metrics.items()} for model, p in log_p.items()
        }

    shapes = jax.eval_shape(lambda: statistics(data.batch(jnp.zeros((SAMPLES_PER_STEP,), jnp.int32))))
    start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return data.fold(lambda sums, batch: jax.tree.map(jnp.add, sums, statistics(batch)), start)


def everything(samples: Samples, i: Array | int) -> ClientData:
    """One client's samples, to be passed over once."""
    return ClientData(samples, i, SAMPLES_PER_STEP, jax.random.key(0), 0)

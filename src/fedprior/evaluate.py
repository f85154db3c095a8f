"""The evaluation grid: {global, personal} x {own, pooled} x {weighted, mean, worst decile}. Reads states, never writes.

- own: each client's model on that client's own samples; pooled: on the union of all clients' samples.
- weighted: by the client's number of samples; mean: every client counts the same; worst decile: the mean over the tenth
  of the clients that fare worst (at least one client).

The global model on pooled data is one model on one set: its three averages coincide. A personal model may be a mixture;
it predicts with the mixture's probabilities.

Newcomers were held out of training. Each joins the finished federation with what the server sends to anyone and its own
training samples; `newcomer` is the personal model that it then has, `newcomer-global` the global model, on its own test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from fedprior.data.clients import CHUNK, ClientData, Federation, Samples
from fedprior.engine import CLIENTS, Engine, Fleet, State
from fedprior.errors import FedpriorError
from fedprior.method import Batch, Mixture, Problem, single
from fedprior.streams import Stream, stream
from fedprior.vectors import Tree, Vector, row

AVERAGES = ("weighted", "mean", "worst_decile")
NEWCOMERS = ("newcomer", "newcomer-global")  # the models of clients that join after training
Sums = dict[str, tuple[Array, Array]]  # model -> correct predictions and summed loss


@dataclass(frozen=True)
class Score:
    """How each client's model did: one row per client, values as sums so that any average can be taken later."""

    correct: np.ndarray  # [N]
    loss: np.ndarray  # [N] summed loss
    count: np.ndarray  # [N] samples

    @property
    def accuracy(self) -> np.ndarray:
        """Per-client accuracy in percent [N]."""
        return 100.0 * self.correct / np.maximum(self.count, 1)

    @property
    def mean_loss(self) -> np.ndarray:
        """Per-client mean loss [N]."""
        return self.loss / np.maximum(self.count, 1)


def averages(value: np.ndarray, count: np.ndarray, worst_is_low: bool = True) -> dict[str, float]:
    """The three averages of a per-client value.

    >>> averages(np.array([50.0, 100.0]), np.array([30, 10]))
    {'weighted': 62.5, 'mean': 75.0, 'worst_decile': 50.0}
    """
    value, count = value[count > 0], count[count > 0]  # a client too small to have a validation sample
    order = np.sort(value) if worst_is_low else -np.sort(-value)
    return {
        "weighted": float(np.average(value, weights=count)),
        "mean": float(np.mean(value)),
        "worst_decile": float(np.mean(order[: max(1, len(value) // 10)])),
    }


def _predict(problem: Problem, mixture: Mixture, batch: Batch) -> tuple[Array, Array]:
    """Number of correct predictions and summed loss of a mixture on a batch."""
    weights, models = mixture
    parts = [
        jnp.log(weights[m]) + jax.nn.log_softmax(problem.logits(row(models, m), batch.x)) for m in range(len(weights))
    ]
    log_p = parts[0] if len(parts) == 1 else jax.nn.logsumexp(jnp.stack(parts), axis=0)
    hit = (jnp.argmax(log_p, axis=1) == batch.y) * batch.mask
    nll = -jnp.take_along_axis(log_p, batch.y[:, None], axis=1)[:, 0]
    return jnp.sum(hit).astype(jnp.int32), jnp.sum(jnp.where(batch.mask > 0, nll, 0))


def _count_hits(problem: Problem, models: dict[str, Mixture], data: ClientData) -> Sums:
    """What each model gets right on all of one client's samples, and its summed loss."""
    return data.fold(
        lambda sums, batch: jax.tree.map(
            jnp.add, sums, {model: _predict(problem, mixture, batch) for model, mixture in models.items()}
        ),
        {model: (jnp.zeros((), jnp.int32), jnp.zeros(())) for model in models},
    )


def _everything(samples: Samples, i: Array | int) -> ClientData:
    """One client's samples, to be passed over once."""
    return ClientData(samples, i, CHUNK, jax.random.key(0), 0)


def _score(sums: tuple[Array, Array], count: np.ndarray) -> Score:
    """Per-client sums without the idle places."""
    correct, loss = sums
    return Score(np.asarray(correct)[: len(count)], np.asarray(loss, np.float64)[: len(count)], count)


class Evaluator:
    """Scores the states of one engine on the federation's test samples (or on the validation samples).

    ``newcomers``: clients held out of training, who join only to be scored on their own test samples.
    """

    def __init__(self, engine: Engine, data: str = "test", newcomers: Federation | None = None):
        self.engine = engine
        samples = {"test": engine.federation.test, "validation": engine.federation.validation}[data]
        if samples is None:
            raise FedpriorError("the federation has no validation samples; give a validation fraction above 0")
        self.count = np.asarray(samples.size)
        self._samples = engine.federation.placed(data, engine.fleet.same)
        spec = State(P(), P(), P(), P(CLIENTS), P(CLIENTS))  # type: ignore[arg-type]
        fleet = engine.fleet
        self._own = jax.jit(
            fleet.shard_map(self._score_own, in_specs=(spec, P(), P(), P(), P()), out_specs=P(CLIENTS)),
        )
        self._pooled = jax.jit(
            fleet.shard_map(self._score_pooled, in_specs=(spec, P(), P(), P()), out_specs=P(CLIENTS)),
        )
        if newcomers is not None:
            self._joining = Fleet(newcomers.n_clients, fleet.devices, fleet.chunk)
            train, test = (newcomers.placed(part, fleet.same) for part in ("train", "test"))
            self._held_out = (train, test, fleet.replicate(newcomers.numbers))
            self._new = jax.jit(
                self._joining.shard_map(self._score_newcomers, in_specs=P(), out_specs=P(CLIENTS)),
            )

    def own(self, state: State) -> dict[str, Score]:
        """Every client's personal model, and the global model where there is one, on each client's own samples."""
        found = self._own(
            self._seen(state),
            self.engine.shared_model(state),
            self.engine.problem_arrays,
            self.engine.samples,
            self._samples,
        )
        return {model: _score(sums, self.count) for model, sums in found.items()}

    def pooled(self, state: State) -> dict[str, Score]:
        """Every client's personal model on the union of all samples: N times the cost of ``own``."""
        found = self._pooled(self._seen(state), self.engine.problem_arrays, self.engine.samples, self._samples)
        return {model: _score(sums, np.full_like(self.count, self.count.sum())) for model, sums in found.items()}

    def newcomers(self, state: State) -> dict[str, Score]:
        """Each newcomer's personal model after it joined, and the global model where there is one, on its own samples."""
        sent, shared = self.engine.sent(state), self.engine.shared_model(state)  # nothing of other clients
        found = self._new(sent, shared, self.engine.problem_arrays, self._held_out)
        return {model: _score(sums, np.asarray(self._held_out[1].size)) for model, sums in found.items()}

    def personal_model(self, state: State, i: int) -> Mixture:
        """One client's personal model."""
        arrays, train, state = jax.device_get((self.engine.problem_arrays, self.engine.samples, state))

        state = state._replace(server=self.engine.method.outbox(state.server))

        def model(arrays: Any, train: Samples, state: State, i: Array, client: Tree) -> Mixture:
            return self._personal(self.engine.rebuild(arrays), state, train, i, client)

        return jax.jit(model)(arrays, train, state, jnp.asarray(i, jnp.int32), row(state.clients, i))

    def _seen(self, state: State) -> State:
        """The state as the devices see it."""
        return self.engine.sent(state)._replace(clients=state.clients, cursor=state.cursor)

    # -- the compiled parts, run once per device -----------------------------------------------------------------------

    def _personal(self, problem: Problem, state: State, train: Samples, i: Array, client: Tree) -> Mixture:
        """Client i's personal model after the round; it may draw training batches from a stream of evaluation's own."""
        run, method = jax.random.wrap_key_data(state.seed), self.engine.method
        down = method.send(state.server, i, stream(run, Stream.SEND, state.round, i))
        key = stream(run, Stream.EVALUATE, state.round, i)
        data = ClientData(train, i, self.engine.batch_size, key, 0)
        return method.personal_model(problem, client, down, data, key)

    def _joined(self, problem: Problem, state: State, train: Samples, i: Array, number: Array) -> Mixture:
        """Newcomer i's personal model, from what the server sends to anyone and its own samples."""
        run, method = jax.random.wrap_key_data(state.seed), self.engine.method
        sending, batches, joining, testing = jax.random.split(stream(run, Stream.JOIN, state.round, number), 4)
        down = lax.optimization_barrier(method.send(state.server, None, sending))
        data = ClientData(train, i, self.engine.batch_size, batches, 0)
        client = lax.optimization_barrier(method.join(problem, down, data, joining))
        return method.personal_model(problem, client, down, data, testing)

    def _score_own(self, state: State, shared: Vector | None, arrays: Any, train: Samples, test: Samples) -> Sums:
        problem = self.engine.rebuild(arrays)

        def score(i: Array, client: Tree) -> Sums:
            models = {"personal": self._personal(problem, state, train, i, client)}
            if shared is not None:
                models["global"] = single(shared)
            return _count_hits(problem, models, _everything(test, i))

        return _map(score, self.engine.fleet, state.clients)

    def _score_pooled(self, state: State, arrays: Any, train: Samples, test: Samples) -> Sums:
        problem = self.engine.rebuild(arrays)
        together = Samples(test.x, test.y, jnp.zeros((1,), jnp.int32), jnp.sum(test.size)[None])
        samples = _everything(together, 0)

        def score(i: Array, client: Tree) -> Sums:
            return _count_hits(problem, {"personal": self._personal(problem, state, train, i, client)}, samples)

        return _map(score, self.engine.fleet, state.clients)

    def _score_newcomers(
        self, state: State, shared: Vector | None, arrays: Any, held_out: tuple[Samples, Samples, Array]
    ) -> Sums:
        problem, (train, test, numbers) = self.engine.rebuild(arrays), held_out

        def score(i: Array) -> Sums:
            models = {NEWCOMERS[0]: self._joined(problem, state, train, i, numbers[i])}
            if shared is not None:
                models[NEWCOMERS[1]] = single(shared)
            return _count_hits(problem, models, _everything(test, i))

        return _map(score, self._joining)


def _map(score: Callable[..., Sums], fleet: Fleet, *stacked: Tree) -> Sums:
    """On one device: score(i, entry i of ``stacked``) for each client of its block."""
    first = lax.axis_index(CLIENTS) * fleet.block
    ids = jnp.minimum(first + jnp.arange(fleet.block), fleet.n_clients - 1)
    batch_size = None if fleet.chunk == 1 else fleet.chunk
    return lax.map(lambda each: score(*each), (ids, *stacked), batch_size=batch_size)

"""The evaluation grid: {global, personal} x {own, pooled} x {weighted, mean, worst decile}. Reads states, never writes.

- own: each client's model on that client's own samples; pooled: on the union of all clients' samples.
- weighted: by the client's number of samples; mean: every client counts the same; worst decile: the mean over the tenth
  of the clients that fare worst (at least one client).

The global model on pooled data is one model on one set: its three averages coincide. A personal model may be a mixture;
it predicts with the mixture's probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from fedprior.data.clients import CHUNK, ClientData, Samples
from fedprior.engine import CLIENTS, Engine, State
from fedprior.errors import FedpriorError
from fedprior.method import Batch, Mixture, Problem, single
from fedprior.streams import Stream, stream
from fedprior.vectors import Tree, row

AVERAGES = ("weighted", "mean", "worst_decile")


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


class Evaluator:
    """Scores the states of one engine on the federation's test samples (or on the validation samples)."""

    def __init__(self, engine: Engine, data: str = "test"):
        self.engine = engine
        samples = {"test": engine.federation.test, "validation": engine.federation.validation}[data]
        if samples is None:
            raise FedpriorError("the federation has no validation samples; give a validation fraction above 0")
        self.count = np.asarray(samples.size)
        self._samples = engine.fleet.replicate(Samples(*samples))
        spec = State(P(), P(), P(), P(CLIENTS), P(CLIENTS))  # type: ignore[arg-type]
        fleet = engine.fleet
        self._own = jax.jit(
            fleet.shard_map(self._score_own, in_specs=(spec, P(), P(), P()), out_specs=P(CLIENTS)),
        )
        self._pooled = jax.jit(
            fleet.shard_map(self._score_pooled, in_specs=(spec, P(), P(), P()), out_specs=P(CLIENTS)),
        )

    def own(self, state: State) -> dict[str, Score]:
        """Every client's personal model, and the global model where there is one, on each client's own samples."""
        found = self._own(state, self.engine._arrays, self.engine.samples, self._samples)
        return {model: self._score(sums, self.count) for model, sums in found.items()}

    def pooled(self, state: State) -> dict[str, Score]:
        """Every client's personal model on the union of all samples: N times the cost of ``own``."""
        found = self._pooled(state, self.engine._arrays, self.engine.samples, self._samples)
        return {model: self._score(sums, np.full_like(self.count, self.count.sum())) for model, sums in found.items()}

    def personal_model(self, state: State, i: int) -> Mixture:
        """One client's personal model."""
        arrays, train, state = jax.device_get((self.engine._arrays, self.engine.samples, state))

        def model(arrays: Any, train: Samples, state: State, i: Array, client: Tree) -> Mixture:
            return self._personal(eqx.combine(arrays, self.engine._static), state, train, i, client)

        return jax.jit(model)(arrays, train, state, jnp.asarray(i, jnp.int32), row(state.clients, i))

    def _score(self, sums: tuple[Array, Array], count: np.ndarray) -> Score:
        (correct, loss), n = sums, self.engine.fleet.n_clients
        return Score(np.asarray(correct)[:n], np.asarray(loss, np.float64)[:n], count)

    # -- the compiled parts, run once per device -----------------------------------------------------------------------

    def _personal(self, problem: Problem, state: State, train: Samples, i: Array, client: Tree) -> Mixture:
        """Client i's personal model after the round; it may draw training batches from a stream of evaluation's own."""
        run, method = jax.random.wrap_key_data(state.seed), self.engine.method
        down = method.send(state.server, i, stream(run, Stream.SEND, state.round, i))
        key = stream(run, Stream.EVALUATE, state.round, i)
        data = ClientData(train, i, self.engine.batch_size, key, 0)
        return method.personal_model(problem, client, down, data, key)

    def _score_own(self, state: State, arrays: Any, train: Samples, test: Samples) -> dict[str, tuple[Array, Array]]:
        problem = eqx.combine(arrays, self.engine._static)
        shared = self.engine.method.global_model(state.server)

        def score(i: Array, client: Tree) -> dict[str, tuple[Array, Array]]:
            models = {"personal": self._personal(problem, state, train, i, client)}
            if shared is not None:
                models["global"] = single(shared)
            samples = ClientData(test, i, CHUNK, jax.random.key(0), 0)
            zero = {model: (jnp.zeros((), jnp.int32), jnp.zeros(())) for model in models}
            return samples.fold(
                lambda acc, batch: jax.tree.map(
                    jnp.add, acc, {model: _predict(problem, mixture, batch) for model, mixture in models.items()}
                ),
                zero,
            )

        return self._map(score, state)

    def _score_pooled(self, state: State, arrays: Any, train: Samples, test: Samples) -> dict[str, tuple[Array, Array]]:
        problem = eqx.combine(arrays, self.engine._static)
        everything = Samples(test.x, test.y, jnp.zeros((1,), jnp.int32), jnp.sum(test.size)[None])
        samples = ClientData(everything, 0, CHUNK, jax.random.key(0), 0)

        def score(i: Array, client: Tree) -> dict[str, tuple[Array, Array]]:
            mixture = self._personal(problem, state, train, i, client)
            return {
                "personal": samples.fold(
                    lambda acc, batch: jax.tree.map(jnp.add, acc, _predict(problem, mixture, batch)),
                    (jnp.zeros((), jnp.int32), jnp.zeros(())),
                )
            }

        return self._map(score, state)

    def _map(self, score: Any, state: State) -> dict[str, tuple[Array, Array]]:
        fleet = self.engine.fleet
        first = lax.axis_index(CLIENTS) * fleet.block
        ids = jnp.minimum(first + jnp.arange(fleet.block), fleet.n_clients - 1)
        batch_size = None if fleet.chunk == 1 else fleet.chunk
        return lax.map(lambda pair: score(*pair), (ids, state.clients), batch_size=batch_size)

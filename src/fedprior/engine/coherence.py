"""How alike the directions are in which clients pull: the generalized coherence of their envelope gradients.

The generalized coherence estimate (Gish and Cochran, ICASSP 1988) of vectors v_1, ..., v_N is 1 - det C, where
C_ij = <v_i, v_j> / (|v_i| |v_j|): 0 if they are orthogonal, 1 if they are linearly dependent, and the same whatever their
lengths and signs. Here v_i = w_i - theta_i, from a client's personal to its local model after its work in a round, which is
the direction of its envelope's gradient.

For a hundred clients det C is 0 in any precision unless all are almost orthogonal. So what is recorded is normalised by
their number, from the log-determinant:

    gce = 1 - det(C)^(1/N) = 1 - exp(log det(C) / N)

It orders sets of equally many vectors as 1 - det C does, and `log_determinant` gives log det C back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.method import Algorithm, Info
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector, inner_products, row
from fedprior.data.federation import Samples
from fedprior.engine.engine import Engine
from fedprior.engine.round import State, client_round, keys_for, message
from fedprior.errors import FedpriorError
from fedprior.records.schema import MetricInfo

GCE = MetricInfo("gce", "", "lower", "generalized coherence of the clients' envelope gradients, 1 - det(C)^(1/N)")

OF_WHAT = "gce is of the vectors from a client's personal to its local model"
INSTEAD = "leave gce out, or choose a method such as pfedme, lg, meg or mh"


def coherence(gram: np.ndarray) -> float:
    """1 - det(C)^(1/N) from the inner products [N, N] of the vectors. A vector of length 0 counts as orthogonal to all.

    Inner products are of single precision, which cannot tell an eigenvalue of C below N times its rounding from 0: such
    eigenvalues count as that much.

    >>> coherence(np.diag([1.0, 4.0])), round(coherence(np.array([[1.0, 0.6], [0.6, 1.0]])), 4)
    (0.0, 0.2)
    """
    lengths = np.sqrt(np.diag(gram).astype(np.float64))
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    cosines = gram * np.outer(scale, scale)
    np.fill_diagonal(cosines, 1.0)
    least = len(gram) * float(np.finfo(np.float32).eps)
    logarithms = np.log(np.maximum(np.linalg.eigvalsh(cosines), least))
    return float(max(0.0, -np.expm1(np.mean(logarithms))))


def log_determinant(gce: npt.ArrayLike, n: int) -> npt.NDArray[np.float64]:
    """log det C of N vectors from what is recorded, be it one value or a curve; 1 minus its exponential is the estimate
    without normalisation.

    >>> log_determinant([0.2, 0.4], 2).round(4)  # of two vectors with cosine 0.6 and 0.8: log(1 - 0.6^2), log(1 - 0.8^2)
    array([-0.4463, -1.0217])
    """
    return np.asarray(n * np.log1p(-np.asarray(gce)))


class Watched(NamedTuple):
    """A client's state, and the vector from its personal to its local model."""

    client: Tree
    pull: Vector


class _NoSamples:
    """Stands for a client's samples where a personal model must not need any."""

    def __getattr__(self, name: str) -> Any:
        raise FedpriorError(
            f"{OF_WHAT}, and this method's personal model is not kept by the client but made for evaluation; {INSTEAD}"
        )


def watched(a: Algorithm) -> Algorithm:
    """The algorithm with clients that also keep the vector from their personal to their local model."""

    def local(problem: Problem, client: Watched, down: Tree, data: Data, key: Array) -> tuple[Watched, Tree, Info]:
        # The barrier keeps the compiler from fusing what is looked at with the client's mathematics: no bit changes.
        new, up, info = lax.optimization_barrier(a.local(problem, client.client, down, data, key))
        nothing: Any = _NoSamples()
        _, models = a.personal_model(problem, new, down, nothing, key)
        each, one = ([x.shape for x in jax.tree.leaves(tree)] for tree in (models, up))
        if not isinstance(up, Vector) or each != [(1, *shape) for shape in one]:
            raise FedpriorError(f"{OF_WHAT}, and this method does not have exactly one of each; {INSTEAD}")
        return Watched(new, up - row(models, 0)), up, info

    return a._replace(local=local)


class CoherenceWatch:
    """Steps an engine's states and keeps what `gce` needs of the last round beside them, not in them.

    ``build``: the engine with an algorithm in place of its own.
    """

    def __init__(self, engine: Engine, build: Callable[[Callable[[Algorithm], Algorithm]], Engine]):
        self._plain, self._engine = engine, build(watched)
        self._pulls: Vector | None = None  # [N', ...], as states are

    def check(self) -> None:
        """Refuse what has no such vectors, before anything is compiled."""
        if self._plain.participation != "all":
            raise FedpriorError(
                "gce looks at all clients, and of these only the sampled ones train; set participation=all"
            )
        jax.eval_shape(self._rehearse, Samples(*self._plain.federation.train), jax.random.key(0))

    def _rehearse(self, samples: Samples, key: Array) -> Any:
        """One client's round, to see what it gives."""
        engine, problem, i = self._engine, self._plain.problem, jnp.int32(0)
        w0 = problem.init(key)
        algorithm, seed = engine.algorithm_at(()), jax.random.key_data(key)
        outbox = algorithm.outbox(algorithm.server(problem, w0, self._plain.federation.n_clients, key))
        client, down = Watched(algorithm.client(w0, key), w0), message(algorithm, outbox, seed, i, i)
        keys = keys_for(seed, i, i)
        return client_round(problem, algorithm, samples, i, engine.batch_size, client, i, down, keys)

    def step(self, state: State) -> tuple[State, Info]:
        """One round, as of :meth:`Engine.step`."""
        if self._pulls is None:
            like = jax.eval_shape(self._plain.problem.init, jax.random.key(0))
            slots, split = self._plain.placement.slots, self._plain.placement.split
            self._pulls = like.map(lambda s: jnp.zeros((slots, *s.shape), s.dtype, device=split))
        pulls, self._pulls = self._pulls, None  # the engine reuses their memory
        state, info = self._engine.step(state._replace(clients=Watched(state.clients, pulls)))
        self._pulls = state.clients.pull
        return state._replace(clients=state.clients.client), info

    def gce(self) -> float:
        """The coherence of the last round."""
        assert self._pulls is not None
        return coherence(np.asarray(self._gram(self._plain.placement.gather(self._pulls))))

    @cached_property
    def _gram(self) -> Callable[[list[Vector]], Array]:
        n = self._plain.federation.n_clients

        def gram(blocks: list[Vector]) -> Array:
            pulls = blocks[0].map(lambda *x: jnp.concatenate(x)[:n], *blocks[1:])
            return inner_products(pulls, pulls)

        compiled: Callable[[list[Vector]], Array] = self._plain.compiler(gram)
        return compiled

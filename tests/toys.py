"""Small problems with known answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.core.batch import Batch, Data
from fedprior.core.method import Method
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector
from fedprior.data.federation import Federation, Samples
from fedprior.data.view import ClientData
from fedprior.engine.engine import Engine
from fedprior.engine.round import State
from fedprior.models.classifier import Classifier
from fedprior.models.mlp import DNN


class Quadratic(Problem):
    """f(w) = mean over samples of 1/2 sum_d h_d (w_d - c_d)^2; a sample is its centre c and curvature h side by side."""

    d: int = eqx.field(static=True)

    def init(self, key: Array) -> Vector:
        return Vector(jax.random.normal(key, (self.d,)))

    def losses(self, w: Vector, batch: Batch) -> Array:
        c, h = batch.x[:, : self.d], batch.x[:, self.d :]
        return 0.5 * jnp.sum(h * (w.tree - c) ** 2, axis=1)


def quadratics(centres: np.ndarray, curvatures: np.ndarray, copies: Sequence[int]) -> Federation:
    """A client per row; all of a client's samples are the same, so that its gradient has no noise."""
    rows = np.concatenate(
        [np.repeat(np.concatenate([c, h])[None], k, 0) for c, h, k in zip(centres, curvatures, copies, strict=True)]
    )
    return federation(rows, np.zeros(len(rows), np.int32), copies)


def federation(x: np.ndarray, y: np.ndarray, sizes: Sequence[int], n_classes: int = 2) -> Federation:
    size = np.array(sizes, np.int32)
    samples = Samples(x, y.astype(np.int32), (np.cumsum(size) - size).astype(np.int32), size)
    return Federation(train=samples, test=samples, validation=None, n_classes=n_classes, fingerprint="toy")


SIZES = (3, 9, 16, 21, 40)  # the first client is smaller than a batch


def blobs(
    sizes: Sequence[int] = SIZES, d: int = 5, classes: int = 3, seed: int = 0, hidden: int = 0
) -> tuple[Classifier, Federation]:
    """Gaussian classes on unequal clients, and a classifier: linear, or with one hidden layer."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, sum(sizes))
    x = (rng.normal(size=(classes, d))[y] + rng.normal(size=(len(y), d))).astype(np.float32)

    def build(key: Array) -> eqx.Module:
        return DNN(d, classes, hidden=hidden, key=key) if hidden else eqx.nn.Linear(d, classes, key=key)

    return Classifier(build, classes), federation(x, y, sizes, classes)


def view(federation: Federation, i: int = 0, batch: int = 8, cursor: int = 0, seed: int = 0) -> ClientData:
    return ClientData(federation.train, i, batch, jax.random.key(seed), cursor)


class InTurn:
    """Batches of one sample each, in the order given."""

    def __init__(self, x: np.ndarray):
        self.x, self.drawn, self.size = jnp.asarray(x), 0, jnp.asarray(len(x))

    def draw(self, count: int) -> Array:
        self.drawn += count
        assert self.drawn <= len(self.x)
        return jnp.arange(self.drawn - count, self.drawn)[:, None]

    def batch(self, pick: Array) -> Batch:
        return Batch(self.x[pick], jnp.zeros((1,), jnp.int32), jnp.ones((1,)))

    def split(self, fraction: float) -> tuple[Data, Data]:
        raise NotImplementedError

    def fold(self, f: Any, start: Any) -> Any:
        raise NotImplementedError


def engine_of(problem: Problem, method: Method, data: Federation, **options: Any) -> Engine:
    """The engine of a method, checked."""
    made = Engine(problem, method.algorithm(), data, **options)
    made.check()
    return made


def states_of(state: State, n_clients: int) -> Any:
    """The clients' states without idle slots, on the host."""
    return jax.tree.map(lambda x: np.asarray(x)[:n_clients], jax.device_get(state.clients))


def rounds(engine: Engine, count: int, seed: int = 0, between: Callable[[State], State] = lambda s: s) -> State:
    state = engine.init(seed)
    for _ in range(count):
        state, _ = engine.step(between(state))
    return state


def local(method: Method, problem: Problem, client: Any, down: Any, data: Callable[[], Data]) -> Any:
    """One client's round, compiled."""
    return jax.jit(lambda c, d: method.local(problem, c, d, data(), jax.random.key(0)))(client, down)


def vector(*entries: float) -> Vector:
    return Vector(jnp.array(entries))


def assert_close(a: Any, b: Any, rtol: float = 1e-12, atol: float = 1e-13) -> None:
    """The same numbers in both trees, up to rounding."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.array(x), np.array(y), rtol=rtol, atol=atol)

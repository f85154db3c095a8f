"""What a method costs a client in a round, counted by running it, not by formula."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.data.clients import ClientData, Samples
from fedprior.method import Batch, Method, Problem
from fedprior.problem import Classifier
from fedprior.vectors import Vector


@dataclass(frozen=True)
class Cost:
    """Per client and round. Floats are in units of the model's size D."""

    gradients: int  # of the loss on a batch
    forward: int  # evaluations of the loss or the model without a gradient
    down: float  # D received
    up: float  # D sent
    state: float  # D kept between rounds


@dataclass(eq=False)
class _Counter:
    calls: dict[str, int] = field(default_factory=lambda: {"gradients": 0, "forward": 0})

    def count(self, what: str) -> None:
        def add() -> None:
            self.calls[what] += 1

        jax.debug.callback(add)


class CountingProblem(Problem):
    """A problem that counts how often it is asked, inside compiled loops too."""

    inner: Problem
    counter: _Counter = eqx.field(static=True)

    def init(self, key: Array) -> Vector:
        """As the problem inside."""
        return self.inner.init(key)

    def losses(self, w: Vector, batch: Batch) -> Array:
        """Count a forward pass."""
        self.counter.count("forward")
        return self.inner.losses(w, batch)

    def grad(self, w: Vector, batch: Batch) -> Vector:
        """Count a gradient; any vector will do for its value, and compiling a real one would take most of the time."""
        self.counter.count("gradients")
        return w

    def logits(self, w: Vector, x: Array) -> Array:
        """Count a forward pass."""
        self.counter.count("forward")
        return self.inner.logits(w, x)

    def features(self, w: Vector, x: Array) -> Array:
        """Count a forward pass."""
        self.counter.count("forward")
        return self.inner.features(w, x)

    def head_mask(self, w: Vector) -> Vector:
        """As the problem inside."""
        return self.inner.head_mask(w)


def measure(method: Method) -> Cost:
    """Run one client's round on a toy problem and count.

    >>> from fedprior.methods import make
    >>> measure(make("fedavg", R=3))
    Cost(gradients=3, forward=0, down=1.0, up=1.0, state=0.0)
    """
    n, d, classes = 40, 3, 2
    problem = Classifier(lambda key: eqx.nn.Linear(d, classes, key=key), classes)
    x, y = np.ones((n, d), np.float32), np.arange(n) % classes
    samples = Samples(x, y.astype(np.int32), np.zeros(1, np.int32), np.full(1, n, np.int32))
    key = jax.random.key(0)
    w0 = problem.init(key)
    client, server = method.client(w0, key), method.server(problem, w0, 1, key)
    down = method.send(server, jnp.int32(0), key)
    counter = _Counter()

    @jax.jit
    def local(client: Any, down: Any) -> Any:
        data = ClientData(samples, 0, 20, key, 0)
        return method.local(CountingProblem(problem, counter), client, down, data, key)

    client, up, _ = jax.block_until_ready(local(client, down))
    jax.effects_barrier()

    def in_models(tree: Any) -> float:
        return sum(math.prod(x.shape) for x in jax.tree.leaves(tree)) / w0.size

    return Cost(**counter.calls, down=in_models(down), up=in_models(up), state=in_models(client))

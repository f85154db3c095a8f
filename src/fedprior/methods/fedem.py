"""FedEM: Marfoq et al., "Federated Multi-Task Learning under a Mixture of Distributions", NeurIPS 2021.

M learners w_m are shared; each client has its own mixture pi_i. With the received learners and loss l_m(s) of sample s:
E:       q_sm = pi_im exp(-l_m(s)) / sum_m' pi_im' exp(-l_m'(s)),  all samples;   pi_im <- mean_s q_sm
M:       w_m <- w_m - alpha grad [mean_B q_sm l_m(s)],  R times
server:  w_m <- sum_i p_i w_im
predict: sum_m pi_im softmax_m(x)
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedprior.core.batch import Batch, Data
from fedprior.core.compiling import Compiler
from fedprior.core.hyper import STEP_SIZE, STEPS, hyper
from fedprior.core.method import Info, Method, Mixture
from fedprior.core.optimize import make_optimizer, optimize
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector, row
from fedprior.errors import FedpriorError

JOIN_STEPS = 10  # EM steps on pi for a newcomer


class FedEM(Method):
    """Each client is a mixture of M learners. Only pi_i is kept; q is made anew from the received learners.

    A learner's gradient carries its q, about 1 / M, so it trains M times slower than FedAvg at the same alpha.

    >>> FedEM().M
    3
    """

    paper: ClassVar[str] = "Marfoq et al., NeurIPS 2021"
    cites: ClassVar[str] = "marfoq2021fedem"
    objective: ClassVar[str] = (
        r"\max_{w_1, \dots, w_M, \pi} \sum_i \sum_{(x, y) \in D_i} \log \sum_m \pi_{im}\, p(y \mid x; w_m)"
    )
    revision: ClassVar[int] = 2  # 2: responsibilities without a logarithm of pi

    M: int = hyper(
        3, "FedEM's code", least=1, meaning="learners that all clients share, each client mixing them in its own way"
    )
    R: int = hyper(20, "PRIOR, section 6", least=1, meaning=STEPS)
    alpha: float = hyper(
        0.01,
        "PRIOR, section 6; FedEM's code: 0.03 with decay",
        sweep=(0.01, 0.03, 0.1),
        least=0,
        inert=0,
        meaning=STEP_SIZE,
    )

    def check(self, problem: Problem, w0: Vector) -> None:
        """Refuse learners that start as one and the same: they would never part."""
        start = Compiler()(lambda key: problem.init(key))  # compiled alike, equal starts are equal to the last bit
        one, other = (jax.device_get(jax.tree.leaves(start(jax.random.key(k)))) for k in (0, 1))
        if self.M > 1 and all(map(np.array_equal, one, other)):
            raise FedpriorError(
                f"FedEM: M = {self.M} learners need different starts, and this model always starts from the same weights; "
                "give a function of a key that builds the model (or M = 1)"
            )

    def client(self, w0: Vector, key: Array) -> Array:
        """pi_i, uniform."""
        return jnp.full((self.M,), 1 / self.M)

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Vector:
        """M learners [M, ...]; each starts by itself, since equal ones would never part."""
        starts = [w0, *(problem.init(jax.random.fold_in(key, m)) for m in range(1, self.M))]
        return jax.tree.map(lambda *x: jnp.stack(x), *starts)

    def _responsibilities(self, problem: Problem, pi: Array, learners: Vector, batch: Batch) -> Array:
        """q [M, B].

        Not softmax(log pi - loss): the compiler computes the log of a few numbers differently when they stand alone, so that
        a client in a process of its own would get other bits.
        """
        live = (pi > 1e-30)[:, None]
        losses = jnp.stack([problem.losses(row(learners, m), batch) for m in range(self.M)])
        least = jnp.min(jnp.where(live, losses, jnp.inf), axis=0)
        likelihood = jnp.where(live, pi[:, None] * jnp.exp(jnp.minimum(least - losses, 0)), 0)
        return likelihood / jnp.sum(likelihood, axis=0)

    def _mixture(self, problem: Problem, pi: Array, learners: Vector, data: Data) -> Array:
        """pi <- mean over all samples of q."""

        def add(total: Array, batch: Batch) -> Array:
            return total + self._responsibilities(problem, pi, learners, batch) @ batch.mask

        return data.fold(add, jnp.zeros_like(pi)) / jnp.maximum(data.size, 1)

    def local(
        self, problem: Problem, client: Array, down: Vector, data: Data, key: Array
    ) -> tuple[Array, Vector, Info]:
        """E on all samples, then R weighted steps of each learner."""
        picks = data.draw(self.R)
        q = lax.map(lambda pick: self._responsibilities(problem, client, down, data.batch(pick)), picks)  # [R, M, B]

        def train(learner: tuple[Vector, Array]) -> Vector:
            start, q = learner

            def grad(w: Vector, step: tuple[Array, Array]) -> Vector:
                batch, q = data.batch(step[0]), jnp.maximum(step[1], 1e-30)  # at 0 a sample would not be counted
                return problem.grad(w, batch._replace(mask=batch.mask * q))

            return optimize(grad, start, (picks, q), make_optimizer("sgd", self.alpha))[0]

        learners = lax.map(train, (down, jnp.moveaxis(q, 1, 0)))
        pi = self._mixture(problem, client, down, data)
        return pi, learners, {"moved": (learners - down).norm(), "largest": jnp.max(pi)}

    def global_model(self, server: Vector) -> None:
        """There are M."""
        return None

    def personal_model(self, problem: Problem, client: Array, down: Vector, data: Data, key: Array) -> Mixture:
        """pi_i and the received learners."""
        return client, down

    def join(self, problem: Problem, down: Vector, data: Data, key: Array) -> Array:
        """A newcomer fits only its mixture."""
        start = jnp.full((self.M,), 1 / self.M)
        return lax.fori_loop(0, JOIN_STEPS, lambda _, pi: self._mixture(problem, pi, down, data), start)

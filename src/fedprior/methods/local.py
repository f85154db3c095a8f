"""Local: every client alone, the row no honest comparison goes without.

client:  v_i <- v_i - alpha grad f_i(v_i; B),  R times a round, going on from the client's own model
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import optax
from jax import Array

from fedprior.core.batch import Data
from fedprior.core.hyper import STEP_SIZE, STEPS, hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.optimize import NAMED, OPTIMIZERS, Optimizer, local_steps, make_optimizer
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector


class Client(NamedTuple):
    """The client's own model, and the optimizer's memory, which goes on across rounds."""

    v: Vector
    memory: optax.OptState


class Local(Method):
    """Plain local training, R minibatch steps a round.

    >>> Local(R=5).alpha
    0.01
    """

    weighted: ClassVar[bool] = False
    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "the baseline without federation"
    objective: ClassVar[str] = r"\min_{v_i} f_i(v_i) \quad \text{for every client } i \text{ by itself}"

    R: int = hyper(20, "PRIOR, section 6", least=1, meaning=STEPS)
    alpha: float = hyper(
        0.01, "PRIOR, section 6", sweep=(0.01, 0.03, 0.1), least=0, inert=0, needs=NAMED, meaning=STEP_SIZE
    )
    optimizer: Optimizer = hyper(
        "sgd",
        choices=OPTIMIZERS,
        objects=optax.GradientTransformation,
        meaning="which optimizer takes the steps; its memory lasts",
    )

    def client(self, w0: Vector, key: Array) -> Client:
        return Client(w0, make_optimizer(self.optimizer, self.alpha).init(w0))

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """Nothing."""
        return ()

    def local(self, problem: Problem, client: Client, down: Tree, data: Data, key: Array) -> tuple[Client, Tree, Info]:
        v, memory = local_steps(problem.grad, client.v, data, self.R, self.alpha, self.optimizer, client.memory)
        return Client(v, memory), (), {"moved": (v - client.v).norm()}

    def personal_model(self, problem: Problem, client: Client, down: Tree, data: Data, key: Array) -> Mixture:
        """v_i."""
        return single(client.v)

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Client:
        """A newcomer starts from scratch and trains for one round."""
        return self.local(problem, self.client(problem.init(key), key), down, data, key)[0]

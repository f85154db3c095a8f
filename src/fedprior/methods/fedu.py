"""FedU: Dinh et al., "A New Look and Convergence Rate of Federated Multi-Task Learning with Laplacian Regularization", 2021.

local:   w_k <- w_k - alpha grad f_k(w_k; B),  R times
server:  w_k <- w_k - alpha R eta (1/2) sum_{l in S} a_kl (w_k - w_l),  all k in S at once
so that with everyone in S, small alpha descends on  sum_k f_k(w_k) + (eta / 8) sum_{k,l} a_kl |w_k - w_l|^2
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.core.batch import Data
from fedprior.core.hyper import STEP_SIZE, STEPS, hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.optimize import local_steps
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector, put_rows, repeat, row, select, weighted_mean
from fedprior.errors import FedpriorError

GRAPHS = ("random", "full", "empty")


class Tied(NamedTuple):
    """A client's model and how often it was tied to others: the client's own state, and what it receives."""

    w: Vector
    ties: Array

    def newest(self, down: Tied) -> Vector:
        """The received model where the client has not gone on from it yet, else its own."""
        return select(down.ties > self.ties, down.w, self.w)


class Server(NamedTuple):
    """The graph, everyone's last tied model, and how often each was tied."""

    a: Array  # [N, N]
    w: Vector  # [N, ...]
    ties: Array  # [N]


class FedU(Method):
    """Every client has a model, tied to its neighbours' in a graph; an empty graph is Local.

    ``graph``: "random" (means of two uniform numbers, those below 0.25, an eighth of them, left out, as in the code for
    MNIST and CIFAR-10), "full", "empty", or symmetric weights a_kl >= 0 [N, N] of your own.

    >>> FedU(graph="full").eta
    0.01
    """

    weighted: ClassVar[bool] = False
    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Dinh et al., 2021"
    cites: ClassVar[str] = "dinh2021fedu"
    objective: ClassVar[str] = (
        r"\min_{w_1, \dots, w_N} \sum_k f_k(w_k) + \frac{\eta}{8} \sum_{k, l} a_{kl} \|w_k - w_l\|^2"
    )
    revision: ClassVar[int] = 2  # 2: the random graph is the code's, whose weights are means of two uniform numbers

    R: int = hyper(20, "PRIOR, section 6", least=1, meaning=STEPS)
    alpha: float = hyper(0.01, "PRIOR, section 6", least=0, inert=0, meaning=STEP_SIZE)
    eta: float = hyper(
        0.01,
        "FedU's code: 0.01 (MNIST), 0.03 (CIFAR-10)",
        sweep=(0.01, 0.03, 0.1, 0.3, 1.0),
        least=0,
        inert=0,
        meaning="how strongly models of neighbours in the graph are pulled together; stable while alpha R eta times the "
        "sum of a client's weights in the graph is below 2, and in dense graphs below 4",
    )
    graph: str | Array = hyper(
        "random",
        "FedU's code: random for MNIST and CIFAR-10",
        meaning="who is whose neighbour: random, full or empty, or a matrix of weights",
    )

    def __check_init__(self) -> None:
        if isinstance(self.graph, Array | np.ndarray):
            check_weights(jnp.asarray(self.graph))
        elif self.graph not in GRAPHS:
            raise FedpriorError(
                f"FedU: graph = {self.graph!r} is not valid; valid: {', '.join(GRAPHS)}, or an array of weights [N, N]"
            )

    def client(self, w0: Vector, key: Array) -> Tied:
        return Tied(w0, jnp.zeros((), jnp.int32))

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Server:
        if isinstance(self.graph, str):
            a = jnp.full((n_clients, n_clients), float(self.graph == "full"))
            if self.graph == "random":
                b = jax.random.uniform(key, a.shape)
                a = (b + b.T) / 2
                a = jnp.where(a < 0.25, 0, a)
        else:
            a = jnp.asarray(self.graph, jnp.result_type(float))
            if len(a) != n_clients:
                raise FedpriorError(
                    f"FedU: a graph of {len(a)} clients was given, but there are {n_clients}; give [N, N]"
                )
        a = jnp.where(jnp.eye(n_clients, dtype=bool), 0, a)  # nobody is tied to itself
        return Server(a=a, w=repeat(w0, n_clients), ties=jnp.zeros((n_clients,), jnp.int32))

    def send(self, outbox: Server, i: Array | None, key: Array) -> Tied:
        """The last tied model; a newcomer gets the mean of all models."""
        if i is None:
            return Tied(jax.tree.map(lambda x: jnp.mean(x, axis=0), outbox.w), jnp.zeros((), jnp.int32))
        return Tied(row(outbox.w, i), outbox.ties[i])

    def local(self, problem: Problem, client: Tied, down: Tied, data: Data, key: Array) -> tuple[Tied, Vector, Info]:
        """R steps from the newest model."""
        start = client.newest(down)
        w, _ = local_steps(problem.grad, start, data, self.R, self.alpha)
        return Tied(w, down.ties), w, {"moved": (w - start).norm()}

    def merge(self, server: Server, ups: Vector, weights: Array, ids: Array, key: Array) -> Server:
        """One Laplacian step among the clients of this round."""
        a = server.a[ids[:, None], ids[None, :]] * (0.5 * self.alpha * self.R * self.eta)
        mixing = a + jnp.diag(1 - jnp.sum(a, axis=1))
        w = put_rows(server.w, ids, weighted_mean(ups, mixing))
        return Server(a=server.a, w=w, ties=server.ties.at[ids].add(1))

    def personal_model(self, problem: Problem, client: Tied, down: Tied, data: Data, key: Array) -> Mixture:
        """w_k, the newest."""
        return single(client.newest(down))

    def join(self, problem: Problem, down: Tied, data: Data, key: Array) -> Tied:
        """A newcomer goes on from the mean of all models: one round of its own."""
        return self.local(problem, down, down, data, key)[0]


def check_weights(a: Array) -> None:
    """Refuse what is not a graph with symmetric weights a_kl >= 0."""
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise FedpriorError(f"FedU: a graph of shape {a.shape} is not valid; weights a_kl must be [N, N]")
    for valid, entries in (
        ("weights must be finite and at least 0", jnp.isfinite(a) & (a >= 0)),
        ("a_kl must equal a_lk", a == a.T),
    ):
        for k, l in jnp.argwhere(~entries)[:1]:
            raise FedpriorError(
                f"FedU: graph[{k}, {l}] = {a[k, l]:g} beside graph[{l}, {k}] = {a[l, k]:g} is not valid; {valid}"
            )

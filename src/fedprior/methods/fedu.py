"""FedU: Dinh et al., "A New Look and Convergence Rate of Federated Multi-Task Learning with Laplacian Regularization", 2021.

local:   w_k <- w_k - alpha grad f_k(w_k; B),  R times
server:  w_k <- w_k - alpha R eta (1/2) sum_{l in S} a_kl (w_k - w_l),  all k in S at once
so that with everyone in S, small alpha descends on  sum_k f_k(w_k) + (eta / 8) sum_{k,l} a_kl |w_k - w_l|^2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from fedprior.method import Data, FedpriorError, Info, Method, Mixture, Problem, single
from fedprior.vectors import Tree, Vector, optimize, optimizer, put_rows, repeat, row, select, weighted_mean

GRAPHS = ("random", "full", "empty")


def check_weights(a: jnp.ndarray) -> None:
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


@dataclass(frozen=True)
class FedU(Method):
    """Every client has a model, tied to its neighbours' in a graph; an empty graph is Local.

    ``graph``: "random" (uniform weights, those below 0.25 left out, as in the code for MNIST and CIFAR-10), "full",
    "empty", or symmetric weights a_kl >= 0 [N, N] of your own.

    >>> FedU(graph="full").eta
    0.01
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Dinh et al., 2021"
    sources: ClassVar[dict[str, str]] = {
        "R": "PRIOR, section 5",
        "alpha": "PRIOR, section 5",
        "eta": "FedU's code: 0.01 (MNIST), 0.03 (CIFAR-10)",
        "graph": "FedU's code: random for MNIST and CIFAR-10",
    }
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {"eta": (0.01, 0.03, 0.1, 0.3, 1.0)}

    R: int = 20
    alpha: float = 0.01
    eta: float = 0.01
    graph: str | Array = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.graph, str):
            check_weights(jnp.asarray(self.graph))

    def rules(self) -> list[tuple[str, str, bool]]:
        """The shared rules, and a graph by name."""
        named = not isinstance(self.graph, str) or self.graph in GRAPHS
        return [*super().rules(), ("graph", f"valid: {', '.join(GRAPHS)}, or weights [N, N]", named)]

    def client(self, w0: Vector, key: Array) -> Tree:
        """w_k, and how often it was tied to others."""
        return {"w": w0, "ties": jnp.zeros((), jnp.int32)}

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """The graph, everyone's last tied model, and how often each was tied."""
        if isinstance(self.graph, str):
            a = jnp.full((n_clients, n_clients), float(self.graph == "full"))
            if self.graph == "random":
                upper = jnp.triu(jax.random.uniform(key, a.shape), 1)
                a = jnp.where(upper < 0.25, 0, upper)
                a = a + a.T
        else:
            a = jnp.asarray(self.graph, jnp.result_type(float))
            if len(a) != n_clients:
                raise FedpriorError(
                    f"FedU: a graph of {len(a)} clients was given, but there are {n_clients}; give [N, N]"
                )
        return {
            "a": jnp.where(jnp.eye(n_clients, dtype=bool), 0, a),
            "w": repeat(w0, n_clients),
            "ties": jnp.zeros((n_clients,), jnp.int32),
        }

    def send(self, server: Tree, i: Array | None, key: Array) -> Tree:
        """The last tied model; a newcomer gets the mean of all models."""
        if i is None:
            return {"w": jax.tree.map(lambda x: jnp.mean(x, axis=0), server["w"]), "ties": jnp.zeros((), jnp.int32)}
        return {"w": row(server["w"], i), "ties": server["ties"][i]}

    def _newest(self, client: Tree, down: Tree) -> Vector:
        """The received model where the client has not gone on from it yet, else its own."""
        return select(down["ties"] > client["ties"], down["w"], client["w"])

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R steps from the newest model."""
        start = self._newest(client, down)
        w, _ = optimize(
            lambda w, pick: problem.grad(w, data.batch(pick)), start, data.draw(self.R), optimizer("sgd", self.alpha)
        )
        return {"w": w, "ties": down["ties"]}, w, {"moved": (w - start).norm()}

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """One Laplacian step among the clients of this round."""
        a = server["a"][ids[:, None], ids[None, :]] * (0.5 * self.alpha * self.R * self.eta)
        mixing = a + jnp.diag(1 - jnp.sum(a, axis=1))
        return {
            "a": server["a"],
            "w": put_rows(server["w"], ids, weighted_mean(ups, mixing)),
            "ties": server["ties"].at[ids].add(1),
        }

    def global_model(self, server: Tree) -> None:
        """There is none."""
        return None

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """w_k, the newest."""
        return single(self._newest(client, down))

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer trains for one round from the mean model."""
        return self.local(problem, down, down, data, key)[0]

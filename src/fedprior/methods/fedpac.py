"""FedPAC: Xu et al., "Personalized Federated Learning with Feature Alignment and Classifier Collaboration", ICLR 2023.

A model is an extractor phi (features z) and a head h_i, its last linear layer. In a round, with the received phi and h_i:
  n_k, mu_k   how many samples of class k the client has, and their mean feature;  p_k = n_k / n
  head:       h_i <- h_i - alpha_h grad_h f_i,  R_head times, phi fixed
  extractor:  phi <- phi - alpha grad_phi [f_i + lam mean_B |z - c_y|^2],  R times, h_i fixed, c_k the global class means
server:       phi <- sum_i p_i phi_i;   c_k <- mean of all samples' features;   h_i <- sum_j a_ij h_j with
  a_i = argmin a^T (diag V + G_i) a over the simplex,  G_i[j, l] = sum_k <H_ik - H_jk, H_ik - H_lk>
  H_ik = p_k mu_k,   V_i = [mean |z|^2 - sum_k p_k^2 |mu_k|^2] / n
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedprior.core.batch import Batch, Data
from fedprior.core.hyper import hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector, put_rows, repeat, row, select, weighted_mean
from fedprior.errors import FedpriorError

SOLVER_STEPS = 500  # accelerated projected-gradient steps for a_i
LEAST = 1e-3  # smaller weights a_ij are set to zero, but never all of a row


def on_simplex(X: Array) -> Array:
    """The points of the simplex nearest to the rows of X [T, S]: max(x - tau, 0), with the tau that makes its sum one.

    tau is found by leaving out the entries below it until none is left to leave out (Michelot 1986). That takes a few
    turns for all rows together; optax's projection sorts each row, which takes the compiler for CPUs ten times as long.

    >>> on_simplex(jnp.array([[0.5, 1.0, -9.0]])).tolist()
    [[0.25, 0.75, 0.0]]
    """

    def rise(tau: Array) -> Array:
        above = tau < X
        return jnp.maximum(tau, (jnp.sum(X, 1, where=above, keepdims=True) - 1) / jnp.sum(above, 1, keepdims=True))

    start = (jnp.sum(X, 1, keepdims=True) - 1) / X.shape[1]
    _, tau = lax.while_loop(
        lambda two: jnp.any(two[1] > two[0]), lambda two: (two[1], rise(two[1])), (start, rise(start))
    )
    return jnp.maximum(X - tau, 0)


def combinations(H: Array, V: Array) -> Array:
    """All a_i [S, S] from H [S, C, d] and V [S], solved together by accelerated projected gradients.

    In single precision entries are right to about 2e-5 for S = 100, and smaller weights than 1e-3 are cut anyway.

    >>> combinations(jnp.zeros((2, 1, 1)), jnp.array([1.0, 3.0])).round(4).tolist()
    [[0.75, 0.25], [0.75, 0.25]]
    """
    flat = H.reshape(len(H), -1)
    Q = flat @ flat.T  # <H_j, H_l>, so that G_i[j, l] = Q_ii - Q_ij - Q_il + Q_jl
    # Where all clients are alike, M is nothing but the rounding of Q; a step as long as 1 over that would blow it up.
    rounding = 4 * jnp.finfo(Q.dtype).eps * jnp.trace(Q) + 1e-30

    def step_size(i: Array) -> Array:  # the Frobenius norm bounds the largest eigenvalue
        M = jnp.diag(V) + Q[i, i] - Q[i][None, :] - Q[i][:, None] + Q
        return 1 / jnp.maximum(jnp.linalg.norm(M), rounding)

    step = lax.map(step_size, jnp.arange(len(V)))[:, None]

    def descend(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        a, ahead = carry
        # (diag V + G_i) a for all i, without what is the same in every entry of a row: the projection takes that out
        slope = ahead * V - Q + ahead @ Q
        new = on_simplex(ahead - step * slope)
        overshot = jnp.sum((ahead - new) * (new - a), axis=1, keepdims=True) > 0  # then the momentum starts again
        onward = jnp.where(overshot, 0.0, k / (k + 3.0))
        return new, new + onward * (new - a)

    start = jnp.full((len(V), len(V)), 1 / len(V))
    return lax.fori_loop(0, SOLVER_STEPS, descend, (start, start))[0]


def without_small(a: Array) -> Array:
    """Weights [S, S] with the small ones of each row set to zero, and the others scaled to sum to one.

    The largest of S weights is at least 1 / S, which for thousands of clients is small as well: it is kept.
    """
    a = jnp.where(a < min(LEAST, 0.999 / a.shape[1]), 0, a)
    return a / jnp.sum(a, axis=1, keepdims=True)


class Client(NamedTuple):
    """The client's last model, of which only the head h_i is used again, and the round that it is from."""

    w: Vector
    t: Array


class Server(NamedTuple):
    """The mean model, the heads combined for clients and when that was, class means, and the rounds done."""

    w: Vector
    heads: Vector  # [N, ...]
    made: Array  # [N]
    c: Array  # [C, d]
    known: Array  # [C], which class means there are
    t: Array


class Message(NamedTuple):
    """The mean model, class means, the rounds done, and the head last combined for the client (a newcomer has none)."""

    w: Vector
    c: Array
    known: Array
    t: Array
    head: Vector | None = None
    made: Array | None = None


class Upload(NamedTuple):
    """The trained model and its head; H and V of the received extractor, class counts and feature sums of the trained."""

    w: Vector
    head: Vector
    H: Array  # [C, d]
    V: Array
    counts: Array  # [C]
    sums: Array  # [C, d]


class FedPAC(Method):
    """One extractor for all, aligned by class means, and a head per client, combined with the heads of similar clients.

    ``align``: "sum" (the paper: squared distance of features) or "mean" (the code: divided by their number d).

    >>> FedPAC(lam=0.1).R_head
    5
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Xu et al., ICLR 2023"
    cites: ClassVar[str] = "xu2023fedpac"
    objective: ClassVar[str] = (
        r"\min_{\varphi, h_i} \sum_i p_i \bigl[f_i(\varphi, h_i) + \lambda\, \mathbb{E} \|z - c_y\|^2\bigr], "
        r"\qquad h_i = \sum_j a_{ij} h_j"
    )

    R: int = hyper(
        20,
        "PRIOR, section 6; FedPAC's code: 5 epochs",
        least=1,
        meaning="local steps of the feature extractor in a round",
    )
    R_head: int = hyper(
        5, "bounded, in place of the code's one epoch", least=1, meaning="local steps of the head in a round"
    )
    alpha: float = hyper(
        0.01, "PRIOR, section 6; FedPAC's code", least=0, inert=0, meaning="step size of the extractor"
    )
    alpha_head: float = hyper(
        0.1, "FedPAC's code", sweep=(0.01, 0.1), least=0, inert=0, meaning="step size of the head"
    )
    lam: float = hyper(
        0.01,
        "FedPAC's code: 1 for align = mean, which for 100 features is this",
        sweep=(0.01, 0.1, 1.0),
        least=0,
        inert=0,
        meaning="how strongly features are pulled towards the global mean of their class",
    )
    align: str = hyper(
        "sum",
        "the paper: sum; FedPAC's code: mean",
        choices=("sum", "mean"),
        meaning="whether squared distances are summed over features or averaged",
    )

    def check(self, problem: Problem, w0: Vector) -> None:
        """Refuse a model that is nothing but a head."""
        if problem.head(w0).size == w0.size:
            raise FedpriorError(
                "FedPAC shares a feature extractor and personalizes the last layer, and this model has only a last layer; "
                "use a model with hidden layers (dnn, cnn, lstm)"
            )

    def client(self, w0: Vector, key: Array) -> Client:
        return Client(w0, jnp.zeros((), jnp.int32))

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Server:
        classes, d = problem.head_shape(w0)
        return Server(
            w=w0,
            heads=repeat(problem.head(w0), n_clients),
            made=jnp.zeros((n_clients,), jnp.int32),
            c=jnp.zeros((classes, d)),
            known=jnp.zeros((classes,), bool),
            t=jnp.zeros((), jnp.int32),
        )

    def send(self, outbox: Server, i: Array | None, key: Array) -> Message:
        """phi, class means, and the head last combined for the client; a newcomer gets the mean head."""
        down = Message(outbox.w, outbox.c, outbox.known, outbox.t)
        return down if i is None else down._replace(head=row(outbox.heads, i), made=outbox.made[i])

    def _model(self, problem: Problem, client: Client, down: Message) -> Vector:
        """The received phi with the client's own head, or with one combined for it since it last trained."""
        head = problem.head(client.w)
        if down.head is not None and down.made is not None:
            head = select(down.made > client.t, down.head, head)
        return problem.with_head(down.w, head)

    def _classes(self, problem: Problem, w: Vector, data: Data, C: int) -> tuple[Array, Array, Array]:
        """Per class the number of samples [C] and the sum of features [C, d]; the sum of |z|^2."""

        def add(total: tuple[Array, Array, Array], batch: Batch) -> tuple[Array, Array, Array]:
            z, kind = problem.features(w, batch.x), jax.nn.one_hot(batch.y, C) * batch.mask[:, None]
            counts, sums, squares = total
            # Squares are added up per class by a matrix product too: a sum over the features of each sample is split into
            # parts by the compiler in the program of all clients, and not in that of one client, and rounded differently.
            return counts + jnp.sum(kind, axis=0), sums + kind.T @ z, squares + kind.T @ z**2

        d = problem.head_shape(w)[1]
        counts, sums, squares = data.fold(add, (jnp.zeros((C,)), jnp.zeros((C, d)), jnp.zeros((C, d))))
        return counts, sums, jnp.sum(squares)

    def local(
        self, problem: Problem, client: Client, down: Message, data: Data, key: Array
    ) -> tuple[Client, Upload, Info]:
        """Class statistics, head phase, extractor phase, class means again."""
        w = self._model(problem, client, down)
        C = len(down.known)
        counts, sums, squares = self._classes(problem, w, data, C)
        share = lax.optimization_barrier(1 / data.size)  # multiplied, as a division may round differently in a loop
        H = share * sums  # p_k mu_k
        V = share * lax.optimization_barrier(share * squares - jnp.sum(H**2))
        mu = sums / jnp.maximum(counts, 1)[:, None]
        target = jnp.where(down.known[:, None], down.c, mu)  # own means where the federation has none yet
        scale = self.lam * jnp.any(down.known) / (1 if self.align == "sum" else target.shape[1])

        def fit_head(w: Vector, pick: Array) -> tuple[Vector, None]:
            slope = problem.head(problem.grad(w, data.batch(pick)))
            return problem.with_head(w, problem.head(w) - self.alpha_head * slope), None

        def apart(w: Vector, batch: Batch) -> Array:
            z = problem.features(w, batch.x)
            return jnp.sum(batch.weight * jnp.sum((z - target[batch.y]) ** 2, axis=1))

        def fit_extractor(w: Vector, pick: Array) -> tuple[Vector, None]:
            batch = data.batch(pick)
            slope = problem.grad(w, batch) + scale * jax.grad(apart)(w, batch)
            return problem.with_head(w - self.alpha * slope, problem.head(w)), None

        w, _ = lax.scan(fit_head, w, data.draw(self.R_head))
        w, _ = lax.scan(fit_extractor, w, data.draw(self.R))
        counts, sums, _ = self._classes(problem, w, data, C)
        up = Upload(w, problem.head(w), H=H, V=V, counts=counts, sums=sums)
        return Client(w, down.t), up, {"moved": (w - down.w).norm()}

    def merge(self, server: Server, ups: Upload, weights: Array, ids: Array, key: Array) -> Server:
        """Mean extractor, class means over all samples, and a combination of heads for each client of the round."""
        counts, sums = jnp.sum(ups.counts, axis=0), jnp.sum(ups.sums, axis=0)
        seen = counts > 0
        heads = weighted_mean(ups.head, without_small(combinations(ups.H, jnp.maximum(ups.V, 0))))
        return Server(
            w=weighted_mean(ups.w, weights),
            heads=put_rows(server.heads, ids, heads),
            made=server.made.at[ids].set(server.t + 1),
            c=jnp.where(seen[:, None], sums / jnp.maximum(counts, 1)[:, None], server.c),
            known=server.known | seen,
            t=server.t + 1,
        )

    def global_model(self, server: Server) -> Vector:
        """The mean model, heads included."""
        return server.w

    def with_global_model(self, server: Server, w: Vector) -> Server:
        return server._replace(w=w)

    def personal_model(self, problem: Problem, client: Client, down: Message, data: Data, key: Array) -> Mixture:
        """The received extractor with the client's head."""
        return single(self._model(problem, client, down))

    def join(self, problem: Problem, down: Message, data: Data, key: Array) -> Client:
        """A newcomer fits a head to the received extractor, from the mean head: one round of its own."""
        return self.local(problem, Client(down.w, down.t), down, data, key)[0]

"""FedAMP and HeurFedAMP: Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021.

cloud:    u_i = sum_j xi_ij w_j
  FedAMP:      xi_ij = a A'(|w_i - w_j|^2),  A'(x) = exp(-x / sigma) / sigma,  xi_ii = 1 - sum_{j != i} xi_ij
  HeurFedAMP:  xi_ij = (1 - xi) exp(sigma cos(w_i, w_j)) / sum_{h != i} exp(sigma cos(w_i, w_h)),  xi_ii = xi
client:   w_i <- w_i - alpha [grad f_i(w_i; B) + lam (w_i - u_i)],  R batches, K steps each   (lam: the paper's lambda / a_k)
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.hyper import STEP_SIZE, hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.problem import Problem
from fedprior.core.vectors import (
    Scalar,
    Vector,
    inner_products,
    put_rows,
    repeat,
    row,
    weighted_mean,
)
from fedprior.errors import FedpriorError


class Server(NamedTuple):
    """Everyone's last upload (at first the start) and cloud model, and who has uploaded."""

    w: Vector  # [N, ...]
    u: Vector  # [N, ...]
    seen: Array  # [N]


class FedAMP(Method):
    """Clients with similar models attend to each other; each is pulled to a cloud model of its own, there is no global one.

    The server keeps everyone's last upload, and renews all cloud models in every round. Attention goes to clients that have
    uploaded; one that has not is taken to be where it started.
    ``sigma``: the scale of squared distances; None: their median, as no constant fits all models. ``a``: the attention's
    step, cut to what leaves every client at least ``keep`` of its own model; None: as large as that.

    >>> FedAMP(lam=1.0).K
    1
    """

    weighted: ClassVar[bool] = False
    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Huang et al., AAAI 2021"
    cites: ClassVar[str] = "huang2021fedamp"
    objective: ClassVar[str] = (
        r"\min_{w_1, \dots, w_N} \sum_i f_i(w_i) + \lambda \sum_{i < j} A\bigl(\|w_i - w_j\|^2\bigr), "
        r"\qquad A(x) = 1 - e^{-x / \sigma}"
    )
    # 2: no attention to clients never seen, and every cloud model is renewed; 3: distances that rounding does not swallow
    revision: ClassVar[int] = 3

    R: int = hyper(20, "PRIOR, section 6", least=1, meaning="batches that a client trains on in a round")
    K: int = hyper(
        1, "1: fresh batches throughout; 5 is what PRIOR's cost table implies", least=1, meaning="steps on each batch"
    )
    alpha: float = hyper(0.01, "PRIOR, section 6", least=0, inert=0, meaning=STEP_SIZE)
    lam: float = hyper(
        1.0,
        "unknown for PRIOR: to be tuned",
        sweep=(0.1, 1.0, 5.0),
        least=0,
        inert=0,
        meaning="how strongly a client is pulled towards its cloud model",
    )
    sigma: float | None = hyper(
        None,
        "unknown for PRIOR: the median squared distance",
        above=0,
        meaning="squared distance over which attention between two models fades",
    )
    a: float | None = hyper(
        None,
        "unknown for PRIOR: see keep",
        above=0,
        meaning="step of the attention: how much clients take from each other",
    )
    keep: float = hyper(
        0.1,
        "the paper needs a self-weight of at least 0; ours: a tenth",
        sweep=(0.1, 0.5),
        least=0,
        most=1,
        meaning="least part of its own model that a client keeps in its cloud model",
    )

    def client(self, w0: Vector, key: Array) -> Vector:
        """w_i."""
        return w0

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Server:
        return Server(repeat(w0, n_clients), repeat(w0, n_clients), jnp.zeros((n_clients,), bool))

    def outbox(self, server: Server) -> Vector:
        """The cloud models [N, ...]."""
        return server.u

    def send(self, outbox: Vector, i: Array | None, key: Array) -> Vector:
        """u_i; a newcomer gets the mean of all cloud models."""
        if i is None:
            return jax.tree.map(lambda x: jnp.mean(x, axis=0), outbox)
        return row(outbox, i)

    def local(
        self, problem: Problem, client: Vector, down: Vector, data: Data, key: Array
    ) -> tuple[Vector, Vector, Info]:
        """R times K steps pulled towards the cloud model, going on from the client's own."""

        def step(w: Vector, pick: Array) -> tuple[Vector, None]:
            return problem.proximal_steps(down, w, data.batch(pick), self.lam, self.alpha, self.K), None

        w, _ = lax.scan(step, client, data.draw(self.R))
        return w, w, {"moved": (w - client).norm(), "away": (w - down).norm()}

    def attention(self, w: Vector, seen: Array, others: Array) -> Array:
        """Weights [N, N] of the others' models [N, ...]; others: j != i who were seen."""
        # Distances of what sets the models apart from one of them: beside the norms of whole models, which products of these
        # would hold, the distances of models that have hardly moved are smaller than rounding.
        apart = jax.tree.map(lambda x: x - x[0], w)
        products = inner_products(apart, apart)
        norms = jnp.diagonal(products)
        distance = jnp.maximum(norms[:, None] + norms[None, :] - 2 * products, 0)
        sigma: Scalar
        if self.sigma is not None:
            sigma = self.sigma
        else:  # clients never seen are all at the start, and say nothing of the scale
            median = jnp.nanmedian(jnp.where(others & seen[:, None], distance, jnp.nan))
            sigma = jnp.where(median > 0, median, 1.0)
        slope = jnp.where(others, jnp.exp(-distance / sigma) / sigma, 0)
        most = (1 - self.keep) / jnp.maximum(jnp.max(jnp.sum(slope, axis=1)), 1e-30)
        return (most if self.a is None else jnp.minimum(self.a, most)) * slope

    def merge(self, server: Server, ups: Vector, weights: Array, ids: Array, key: Array) -> Server:
        """Store the uploads, then u_i = sum_j xi_ij w_j for all clients: two matrix products."""
        w, seen = put_rows(server.w, ids, ups), server.seen.at[ids].set(True)
        myself = jnp.eye(len(seen), dtype=bool)
        xi = self.attention(w, seen, seen[None, :] & ~myself)
        xi = jnp.where(myself, 1 - jnp.sum(xi, axis=1)[:, None], xi)
        return Server(w, weighted_mean(w, xi), seen)

    def personal_model(self, problem: Problem, client: Vector, down: Vector, data: Data, key: Array) -> Mixture:
        """w_i."""
        return single(client)


class HeurFedAMP(FedAMP):
    """Attention by the angle between models, which needs no scale of distances; ``xi`` is the weight of one's own model.

    >>> HeurFedAMP(xi=1.0).sigma
    25.0
    """

    revision: ClassVar[int] = 2
    objective: ClassVar[str] = (
        r"\min_{w_i} f_i(w_i) + \frac{\lambda}{2} \|w_i - u_i\|^2, "
        r"\qquad u_i = \sum_j \xi_{ij} w_j, \quad \xi_{ij} \propto e^{\sigma \cos(w_i, w_j)}"
    )

    sigma: float | None = hyper(
        25.0,
        "to be tuned, between 10 and 100",
        sweep=(10.0, 25.0, 100.0),
        above=0,
        meaning="how sharply attention prefers models in the same direction",
    )
    a: float | None = hyper(None, "HeurFedAMP has no such step: see xi", meaning="not used here: xi takes its place")
    keep: float = hyper(
        FedAMP.keep, "HeurFedAMP keeps xi of a client's own model", meaning="not used here: xi takes its place"
    )
    xi: float = hyper(
        0.1,
        "one over the number of similar clients, oneself included; ten in the paper's tasks",
        least=0,
        most=1,
        meaning="part of its own model that a client keeps in its cloud model",
    )

    def __check_init__(self) -> None:
        for name, valid, holds in (
            ("sigma", "it must be a finite number above 0", self.sigma is not None),
            ("a", "HeurFedAMP has no such step: leave it out, and set xi", self.a is None),
            ("keep", "HeurFedAMP keeps xi of a client's own model: leave it out, and set xi", self.keep == FedAMP.keep),
        ):
            if not holds:
                raise FedpriorError(f"HeurFedAMP: {name} = {getattr(self, name)!r} is not valid; {valid}")

    def attention(self, w: Vector, seen: Array, others: Array) -> Array:
        """A softmax of cosines over the others, times 1 - xi."""
        products = inner_products(w, w)
        norms = jnp.diagonal(products)
        cosine = products / jnp.sqrt(jnp.maximum(norms[:, None] * norms[None, :], 1e-30))
        assert self.sigma is not None
        return (1 - self.xi) * jax.nn.softmax(self.sigma * cosine, axis=1, where=others)

"""pFedBreD: Shi et al., "PRIOR: Personalized Prior for Reactivating the Information Overlooked in Federated Learning",
NeurIPS 2023. A prior (generator g*) x a prior mean (mu) x a proximal solver, Algorithm 1:

    R times:    mu    = w_i - eta_alpha g(w_i) - eta (m_i - theta)                     the mean of the prior
                theta = argmin_x f_i(x) + lam D(x, mu),  by K gradient steps           the personal model
                w_i  <- w_i - alpha_m lam Dmu(w_i)^T Hess g*(mu) (mu - theta)          a step on the envelope
    afterwards: m_i <- w_i;    server:  w <- sum_i p_i w_i
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.hyper import hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.optimize import OPTIMIZERS
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector
from fedprior.priors import PRIORS, find_prior
from fedprior.priors.bregman import Prior, check_prior
from fedprior.priors.means import MEANS, Mean, find_mean


@dataclass(frozen=True)
class Order:
    """What the paper's equations and its released code do differently; by default, what the equations say."""

    start: str = "theta"
    batches: int = 1
    inner: bool = False
    overwrite: bool = False
    eta_alpha: float = 0.01
    eta_inner: float = 0.01  # as eta_alpha, whatever that is


# What the authors' released code does instead, for the means that it has.
RELEASED = {
    MEANS.find("identity"): Order(start="w"),
    MEANS.find("lg"): Order(start="mu", eta_alpha=0.05),  # the code takes eta where the paper says eta_alpha
    MEANS.find("meg"): Order(start="w"),
    MEANS.find("mh"): Order(start="w", batches=2, overwrite=True, inner=True),
}
LAM = "released scripts: 15 for MCLR, CNN and LSTM, 30 for DNN (set by each task); the paper says 15 to 60"
MEMORY = ("a mean with memory", lambda m: find_mean(m.mean).memory)
GRADIENT = ("a mean with a loss gradient", lambda m: find_mean(m.mean).gradient)
INNER = ("an inner step", lambda m: find_mean(m.mean).gradient and m.mean_in_force.inner)
THROUGH = ("a loss gradient that moves the mean alone", lambda m: GRADIENT[1](m) and not m.order_in_force.overwrite)


class Client(NamedTuple):
    """theta_i, and the client's own last local model m_i where it is used."""

    theta: Vector
    memory: Vector | None


class PFedBreD(Method):
    """pFedBreD with any prior, any prior mean, and every switch in which the paper and its released code differ.

    ``order`` sets these switches, each of which may be given by itself (None: as ``order`` says):

    - ``eta_alpha``: step size of the loss gradient in mu;
    - ``start``: where the proximal loop starts: at the last ``theta`` (Algorithm 1), at ``w`` or at ``mu``;
    - ``batches``: 1: mean and proximal loop share one batch; 2: the mean's (first) gradient has a batch of its own;
    - ``inner``: g is taken after an inner step of size ``eta_inner``, as in the mean ``mh-variant`` (the appendix's);
    - ``overwrite``: the step along the loss gradient moves w itself and not only mu.

    ``gradient``: the envelope's gradient with Dmu = I (``first_order``, the paper's practice) or with the vector-Jacobian
    product through mu (``exact``; the memory is a constant, so for meg both agree; with ``overwrite`` Dmu is I).
    ``solver``, ``tol``: the proximal point by K steps of an optax optimizer, or by gradient steps to a tolerance, K at most.
    ``w_init``, ``theta_init``: where w_i and theta start each round: the received or the client's own last w; the last theta
    or the received w. Algorithm 1 has ``received`` and ``last``.

    >>> PFedBreD(mean="mh", order="released").order_in_force.overwrite, PFedBreD(mean="mh").order_in_force.start
    (True, 'theta')
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Shi et al., NeurIPS 2023"
    cites: ClassVar[str] = "shi2023prior"
    objective: ClassVar[str] = (
        r"\min_w \sum_i p_i F_i(w), "
        r"\qquad F_i(w) = \min_\theta f_i(\theta) + \lambda\, D_{g^*}\bigl(\theta, \mu_i(w)\bigr)"
    )

    mean: str | Mean = hyper(
        "mh",
        "the method's name",
        choices=MEANS,
        objects=Mean,
        meaning="where a client's prior has its mean: which information of the client it takes up",
    )
    order: str = hyper(
        "paper",
        "the method's name",
        choices=("paper", "released"),
        needs=("a mean that the released code has", lambda m: released(find_mean(m.mean)) is not None),
        meaning="whether the paper's equations or its released code is followed",
    )
    prior: str | Prior = hyper(
        "gaussian",
        "paper, section 5: the maximum-entropy prior",
        choices=PRIORS,
        objects=Prior,
        meaning="the family of the prior: how the distance to its mean is measured",
    )
    R: int = hyper(
        20,
        "paper, section 6",
        least=1,
        meaning="batches that a client trains on in a round, one step of its local model each",
    )
    K: int = hyper(5, "paper, section 6", least=1, meaning="steps of the personal model on each batch")
    lam: float = hyper(
        15.0,
        LAM,
        sweep=(15.0, 30.0, 60.0),
        least=0,
        inert=0,
        meaning="how strongly the personal model is pulled towards the mean of its prior",
    )
    alpha: float = hyper(0.01, "paper, section 6", least=0, inert=0, meaning="step size of the personal model")
    alpha_m: float = hyper(
        0.01, "paper, section 6", least=0, inert=0, meaning="step size of the local model, which the server averages"
    )
    eta: float = hyper(
        0.05,
        "paper, section 6",
        least=0,
        inert=0,
        needs=MEMORY,
        meaning="how far the memory of the client's last local model moves the mean",
    )
    gradient: str = hyper(
        "first_order",
        "paper, appendix on first-order methods",
        choices=("first_order", "exact"),
        needs=THROUGH,
        meaning="whether the local model's gradient goes through the mean: first_order leaves that out",
    )
    solver: str = hyper(
        "sgd",
        "paper, appendix on first-order methods: gradient steps",
        choices=OPTIMIZERS,
        needs=("tol = 0", lambda m: m.tol == 0),
        meaning="which optimizer takes the personal model's steps",
    )
    tol: float = hyper(
        0.0,
        "0: always K steps, paper, section 6",
        least=0,
        meaning="how small a gradient ends the personal model's steps early",
    )
    w_init: str = hyper(
        "received",
        "paper, section 5",
        choices=("received", "own"),
        meaning="where the local model starts a round: at the received or at the client's own last one",
    )
    theta_init: str = hyper(
        "last",
        "paper, section 5",
        choices=("last", "received"),
        meaning="where the personal model starts a round: at its last value or at the received model",
    )
    eta_alpha: float | None = hyper(
        None,
        "paper, section 6: 0.01; the released lg uses 0.05",
        least=0,
        inert=0,
        needs=GRADIENT,
        meaning="step size of the loss gradient in the mean",
    )
    eta_inner: float | None = hyper(
        None,
        "paper, appendix on the variant: as eta_alpha",
        least=0,
        inert=0,
        needs=INNER,
        meaning="size of the inner step before that gradient is taken",
    )
    start: str | None = hyper(
        None,
        "paper, Algorithm 1: theta; the released code: w, for lg mu",
        choices=(None, "theta", "w", "mu"),
        meaning="where the personal model's steps on a batch start: at its last value, the local model or the mean",
    )
    batches: int | None = hyper(
        None,
        "paper, Eq. (mu): 1; the released mh: 2",
        choices=(None, 1, 2),
        meaning="batches in a step: 2 gives the mean's gradient one of its own",
    )
    inner: bool | None = hyper(
        None,
        "paper, Eq. (mu): no; the variant and the released mh: yes",
        needs=GRADIENT,
        meaning="whether the mean's gradient is taken after an inner step",
    )
    overwrite: bool | None = hyper(
        None,
        "paper: no; the released mh: yes",
        needs=GRADIENT,
        meaning="whether the mean's gradient step moves the local model itself, too",
    )

    @property
    def order_in_force(self) -> Order:
        """What ``order`` says, but for what is given by itself."""
        mean = find_mean(self.mean)
        said = (released(mean) if self.order == "released" else None) or Order(inner=mean.inner)
        own = {key: value for key in vars(said) if (value := getattr(self, key)) is not None}
        return replace(said, **{"eta_inner": own.get("eta_alpha", said.eta_alpha), **own})

    def in_force(self) -> dict[str, Any]:
        return {**super().in_force(), **vars(self.order_in_force)}

    def check(self, problem: Problem, w0: Vector) -> None:
        """Refuse a prior that does not fit the model or is not convex."""
        check_prior(find_prior(self.prior), w0)

    @property
    def mean_in_force(self) -> Mean:
        """The mean, with or without the inner step as ``inner`` or ``order`` says."""
        mean, inner = find_mean(self.mean), self.order_in_force.inner
        return mean if mean.inner == inner else replace(mean, inner=inner)

    @property
    def _remembers(self) -> bool:
        return find_mean(self.mean).memory or self.w_init == "own"

    def client(self, w0: Vector, key: Array) -> Client:
        return Client(w0, w0 if self._remembers else None)

    def local(
        self, problem: Problem, client: Client, down: Vector, data: Data, key: Array
    ) -> tuple[Client, Vector, Info]:
        """R times: the mean, the proximal point, a step on the envelope."""
        order, mean, memory = self.order_in_force, self.mean_in_force, client.memory
        prior = find_prior(self.prior).bind(down)
        plain = self.solver == "sgd" and self.tol == 0
        picks = data.draw(self.R * order.batches).reshape(self.R, order.batches, -1)

        def iterate(carry: tuple[Vector, Vector], pick: Array) -> tuple[tuple[Vector, Vector], None]:
            w, theta = carry
            batches = [data.batch(p) for p in pick]

            def descend(w: Vector) -> Vector:
                return w - order.eta_alpha * mean.slope(problem, w, batches, order.eta_inner) if mean.gradient else w

            def recall(w: Vector) -> Vector:
                return w if memory is None or not mean.memory else w - self.eta * (memory - theta)

            if order.overwrite:
                w, place = descend(w), recall
            else:
                place = lambda w: recall(descend(w))  # noqa: E731
            if self.gradient == "exact":
                mu, back = jax.vjp(place, w)
            else:
                mu, back = place(w), lambda v: (v,)
            start = {"theta": theta, "w": w, "mu": mu}[order.start]
            if prior.spherical and plain:
                theta = problem.proximal_steps(mu, start, batches[-1], self.lam, self.alpha, self.K)
            else:
                slope = lambda x: problem.grad(x, batches[-1])  # noqa: E731
                theta = prior.prox(slope, mu, start, self.lam, self.alpha, self.K, self.solver, self.tol)
            (step,) = back(prior.envelope_grad(mu, theta, self.lam))
            return (w - self.alpha_m * step, theta), None

        w0 = down if memory is None or self.w_init == "received" else memory
        theta0 = client.theta if self.theta_init == "last" else down
        (w, theta), _ = lax.scan(iterate, (w0, theta0), picks)
        info = {"moved": (w - down).norm(), "personal": (theta - w).norm()}
        return Client(theta, w if self._remembers else None), w, info

    def personal_model(self, problem: Problem, client: Client, down: Vector, data: Data, key: Array) -> Mixture:
        """theta_i."""
        return single(client.theta)


def released(mean: Mean) -> Order | None:
    """What the released code does with a mean that is equal to one of its own, under whichever name; else None."""
    return next((order for known, order in RELEASED.items() if known == mean), None)

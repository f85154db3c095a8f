"""pFedBreD: Shi et al., "PRIOR: Personalized Prior for Reactivating the Information Overlooked in Federated Learning",
NeurIPS 2023. A prior (generator g*) x a prior mean (mu) x a proximal solver, Algorithm 1:

    R times:    mu    = w_i - eta_alpha g(w_i) - eta (m_i - theta)                     the mean of the prior
                theta = argmin_x f_i(x) + lam D(x, mu),  by K gradient steps           the personal model
                w_i  <- w_i - alpha_m lam Dmu(w_i)^T Hess g*(mu) (mu - theta)          a step on the envelope
    afterwards: m_i <- w_i;    server:  w <- sum_i p_i w_i
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
from jax import Array, lax

from fedprior.method import Data, Info, Method, Mixture, Problem, single
from fedprior.priors.bregman import Prior, check_prior
from fedprior.priors.families import PRIORS, find_prior
from fedprior.priors.means import MEANS, Mean, find_mean
from fedprior.vectors import OPTIMIZERS, Tree, Vector

PAPER: dict[str, Any] = {
    "start": "theta",
    "eta_alpha": 0.01,
    "batches": 1,
    "overwrite": False,
    "inner": False,
}
# What the authors' released code does instead of the paper's equations.
RELEASED: dict[str, dict[str, Any]] = {
    "identity": {"start": "w"},
    "lg": {"start": "mu", "eta_alpha": 0.05},  # the code takes eta where the paper says eta_alpha
    "meg": {"start": "w"},
    "mh": {"start": "w", "batches": 2, "overwrite": True, "inner": True},
}
CHOICES = {
    "order": ("paper", "released"),
    "gradient": ("first_order", "exact"),
    "start": (None, "theta", "w", "mu"),
    "batches": (None, 1, 2),
    "w_init": ("received", "own"),
    "theta_init": ("last", "received"),
}


@dataclass(frozen=True)
class PFedBreD(Method):
    """pFedBreD with any prior, any prior mean, and every switch in which the paper and its released code differ.

    ``order`` sets these switches, each of which may be given by itself (None: as ``order`` says):

    - ``eta_alpha``: step size of the loss gradient in mu;
    - ``start``: where the proximal loop starts: at the last ``theta`` (Algorithm 1), at ``w`` or at ``mu``;
    - ``batches``: 1: mean and proximal loop share one batch; 2: the mean's (first) gradient has a batch of its own;
    - ``inner``: g is taken after an inner step of size ``eta_inner`` (the appendix's variant of mh);
    - ``overwrite``: the step along the loss gradient moves w itself and not only mu.

    ``gradient``: the envelope's gradient with Dmu = I (``first_order``, the paper's practice) or with the vector-Jacobian
    product through mu (``exact``; the memory is a constant, so for meg both agree; with ``overwrite`` Dmu is I).
    ``solver``, ``tol``: the proximal point by K steps of an optax optimizer, or by gradient steps to a tolerance, K at most.
    ``w_init``, ``theta_init``: where w_i and theta start each round: the received or the client's own last w; the last theta
    or the received w. Algorithm 1 has ``received`` and ``last``.

    >>> PFedBreD(mean="mh", order="released").switch("overwrite"), PFedBreD(mean="mh").switch("start")
    (True, 'theta')
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Shi et al., NeurIPS 2023"
    sources: ClassVar[dict[str, str]] = {
        "prior": "paper, section 4: the maximum-entropy prior",
        "R": "paper, section 5",
        "K": "paper, section 5",
        "lam": "released scripts: 15 for MCLR, CNN and LSTM, 30 for DNN (set by each task); the paper says 15 to 60",
        "alpha": "paper, section 5",
        "alpha_m": "paper, section 5",
        "eta": "paper, section 5",
        "gradient": "paper, appendix on first-order methods",
        "solver": "paper, section 5: gradient steps",
        "tol": "0: always K steps, paper, section 5",
        "w_init": "paper, section 4",
        "theta_init": "paper, section 4",
        "eta_alpha": "paper, section 5: 0.01; the released lg uses 0.05",
        "eta_inner": "paper, appendix on the variant: as eta_alpha",
        "start": "paper, Algorithm 1: theta; the released code: w, for lg mu",
        "batches": "paper, Eq. (mu): 1; the released mh: 2",
        "inner": "paper, Eq. (mu): no; the variant and the released mh: yes",
        "overwrite": "paper: no; the released mh: yes",
    }
    ranges: ClassVar[dict[str, tuple[float, ...]]] = {"lam": (15.0, 30.0, 60.0)}  # paper, section 5: from 15 to 60

    mean: str | Mean = "mh"
    order: str = "paper"
    prior: str | Prior = "gaussian"
    R: int = 20
    K: int = 5
    lam: float = 15.0
    alpha: float = 0.01
    alpha_m: float = 0.01
    eta: float = 0.05
    gradient: str = "first_order"
    solver: str = "sgd"
    tol: float = 0.0
    w_init: str = "received"
    theta_init: str = "last"
    eta_alpha: float | None = None
    eta_inner: float | None = None
    start: str | None = None
    batches: int | None = None
    inner: bool | None = None
    overwrite: bool | None = None

    def rules(self) -> list[tuple[str, str, bool]]:
        """The shared rules and the valid names."""
        named = [
            (name, f"valid: {', '.join(str(v) for v in valid if v is not None)}", getattr(self, name) in valid)
            for name, valid in CHOICES.items()
        ]
        return [
            *super().rules(),
            *named,
            ("mean", f"valid: {', '.join(MEANS)}", isinstance(self.mean, Mean) or self.mean in MEANS),
            ("prior", f"valid: {', '.join(PRIORS)}", isinstance(self.prior, Prior) or self.prior in PRIORS),
            ("solver", f"valid: {', '.join(OPTIMIZERS)}", self.solver in OPTIMIZERS),
            ("tol", "it must be a finite number of at least 0", 0 <= self.tol < float("inf")),
        ]

    def idle(self) -> list[str]:
        """Settings that do nothing; those of a term that the mean does not have are not among them."""
        mean = find_mean(self.mean)
        has = {"eta": mean.memory, "eta_alpha": mean.gradient}
        return [name for name in super().idle() if has.get(name.split()[0], True)]

    def switch(self, name: str) -> Any:
        """The value in force: the field's own, or what ``order`` says."""
        own = getattr(self, name)
        if name == "eta_inner" and own is None:
            return self.switch("eta_alpha")
        released = RELEASED.get(str(self.mean), {}) if self.order == "released" else {}
        return {**PAPER, **released}[name] if own is None else own

    def check(self, problem: Problem, w0: Vector) -> None:
        """Refuse a prior that does not fit the model or is not convex."""
        check_prior(find_prior(self.prior), w0)

    @property
    def _mean(self) -> Mean:
        mean = find_mean(self.mean)
        return replace(mean, inner=True) if self.switch("inner") else mean

    @property
    def _remembers(self) -> bool:
        return self._mean.memory or self.w_init == "own"

    def client(self, w0: Vector, key: Array) -> Tree:
        """theta_i, and the client's own last local model m_i where it is used."""
        return {"theta": w0, "memory": w0 if self._remembers else None}

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R times: the mean, the proximal point, a step on the envelope."""
        mean, prior, memory = self._mean, find_prior(self.prior).bind(down), client["memory"]
        eta_alpha, eta_inner, overwrite = (self.switch(s) for s in ("eta_alpha", "eta_inner", "overwrite"))
        plain = self.solver == "sgd" and self.tol == 0
        picks = data.draw(self.R * self.switch("batches")).reshape(self.R, self.switch("batches"), -1)

        def iterate(carry: tuple[Vector, Vector], pick: Array) -> tuple[tuple[Vector, Vector], None]:
            w, theta = carry
            batches = [data.batch(p) for p in pick]

            def descend(w: Vector) -> Vector:
                return w - eta_alpha * mean.slope(problem, w, batches, eta_inner) if mean.gradient else w

            def recall(w: Vector) -> Vector:
                return w - self.eta * (memory - theta) if mean.memory else w

            if overwrite:
                w, place = descend(w), recall
            else:
                place = lambda w: recall(descend(w))  # noqa: E731
            if self.gradient == "exact":
                mu, back = jax.vjp(place, w)
            else:
                mu, back = place(w), lambda v: (v,)
            start = {"theta": theta, "w": w, "mu": mu}[self.switch("start")]
            if prior.spherical and plain:
                theta = problem.proximal_steps(mu, start, batches[-1], self.lam, self.alpha, self.K)
            else:
                slope = lambda x: problem.grad(x, batches[-1])  # noqa: E731
                theta = prior.prox(slope, mu, start, self.lam, self.alpha, self.K, self.solver, self.tol)
            (step,) = back(prior.envelope_grad(mu, theta, self.lam))
            return (w - self.alpha_m * step, theta), None

        w0 = memory if self.w_init == "own" else down
        theta0 = client["theta"] if self.theta_init == "last" else down
        (w, theta), _ = lax.scan(iterate, (w0, theta0), picks)
        kept = {"theta": theta, "memory": w if self._remembers else None}
        return kept, w, {"moved": (w - down).norm(), "personal": (theta - w).norm()}

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """theta_i."""
        return single(client["theta"])

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer fits theta to the received w: one round of its own."""
        return self.local(problem, self.client(down, key), down, data, key)[0]

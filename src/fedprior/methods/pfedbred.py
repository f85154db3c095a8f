"""pFedBreD: Shi et al., "PRIOR: Personalized Prior for Reactivating the Information Overlooked in Federated Learning",
NeurIPS 2023. A prior (generator g*) x a prior mean (mu) x a proximal solver, Algorithm 1:

    R times:    mu    = w_i - eta_alpha g(w_i) - eta (m_i - theta)                     the mean of the prior
                theta = argmin_x f_i(x) + lam D(x, mu),  by K gradient steps           the personal model
                w_i  <- w_i - alpha_m lam Hess g*(mu) (mu - theta)                     a step on the envelope
    afterwards: m_i <- w_i;    server:  w <- sum_i p_i w_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jax import Array, lax

from fedprior.method import Data, Info, Method, Mixture, Problem, single
from fedprior.priors.families import PRIORS
from fedprior.priors.means import MEANS, meta_gradient
from fedprior.vectors import Tree, Vector, weighted_mean

# What the authors' released code does instead of the paper's equations (METHODS: commit fd42947 of their repository).
RELEASED: dict[str, dict[str, Any]] = {
    "identity": {"start": "w"},
    "lg": {"start": "mu", "eta_alpha": 0.05},  # the code takes eta where the paper says eta_alpha
    "meg": {"start": "w"},
    "mh": {"start": "w", "batches": 2, "overwrite": True},
}
PAPER: dict[str, Any] = {"start": "theta", "eta_alpha": 0.01, "batches": 1, "overwrite": False}


@dataclass(frozen=True)
class PFedBreD(Method):
    """pFedBreD with mean in identity, lg, meg, mh and order in paper, released.

    ``order`` sets the four switches below it, each of which may be given by itself (None: as ``order`` says):

    - ``eta_alpha``: step size of the loss gradient in mu;
    - ``start``: where the proximal loop starts: at the last ``theta`` (Algorithm 1), at ``w`` or at ``mu``;
    - ``batches``: 1: the gradient at w and the proximal loop share one batch; 2: the meta gradient of the appendix's
      variant, grad f(w - eta_alpha grad f(w; B1); B2), and the proximal loop on B2;
    - ``overwrite``: the step along the loss gradient moves w itself and not only mu.

    >>> PFedBreD(mean="mh", order="released").switch("overwrite"), PFedBreD(mean="mh").switch("start")
    (True, 'theta')
    """

    participation: ClassVar[tuple[str, ...]] = ("all", "sampled")
    paper: ClassVar[str] = "Shi et al., NeurIPS 2023"
    sources: ClassVar[dict[str, str]] = {
        "R": "paper, section 5",
        "K": "paper, section 5",
        "lam": "released scripts: 15 for MCLR, CNN and LSTM, 30 for DNN (set by each task); the paper says 15 to 60",
        "alpha": "paper, section 5",
        "alpha_m": "paper, section 5",
        "eta": "paper, section 5",
        "eta_alpha": "paper, section 5: 0.01; the released lg uses 0.05",
        "start": "paper, Algorithm 1: theta; the released code: w, for lg mu",
        "batches": "paper, Eq. (mu): 1; the released mh: 2",
        "overwrite": "paper: no; the released mh: yes",
    }

    mean: str = "mh"
    order: str = "paper"
    prior: str = "gaussian"
    R: int = 20
    K: int = 5
    lam: float = 15.0
    alpha: float = 0.01
    alpha_m: float = 0.01
    eta: float = 0.05
    eta_alpha: float | None = None
    start: str | None = None
    batches: int | None = None
    overwrite: bool | None = None

    def rules(self) -> list[tuple[str, str, bool]]:
        """The shared rules and the valid names."""
        return [
            *super().rules(),
            ("mean", f"valid: {', '.join(MEANS)}", self.mean in MEANS),
            ("order", "valid: paper, released", self.order in ("paper", "released")),
            ("prior", f"valid: {', '.join(PRIORS)}", self.prior in PRIORS),
            ("start", "valid: theta, w, mu", self.start in (None, "theta", "w", "mu")),
            ("batches", "valid: 1, 2", self.batches in (None, 1, 2)),
        ]

    def idle(self) -> list[str]:
        """Settings that do nothing; those of a term that the mean does not have are not among them."""
        has = {"eta": MEANS[self.mean].memory, "eta_alpha": MEANS[self.mean].gradient}
        return [name for name in super().idle() if has.get(name.split()[0], True)]

    def switch(self, name: str) -> Any:
        """The value in force: the field's own, or what ``order`` says."""
        own = getattr(self, name)
        released = RELEASED[self.mean] if self.order == "released" else {}
        return {**PAPER, **released}[name] if own is None else own

    def client(self, w0: Vector, key: Array) -> Tree:
        """theta_i, and the memory m_i where the mean uses it."""
        return {"theta": w0, "memory": w0 if MEANS[self.mean].memory else None}

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """R times: the mean, the proximal point, a step on the envelope."""
        mean, prior = MEANS[self.mean], PRIORS[self.prior]()
        eta_alpha, start, overwrite = self.switch("eta_alpha"), self.switch("start"), self.switch("overwrite")
        picks = data.draw(self.R * self.switch("batches")).reshape(self.R, self.switch("batches"), -1)

        def iterate(carry: tuple[Vector, Vector], pick: Array) -> tuple[tuple[Vector, Vector], None]:
            w, theta = carry
            batches = [data.batch(p) for p in pick]
            mu = w - eta_alpha * meta_gradient(problem, w, batches, eta_alpha) if mean.gradient else w
            w = mu if overwrite else w
            mu = mu - self.eta * (client["memory"] - theta) if mean.memory else mu
            theta = prior.prox(
                lambda x: problem.grad(x, batches[-1]),
                mu,
                {"theta": theta, "w": w, "mu": mu}[start],
                self.lam,
                self.alpha,
                self.K,
            )
            return (w - self.alpha_m * prior.envelope_grad(mu, theta, self.lam), theta), None

        (w, theta), _ = lax.scan(iterate, (down, client["theta"]), picks)
        kept = {"theta": theta, "memory": w if mean.memory else None}
        return kept, w, {"moved": (w - down).norm(), "personal": (theta - w).norm()}

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """w <- sum_i p_i w_i."""
        return weighted_mean(ups, weights)

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """theta_i."""
        return single(client["theta"])

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer fits theta to the received w: one round of its own."""
        return self.local(problem, self.client(down, key), down, data, key)[0]

"""Per-FedAvg: Fallah et al., "Personalized Federated Learning with Theoretical Guarantees", NeurIPS 2020.

R times, on consecutive batches:   u = w_i - alpha grad f_i(w_i; B1);   g = grad f_i(u; B2)
  first order (FO):                w_i <- w_i - alpha_m g
  Hessian-free (HF):               d = [grad f_i(w_i + delta g; B3) - grad f_i(w_i - delta g; B3)] / (2 delta)
                                   w_i <- w_i - alpha_m (g - alpha d)
server:                            w <- sum_i p_i w_i
personal:                          w - alpha grad f_i(w; B), one training batch
"""

from __future__ import annotations

from typing import ClassVar

from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.hyper import hyper
from fedprior.core.method import Info, Method, Mixture, single
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector


class PerFedAvg(Method):
    """A global model from which one step is enough. Adaptation sees training batches only, never the test.

    ``hessian``: "none" (FO: the Hessian in the meta-gradient is dropped) or "free" (HF: by a difference of gradients).
    ``adapt``: 1, a step of size alpha (the paper; PRIOR's code), or 2, one of size alpha_m and one of size alpha
    (PRIOR's text).

    >>> PerFedAvg(hessian="free").delta
    0.001
    """

    paper: ClassVar[str] = "Fallah et al., NeurIPS 2020"
    cites: ClassVar[str] = "fallah2020perfedavg"
    objective: ClassVar[str] = r"\min_w \sum_i p_i f_i\bigl(w - \alpha \nabla f_i(w)\bigr)"

    R: int = hyper(20, "PRIOR, section 6", least=1, meaning="local meta-steps in a round")
    alpha: float = hyper(
        0.01,
        "PRIOR, section 6",
        sweep=(0.003, 0.01, 0.03),
        least=0,
        inert=0,
        meaning="step size of the inner step, and of adapting for the test",
    )
    alpha_m: float = hyper(
        0.01, "PRIOR, section 6", sweep=(0.01, 0.03), least=0, inert=0, meaning="step size of the meta-step"
    )
    hessian: str = hyper(
        "none",
        "PRIOR's code: FO",
        choices=("none", "free"),
        meaning="the second derivative in the meta-gradient: none, or by a difference of gradients",
    )
    delta: float = hyper(
        1e-3,
        "FL-bench",
        above=0,
        needs=("hessian = free", lambda m: m.hessian == "free"),
        meaning="how far apart the gradients of that difference are taken",
    )
    adapt: int = hyper(
        1, "PRIOR's code: 1; its text: 2", choices=(1, 2), meaning="steps with which the personal model is adapted"
    )

    def local(self, problem: Problem, client: Tree, down: Vector, data: Data, key: Array) -> tuple[Tree, Vector, Info]:
        """R meta-steps from the received w, each applied to the w_i before its inner step."""
        batches = 3 if self.hessian == "free" else 2

        def meta_step(w: Vector, pick: Array) -> tuple[Vector, None]:
            B = [data.batch(p) for p in pick]
            u = w - self.alpha * problem.grad(w, B[0])
            g = problem.grad(u, B[1])
            if self.hessian == "free":
                ahead, behind = (problem.grad(w + side * self.delta * g, B[2]) for side in (1, -1))
                g = g - self.alpha * ((ahead - behind) / (2 * self.delta))
            return w - self.alpha_m * g, None

        w, _ = lax.scan(meta_step, down, data.draw(batches * self.R).reshape(self.R, batches, -1))
        return client, w, {"moved": (w - down).norm()}

    def personal_model(self, problem: Problem, client: Tree, down: Vector, data: Data, key: Array) -> Mixture:
        """The received w, adapted on training batches; not kept."""
        w = down
        for pick, size in zip(data.draw(self.adapt), (self.alpha_m, self.alpha)[-self.adapt :], strict=True):
            w = w - size * problem.grad(w, data.batch(pick))
        return single(w)

    def join(self, problem: Problem, down: Vector, data: Data, key: Array) -> Tree:
        """A newcomer adapts as everyone does, and keeps nothing."""
        return ()

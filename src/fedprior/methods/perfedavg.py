"""Per-FedAvg: Fallah et al., "Personalized Federated Learning with Theoretical Guarantees", NeurIPS 2020.

R times, on consecutive batches:   u = w_i - alpha grad f_i(w_i; B1);   g = grad f_i(u; B2)
  first order (FO):                w_i <- w_i - alpha_m g
  Hessian-free (HF):               d = [grad f_i(w_i + delta g; B3) - grad f_i(w_i - delta g; B3)] / (2 delta)
                                   w_i <- w_i - alpha_m (g - alpha d)
server:                            w <- sum_i p_i w_i
personal:                          w - alpha grad f_i(w; B), one training batch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from jax import Array, lax

from fedprior.method import Data, Info, Method, Mixture, Problem, single
from fedprior.vectors import Tree, Vector


@dataclass(frozen=True)
class PerFedAvg(Method):
    """A global model from which one step is enough. Adaptation sees training batches only, never the test.

    ``hessian``: "none" (FO: the Hessian in the meta-gradient is dropped) or "free" (HF: by a difference of gradients).
    ``adapt``: 1, a step of size alpha (the paper; PRIOR's code), or 2, one of size alpha_m and one of size alpha
    (PRIOR's text).

    >>> PerFedAvg(hessian="free").delta
    0.001
    """

    paper: ClassVar[str] = "Fallah et al., NeurIPS 2020"
    sources: ClassVar[dict[str, str]] = {
        "R": "PRIOR, section 5",
        "alpha": "PRIOR, section 5",
        "alpha_m": "PRIOR, section 5",
        "hessian": "PRIOR's code: FO",
        "delta": "FL-bench",
        "adapt": "PRIOR's code: 1; its text: 2",
    }
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {"alpha": (0.003, 0.01, 0.03), "alpha_m": (0.01, 0.03)}

    R: int = 20
    alpha: float = 0.01
    alpha_m: float = 0.01
    hessian: str = "none"
    delta: float = 1e-3
    adapt: int = 1

    def rules(self) -> list[tuple[str, str, bool]]:
        """The shared rules and the choices."""
        return [
            *super().rules(),
            ("hessian", "valid: none, free", self.hessian in ("none", "free")),
            ("delta", "it must be a finite number above 0", 0 < self.delta < float("inf")),
            ("adapt", "valid: 1, 2", self.adapt in (1, 2)),
        ]

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
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

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """The received w, adapted on training batches; not kept."""
        w = down
        for pick, size in zip(data.draw(self.adapt), (self.alpha_m, self.alpha)[-self.adapt :], strict=True):
            w = w - size * problem.grad(w, data.batch(pick))
        return single(w)

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """A newcomer adapts as everyone does."""
        return ()

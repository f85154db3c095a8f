"""Relaxed mirror descent: how a client places the mean of its prior, mu(w) = w - eta grad phi(w).

The strategies of the paper's Eq. (mu) and of its appendix are one formula with terms switched on or off:

    mu(w) = w - eta_alpha g(w) - eta (m - theta)

g is the loss gradient ("lg"), m - theta the memorised envelope gradient ("meg"; m is the client's own last local model),
"mh" the hybrid of both, "identity" neither (then pFedBreD is pFedMe). The appendix's variant of mh takes g after an inner
step: g(w) = grad f(w - eta_inner grad f(w)). Any potential of a user's own takes the place of f as ``RMD(phi)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import jax
from jax import Array

from fedprior.core.batch import Batch
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.registry import Registry

Potential = Callable[[Problem, Vector, Batch], Array]


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A strategy: which terms mu(w) has."""

    gradient: bool = False  # the loss gradient
    memory: bool = False  # the memorised envelope gradient
    inner: bool = False  # the gradient is taken after an inner step

    def grad(self, problem: Problem, w: Vector, batch: Batch) -> Vector:
        """grad f(w; B)."""
        return problem.grad(w, batch)

    def slope(self, problem: Problem, w: Vector, batches: list[Batch], eta_inner: float) -> Vector:
        """g(w) on the first batch; with an inner step, that is taken on the first batch, and g then on the last one."""
        if self.inner:
            w = w - eta_inner * self.grad(problem, w, batches[0])
        return self.grad(problem, w, batches[-1] if self.inner else batches[0])


@dataclass(frozen=True, kw_only=True)
class RMD(Mean):
    """mu(w) = w - eta_alpha grad phi(w), for any potential phi(problem, w, batch).

    >>> ridge = RMD(lambda problem, w, batch: 0.5 * (w @ w))
    >>> ridge.gradient, ridge.memory
    (True, False)
    """

    phi: Potential = field(kw_only=False)
    gradient: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if not callable(self.phi):
            raise FedpriorError(
                f"RMD: phi = {self.phi!r} is not valid; give a function phi(problem, w, batch) that gives a number"
            )

    def grad(self, problem: Problem, w: Vector, batch: Batch) -> Vector:
        """grad phi(w)."""
        return cast(Vector, jax.grad(self.phi, argnums=1)(problem, w, batch))


MEANS: Registry[Mean] = Registry(
    "mean",
    {
        "identity": Mean(),
        "lg": Mean(gradient=True),
        "meg": Mean(memory=True),
        "mh": Mean(gradient=True, memory=True),
        "mh-variant": Mean(gradient=True, memory=True, inner=True),
    },
)


def find_mean(mean: str | Mean) -> Mean:
    """A strategy by name, or the given one.

    >>> find_mean("mh")
    Mean(gradient=True, memory=True, inner=False)
    """
    chosen: object = MEANS.find(mean) if isinstance(mean, str) else mean
    if not isinstance(chosen, Mean):
        raise FedpriorError(
            f"a mean is one of {', '.join(MEANS)}, or an object of fedprior.priors.means.Mean such as RMD(phi); "
            f"given: {mean!r}"
        )
    return chosen

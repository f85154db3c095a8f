"""Priors on a client's personal model: generators, divergences and means. This file is the table of priors.

An entry is a subclass of :class:`fedprior.priors.bregman.Prior` that needs no arguments. Classes are imported when they are
first asked for, so that names can be listed and checked without JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprior.errors import FedpriorError
from fedprior.registry import Registry

if TYPE_CHECKING:
    from fedprior.priors.bregman import Prior

PRIORS: Registry[type[Prior]] = Registry(
    "prior",
    {
        "gaussian": "fedprior.priors.gaussians:Gaussian",
        "gaussian-diagonal": "fedprior.priors.gaussians:DiagonalGaussian",
        "gaussian-lowrank": "fedprior.priors.gaussians:LowRankGaussian",
        "gaussian-dense": "fedprior.priors.gaussians:DenseGaussian",
        "bernoulli": "fedprior.priors.bounded:Bernoulli",
        "poisson": "fedprior.priors.bounded:Poisson",
        "exponential": "fedprior.priors.bounded:Exponential",
    },
)


def find_prior(prior: str | Prior) -> Prior:
    """A prior by name, or the given one.

    >>> find_prior("bernoulli")
    Bernoulli()
    """
    from fedprior.priors.bregman import Prior

    chosen: object = PRIORS.find(prior)() if isinstance(prior, str) else prior
    if not isinstance(chosen, Prior):
        raise FedpriorError(
            f"a prior is one of {', '.join(PRIORS)}, or an object of a subclass of fedprior.priors.bregman.Prior; "
            f"given: {prior!r}"
        )
    return chosen

"""The paper's table of Bregman generators (730), printed from the families themselves.

Formulas are those families' own docstrings, and the last two columns are their own code at one point: the printed table has
errors (the divergence of the Bernoulli family holds for x in {0, 1} only, and that of the Poisson family takes a natural
parameter), so nothing of it is copied.
"""

from __future__ import annotations

import inspect

from fedprior.priors import PRIORS, find_prior
from fedprior.report.tables import Table

X, MU = 0.3, 0.6  # inside every family's domain
FORMULAS = {
    "g*(x)": "value",
    "s = grad g*(x)": "mirror",
    "g(s)": "conjugate",
    "x = grad g(s)": "inverse_mirror",
    "x of coordinates u": "to_mean",
}


def formula(family: type, method: str) -> str:
    """What a family says of one of its functions; the base class says what it is, and no formula."""
    from fedprior.priors.bregman import Prior

    own = getattr(family, method)
    if own is getattr(Prior, method):
        return "u" if method == "to_mean" else "derived"
    return (inspect.getdoc(own) or "").partition("\n")[0].partition(":")[0].rstrip(".")


def generators() -> Table:
    """A row for each family."""
    import jax.numpy as jnp

    from fedprior.core.vectors import Vector

    x, mu = Vector(jnp.array([X])), Vector(jnp.array([MU]))
    body = []
    for name in PRIORS:
        prior = find_prior(name).bind(x)
        slope = prior.push(prior.to_coordinates(mu), prior.to_coordinates(x))
        numbers = float(prior.divergence(x, mu)), float(slope.tree[0])
        formulas = [formula(type(prior), method) for method in FORMULAS.values()]
        body.append((name, *formulas, *(f"{number:.4f}" for number in numbers)))
    return Table(
        "generators of the families of priors",
        "P: precision; D(x, mu) = g*(x) - g*(mu) - <grad g*(mu), x - mu>; its gradient is in the coordinates of mu; numbers "
        "are computed by the families' code, of one parameter",
        ("family", *FORMULAS, f"D({X:g}, {MU:g})", "its gradient in mu"),
        tuple(body),
        left=1 + len(FORMULAS),
    )

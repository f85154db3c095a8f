"""Server relaxation, Algorithm 1, line 12 of PRIOR, after Karimireddy et al. 2020 and Dinh et al. 2020:

w <- (1 - beta) w + beta merge(w);    beta = 2 is PRIOR's aggregation momentum (AM)
"""

from __future__ import annotations

from jax import Array

from fedprior.core.hyper import Hyper
from fedprior.core.method import Algorithm
from fedprior.core.vectors import Scalar, Tree
from fedprior.errors import FedpriorError
from fedprior.wrappers import Wrapper

BETA = Hyper(
    "1: the plain mean; PRIOR's AM: 2",
    above=0,
    inert=1,
    meaning="how far the server moves, as a multiple of the way to the clients' mean",
)  # 0 would freeze the server


def relax(a: Algorithm, beta: Scalar, name: str = "this method") -> Algorithm:
    """Move the global model beta times as far as the merge does; ``name``: what an error calls the method."""
    if (wrong := BETA.wrong(beta, float)) is not None:
        raise FedpriorError(f"beta = {beta!r} {wrong}")

    def merge(server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        merged = a.merge(server, ups, weights, ids, key)
        old, new = a.global_model(server), a.global_model(merged)
        if old is None or new is None:
            raise FedpriorError(f"beta acts on a global model, and {name} has none; leave beta out")
        return a.with_global_model(merged, (1 - beta) * old + beta * new)

    return a._replace(merge=merge)


RELAXATION = Wrapper(
    kind=float,
    default=1.0,
    about=BETA,
    apply=lambda algorithm, settings, method: relax(algorithm, settings["beta"], type(method).__name__),
    needs_global_model=True,
)

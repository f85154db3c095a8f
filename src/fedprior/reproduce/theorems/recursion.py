"""Many runs of the method at once, on problems whose envelope gradients are known.

A round of pFedBreD with the identity mean and exact proximal points is a closed expression in w:

    i in S^(t):  w_i <- w_i - alpha_m grad F_i(w_i), R times from w_i = w;    w <- (1 - beta) w + beta mean_i w_i

One compiled loop over it serves all T, steps and seeds, some thousand times faster than the engine. Clients are drawn with
the engine's own keys, so that a run here and one by the engine with the same seed agree to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from fedprior.core.random import Purpose, key_for
from fedprior.engine.selection import uniform
from fedprior.reproduce.theorems.convex import D, Setting


class Ends(NamedTuple):
    """How the runs ended."""

    average: np.ndarray  # [seeds, D] the theorem's w_bar: weights (1 - step mu_F / 2)^-(t+1) on w^(t), t < T
    last: np.ndarray  # [seeds, D] w^(T)
    errors: np.ndarray  # [seeds] D_F(w_bar, w*)


Runner = Callable[..., Ends]


@lru_cache
def runner(setting: Setting, S: int, R: int = 1, seeds: int = 1, first: int = 0) -> Runner:
    """A function of (step, rounds, start, beta) that runs the seeds ``first``, ``first`` + 1, ... from w^(0) = start.

    step = alpha_m beta R; without a start, runs begin at w*. Whoever asks again is given the same compiled loop.
    """
    N, mu = setting.N, setting.mu_envelope

    def one(seed: Array, step: Array, rounds: Array, start: Array, beta: Array) -> tuple[Array, Array, Array]:
        run, q, alpha_m = jax.random.key(seed), 1 - step * mu / 2, step / (beta * R)

        def local(i: Array, w: Array) -> Array:
            return lax.fori_loop(0, R, lambda _, v: v - alpha_m * setting.slope(i, v), w)

        def body(t: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            w, total = carry
            ids = jnp.arange(N) if S == N else uniform(key_for(run, Purpose.SELECT, t), t, jnp.ones(N), S)
            merged = jnp.mean(jax.vmap(local, (0, None))(ids, w), 0)
            return (1 - beta) * w + beta * merged, q * total + w

        last, total = lax.fori_loop(0, rounds, body, (start, jnp.zeros(D)))
        average = total * (1 - q) / -jnp.expm1(rounds * jnp.log1p(-step * mu / 2))
        return average, last, setting.gap(average)

    compiled = jax.jit(jax.vmap(one, (0, None, None, None, None)))

    def run(step: float, rounds: int, start: np.ndarray | None = None, beta: float = 1.0) -> Ends:
        begin = jnp.asarray(setting.best if start is None else start)
        ends = compiled(jnp.arange(first, first + seeds), step, jnp.int32(rounds), begin, beta)
        return Ends(*(np.asarray(part) for part in ends))

    return run

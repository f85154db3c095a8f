"""Which clients are aggregated in a round. A strategy is a function of (key, round, sizes [N], S) that returns S ids."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from fedprior.errors import unknown

Selection = Callable[[Array, Array, Array, int], Array]


def uniform(key: Array, t: Array, sizes: Array, s: int) -> Array:
    """S clients without replacement, each set equally likely (the paper)."""
    return jax.random.permutation(key, sizes.shape[0])[:s]


def by_samples(key: Array, t: Array, sizes: Array, s: int) -> Array:
    """S clients without replacement, larger ones more likely (one after the other in proportion to their samples)."""
    return jax.random.choice(key, sizes.shape[0], (s,), replace=False, p=sizes / jnp.sum(sizes))


def round_robin(key: Array, t: Array, sizes: Array, s: int) -> Array:
    """The next S clients in order.

    >>> round_robin(jax.random.key(0), jnp.array(1), jnp.ones(5), 2).tolist()
    [2, 3]
    """
    return (t * s + jnp.arange(s)) % sizes.shape[0]


SELECTIONS: dict[str, Selection] = {"uniform": uniform, "samples": by_samples, "round-robin": round_robin}


def find(selection: str | Selection) -> Selection:
    """A strategy by name, or the given function."""
    if callable(selection):
        return selection
    if selection not in SELECTIONS:
        raise unknown("selection", selection, SELECTIONS)
    return SELECTIONS[selection]

"""Which clients are aggregated in a round. A strategy is a function of (key, round, sizes [N], S) that returns S ids."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior import registry
from fedprior.errors import FedpriorError
from fedprior.registry import Registry

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


SELECTIONS: Registry[Selection] = Registry(
    "selection", {"uniform": uniform, "samples": by_samples, "round-robin": round_robin}
)


def find_selection(selection: str | Selection) -> Selection:
    """A strategy by name, or the given function."""
    return selection if callable(selection) else SELECTIONS.find(selection)


def is_shipped(selection: str | Selection) -> bool:
    """Whether a strategy is one of the package's, which give distinct clients."""
    return not callable(selection) and selection not in registry.ADDED


def check_selection(select: Selection, sizes: Array, s: int, tries: int = 64) -> None:
    """Refuse a strategy that does not always give S distinct clients, by trying it with several keys and rounds."""
    for t in range(tries):
        check_distinct(select(jax.random.key(t), jnp.int32(t), jnp.asarray(sizes), s), len(sizes), s)


def check_distinct(ids: Array, n: int, s: int) -> None:
    """Refuse anything but S distinct clients of n: with one of them twice, the weights of a mean would not add up to 1."""
    given = np.asarray(ids)
    if given.shape != (s,) or len(set(given.tolist()) & set(range(n))) != s:
        raise FedpriorError(
            f"the selection must give {s} distinct clients of {n}; it gave {given.tolist()}: draw without replacement"
        )

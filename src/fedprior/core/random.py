"""Where randomness comes from: one key per run, parted by purpose, round and client.

The same functions are used in simulation and on a deployed client, so both see the same noise by construction.
"""

from __future__ import annotations

from enum import IntEnum

import jax
import jax.numpy as jnp
from jax import Array

from fedprior.core.vectors import Vector, polynomial


class Purpose(IntEnum):
    """The purposes; a new one gets a new number, an old one keeps its own."""

    INIT = 0
    SERVER = 1
    CLIENT = 2
    SELECT = 3
    BATCHES = 4
    SEND = 5
    LOCAL = 6
    MERGE = 7
    EVALUATE = 8
    JOIN = 9


def key_for(run: Array, purpose: Purpose, *parts: Array | int) -> Array:
    """The key of one purpose, further parted by numbers such as the round and the client.

    >>> bool(key_for(jax.random.key(0), Purpose.LOCAL, 1, 2) == key_for(jax.random.key(0), Purpose.LOCAL, 2, 1))
    False
    """
    key = jax.random.fold_in(run, int(purpose))
    for part in parts:
        key = jax.random.fold_in(key, part)
    return key


def scatter_bits(v: Array) -> Array:
    """Scatter the bits of a 32-bit number (the finalizer of MurmurHash3): cheap where a full random key would not be."""
    v = (v ^ (v >> 16)) * jnp.uint32(0x85EBCA6B)
    v = (v ^ (v >> 13)) * jnp.uint32(0xC2B2AE35)
    return v ^ (v >> 16)


# sqrt(2) erfinv(u) / u as a polynomial in sqrt(-log(1 - u^2)), to 1e-4 up to five standard deviations
QUANTILE = (
    *(1.253346, -0.001556688, 0.3383908, -0.01839756, 0.01461784),
    *(0.03439825, -0.03873084, 0.01445282, -0.002383541, 0.000148906),
)


def noise(key: Array, like: Vector) -> Vector:
    """Standard normal entries, each a hash of (key, its index): JAX's generator would cost ten gradients of a DNN.

    >>> noise(jax.random.key(0), Vector(jnp.zeros(2))).tree.shape
    (2,)
    """
    low, high = jax.random.bits(key, (2,), jnp.uint32)
    leaves, structure = jax.tree.flatten(like)
    drawn, first = [], 0
    for x in leaves:
        index = (first + jnp.arange(x.size, dtype=jnp.uint32)) * jnp.uint32(0x9E3779B9)
        bits = scatter_bits(scatter_bits(index + low) ^ high)
        uniform = ((bits >> 9).astype(x.dtype) + 0.5) * 2.0**-22 - 1  # inside (-1, 1)
        far = jnp.sqrt(-jnp.log((1 - uniform) * (1 + uniform)))
        drawn.append((uniform * polynomial(QUANTILE, far)).reshape(x.shape))
        first += x.size
    return jax.tree.unflatten(structure, drawn)

"""Where randomness comes from: one key per run, parted by purpose, round and client.

The same functions are used in simulation and on a deployed client, so both see the same noise by construction.
"""

from __future__ import annotations

from enum import IntEnum

import jax
from jax import Array


class Stream(IntEnum):
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


def stream(run: Array, purpose: Stream, *parts: Array | int) -> Array:
    """The key of one purpose, further parted by numbers such as the round and the client.

    >>> bool(stream(jax.random.key(0), Stream.LOCAL, 1, 2) == stream(jax.random.key(0), Stream.LOCAL, 2, 1))
    False
    """
    key = jax.random.fold_in(run, int(purpose))
    for part in parts:
        key = jax.random.fold_in(key, part)
    return key

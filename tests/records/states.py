"""States of a run that nobody trained."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedprior.engine.round import State

N = 3


def state(t: int = 0, n: int = N, value: float = 1.0) -> State:
    return State(
        round=jnp.asarray(t, jnp.int32),
        seed=jax.random.key_data(jax.random.key(7)),
        server={"w": jnp.full((2, 2), value + t), "key": jax.random.key(3)},
        clients={"theta": jnp.arange(n * 2, dtype=jnp.float32).reshape(n, 2)},
        cursor=jnp.arange(n, dtype=jnp.int32),
    )

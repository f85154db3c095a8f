"""A client in another process: its own message, its own samples, its own state, and the same bits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SIZES, blobs, engine_of, states_of

from fedprior.core.vectors import row
from fedprior.data.federation import Samples
from fedprior.engine.round import client_round, keys_for, message
from fedprior.methods import make

BATCH = 8


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


@pytest.mark.bits
@pytest.mark.parametrize("name", ["mh", "scaffold"])
def test_a_client_that_holds_its_own_samples_alone_does_the_same(name: str) -> None:
    """What the deployed client computes from its message, with its samples at 0, is what the simulation computes."""
    problem, data = blobs()
    engine = engine_of(problem, make(name, **({"K": 2} if name == "mh" else {}), R=3), data, batch_size=BATCH)
    before = engine.init(1)
    host = jax.device_get(before)
    after, _ = engine.step(before)
    algorithm, expected = engine.algorithm, states_of(after, len(SIZES))
    send = jax.jit(lambda outbox, i: message(algorithm, outbox, host.seed, host.round, i))

    @jax.jit
    def work(samples: Samples, client: Any, cursor: Any, down: Any, keys: Any) -> Any:
        return client_round(problem, algorithm, samples, 0, BATCH, client, cursor, down, keys)

    for i in (0, 3):
        part = slice(int(data.train.start[i]), int(data.train.start[i] + data.train.size[i]))
        alone = Samples(data.train.x[part], data.train.y[part], np.zeros(1, np.int32), data.train.size[i : i + 1])
        down = jax.device_get(send(algorithm.outbox(host.server), jnp.int32(i)))
        keys = keys_for(host.seed, host.round, jnp.int32(i))
        client, cursor, _, _ = work(alone, row(host.clients, i), host.cursor[i], down, keys)
        for a, b in zip(leaves(client), leaves(row(expected, i)), strict=True):
            assert np.array_equal(a, b)
        assert cursor == np.asarray(after.cursor)[i]


def test_batches_keep_their_order_and_noise_is_new_in_each_round() -> None:
    """Keys are made of seed, round and number: one order of batches for the whole run, and new noise in each round."""
    keys = keys_for(jax.random.key_data(jax.random.key(0)), jnp.int32(2), jnp.int32(1))
    other = keys_for(jax.random.key_data(jax.random.key(0)), jnp.int32(3), jnp.int32(1))
    assert keys.order == other.order
    assert keys.local != other.local

"""Which client lies where, and states that fit any number of devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedprior.engine.placement import Placement
from fedprior.engine.round import State


@pytest.mark.parametrize(
    ("n", "devices", "together", "slots"), [(5, 1, 1, 5), (5, 2, 1, 6), (5, 2, 2, 8), (1, 2, 1, 2)]
)
def test_blocks_are_filled_up_with_idle_slots(n: int, devices: int, together: int, slots: int) -> None:
    placement = Placement(n, jax.devices()[:devices], together)
    assert (placement.slots, placement.slots % (devices * together)) == (slots, 0)


def test_a_state_goes_to_the_host_without_idle_slots_and_back() -> None:
    placement = Placement(3, jax.devices()[:2])
    clients = {"theta": jnp.arange(8.0).reshape(4, 2), "key": jax.random.split(jax.random.key(0), 4)}
    state = State(jnp.int32(2), jax.random.key_data(jax.random.key(1)), jnp.ones(2), clients, jnp.arange(4))
    host = placement.to_host(state)
    assert host.clients["theta"].shape == (3, 2)
    for devices in (1, 2):
        back = Placement(3, jax.devices()[:devices]).from_host(host)
        assert np.array_equal(np.asarray(back.clients["theta"])[:3], np.asarray(clients["theta"])[:3])
        assert np.array_equal(jax.random.key_data(back.clients["key"])[:3], jax.random.key_data(clients["key"])[:3])
        assert len(back.cursor) == (4 if devices == 2 else 3)


def test_what_lies_on_the_devices_is_brought_to_the_first() -> None:
    placement = Placement(4, jax.devices()[:2])
    split = jax.device_put(jnp.arange(4), placement.split)
    assert [part.tolist() for part in placement.gather(split)] == [[0, 1], [2, 3]]
    same = placement.spread(jnp.arange(3))
    assert placement.first(same).tolist() == [0, 1, 2]
    assert len(same.sharding.device_set) == 2
    owner, rank = placement.owners(jnp.array([0, 2, 3]))
    assert (owner.tolist(), rank.tolist()) == ([0, 1, 1], [0, 0, 1])

"""Which client lies on which device, and how trees get from the host to the devices and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fedprior.engine.round import State

CLIENTS = "clients"  # the name of the device axis over which clients are split
T = TypeVar("T")


class Placement:
    """N clients on the devices: contiguous blocks of equal length, the last filled up with idle slots."""

    def __init__(self, n_clients: int, devices: list[jax.Device] | None = None, clients_per_vmap: int = 1):
        self.devices = list(devices or jax.devices())
        self.n_clients, self.clients_per_vmap = n_clients, clients_per_vmap
        self.n_devices = len(self.devices)
        self.block = -(-n_clients // (self.n_devices * clients_per_vmap)) * clients_per_vmap  # slots per device
        self.slots = self.block * self.n_devices

    @cached_property
    def mesh(self) -> jax.sharding.Mesh:
        """The devices in a row."""
        auto = (jax.sharding.AxisType.Auto,)
        return jax.make_mesh((self.n_devices,), (CLIENTS,), axis_types=auto, devices=self.devices)

    @property
    def split(self) -> NamedSharding:
        """Each device holds its block."""
        return NamedSharding(self.mesh, P(CLIENTS))

    @property
    def same(self) -> NamedSharding:
        """Every device holds a copy."""
        return NamedSharding(self.mesh, P())

    def replicate(self, tree: Any) -> Any:
        """Put host arrays on every device."""
        return jax.device_put(tree, self.same)

    def spread(self, tree: Any) -> Any:
        """Copy arrays of one device to every device."""

        def copy(x: Array) -> Array:
            copies = [jax.device_put(x, device) for device in self.devices]
            return jax.make_array_from_single_device_arrays(x.shape, self.same, copies)

        return jax.tree.map(copy, tree)

    def gather(self, tree: Any) -> list[Any]:
        """Bring what lies on each device to the first: a tree per device."""
        return [self._shard(tree, d) for d in range(self.n_devices)]

    def first(self, tree: T) -> T:
        """The copy on the first device of what all devices share."""
        return self._shard(tree, 0)

    def _shard(self, tree: T, d: int) -> T:
        def shard(x: Array) -> Array:
            shards = sorted(x.addressable_shards, key=lambda s: self.devices.index(s.device))
            return jax.device_put(shards[d].data, self.devices[0])

        return jax.tree.map(shard, tree)

    def shard_map(self, f: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        """Run ``f`` once per device on its block."""
        return jax.shard_map(f, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def map_block(self, f: Callable[..., Any], *stacked: Any) -> Any:
        """On one device: f(i, entry i of ``stacked``) for each client i of its block, idle slots as the last client."""
        first = lax.axis_index(CLIENTS) * self.block
        ids = jnp.minimum(first + jnp.arange(self.block), self.n_clients - 1)
        batch_size = None if self.clients_per_vmap == 1 else self.clients_per_vmap
        return lax.map(lambda each: f(*each), (ids, *stacked), batch_size=batch_size)

    # -- clients that train away from home: those sampled in a round are shared out anew over the devices -----------------

    def owners(self, ids: Array) -> tuple[Array, Array]:
        """Which device owns each of the sorted ids, and the id's rank among that device's."""
        owner = ids // self.block
        return owner, jnp.arange(len(ids)) - jnp.searchsorted(ids, owner * self.block)

    def fetch(self, stacked: Any, ids: Array) -> Any:
        """On one device: the entries of the sampled clients that live here, in order (the rest is filling)."""
        first = lax.axis_index(CLIENTS) * self.block
        ranks = jnp.searchsorted(ids, first) + jnp.arange(min(len(ids), self.block))
        slot = jnp.clip(ids[jnp.minimum(ranks, len(ids) - 1)] - first, 0, self.block - 1)
        return jax.tree.map(lambda x: x[slot], stacked)

    def store(self, stacked: Any, trained: list[Any], ids: Array) -> Any:
        """On one device: put the new entries of the sampled clients that live here back in place."""
        first = lax.axis_index(CLIENTS) * self.block
        lives_here = (ids >= first) & (ids < first + self.block)
        slot = jnp.where(lives_here, ids - first, self.block)  # out of range: dropped
        new = jax.tree.map(lambda *x: jnp.concatenate(x)[: len(ids)], *trained)
        return jax.tree.map(lambda x, v: x.at[slot].set(v, mode="drop"), stacked, new)

    # -- states on the host: without idle slots, so that they fit any number of devices -----------------------------------

    def to_host(self, state: State) -> State:
        """A state without idle slots, for a checkpoint."""

        def trim(x: Array) -> Any:
            return x[: self.n_clients]

        return state._replace(clients=jax.tree.map(trim, state.clients), cursor=trim(state.cursor))

    def from_host(self, state: State) -> State:
        """The state that ``to_host`` gave, on the devices."""

        def fill(x: Any) -> Any:
            if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
                return jax.random.wrap_key_data(fill(np.asarray(jax.random.key_data(x))))
            x = np.asarray(x)
            return np.concatenate([x, np.zeros((self.slots - len(x), *x.shape[1:]), x.dtype)])

        clients, cursor = jax.tree.map(fill, (state.clients, state.cursor))
        home = jax.device_put(state._replace(clients=(), cursor=()), self.devices[0])
        clients, cursor = jax.device_put((clients, cursor), self.split)
        return home._replace(clients=clients, cursor=cursor)

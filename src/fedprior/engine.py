"""The only round loop: select -> send -> local -> merge, all compiled.

Clients are split into blocks, one block per device; one program has each device walk over its clients one after the other
(or a chunk at a time), updating their states in place. Uploads are then brought to one device in client order, where a
second program merges them, so that the numbers do not depend on how many devices there are. Devices never wait for each
other inside a program: collective operations between host devices can deadlock, and are killed when one device is late.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from fedprior import selection as selections
from fedprior.data.clients import ClientData, Federation, Samples
from fedprior.errors import FedpriorError, unknown
from fedprior.method import Info, Method
from fedprior.problem import Problem
from fedprior.streams import Stream, stream
from fedprior.vectors import Tree, Vector, put_row, row

CLIENTS = "clients"  # the name of the device axis over which clients are split
WEIGHTS = ("samples", "uniform")


class State(NamedTuple):
    """Everything a run is, between two rounds."""

    round: Array  # rounds done
    seed: Array  # the run's key, as data
    server: Tree  # on the first device
    clients: Tree  # the method's states [N', ...], N' = N filled up to a multiple of the devices
    cursor: Any  # [N'] batches each client has drawn since the run began


class Fleet:
    """How N clients lie on the devices: contiguous blocks of equal length, the last filled up with idle places."""

    def __init__(self, n_clients: int, devices: list[jax.Device] | None = None, chunk: int = 1):
        self.devices = devices = list(devices or jax.devices())
        self.n_clients, self.chunk = n_clients, chunk
        self.n_devices = len(devices)
        self.block = -(-n_clients // (self.n_devices * chunk)) * chunk  # places per device
        self.places = self.block * self.n_devices
        self.mesh = jax.make_mesh(
            (self.n_devices,), (CLIENTS,), axis_types=(jax.sharding.AxisType.Auto,), devices=devices
        )
        self.split = NamedSharding(self.mesh, P(CLIENTS))
        self.same = NamedSharding(self.mesh, P())

    def replicate(self, tree: Any) -> Any:
        """Put host arrays on every device."""
        return jax.device_put(tree, self.same)

    def spread(self, tree: Any) -> Any:
        """Copy arrays of one device to every device."""

        def copy(x: Array) -> Array:
            copies = [jax.device_put(x, device) for device in self.devices]
            return jax.make_array_from_single_device_arrays(x.shape, self.same, copies)

        return jax.tree.map(copy, tree)

    def gather(self, tree: Any, split: bool = True) -> list[Any]:
        """Bring what lies on each device to the first: a tree per device (``split``), or the one copy they share."""
        leaves, structure = jax.tree.flatten(tree)
        shards = [sorted(x.addressable_shards, key=lambda s: self.devices.index(s.device)) for x in leaves]
        return [
            jax.tree.unflatten(structure, [jax.device_put(shard[d].data, self.devices[0]) for shard in shards])
            for d in range(self.n_devices if split else 1)
        ]

    def shard_map(self, f: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        """Run ``f`` once per device on its block."""
        return jax.shard_map(f, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def round_of_one_client(
    problem: Problem,
    method: Method,
    samples: Samples,
    batch_size: int,
    state: State,
    i: Array,
    client: Tree,
    cursor: Array,
) -> tuple[Tree, Array, Tree, Info]:
    """Send and local for client i: what the engine maps over clients and a deployed client runs by itself.

    ``state.server`` is the server's outbox.
    """
    run = jax.random.wrap_key_data(state.seed)
    down = method.send(state.server, i, stream(run, Stream.SEND, state.round, i))
    data = ClientData(samples, i, batch_size, stream(run, Stream.BATCHES, i), cursor)
    key = stream(run, Stream.LOCAL, state.round, i)
    # The barriers keep the compiler from fusing a client's mathematics with its surroundings, which could change bits.
    client, down = lax.optimization_barrier((client, down))
    client, up, info = lax.optimization_barrier(method.local(problem, client, down, data, key))
    return client, cursor + data.drawn, up, info


def merge_of_one_round(method: Method, state: State, ups: Tree, ids: Array, sizes: Array, weights: str) -> Tree:
    """The server's part of a round: uploads [S, ...] of clients ids [S] with sizes [S] -> its new state."""
    key = stream(jax.random.wrap_key_data(state.seed), Stream.MERGE, state.round)
    share = sizes.astype(jnp.result_type(float)) if weights == "samples" else jnp.ones(sizes.shape)
    server, ups, share = lax.optimization_barrier((state.server, ups, share / jnp.sum(share)))
    return lax.optimization_barrier(method.merge(server, ups, share, ids, key))


class Engine:
    """Runs one method on one federation.

    ``aggregated``: S, the number of clients whose uploads are merged in a round. ``participation``: "all" (every client
    trains, the paper's protocol) or "sampled" (only those S train); None takes the method's default. ``selection``: a
    name or a function. ``weights``: "samples" or "uniform". ``chunk``: clients mapped at a time by vmap on each device; 1
    is best on CPUs and bit-equal to running clients one by one, tens are best on accelerators.
    """

    def __init__(
        self,
        problem: Problem,
        method: Method,
        federation: Federation,
        *,
        batch_size: int = 20,
        aggregated: int | None = None,
        participation: str | None = None,
        selection: str | selections.Selection = "uniform",
        weights: str = "samples",
        devices: list[jax.Device] | None = None,
        chunk: int = 1,
    ):
        n = federation.n_clients
        self.problem, self.method, self.federation = problem, method, federation
        self.batch_size = batch_size
        self.aggregated = n if aggregated is None else aggregated
        self.participation = participation or method.participation[0]
        if not 1 <= self.aggregated <= n:
            raise FedpriorError(f"aggregated = {self.aggregated} clients per round, but there are {n}; valid: 1 to {n}")
        if self.participation not in method.participation:
            name, valid = type(method).__name__, " or ".join(method.participation)
            raise FedpriorError(f"participation '{self.participation}' makes no sense for {name}; valid: {valid}")
        if weights not in WEIGHTS:
            raise unknown("weights", weights, WEIGHTS)
        if batch_size < 1 or chunk < 1:
            raise FedpriorError(f"batch size {batch_size} and chunk {chunk} must be at least 1")
        method.check(problem, problem.init(jax.random.key(0)))
        self._select, self.weights = selections.find(selection), weights
        tried = np.asarray(
            self._select(jax.random.key(0), jnp.int32(0), jnp.asarray(federation.train.size), self.aggregated)
        )
        if tried.shape != (self.aggregated,) or len(set(tried.tolist()) & set(range(n))) != self.aggregated:
            raise FedpriorError(
                f"the selection must give {self.aggregated} distinct clients of {n}; it gave {tried.tolist()}"
            )
        self.fleet = Fleet(n, devices, chunk)
        arrays, self._static = eqx.partition(problem, eqx.is_array)
        self.problem_arrays = self.fleet.replicate(arrays)
        self.samples = federation.placed("train", self.fleet.same)
        self.samples_at_home = self.fleet.gather(self.samples, split=False)[0]
        self._init = self.starting(self.start_with)
        jax.eval_shape(
            self.start_with, self.problem_arrays, jax.random.key_data(jax.random.key(0))
        )  # what does not fit N
        self._choose = jax.jit(self._chosen)
        self._merge = jax.jit(self._merged, donate_argnums=0)
        whole, part, in_blocks = P(), P(CLIENTS), self.fleet.shard_map
        self._all = jax.jit(in_blocks(self._train_all, (part, whole, whole, whole, whole), part), donate_argnums=0)
        self._fetch = jax.jit(in_blocks(self._fetched, (part, whole), part))
        self._sampled = jax.jit(in_blocks(self._train_sampled, whole, part))
        self._store = jax.jit(in_blocks(self._stored, (part, whole, whole), part), donate_argnums=0)

    # -- a run ---------------------------------------------------------------------------------------------------------

    def init(self, seed: int) -> State:
        """The state before the first round."""
        return self._init(jax.random.key_data(jax.random.key(seed)))

    def starting(self, start: Callable[..., State]) -> Callable[..., State]:
        """Compile ``start(problem's arrays, ...)``; the server's part stays on the first device, clients go to theirs."""
        compiled = jax.jit(start)

        def begin(*args: Any) -> State:
            state = compiled(self.fleet.gather(self.problem_arrays, split=False)[0], *args)
            clients, cursor = jax.device_put((state.clients, state.cursor), self.fleet.split)
            return state._replace(clients=clients, cursor=cursor)

        return begin

    def _home(self, state: State) -> State:
        """The server's part on the first device; the server sees no client's state."""
        return self.fleet.gather(state._replace(clients=(), cursor=()), split=False)[0]

    def sent(self, state: State) -> State:
        """What every device may read of the server: its outbox."""
        home = self._home(state)
        return self.fleet.spread(home._replace(server=self.method.outbox(home.server)))

    def shared_model(self, state: State) -> Vector | None:
        """The global model on every device, or None."""
        return self.fleet.spread(self.method.global_model(self._home(state).server))

    def step(self, state: State) -> tuple[State, Info]:
        """One round; the given state's memory is reused, so it must not be used again. Info is averaged over clients."""
        fleet = self.fleet
        home, sent = self._home(state), self.sent(state)
        ids = self._choose(home, self.samples_at_home.size)
        everywhere = fleet.spread(ids)
        held = (state.clients, state.cursor)
        if self.participation == "all":
            clients, cursor, ups, info = self._all(held, sent, self.problem_arrays, self.samples, everywhere)
        else:
            fetched = [fleet.spread(part) for part in fleet.gather(self._fetch(held, everywhere))]
            trained, ups, info = self._sampled(sent, fetched, self.problem_arrays, self.samples, everywhere)
            back = [fleet.spread(part) for part in fleet.gather(trained)]
            clients, cursor = self._store(held, back, everywhere)
        del sent  # its copies may be as large as all clients' states, and are not needed any more
        merged, info = self._merge(home, fleet.gather(ups), fleet.gather(info), ids, self.samples_at_home.size)
        return State(merged.round, merged.seed, merged.server, clients, cursor), info

    def rebuild(self, arrays: Any) -> Problem:
        """The problem around its arrays, which a compiled program takes as an argument (``problem_arrays``)."""
        return eqx.combine(arrays, self._static)

    def one_client(self, state: State, i: int) -> tuple[Tree, Array, Tree, Info]:
        """Client i's part of the coming round, compiled by itself: its new state, cursor, upload and info."""
        if not hasattr(self, "_one"):
            self._one = jax.jit(
                lambda arrays, samples, state, i, client, cursor: round_of_one_client(
                    self.rebuild(arrays), self.method, samples, self.batch_size, state, i, client, cursor
                )
            )
        sent = state._replace(server=self.method.outbox(state.server))
        local = jax.device_get((self.problem_arrays, self.samples, sent))
        return self._one(*local, jnp.asarray(i, jnp.int32), row(local[2].clients, i), local[2].cursor[i])

    # -- the compiled parts --------------------------------------------------------------------------------------------

    def start_with(self, arrays: Any, seed: Array) -> State:
        """The state before the first round (to be compiled by ``starting``)."""
        problem, run = self.rebuild(arrays), jax.random.wrap_key_data(seed)
        w0 = problem.init(stream(run, Stream.INIT))
        keys = jax.vmap(lambda i: stream(run, Stream.CLIENT, i))(jnp.arange(self.fleet.places))
        return State(
            round=jnp.zeros((), jnp.int32),
            seed=seed,
            server=self.method.server(problem, w0, self.fleet.n_clients, stream(run, Stream.SERVER)),
            clients=jax.vmap(lambda key: self.method.client(w0, key))(keys),
            cursor=jnp.zeros((self.fleet.places,), jnp.int32),
        )

    def _chosen(self, home: State, sizes: Array) -> Array:
        """The clients aggregated in this round, in ascending order."""
        key = stream(jax.random.wrap_key_data(home.seed), Stream.SELECT, home.round)
        return jnp.sort(self._select(key, home.round, sizes, self.aggregated)).astype(jnp.int32)

    def _merged(self, home: State, ups: list[Tree], info: list[Info], ids: Array, sizes: Array) -> tuple[State, Info]:
        """On the first device: uploads in the order of ids, the method's merge, and the average of info."""
        if self.participation == "all":
            owner, rank = self._owners(ids)
            at = owner * min(self.aggregated, self.fleet.block) + rank
            in_order = jax.tree.map(lambda *x: jnp.concatenate(x)[at], *ups)
        else:
            in_order = jax.tree.map(lambda *x: jnp.concatenate(x)[: len(ids)], *ups)
        server = merge_of_one_round(self.method, home, in_order, ids, sizes[ids], self.weights)
        trained = self.fleet.n_clients if self.participation == "all" else len(ids)
        average = jax.tree.map(lambda *x: jnp.sum(jnp.concatenate(x)) / trained, *info)
        return home._replace(round=home.round + 1, server=server), average

    def _owners(self, ids: Array) -> tuple[Array, Array]:
        """Which device owns each of the sorted ids, and the id's rank among that device's."""
        owner = ids // self.fleet.block
        return owner, jnp.arange(len(ids)) - jnp.searchsorted(ids, owner * self.fleet.block)

    def _client(self, state: State, arrays: Any, samples: Samples) -> Callable[..., tuple[Tree, Array, Tree, Info]]:
        """(i, client, cursor) -> new client, cursor, upload, info; for a chunk of clients when chunk > 1."""
        one = partial(round_of_one_client, self.rebuild(arrays), self.method, samples, self.batch_size, state)
        return one if self.fleet.chunk == 1 else jax.vmap(one)

    def _walk(
        self, one: Callable[..., Any], ids: Array, count: Array, clients: Tree, cursor: Array, slot: Array, slots: int
    ) -> tuple[Tree, Array, Tree, Info]:
        """Train the first ``count`` places of a block in place; keep the upload of place k in slot[k] (slots: dropped)."""
        c = self.fleet.chunk

        def get(tree: Tree, k: Array) -> Tree:
            return row(tree, k) if c == 1 else jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, k * c, c), tree)

        def put(tree: Tree, k: Array, new: Tree, at: Array | None = None) -> Tree:
            if c == 1:
                return put_row(tree, k if at is None else at, new)
            where = k * c + jnp.arange(c) if at is None else at
            return jax.tree.map(lambda x, v: x.at[where].set(v.astype(x.dtype)), tree, new)

        shapes = jax.eval_shape(one, get(ids, jnp.int32(0)), get(clients, jnp.int32(0)), get(cursor, jnp.int32(0)))
        drop = 0 if c == 1 else 1
        empty = partial(jax.tree.map, lambda s: jnp.zeros((slots + 1, *s.shape[drop:]), s.dtype))
        total = jax.tree.map(lambda s: jnp.zeros((1,), s.dtype), shapes[3])

        def step(k: Array, carry: Any) -> Any:
            clients, cursor, ups, total = carry
            client, at, up, info = one(get(ids, k), get(clients, k), get(cursor, k))
            real = k * c + jnp.arange(c) < count
            info = jax.tree.map(lambda x: jnp.sum(jnp.where(real, x, 0)), info)
            return (
                put(clients, k, client),
                put(cursor, k, at),
                put(ups, k, up, get(slot, k)),
                jax.tree.map(jnp.add, total, info),
            )

        clients, cursor, ups, total = lax.fori_loop(0, -(-count // c), step, (clients, cursor, empty(shapes[2]), total))
        return clients, cursor, jax.tree.map(lambda x: x[:slots], ups), total

    def _train_all(
        self, held: tuple[Tree, Array], server: State, arrays: Any, samples: Samples, ids: Array
    ) -> tuple[Tree, Array, Tree, Info]:
        """On one device: train its whole block, keep the uploads of the aggregated ones."""
        n, block = self.fleet.n_clients, self.fleet.block
        first = lax.axis_index(CLIENTS) * block
        here = first + jnp.arange(block)
        slots = min(self.aggregated, block)
        # ids are sorted, so those of one device are neighbours: slot = rank among this device's aggregated clients
        rank = jnp.searchsorted(ids, here)
        chosen = (rank < len(ids)) & (ids[jnp.minimum(rank, len(ids) - 1)] == here)
        return self._walk(
            self._client(server, arrays, samples),
            jnp.minimum(here, n - 1),
            jnp.clip(n - first, 0, block),
            *held,
            jnp.where(chosen, rank - jnp.searchsorted(ids, first), slots),
            slots,
        )

    def _train_sampled(
        self, server: State, fetched: list[Tree], arrays: Any, samples: Samples, ids: Array
    ) -> tuple[Tree, Tree, Info]:
        """On one device: train an equal share of the sampled clients, wherever they live."""
        s, share = len(ids), self._share
        mine = lax.axis_index(CLIENTS) * share + jnp.arange(share)
        padded = jnp.minimum(mine, s - 1)
        owner, rank = self._owners(ids)
        at = (owner * min(s, self.fleet.block) + rank)[padded]
        clients, cursor = jax.tree.map(lambda *x: jnp.concatenate(x)[at], *fetched)
        clients, cursor, ups, info = self._walk(
            self._client(server, arrays, samples),
            ids[padded],
            jnp.clip(s - mine[0], 0, share),
            clients,
            cursor,
            jnp.arange(share),
            share,
        )
        return (clients, cursor), ups, info

    @property
    def _share(self) -> int:
        """Places per device for the sampled clients."""
        chunk = self.fleet.chunk
        return -(-self.aggregated // (self.fleet.n_devices * chunk)) * chunk

    def _fetched(self, held: Tree, ids: Array) -> Tree:
        """On one device: the states of the sampled clients that live here, in order (the rest is filling)."""
        first = lax.axis_index(CLIENTS) * self.fleet.block
        slots = jnp.searchsorted(ids, first) + jnp.arange(min(len(ids), self.fleet.block))
        place = jnp.clip(ids[jnp.minimum(slots, len(ids) - 1)] - first, 0, self.fleet.block - 1)
        return jax.tree.map(lambda x: x[place], held)

    def _stored(self, held: Tree, trained: list[Tree], ids: Array) -> Tree:
        """On one device: put the new states of the sampled clients that live here back in place."""
        first = lax.axis_index(CLIENTS) * self.fleet.block
        lives_here = (ids >= first) & (ids < first + self.fleet.block)
        place = jnp.where(lives_here, ids - first, self.fleet.block)  # out of range: dropped
        new = jax.tree.map(lambda *x: jnp.concatenate(x)[: len(ids)], *trained)
        return jax.tree.map(lambda x, v: x.at[place].set(v, mode="drop"), held, new)


def states_of(state: State, n_clients: int) -> Tree:
    """The clients' states without idle places, on the host."""
    return jax.tree.map(lambda x: np.asarray(x)[:n_clients], jax.device_get(state.clients))

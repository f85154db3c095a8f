"""The only round loop: select -> send -> local -> merge, one compiled program per round.

Clients are split into blocks, one block per device; each device walks over its own clients one after the other (or a
chunk at a time), updating their states in place. Uploads are gathered in client order before ``merge``, so that the
numbers do not depend on how many devices there are.
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
from fedprior.vectors import Tree, put_row, row

CLIENTS = "clients"  # the name of the device axis over which clients are split
WEIGHTS = ("samples", "uniform")


class State(NamedTuple):
    """Everything a run is, between two rounds."""

    round: Array  # rounds done
    seed: Array  # the run's key, as data
    server: Tree
    clients: Tree  # the method's states [N', ...], N' = N filled up to a multiple of the devices
    cursor: Array  # [N'] batches each client has drawn since the run began


class Fleet:
    """How N clients lie on the devices: contiguous blocks of equal length, the last filled up with idle places."""

    def __init__(self, n_clients: int, devices: list[jax.Device] | None = None, chunk: int = 1):
        devices = list(devices or jax.devices())
        self.n_clients, self.chunk = n_clients, chunk
        self.n_devices = len(devices)
        self.block = -(-n_clients // (self.n_devices * chunk)) * chunk  # places per device
        self.places = self.block * self.n_devices
        self.mesh = jax.make_mesh((self.n_devices,), (CLIENTS,), axis_types=(jax.sharding.AxisType.Auto,), devices=devices)
        self.split = NamedSharding(self.mesh, P(CLIENTS))
        self.same = NamedSharding(self.mesh, P())

    def replicate(self, tree: Any) -> Any:
        """Put the same arrays on every device."""
        return jax.device_put(tree, self.same)

    def shard_map(self, f: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        """Run ``f`` once per device on its block."""
        return jax.shard_map(f, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def round_of_one_client(
    problem: Problem, method: Method, samples: Samples, batch_size: int, state: State, i: Array, client: Tree, cursor: Array
) -> tuple[Tree, Array, Tree, Info]:
    """Send and local for client i: what the engine maps over clients and a deployed client runs by itself."""
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
        self._select, self.weights = selections.find(selection), weights
        self.fleet = Fleet(n, devices, chunk)
        self._arrays, self._static = eqx.partition(problem, eqx.is_array)
        self._arrays = self.fleet.replicate(self._arrays)
        self.samples = self.fleet.replicate(Samples(*map(jnp.asarray, federation.train)))
        self._init = jax.jit(self._start, out_shardings=self._shardings(self._start))
        self._round = jax.jit(self._one_round, donate_argnums=0, out_shardings=(self._shardings(self._start), self.fleet.same))

    # -- a run ---------------------------------------------------------------------------------------------------------

    def init(self, seed: int) -> State:
        """The state before the first round."""
        return self._init(self._arrays, jax.random.key_data(jax.random.key(seed)))  # type: ignore[no-any-return]

    def step(self, state: State) -> tuple[State, Info]:
        """One round; the given state's memory is reused, so it must not be used again. Info is averaged over clients."""
        return self._round(state, self._arrays, self.samples)  # type: ignore[no-any-return]

    def one_client(self, state: State, i: int) -> tuple[Tree, Array, Tree, Info]:
        """Client i's part of the coming round, compiled by itself: its new state, cursor, upload and info."""
        if not hasattr(self, "_one"):
            self._one = jax.jit(
                lambda arrays, samples, state, i, client, cursor: round_of_one_client(
                    eqx.combine(arrays, self._static), self.method, samples, self.batch_size, state, i, client, cursor
                )
            )
        local = jax.device_get((self._arrays, self.samples, state))
        return self._one(*local, jnp.asarray(i, jnp.int32), row(local[2].clients, i), local[2].cursor[i])  # type: ignore[no-any-return]

    # -- the compiled parts --------------------------------------------------------------------------------------------

    def _start(self, arrays: Any, seed: Array) -> State:
        problem, run = eqx.combine(arrays, self._static), jax.random.wrap_key_data(seed)
        w0 = problem.init(stream(run, Stream.INIT))
        keys = jax.vmap(lambda i: stream(run, Stream.CLIENT, i))(jnp.arange(self.fleet.places))
        return State(
            round=jnp.zeros((), jnp.int32),
            seed=seed,
            server=self.method.server(problem, w0, self.fleet.n_clients, stream(run, Stream.SERVER)),
            clients=jax.vmap(lambda key: self.method.client(w0, key))(keys),
            cursor=jnp.zeros((self.fleet.places,), jnp.int32),
        )

    def _shardings(self, start: Callable[..., State]) -> State:
        shape = jax.eval_shape(start, self._arrays, jax.random.key_data(jax.random.key(0)))
        same = partial(jax.tree.map, lambda _: self.fleet.same)
        split = partial(jax.tree.map, lambda _: self.fleet.split)
        return State(same(shape.round), same(shape.seed), same(shape.server), split(shape.clients), split(shape.cursor))

    def _one_round(self, state: State, arrays: Any, samples: Samples) -> tuple[State, Info]:
        run = jax.random.wrap_key_data(state.seed)
        ids = jnp.sort(
            self._select(stream(run, Stream.SELECT, state.round), state.round, samples.size, self.aggregated)
        ).astype(jnp.int32)
        layout = State(P(), P(), P(), P(CLIENTS), P(CLIENTS))  # type: ignore[arg-type]
        train = self._train_all if self.participation == "all" else self._train_sampled
        clients, cursor, ups, info = self.fleet.shard_map(
            train, in_specs=(layout, P(), P(), P()), out_specs=(P(CLIENTS), P(CLIENTS), P(), P())
        )(state, arrays, samples, ids)
        merge = partial(merge_of_one_round, self.method, weights=self.weights)
        here = state._replace(clients=(), cursor=jnp.zeros(()))  # the server sees no client's state
        server = self.fleet.shard_map(merge, in_specs=P(), out_specs=P())(here, ups, ids, samples.size[ids])
        return State(state.round + 1, state.seed, server, clients, cursor), info

    def _client(self, state: State, arrays: Any, samples: Samples) -> Callable[..., tuple[Tree, Array, Tree, Info]]:
        """(i, client, cursor) -> new client, cursor, upload, info; for a chunk of clients when chunk > 1."""
        one = partial(
            round_of_one_client, eqx.combine(arrays, self._static), self.method, samples, self.batch_size, state
        )
        return one if self.fleet.chunk == 1 else jax.vmap(one)

    def _walk(
        self, one: Callable[..., Any], ids: Array, count: Array, clients: Tree, cursor: Array, slot: Array, slots: int
    ) -> tuple[Tree, Array, Tree, Array]:
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
        total = jax.tree.map(lambda s: jnp.zeros((), s.dtype), shapes[3])

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

        return lax.fori_loop(0, -(-count // c), step, (clients, cursor, empty(shapes[2]), total))  # type: ignore[no-any-return]

    def _train_all(self, state: State, arrays: Any, samples: Samples, ids: Array) -> tuple[Tree, Array, Tree, Info]:
        """On one device: train its whole block, keep the uploads of the aggregated ones."""
        n, block = self.fleet.n_clients, self.fleet.block
        first = lax.axis_index(CLIENTS) * block
        here = first + jnp.arange(block)
        slots = min(self.aggregated, block)
        # ids are sorted, so those of one device are neighbours: slot = rank among this device's aggregated clients
        rank = jnp.searchsorted(ids, here)
        chosen = (rank < len(ids)) & (ids[jnp.minimum(rank, len(ids) - 1)] == here)
        slot = jnp.where(chosen, rank - jnp.searchsorted(ids, first), slots)
        clients, cursor, ups, total = self._walk(
            self._client(state, arrays, samples),
            jnp.minimum(here, n - 1),
            jnp.clip(n - first, 0, block),
            state.clients,
            state.cursor,
            slot,
            slots,
        )
        owner = ids // block
        begin = jnp.searchsorted(ids, owner * block)
        ups = jax.tree.map(lambda x: self._collect(x[:slots], owner, jnp.arange(len(ids)) - begin), ups)
        return clients, cursor, ups, self._average(total, n)

    def _train_sampled(self, state: State, arrays: Any, samples: Samples, ids: Array) -> tuple[Tree, Array, Tree, Info]:
        """On one device: fetch an equal share of the sampled clients from wherever they live, train, send back."""
        s, c, block = len(ids), self.fleet.chunk, self.fleet.block
        share = -(-s // (self.fleet.n_devices * c)) * c
        device = lax.axis_index(CLIENTS)
        padded = jnp.concatenate([ids, jnp.broadcast_to(ids[-1:], (share * self.fleet.n_devices - s,))])
        owner, place = padded // block, padded % block
        everyone = (state.clients, state.cursor)
        sampled = jax.tree.map(lambda x: self._collect(x[place], owner, jnp.arange(len(padded))), everyone)
        mine = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, device * share, share), (padded, *sampled))
        count = jnp.clip(s - device * share, 0, share)
        clients, cursor, ups, total = self._walk(
            self._client(state, arrays, samples), mine[0], count, mine[1], mine[2], jnp.arange(share), share
        )
        back = jax.tree.map(lambda x: self._gather(x).reshape(-1, *x.shape[1:])[:s], (clients, cursor))
        # Rows that live elsewhere (and those of idle places) are written out of range, which drops them.
        at = jnp.where(owner[:s] == device, place[:s], block)
        clients, cursor = jax.tree.map(lambda x, v: x.at[at].set(v, mode="drop"), everyone, back)
        ups = jax.tree.map(lambda x: self._gather(x[:share]).reshape(-1, *x.shape[1:])[:s], ups)
        return clients, cursor, ups, self._average(total, s)

    def _gather(self, x: Array) -> Array:
        return lax.all_gather(x, CLIENTS) if self.fleet.n_devices > 1 else x[None]

    def _collect(self, x: Array, owner: Array, rank: Array) -> Array:
        """Rows x[rank] of the devices that own them: an exact copy on every device, unlike a sum over devices."""
        return self._gather(x)[owner, rank]

    def _average(self, total: Info, count: int) -> Info:
        return jax.tree.map(lambda x: lax.psum(x, CLIENTS) / count, total)


def states_of(state: State, n_clients: int) -> Tree:
    """The clients' states without idle places, on the host."""
    return jax.tree.map(lambda x: np.asarray(x)[:n_clients], jax.device_get(state.clients))

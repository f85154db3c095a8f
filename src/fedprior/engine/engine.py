"""The only round loop: select -> send -> local -> merge, all compiled.

Clients are split into blocks, one block per device; one program has each device walk over its clients one after the other
(or several at a time), updating their states in place. Uploads are then brought to one device in client order, where a
second program merges them, so that the numbers do not depend on how many devices there are. Devices never wait for each
other inside a program: collective operations between host devices can deadlock, and are killed when one device is late.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from fedprior.core.compiling import Compiler
from fedprior.core.method import Algorithm, Info
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector
from fedprior.data.federation import Federation, Samples
from fedprior.engine import checks
from fedprior.engine.placement import CLIENTS, Placement
from fedprior.engine.round import (
    State,
    chosen,
    client_round,
    client_start,
    keys_for,
    message,
    server_round,
    server_start,
)
from fedprior.engine.selection import Selection, check_distinct, find_selection, is_shipped
from fedprior.engine.walk import walk

Held = tuple[Tree, Array]  # the clients' states and cursors


class Engine:
    """Runs one algorithm on one federation; compiles what it needs when it is first needed.

    ``aggregated``: S, the number of clients whose uploads are merged in a round. ``participation``: "all" (every client
    trains, the paper's protocol) or "sampled" (only those S train); None takes the method's default. ``selection``: a
    name or a function. ``weights``: "samples" or "uniform". ``clients_per_vmap``: 1 is best on CPUs and bit-equal to
    running clients one by one, tens are best on accelerators. ``at``: where some numbers of the method are data, the
    algorithm at given values of them (``State.values``).
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: Algorithm,
        federation: Federation,
        *,
        batch_size: int = 20,
        aggregated: int | None = None,
        participation: str | None = None,
        selection: str | Selection = "uniform",
        weights: str = "samples",
        devices: list[jax.Device] | None = None,
        clients_per_vmap: int = 1,
        at: Callable[[Tree], Algorithm] | None = None,
        compiler: Compiler = Compiler(),  # noqa: B008  (it is frozen)
    ):
        self.problem, self.algorithm, self.federation = problem, algorithm, federation
        self.batch_size, self.weights, self.selection = batch_size, weights, selection
        self.aggregated = federation.n_clients if aggregated is None else aggregated
        self.participation = participation or algorithm.participation[0]
        # where everyone trains, each client does where its state lies; fewer are shared out evenly over the devices
        self.at_home = self.participation == "all" or self.aggregated == federation.n_clients
        self.algorithm_at: Callable[[Tree], Algorithm] = at or (lambda values: algorithm)
        self._devices, self.clients_per_vmap, self.compiler = devices, clients_per_vmap, compiler

    def check(self) -> None:
        """Refuse what makes no sense, before the programs of a round are compiled."""
        checks.check(self)

    # -- what lies on the devices ------------------------------------------------------------------------------------------

    @cached_property
    def placement(self) -> Placement:
        """Which client lies where."""
        return Placement(self.federation.n_clients, self._devices, self.clients_per_vmap)

    @cached_property
    def problem_arrays(self) -> Any:
        """The problem's arrays on every device: a compiled program takes them as an argument."""
        return self.placement.replicate(eqx.filter(self.problem, eqx.is_array))

    @cached_property
    def samples(self) -> Samples:
        """The training samples on every device; engines of one federation share one copy."""
        return self.federation.placed("train", self.placement.same)

    @cached_property
    def sizes(self) -> Array:
        """How many training samples each client has [N], on the first device."""
        return jax.device_put(np.asarray(self.federation.train.size), self.placement.devices[0])

    def rebuild(self, arrays: Any) -> Problem:
        """The problem around its arrays."""
        return eqx.combine(arrays, eqx.filter(self.problem, eqx.is_array, inverse=True))

    def start_model(self, key: Array) -> Vector:
        """A model as training starts from it."""
        return self._first_model(eqx.filter(self.problem, eqx.is_array), key)

    # -- a run ---------------------------------------------------------------------------------------------------------

    def init(self, seed: int, values: Tree = ()) -> State:
        """The state before the first round."""
        home = self.placement.first(self.problem_arrays)
        state = self._starting(home, jax.random.key_data(jax.random.key(seed)), values)
        clients, cursor = jax.device_put((state.clients, state.cursor), self.placement.split)
        return state._replace(clients=clients, cursor=cursor)

    def host_template(self, values: Tree = ()) -> State:
        """The shapes and types of a state on the host."""
        seed, start = jax.random.key_data(jax.random.key(0)), self._start
        return jax.eval_shape(lambda: self.placement.to_host(start(self.problem, seed, values)))

    def server_part(self, state: State) -> State:
        """The server's part on the first device; the server sees no client's state."""
        return self.placement.first(state._replace(clients=(), cursor=()))

    def sent(self, state: State) -> State:
        """What every device may read of the server: its outbox."""
        home = self.server_part(state)
        outbox = self.algorithm_at(home.values).outbox(home.server)
        return self.placement.spread(home._replace(server=outbox))

    def global_model(self, state: State) -> Vector | None:
        """The global model on every device, or None."""
        home = self.server_part(state)
        return self.placement.spread(self.algorithm_at(home.values).global_model(home.server))

    def step(self, state: State) -> tuple[State, Info]:
        """One round; the given state's memory is reused, so it must not be used again. Info is averaged over clients."""
        placement = self.placement
        home, sent = self.server_part(state), self.sent(state)
        ids = self.choose(home.seed, home.round, self.sizes)
        if not is_shipped(self.selection):
            check_distinct(ids, self.federation.n_clients, self.aggregated)
        everywhere = placement.spread(ids)
        held = (state.clients, state.cursor)
        if self.at_home:
            clients, cursor, ups, info = self._all(held, sent, self.problem_arrays, self.samples, everywhere)
        else:
            fetched = [placement.spread(part) for part in placement.gather(self._fetch(held, everywhere))]
            trained, ups, info = self._sampled(sent, fetched, self.problem_arrays, self.samples, everywhere)
            back = [placement.spread(part) for part in placement.gather(trained)]
            clients, cursor = self._store(held, back, everywhere)
        del sent  # its copies may be as large as all clients' states, and are not needed any more
        merged, info = self._merge(home, placement.gather(ups), placement.gather(info), ids, self.sizes)
        return merged._replace(clients=clients, cursor=cursor), info

    # -- the compiled parts --------------------------------------------------------------------------------------------

    @cached_property
    def _first_model(self) -> Callable[..., Vector]:
        return self.compiler(lambda arrays, key: self.rebuild(arrays).init(key))

    @cached_property
    def _starting(self) -> Callable[..., State]:
        return self.compiler(lambda arrays, seed, values: self._start(self.rebuild(arrays), seed, values))

    @cached_property
    def choose(self) -> Callable[..., Array]:
        """(seed, round, sizes) -> the clients aggregated in that round."""
        return self.compiler(self._chosen)

    @cached_property
    def _merge(self) -> Callable[..., tuple[State, Info]]:
        return self.compiler(self._merged, donate_argnums=0)

    @cached_property
    def _all(self) -> Callable[..., Any]:
        specs = (P(CLIENTS), P(), P(), P(), P())
        return self.compiler(self.placement.shard_map(self._train_all, specs, P(CLIENTS)), donate_argnums=0)

    @cached_property
    def _fetch(self) -> Callable[..., Any]:
        return self.compiler(self.placement.shard_map(self.placement.fetch, (P(CLIENTS), P()), P(CLIENTS)))

    @cached_property
    def _sampled(self) -> Callable[..., Any]:
        return self.compiler(self.placement.shard_map(self._train_sampled, P(), P(CLIENTS)))

    @cached_property
    def _store(self) -> Callable[..., Any]:
        return self.compiler(
            self.placement.shard_map(self.placement.store, (P(CLIENTS), P(), P()), P(CLIENTS)), donate_argnums=0
        )

    def _sent_to(self, sent: State, i: Array) -> Tree:
        return message(self.algorithm_at(sent.values), sent.server, sent.seed, sent.round, i)

    def _start(self, problem: Problem, seed: Array, values: Tree) -> State:
        algorithm, slots = self.algorithm_at(values), self.placement.slots
        w0, server = server_start(problem, algorithm, seed, self.federation.n_clients)
        return State(
            round=jnp.zeros((), jnp.int32),
            seed=seed,
            server=server,
            clients=jax.vmap(lambda i: client_start(algorithm, w0, seed, i))(jnp.arange(slots)),
            cursor=jnp.zeros((slots,), jnp.int32),
            values=values,
        )

    def _chosen(self, seed: Array, t: Array, sizes: Array) -> Array:
        """The clients aggregated in round t, in ascending order."""
        return chosen(find_selection(self.selection), seed, t, sizes, self.aggregated)

    def _merged(self, home: State, ups: list[Tree], info: list[Info], ids: Array, sizes: Array) -> tuple[State, Info]:
        """On the first device: uploads in the order of ids, the method's merge, and the average of info."""
        if self.at_home:
            owner, rank = self.placement.owners(ids)
            at = owner * min(self.aggregated, self.placement.block) + rank
            in_order = jax.tree.map(lambda *x: jnp.concatenate(x)[at], *ups)
        else:
            in_order = jax.tree.map(lambda *x: jnp.concatenate(x)[: len(ids)], *ups)
        server = server_round(self.algorithm_at(home.values), home, in_order, ids, sizes[ids], self.weights)
        trained = self.federation.n_clients if self.at_home else len(ids)
        average = jax.tree.map(lambda *x: jnp.sum(jnp.concatenate(x)) / trained, *info)
        return home._replace(round=home.round + 1, server=server), average

    def _client(self, sent: State, arrays: Any, samples: Samples) -> Callable[..., tuple[Tree, Array, Tree, Info]]:
        """(i, client, cursor) -> new client, cursor, upload, info; for several clients where a vmap takes several."""
        problem, algorithm = self.rebuild(arrays), self.algorithm_at(sent.values)

        def one(i: Array, client: Tree, cursor: Array) -> tuple[Tree, Array, Tree, Info]:
            down, keys = self._sent_to(sent, i), keys_for(sent.seed, sent.round, i)
            return client_round(problem, algorithm, samples, i, self.batch_size, client, cursor, down, keys)

        return one if self.clients_per_vmap == 1 else jax.vmap(one)

    def _train_all(self, held: Held, sent: State, arrays: Any, samples: Samples, ids: Array) -> Any:
        """On one device: train its whole block, keep the uploads of the aggregated ones."""
        n, block = self.federation.n_clients, self.placement.block
        first = lax.axis_index(CLIENTS) * block
        here = first + jnp.arange(block)
        kept = min(self.aggregated, block)
        # ids are sorted, so those of one device are neighbours: where an upload goes is its rank among this device's
        rank = jnp.searchsorted(ids, here)
        chosen = (rank < len(ids)) & (ids[jnp.minimum(rank, len(ids) - 1)] == here)
        return walk(
            self._client(sent, arrays, samples),
            jnp.minimum(here, n - 1),
            jnp.clip(n - first, 0, block),
            *held,
            jnp.where(chosen, rank - jnp.searchsorted(ids, first), kept),
            kept,
            self.clients_per_vmap,
        )

    def _train_sampled(self, sent: State, fetched: list[Held], arrays: Any, samples: Samples, ids: Array) -> Any:
        """On one device: train an equal share of the sampled clients, wherever they live."""
        s, c = len(ids), self.clients_per_vmap
        share = -(-s // (self.placement.n_devices * c)) * c  # slots per device for the sampled clients
        mine = lax.axis_index(CLIENTS) * share + jnp.arange(share)
        padded = jnp.minimum(mine, s - 1)
        owner, rank = self.placement.owners(ids)
        at = (owner * min(s, self.placement.block) + rank)[padded]
        held: Held = jax.tree.map(lambda *x: jnp.concatenate(x)[at], *fetched)
        client, count = self._client(sent, arrays, samples), jnp.clip(s - mine[0], 0, share)
        clients, cursor, ups, info = walk(client, ids[padded], count, *held, jnp.arange(share), share, c)
        return (clients, cursor), ups, info

"""Clients' samples: flat arrays with offsets, and one client's view of its own.

Client sizes are heavy-tailed, so nothing is padded to the longest client: all samples lie in one array, a client is a
range of it, and batch order is a pure function of (seed, client, step).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import get_opaque_trace_state

from fedprior.data.partition import Partition, check, hold_out
from fedprior.data.sources import Source
from fedprior.errors import FedpriorError
from fedprior.problem import Batch
from fedprior.vectors import scatter_bits

Acc = TypeVar("Acc")
CHUNK = 128  # samples per step of a pass over everything a client has


class Samples(NamedTuple):
    """Samples of all clients, one client after the other."""

    x: np.ndarray | Array  # [n, ...]
    y: np.ndarray | Array  # [n]
    start: np.ndarray | Array  # [N] first sample of each client
    size: np.ndarray | Array  # [N] number of samples of each client


@dataclass(frozen=True)
class Federation:
    """What the clients hold."""

    train: Samples
    test: Samples
    validation: Samples | None
    n_classes: int
    fingerprint: str
    vectors: np.ndarray | None = None  # word vectors, for models of text
    clients: np.ndarray | None = None  # [N] their numbers in the partition; None: 0, 1, ..., all of them
    _placed: dict[Any, Samples] = field(default_factory=dict, init=False, repr=False, compare=False)

    def placed(self, part: str, sharding: jax.sharding.Sharding) -> Samples:
        """The samples of a part ("train", "test", "validation") on devices: one copy for all engines that ask."""
        key = (part, sharding, jnp.result_type(float))  # what is copied depends on whether JAX is in double precision
        if key not in self._placed:
            self._placed[key] = jax.device_put(Samples(*getattr(self, part)), sharding)
        return self._placed[key]

    @property
    def n_clients(self) -> int:
        """N."""
        return len(self.train.size)

    @property
    def numbers(self) -> np.ndarray:
        """The number by which each client is known [N]: the one that the partition gave it."""
        return np.arange(self.n_clients) if self.clients is None else self.clients


def federate(
    source: Source,
    partition: Partition,
    validation: float = 0.0,
    seed: int = 0,
    clients: np.ndarray | None = None,
) -> Federation:
    """Lay a source out client by client, with an optional validation part of each client's training samples.

    ``clients``: only these of the partition's clients, each with the samples that it would have among all.
    """
    check(partition)
    kept, held = hold_out(partition, fraction=validation, seed=seed) if validation else (partition.train, None)

    def lay_out(parts: tuple[np.ndarray, ...]) -> Samples:
        return _lay_out(source.x, partition.y, parts if clients is None else tuple(parts[i] for i in clients))

    return Federation(
        train=lay_out(kept),
        test=lay_out(partition.test),
        validation=lay_out(held) if held is not None else None,
        n_classes=source.n_classes,
        fingerprint=source.fingerprint,
        vectors=source.vectors,
        clients=clients,
    )


def part_newcomers(n_clients: int, fraction: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the clients that train, and of ``fraction`` of them (at least one, never all) that join later.

    >>> [part.tolist() for part in part_newcomers(5, 0.4)]
    [[0, 1, 3], [2, 4]]
    """
    if n_clients < 2:
        raise FedpriorError(f"new_clients = {fraction:g} holds clients out of training, but there is only one client")
    held = min(max(round(fraction * n_clients), 1), n_clients - 1)
    order = np.random.default_rng(seed).permutation(n_clients)
    return np.sort(order[held:]), np.sort(order[:held])


def _lay_out(x: np.ndarray, y: np.ndarray, parts: tuple[np.ndarray, ...]) -> Samples:
    size = np.array([len(part) for part in parts], np.int32)
    order = np.concatenate(parts)
    return Samples(x[order], y[order].astype(np.int32), (np.cumsum(size) - size).astype(np.int32), size)


def shuffled(position: Array, size: Array, seed: Array, rounds: int = 4) -> Array:
    """Place of ``position`` in a pseudo-random order of range(size); ``seed`` (32 bits, same shape) names the order.

    ``size`` may be traced, and nothing of that length is made: a keyed bijection of the next power of two (multiply by
    an odd number, add, shift-xor, repeated) is walked until it falls below ``size``.

    >>> sorted(shuffled(jnp.arange(7), jnp.array(7), jnp.zeros(7, jnp.uint32)).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    bits = jnp.maximum(32 - lax.clz(jnp.asarray(size - 1, jnp.uint32)), 1)
    mask, below, shift = (jnp.uint32(1) << bits) - 1, jnp.asarray(size, jnp.uint32), (bits + 1) // 2
    factors = [scatter_bits(seed + jnp.uint32(2 * r + 1)) | 1 for r in range(rounds)]
    terms = [scatter_bits(seed + jnp.uint32(2 * r + 2)) for r in range(rounds)]
    factors, terms = lax.optimization_barrier((factors, terms))  # or the loop below would compute them at every turn

    def scramble(v: Array) -> Array:
        for factor, term in zip(factors, terms, strict=True):
            v = (v * factor + term) & mask
            v = v ^ (v >> shift)
        return v

    return lax.while_loop(
        lambda v: jnp.any(v >= below),
        lambda v: jnp.where(v >= below, scramble(v), v),
        scramble(position.astype(jnp.uint32)),
    ).astype(jnp.int32)


def _rows(x: Array, at: Array) -> Array:
    """x[at]. On CPUs row by row: XLA's gather goes entry by entry (a step of MCLR takes half the time so)."""
    if jax.default_backend() != "cpu":
        return x[at]

    def copy(k: Array, rows: Array) -> Array:
        return lax.dynamic_update_index_in_dim(rows, lax.dynamic_index_in_dim(x, at[k], keepdims=False), k, 0)

    return lax.fori_loop(0, len(at), copy, jnp.zeros((len(at), *x.shape[1:]), x.dtype))


class _Stream:
    """How many batches were drawn while a round was traced: a number known when the program is built."""

    def __init__(self) -> None:
        self.drawn = 0
        self.trace = get_opaque_trace_state()


class ClientData:
    """One client's view of its own samples (implements :class:`fedprior.method.Data`)."""

    def __init__(self, samples: Samples, i: Array | int, batch_size: int, key: Array, cursor: Array | int):
        self.x, self.y = jnp.asarray(samples.x), jnp.asarray(samples.y)
        self.size = jnp.asarray(samples.size)[i]
        self._total = self.size
        self._first = jnp.asarray(samples.start)[i]
        self._offset: Array | int = 0
        self._parting: Array | None = None
        self._batch_size, self._key, self._cursor = batch_size, key, cursor
        self._stream = _Stream()

    @property
    def drawn(self) -> int:
        """Number of batches drawn so far from this view and its parts."""
        return self._stream.drawn

    def draw(self, count: int) -> Array:
        """Pick the next ``count`` batches: picks [count, B]; filling is marked by -1.

        Epochs are shuffled anew, the last batch of an epoch may be short, and a client with fewer samples than a batch
        gets them all each time. Draw before a loop and scan over the picks: inside a compiled loop one call would stand
        for many draws, and the next round would see the same batches again.
        """
        if get_opaque_trace_state() != self._stream.trace:
            raise FedpriorError(
                "data.draw was called inside a compiled loop; draw all picks before it and scan over them"
            )
        step = jnp.asarray(self._cursor) + self._stream.drawn + jnp.arange(count)
        self._stream.drawn += count
        per_epoch = -(-self.size // self._batch_size)
        position = (step % per_epoch)[:, None] * self._batch_size + jnp.arange(self._batch_size)  # [count, B]

        low, high = jax.random.bits(self._key, (2,), jnp.uint32)
        order = scatter_bits(scatter_bits((step // per_epoch).astype(jnp.uint32) + low) ^ high)[
            :, None
        ]  # one order per epoch
        place = shuffled(jnp.minimum(position, self.size - 1), self.size, order)
        return jnp.where(position < self.size, self._locate(place), -1)

    def batch(self, pick: Array) -> Batch:
        """Fetch the samples of one pick [B]."""
        at = jnp.maximum(pick, 0)
        x = _rows(self.x, at)
        mask = (pick >= 0).astype(x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float32)
        return Batch(x, self.y[at], mask)

    def split(self, fraction: float) -> tuple[ClientData, ClientData]:
        """Part the samples for good: (the rest, ``fraction`` of them, at least one where there are two)."""
        held = jnp.clip(jnp.round(self.size * fraction).astype(jnp.int32), 1, jnp.maximum(self.size - 1, 1))
        parts = []
        for offset, size in ((held, self.size - held), (0, held)):
            part = object.__new__(ClientData)
            part.__dict__.update(self.__dict__)
            part.size, part._offset = size, self._offset + offset
            part._parting = jax.random.bits(jax.random.fold_in(self._key, 1), (), jnp.uint32)
            parts.append(part)
        return parts[0], parts[1]

    def fold(self, f: Callable[[Acc, Batch], Acc], start: Acc) -> Acc:
        """Run ``acc = f(acc, batch)`` over all samples, once each, in chunks of a fixed size."""

        def step(k: Array, acc: Acc) -> Acc:
            place = k * CHUNK + jnp.arange(CHUNK)
            inside = place < self.size
            return f(acc, self.batch(jnp.where(inside, self._locate(jnp.where(inside, place, 0)), -1)))

        return lax.fori_loop(0, -(-self.size // CHUNK), step, start)

    def _locate(self, place: Array) -> Array:
        """From a place among this view's samples to a row of the flat arrays."""
        place = place + self._offset
        if self._parting is not None:
            place = shuffled(place, self._total, self._parting)
        return self._first + place

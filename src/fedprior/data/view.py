"""One client's view of its own samples; the order of its batches is a pure function of (key, step)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import get_opaque_trace_state

from fedprior.core.batch import SAMPLES_PER_STEP, Batch
from fedprior.core.random import scatter_bits
from fedprior.data.federation import Samples
from fedprior.errors import FedpriorError

Acc = TypeVar("Acc")


def shuffled(position: Array, size: Array, seed: Array, rounds: int = 4) -> Array:
    """The place of ``position`` in a pseudo-random order of range(size); ``seed`` (32 bits, same shape) names the order.

    ``size`` may be traced, and nothing of that length is made: a keyed bijection of the next power of two (multiply by
    an odd number, add, shift-xor, repeated) is walked until it falls below ``size``. A size of 0 is taken for 1, and a
    position beyond the last for the last: from outside the range the walk might never come back to it.

    >>> sorted(shuffled(jnp.arange(7), jnp.array(7), jnp.zeros(7, jnp.uint32)).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    size = jnp.maximum(size, 1)  # below 0 there is nothing, and the walk would never end
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
        scramble(jnp.minimum(position.astype(jnp.uint32), below - 1)),
    ).astype(jnp.int32)


def _rows(x: Array, at: Array) -> Array:
    """x[at]. On CPUs row by row: XLA's gather goes entry by entry (a step of MCLR takes half the time so)."""
    if jax.default_backend() != "cpu":
        return x[at]

    def copy_row(k: Array, rows: Array) -> Array:
        return lax.dynamic_update_index_in_dim(rows, lax.dynamic_index_in_dim(x, at[k], keepdims=False), k, 0)

    return lax.fori_loop(0, len(at), copy_row, jnp.zeros((len(at), *x.shape[1:]), x.dtype))


class _Drawn:
    """How many batches were drawn while a round was traced: a number that is known when the program is built."""

    def __init__(self) -> None:
        self.batches = 0
        self.trace = get_opaque_trace_state()


class ClientData:
    """One client's view of its own samples (implements :class:`fedprior.core.batch.Data`).

    ``i`` is the client's place in ``samples``, ``key`` its key for the order of batches, and ``cursor`` the number of
    batches that it has drawn since the run began. ``split_key``: where the batches of a run are drawn by another key, the
    one that they are drawn by in training, so that the samples are split alike.
    """

    def __init__(
        self,
        samples: Samples,
        i: Array | int,
        batch_size: int,
        key: Array,
        cursor: Array | int,
        split_key: Array | None = None,
    ):
        self.x, self.y = jnp.asarray(samples.x), jnp.asarray(samples.y)
        self.size = jnp.asarray(samples.size)[i]
        self._total = self.size  # of the whole client, where this view is a part
        self._first = jnp.asarray(samples.start)[i]
        self._offset: Array | int = 0  # of a part, among the client's samples in the order named by _split_seed
        self._split_seed: Array | None = None
        self._batch_size, self._key, self._cursor = batch_size, key, cursor
        self._split_key = key if split_key is None else split_key
        self._drawn = _Drawn()  # shared with the parts

    @property
    def drawn(self) -> int:
        """Number of batches drawn so far from this view and its parts."""
        return self._drawn.batches

    def draw(self, count: int) -> Array:
        """Sample indices [count, B] of the next batches; filling is marked by -1.

        Every epoch has an order of its own, the last batch of an epoch may be short, and a client with fewer samples
        than a batch gets them all each time. Draw before a loop and scan over the rows: inside a compiled loop one call
        would stand for many draws, and the next round would see the same batches again.
        """
        if get_opaque_trace_state() != self._drawn.trace:
            raise FedpriorError(
                "data.draw was called inside a compiled loop; draw all picks before it and scan over them"
            )
        step = jnp.asarray(self._cursor) + self._drawn.batches + jnp.arange(count)
        self._drawn.batches += count
        size = jnp.maximum(self.size, 1)  # of an empty part every pick is filling; 0 would not do below
        per_epoch = -(-size // self._batch_size)
        position = (step % per_epoch)[:, None] * self._batch_size + jnp.arange(self._batch_size)  # [count, B]

        low, high = jax.random.bits(self._key, (2,), jnp.uint32)
        epoch = (step // per_epoch).astype(jnp.uint32)
        order = scatter_bits(scatter_bits(epoch + low) ^ high)[:, None]  # [count, 1], one order per epoch
        place = shuffled(jnp.minimum(position, size - 1), size, order)
        return jnp.where(position < self.size, self._locate(place), -1)

    def batch(self, pick: Array) -> Batch:
        """Fetch the samples of one row [B] of what ``draw`` gave."""
        at = jnp.maximum(pick, 0)
        x = _rows(self.x, at)
        mask = (pick >= 0).astype(x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float32)
        return Batch(x, self.y[at], mask)

    def split(self, fraction: float) -> tuple[ClientData, ClientData]:
        """Split the samples for good: (the rest, a fixed ``fraction`` of them, but at least one).

        A single sample goes to the second part, and the first part is then empty: its batches are all filling.
        """
        least = jnp.minimum(self.size, 1)
        held = jnp.clip(jnp.round(self.size * fraction).astype(jnp.int32), least, jnp.maximum(self.size - 1, least))
        parts = []
        for offset, size in ((held, self.size - held), (0, held)):
            part = copy.copy(self)
            part.size, part._offset = size, self._offset + offset
            part._split_seed = jax.random.bits(jax.random.fold_in(self._split_key, 1), (), jnp.uint32)
            parts.append(part)
        return parts[0], parts[1]

    def fold(self, f: Callable[[Acc, Batch], Acc], start: Acc) -> Acc:
        """Run ``acc = f(acc, batch)`` over all samples, once each, in masked batches of a fixed size."""

        def step(k: Array, acc: Acc) -> Acc:
            place = k * SAMPLES_PER_STEP + jnp.arange(SAMPLES_PER_STEP)
            inside = place < self.size
            return f(acc, self.batch(jnp.where(inside, self._locate(jnp.where(inside, place, 0)), -1)))

        return lax.fori_loop(0, self._chunks, step, start)

    @property
    def _chunks(self) -> Array | int:
        """How many chunks a pass over all samples takes."""
        return -(-self.size // SAMPLES_PER_STEP)

    def _locate(self, place: Array) -> Array:
        """From a place among this view's samples to a row of the flat arrays."""
        place = place + self._offset
        if self._split_seed is not None:
            place = shuffled(place, self._total, self._split_seed)
        return self._first + place

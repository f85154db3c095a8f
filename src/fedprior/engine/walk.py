"""How one device goes over its clients: one after the other, or several at a time, their states updated in place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedprior.core.method import Info
from fedprior.core.vectors import Tree, put_row, row


def apart(tree: Tree, always: Array) -> Tree:
    """The same values in memory of their own; ``always`` is true, which the compiler must not know.

    A slice that is read again after its row has been replaced, as for the distance that a client has moved, would be taken
    from the block once more; the block must then be kept as it was, and all of it was copied for every client.
    """
    return lax.cond(always, lambda x: x, lambda x: jax.tree.map(jnp.zeros_like, x), tree)


def walk(
    one: Callable[..., Any],
    ids: Array,
    count: Array,
    clients: Tree,
    cursor: Array,
    place: Array,
    places: int,
    together: int,
) -> tuple[Tree, Array, Tree, Info]:
    """Train the first ``count`` slots of a block in place, ``together`` at a time.

    ``one(id, client, cursor)`` gives a client's new state, cursor, upload and info (stacked if several are taken together).
    The upload of slot k is kept in place[k] of ``places`` (place[k] = places: it is dropped). Info is summed.
    """
    c = together

    def get(tree: Tree, k: Array) -> Tree:
        return row(tree, k) if c == 1 else jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, k * c, c), tree)

    def put(tree: Tree, k: Array, new: Tree, at: Array | None = None) -> Tree:
        if c == 1:
            return put_row(tree, k if at is None else at, new)
        where = k * c + jnp.arange(c) if at is None else at
        return jax.tree.map(lambda x, v: x.at[where].set(v.astype(x.dtype)), tree, new)

    shapes = jax.eval_shape(one, get(ids, jnp.int32(0)), get(clients, jnp.int32(0)), get(cursor, jnp.int32(0)))
    stacked = 0 if c == 1 else 1
    empty = partial(jax.tree.map, lambda s: jnp.zeros((places + 1, *s.shape[stacked:]), s.dtype))
    total = jax.tree.map(lambda s: jnp.zeros((1,), s.dtype), shapes[3])

    def step(k: Array, carry: Any) -> Any:
        clients, cursor, ups, total = carry
        held = apart((get(clients, k), get(cursor, k)), k * c < count)
        client, at, up, info = one(get(ids, k), *held)
        real = k * c + jnp.arange(c) < count
        info = jax.tree.map(lambda x: jnp.sum(jnp.where(real, x, 0)), info)
        return (
            put(clients, k, client),
            put(cursor, k, at),
            put(ups, k, up, get(place, k)),
            jax.tree.map(jnp.add, total, info),
        )

    clients, cursor, ups, total = lax.fori_loop(0, -(-count // c), step, (clients, cursor, empty(shapes[2]), total))
    return clients, cursor, jax.tree.map(lambda x: x[:places], ups), total

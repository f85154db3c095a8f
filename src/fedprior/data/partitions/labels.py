"""Partitions by label: k classes for each client, Dirichlet proportions, or equal shares of everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedprior.data.partitions.base import (
    Indices,
    Labels,
    Partition,
    require_clients,
    require_labels,
    require_positive,
    samples_by_class,
    seeded_generator,
    split_off_test,
)
from fedprior.errors import FedpriorError, unknown


def pathological(
    y: Labels, *, clients: int, classes_per_client: int, seed: int = 0, test_fraction: float = 0.25
) -> Partition:
    """Exactly k classes for each client (after the shards of McMahan et al. 2017, arXiv:1602.05629).

    Each client takes the k classes with the fewest holders so far, ties broken at random, and a class is then shared
    equally by its holders. So, unlike with shards, no client gets a further class where a shard crosses a border. When
    clients * k is less than the number of classes, some classes go unused. A number that no sample has is no class.

    >>> p = pathological(np.repeat(np.arange(4), 10), clients=4, classes_per_client=2)
    >>> [len(np.unique(p.y[np.r_[a, b]])) for a, b in zip(p.train, p.test)]
    [2, 2, 2, 2]
    """
    pools = [(label, pool) for label, pool in enumerate(samples_by_class(y)) if len(pool)]
    require_clients(clients)
    require_labels(classes_per_client, len(pools))
    rng = seeded_generator(seed)
    holders: list[list[int]] = [[] for _ in pools]
    for client in range(clients):
        fewest = np.lexsort((rng.random(len(pools)), np.array([len(h) for h in holders])))
        for k in fewest[:classes_per_client]:
            holders[k].append(client)
    held: list[list[Indices]] = [[] for _ in range(clients)]
    for (label, pool), mine in zip(pools, holders, strict=True):
        if len(pool) < len(mine):
            raise FedpriorError(f"class {label} has {len(pool)} samples for {len(mine)} clients; use fewer clients")
        for client, part in zip(mine, np.array_split(rng.permutation(pool), max(1, len(mine))), strict=False):
            held[client].append(part)
    return split_off_test(y, [np.concatenate(parts) for parts in held], test_fraction, rng)


def dirichlet(
    y: Labels,
    *,
    clients: int,
    alpha: float,
    sizes: Literal["equal", "free"] = "equal",
    seed: int = 0,
    test_fraction: float = 0.25,
) -> Partition:
    """Label skew set by one number: Dirichlet(alpha), from one class each (alpha -> 0) to i.i.d. (alpha -> infinity).

    `equal` (after Hsu, Qi & Brown 2019, arXiv:1909.06335): every client has floor(n / clients) samples, with label
    proportions of its own drawn from a symmetric Dirichlet over classes; where a class is used up, the other classes
    fill in. At most clients - 1 samples go unused.
    `free` (after Yurochkin et al. 2019, arXiv:1905.12022): each class is divided among clients in Dirichlet
    proportions, so sizes vary too. A client left with fewer than two samples takes from the largest one: nobody is
    ever empty.

    >>> p = dirichlet(np.repeat(np.arange(3), 20), clients=5, alpha=0.3)
    >>> [len(a) + len(b) for a, b in zip(p.train, p.test)]
    [12, 12, 12, 12, 12]
    """
    if sizes not in ("equal", "free"):
        raise unknown("choice of sizes", sizes, ("equal", "free"))
    require_positive("alpha", alpha)
    require_clients(clients, len(y))
    rng = seeded_generator(seed)
    pools = [rng.permutation(pool) for pool in samples_by_class(y)]
    share_out = _equal if sizes == "equal" else _free
    return split_off_test(y, share_out(pools, clients, alpha, rng), test_fraction, rng)


def _equal(pools: Sequence[Indices], clients: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    stock = np.array([len(pool) for pool in pools])
    size = int(stock.sum()) // clients
    used = np.zeros_like(stock)
    held = []
    for _ in range(clients):
        wish = rng.dirichlet(np.full(len(pools), alpha))
        counts = np.zeros_like(stock)
        while (missing := size - counts.sum()) > 0:
            left = stock - used - counts
            weight = np.where(left > 0, wish, 0.0)
            if weight.sum() < 1e-12:  # all the client asked for is gone: it takes of what there is
                weight = left.astype(float)
            counts += np.minimum(left, rng.multinomial(missing, weight / weight.sum()))
        held.append(np.concatenate([pool[u : u + n] for pool, u, n in zip(pools, used, counts, strict=True)]))
        used += counts
    return held


def _free(pools: Sequence[Indices], clients: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for pool in pools:
        ends = (np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(pool)).round().astype(int)
        for client, part in enumerate(np.split(pool, ends)):
            parts[client].append(part)
    held = [np.concatenate(p) for p in parts]
    for client in range(clients):
        while len(held[client]) < 2:
            rich = max(range(clients), key=lambda c: len(held[c]))
            give = rng.integers(len(held[rich]))
            held[client] = np.append(held[client], held[rich][give])
            held[rich] = np.delete(held[rich], give)
    return held


def iid(y: Labels, *, clients: int, seed: int = 0, test_fraction: float = 0.25) -> Partition:
    """All samples, shuffled, in shares as equal as can be.

    >>> [len(train) for train in iid(np.zeros(16, int), clients=2).train]
    [6, 6]
    """
    samples_by_class(y)
    require_clients(clients, len(y))
    rng = seeded_generator(seed)
    return split_off_test(y, np.array_split(rng.permutation(len(y)), clients), test_fraction, rng)

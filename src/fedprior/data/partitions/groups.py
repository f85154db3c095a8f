"""Partitions by who made the samples: each writer or user is a client, or clients get whole users."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from fedprior.data.given import as_flags
from fedprior.data.partitions.base import (
    LEGACY_SEED,
    Indices,
    Labels,
    Partition,
    check,
    require_clients,
    require_positive,
    require_seed,
    samples_by_class,
    samples_by_group,
    seeded_generator,
    split_off_test,
)
from fedprior.errors import FedpriorError


def natural(
    y: Labels,
    group: Labels,
    *,
    is_test: npt.NDArray[np.bool_] | None = None,
    group_names: tuple[int | str, ...] | None = None,
    seed: int = 0,
    test_fraction: float = 0.1,
) -> Partition:
    """One client per writer or user, in the order of their numbers; the data's own test split where there is one.

    Without `is_test`, each client's samples are split by the seed (LEAF's split of FEMNIST is 90/10, hence the default;
    Caldas et al. 2018, arXiv:1812.01097); with a test_fraction of 0 nothing is tested. A split of the data's own may leave
    clients without a test sample. `group_names`: what the writers or users 0, 1, ... are called.

    >>> p = natural(np.zeros(4, int), np.array([0, 0, 1, 1]), is_test=np.array([False, True, True, False]))
    >>> p.train, p.test
    ((array([0]), array([3])), (array([1]), array([2])))
    """
    samples_by_class(y)
    held = samples_by_group(group, len(y))
    names = None if group_names is None else _names_of(group, group_names)
    if is_test is None:
        return split_off_test(y, held, test_fraction, seeded_generator(seed), names)
    if len(is_test) != len(y):
        raise FedpriorError(f"is_test has {len(is_test)} entries for {len(y)} labels; give one for each sample")
    own = as_flags(is_test, "is_test")
    train, test = (tuple(i[part[i]] for i in held) for part in (~own, own))
    return check(Partition(train, test, y, names, may_lack_test=True))


def _names_of(group: Labels, names: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """What the writers or users that have samples are called."""
    numbers = np.unique(group)
    if numbers[0] < 0 or numbers[-1] >= len(names):
        odd = numbers[0] if numbers[0] < 0 else numbers[-1]
        raise FedpriorError(
            f"group {odd} has no name among {len(names)} group_names; number the groups from 0 to {len(names) - 1}"
        )
    return tuple(names[number] for number in numbers)


def grouped(
    y: Labels,
    group: Labels,
    *,
    clients: int,
    alpha: float = 0.5,
    floor: int = 10,
    min_samples: int = 1,
    seed: int = 1,
    test_fraction: float = 0.1,
) -> Partition:
    """Whole users dealt to clients: `floor` users each, then the others in Dirichlet(alpha) proportions.

    The rule of the paper's Sent140 (10 clients, floor 10, alpha 0.5, seed 1; 90/10): sizes vary by two orders of
    magnitude, labels hardly. Fractions are cut off and the few users left over go to clients drawn at random, which
    gives the release's own counts for its 7,086 users. Which user goes where is our own seeded shuffle. Users with
    fewer than `min_samples` samples are left out (the release asked LEAF for 3).

    >>> users = grouped_counts(7086, clients=10)
    >>> users.tolist()
    [1529, 10, 199, 313, 1385, 1545, 375, 16, 1531, 183]
    """
    samples_by_class(y)
    users = [samples for samples in samples_by_group(group, len(y)) if len(samples) >= min_samples]
    counts = grouped_counts(len(users), clients=clients, alpha=alpha, floor=floor, seed=seed)
    rng = seeded_generator(seed)
    deals = np.split(rng.permutation(len(users)), np.cumsum(counts)[:-1])
    return split_off_test(y, [np.concatenate([users[i] for i in deal]) for deal in deals], test_fraction, rng)


def grouped_counts(users: int, *, clients: int, alpha: float = 0.5, floor: int = 10, seed: int = 1) -> Indices:
    """How many of the users each client of `grouped` gets."""
    require_clients(clients)
    require_positive("alpha", alpha)
    require_seed(seed, most=LEGACY_SEED)
    if floor < 1 or floor * clients > users:
        raise FedpriorError(
            f"floor={floor} users for each of {clients} clients, with {users} users; valid: 1 to {users // clients}"
        )
    rest = users - floor * clients
    share = np.random.RandomState(seed).dirichlet(np.full(clients, alpha))
    if not np.isfinite(share).all():
        raise FedpriorError(f"alpha={alpha} is too small to draw from; use 0.01 or more")
    counts = floor + (share * rest).astype(np.int64)
    python = random.Random(seed)
    for _ in range(users - int(counts.sum())):
        counts[python.randint(0, clients - 1)] += 1
    return counts

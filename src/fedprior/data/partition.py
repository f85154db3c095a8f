"""Who holds which samples: pure, seeded functions from labels to one index list per client.

Every function takes the labels first, returns a checked `Partition` and draws from generators of its own, never from
the global ones, so a partition is a function of its arguments alone. Given samples are never copied, only indexed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedprior.errors import FedpriorError, unknown

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[np.integer[Any]]
Split = tuple[tuple[Indices, ...], tuple[Indices, ...]]


@dataclass(frozen=True)
class Partition:
    """Each client's own training and test samples, as indices into the source."""

    train: tuple[Indices, ...]
    test: tuple[Indices, ...]
    y: Labels  # [n] the labels to use: the source's own, except for `lognormal(..., labels="released")`

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.train)


def check(partition: Partition) -> Partition:
    """Return the partition if each client can train and be tested and no sample is held twice; else say who cannot.

    >>> check(Partition((np.array([0]),), (np.array([], int),), np.zeros(1, int)))
    Traceback (most recent call last):
    fedprior.errors.FedpriorError: client 0 has no test sample (1 train, 0 test); give it more samples or leave it out
    """
    if not partition.train or len(partition.train) != len(partition.test):
        given = f"{len(partition.train)} train and {len(partition.test)} test lists"
        raise FedpriorError(f"a partition needs one train and one test list for each of its clients; got {given}")
    for client, (train, test) in enumerate(zip(partition.train, partition.test, strict=True)):
        for part, samples in (("train", train), ("test", test)):
            if not len(samples):
                have = f"({len(train)} train, {len(test)} test)"
                raise FedpriorError(
                    f"client {client} has no {part} sample {have}; give it more samples or leave it out"
                )
    held = np.concatenate(partition.train + partition.test)
    if held.min() < 0 or held.max() >= len(partition.y):
        wrong = held[(held < 0) | (held >= len(partition.y))][0]
        raise FedpriorError(f"index {wrong} is no sample; valid: 0 to {len(partition.y) - 1}")
    times = np.bincount(held)
    if times.max() > 1:
        raise FedpriorError(f"sample {times.argmax()} is held {times.max()} times; each may be held once")
    return partition


def _mnist_request(share: int, rng: random.Random) -> int:
    base = rng.randint(10, 200)  # the release draws this one first
    return share * rng.randint(1, 10) + base


def _cifar10_request(share: int, rng: random.Random) -> int:
    return 2 * (share + rng.randint(300, 600))


@dataclass(frozen=True)
class _Rule:
    """What sets one released generator apart from the other; see `lognormal`."""

    request: Callable[[int, random.Random], int]  # share -> how many samples a client asks of a class
    set_aside: int | None  # samples of each class not shared out; None: as many as there are clients
    test_first: bool  # whether the head of a client's shuffled list is its test


_RULES = {"mnist": _Rule(_mnist_request, 1000, False), "cifar10": _Rule(_cifar10_request, None, True)}
_FLOOR = 10  # samples of each of its labels that every client gets first


def lognormal(
    y: Labels,
    *,
    clients: int,
    labels_per_client: int,
    rule: Literal["mnist", "cifar10"] = "mnist",
    numpy_seed: int = 1,
    python_seed: int = 1,
    labels: Literal["correct", "released"] = "correct",
    train_fraction: float = 0.75,
) -> Partition:
    """Few labels per client, heavy-tailed sizes: the partition of the pFedBreD experiments, sample for sample.

    Client u holds the labels l = (u + j) mod C, j = 0..L-1. First the floor: ten samples of each. Then shares drawn
    from lognormal(0, 2), normalised within a class, are asked for in turn and given while the class lasts (a request
    that would use it up is skipped). Classes are served in the source's order; each client's list is shuffled and cut.
    The rules follow the generators released with the paper (BDeMo/pFedBreD_public, after those of pFedMe, Dinh et al.
    2020, arXiv:2006.08848):

    - `mnist`: shares of (class size - 1000); a request is share * randint(1, 10) + randint(10, 200); the head of the
      shuffled list is train. 70,000 digits, 100 clients, 3 labels, seeds 1 and 1: 59,229 samples, 44,383 train.
      FMNIST uses the same rule with 2 labels and numpy seed 0; its release leaves `random` unseeded, so its own sizes
      are lost and python seed 0 is our choice.
    - `cifar10`: shares of (class size - clients); a request is 2 * (share + randint(300, 600)); the head of the
      shuffled list is test. 60,000 images, 20 clients, 3 labels, seeds 1 and 1: 54,572 samples, 40,923 train.

    `random.Random(seed)` and `np.random.RandomState(seed)` are the streams which seeding the global generators gives.

    **`labels="released"`** repeats an error of the released MNIST generator, for comparison with published numbers.
    While handing out the floor, it writes the loop index j (0, 1, 2) as the label instead of l = (u + j) mod 10. Only
    clients with u mod 10 = 0, for which j = l, are labelled rightly; each of the other 90 gets 30 wrong labels:
    2,700 samples, 4.56 % of all, in train *and* test alike. A model that cannot memorise single samples is thus capped
    near 95.4 % accuracy. The generators for FMNIST and CIFAR-10 do not have the error, and whether the published runs
    used the file that has it is not known. Use "correct" for every conclusion, and name the choice beside the number.

    >>> digits = np.repeat(np.arange(10), [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958])
    >>> p = lognormal(digits, clients=100, labels_per_client=3)
    >>> sum(map(len, p.train)), sum(map(len, p.test))
    (44383, 14846)
    >>> released = lognormal(digits, clients=100, labels_per_client=3, labels="released")
    >>> int((released.y != digits).sum())
    2700
    """
    if rule not in _RULES:
        raise unknown("lognormal rule", rule, _RULES)
    if labels not in ("correct", "released"):
        raise unknown("choice of labels", labels, ("correct", "released"))
    if labels == "released" and rule != "mnist":
        raise FedpriorError(f"labels='released' with rule='{rule}': only the mnist generator mislabels; use 'correct'")
    the, pools = _RULES[rule], _by_class(y)
    classes = len(pools)
    _need_clients(clients)
    _need_labels(labels_per_client, classes)
    _need_fraction("train_fraction", train_fraction)
    sizes = np.array([len(pool) for pool in pools])
    set_aside = clients if the.set_aside is None else the.set_aside
    turns = [(u, j, (u + j) % classes) for u in range(clients) for j in range(labels_per_client)]
    floors = _FLOOR * np.bincount([label for *_, label in turns], minlength=classes)
    short = np.flatnonzero(sizes < np.maximum(floors, set_aside + 1))
    if len(short):
        raise FedpriorError(
            f"class {short[0]} has {sizes[short[0]]} samples, but rule='{rule}' with {clients} clients needs "
            f"{max(floors[short[0]], set_aside + 1)}; use fewer clients, or a dirichlet or pathological partition"
        )

    rng, python = np.random.RandomState(numpy_seed), random.Random(python_seed)
    used = np.zeros_like(sizes)
    held: list[list[Indices]] = [[] for _ in range(clients)]
    y_out = y.copy()

    def give(client: int, label: int, n: int) -> Indices:
        samples = pools[label][used[label] : used[label] + n]
        held[client].append(samples)
        used[label] += n
        return samples

    for u, j, label in turns:
        samples = give(u, label, _FLOOR)
        if labels == "released":
            y_out[samples] = j
    share = rng.lognormal(0.0, 2.0, (classes, clients, labels_per_client))
    share = (sizes - set_aside)[:, None, None] * share / share.sum((1, 2), keepdims=True)
    ten = max(1, clients // 10)  # as released: a tenth of the clients reads the same shares
    for u, j, label in turns:
        n = the.request(int(share[label, u // ten, j]), python)
        if used[label] + n < sizes[label]:
            give(u, label, n)

    train, test = [], []
    for parts in held:
        own = np.concatenate(parts).tolist()
        python.shuffle(own)
        samples, n_train = np.array(own, np.int64), int(train_fraction * len(own))
        cut = len(own) - n_train if the.test_first else n_train
        pair = samples[:cut], samples[cut:]
        train.append(pair[the.test_first])
        test.append(pair[not the.test_first])
    return check(Partition(tuple(train), tuple(test), y_out))


def pathological(
    y: Labels, *, clients: int, classes_per_client: int, seed: int = 0, test_fraction: float = 0.25
) -> Partition:
    """Exactly k classes for each client (after the shards of McMahan et al. 2017, arXiv:1602.05629).

    Each client takes the k classes with the fewest holders so far, ties broken at random, and a class is then shared
    equally by its holders. So, unlike with shards, no client gets a further class where a shard crosses a border. When
    clients * k is less than the number of classes, some classes go unused.

    >>> p = pathological(np.repeat(np.arange(4), 10), clients=4, classes_per_client=2)
    >>> [len(np.unique(p.y[np.r_[a, b]])) for a, b in zip(p.train, p.test)]
    [2, 2, 2, 2]
    """
    pools = _by_class(y)
    _need_clients(clients)
    _need_labels(classes_per_client, len(pools))
    rng = _generator(seed)
    holders: list[list[int]] = [[] for _ in pools]
    for client in range(clients):
        fewest = np.lexsort((rng.random(len(pools)), np.array([len(h) for h in holders])))
        for label in fewest[:classes_per_client]:
            holders[label].append(client)
    held: list[list[Indices]] = [[] for _ in range(clients)]
    for label, (pool, mine) in enumerate(zip(pools, holders, strict=True)):
        if len(pool) < len(mine):
            raise FedpriorError(f"class {label} has {len(pool)} samples for {len(mine)} clients; use fewer clients")
        for client, part in zip(mine, np.array_split(rng.permutation(pool), max(1, len(mine))), strict=False):
            held[client].append(part)
    return _cut(y, [np.concatenate(parts) for parts in held], test_fraction, rng)


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
    _need_positive("alpha", alpha)
    _need_clients(clients, len(y))
    rng = _generator(seed)
    pools = [rng.permutation(pool) for pool in _by_class(y)]
    share_out = _equal if sizes == "equal" else _free
    return _cut(y, share_out(pools, clients, alpha, rng), test_fraction, rng)


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
    _by_class(y)
    _need_clients(clients, len(y))
    rng = _generator(seed)
    return _cut(y, np.array_split(rng.permutation(len(y)), clients), test_fraction, rng)


def natural(
    y: Labels,
    group: Labels,
    *,
    is_test: npt.NDArray[np.bool_] | None = None,
    seed: int = 0,
    test_fraction: float = 0.1,
) -> Partition:
    """One client per writer or user, in the order of their ids; the data's own test split where there is one.

    Without `is_test`, each client's samples are split by the seed (LEAF's split of FEMNIST is 90/10, hence the default;
    Caldas et al. 2018, arXiv:1812.01097).

    >>> p = natural(np.zeros(4, int), np.array([0, 0, 1, 1]), is_test=np.array([False, True, True, False]))
    >>> p.train, p.test
    ((array([0]), array([3])), (array([1]), array([2])))
    """
    _by_class(y)
    held = _by_group(group, len(y))
    if is_test is None:
        return _cut(y, held, test_fraction, _generator(seed))
    if len(is_test) != len(y):
        raise FedpriorError(f"is_test has {len(is_test)} entries for {len(y)} labels; give one for each sample")
    own = np.asarray(is_test, bool)
    return check(Partition(tuple(i[~own[i]] for i in held), tuple(i[own[i]] for i in held), y))


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
    _by_class(y)
    users = [samples for samples in _by_group(group, len(y)) if len(samples) >= min_samples]
    counts = grouped_counts(len(users), clients=clients, alpha=alpha, floor=floor, seed=seed)
    rng = _generator(seed)
    deals = np.split(rng.permutation(len(users)), np.cumsum(counts)[:-1])
    return _cut(y, [np.concatenate([users[i] for i in deal]) for deal in deals], test_fraction, rng)


def grouped_counts(users: int, *, clients: int, alpha: float = 0.5, floor: int = 10, seed: int = 1) -> Indices:
    """How many of the users each client of `grouped` gets."""
    _need_clients(clients)
    _need_positive("alpha", alpha)
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


def hold_out(partition: Partition, *, fraction: float, seed: int = 0) -> Split:
    """Split each client's training samples in train and validation; the test samples stay as they are.

    A client keeps at least one training sample, so one with a single sample gets an empty validation list. A client's
    split depends on the seed and its own number only, not on the other clients.

    >>> train, validation = hold_out(iid(np.zeros(16, int), clients=2), fraction=0.5)
    >>> [len(a) for a in train], [len(a) for a in validation]
    ([3, 3], [3, 3])
    """
    _need_fraction("fraction", fraction)
    _generator(seed)
    pairs = []
    for client, samples in enumerate(partition.train):
        order = np.random.default_rng([seed, client]).permutation(samples)
        n = min(round(fraction * len(order)), len(order) - 1)
        pairs.append((order[n:], order[:n]))
    return tuple(train for train, _ in pairs), tuple(validation for _, validation in pairs)


def _cut(y: Labels, held: Sequence[Indices], test_fraction: float, rng: np.random.Generator) -> Partition:
    """Shuffle each client's samples and make the given part of them its test, one of each at least."""
    _need_fraction("test_fraction", test_fraction)
    train, test = [], []
    for samples in held:
        order = rng.permutation(samples)
        n = min(max(round(test_fraction * len(order)), 1), max(len(order) - 1, 0))
        train.append(order[n:])
        test.append(order[:n])
    return check(Partition(tuple(train), tuple(test), y))


def _by_class(y: Labels) -> list[Indices]:
    if y.ndim != 1 or not len(y) or not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
        given = f"shape {y.shape}, type {y.dtype}" + (f", minimum {y.min()}" if y.size else "")
        raise FedpriorError(f"labels must be a list of integers from 0 upwards, one for each sample; got {given}")
    return _runs(y, int(y.max()) + 1)


def _by_group(group: Labels, n: int) -> list[Indices]:
    if len(group) != n:
        raise FedpriorError(f"group has {len(group)} entries for {n} labels; give one for each sample")
    _, numbers = np.unique(group, return_inverse=True)
    return _runs(numbers, int(numbers.max()) + 1)


def _runs(numbers: Labels, count: int) -> list[Indices]:
    """For each number, where it occurs, in order."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers, minlength=count))[:-1])


def _generator(seed: int) -> np.random.Generator:
    if seed < 0:
        raise FedpriorError(f"seed={seed}; valid: 0 and above")
    return np.random.default_rng(seed)


def _need_clients(clients: int, samples: int | None = None) -> None:
    if clients < 1:
        raise FedpriorError(f"clients={clients}; valid: 1 and above")
    if samples is not None and samples < 2 * clients:
        raise FedpriorError(
            f"clients={clients} with {samples} samples; each needs one to train and one to test: at most {samples // 2}"
        )


def _need_labels(given: int, classes: int) -> None:
    if not 1 <= given <= classes:
        raise FedpriorError(f"{given} labels per client; valid: 1 to {classes}, the number of classes")


def _need_positive(what: str, value: float) -> None:
    if not 0 < value < np.inf:
        raise FedpriorError(f"{what}={value}; valid: above 0")


def _need_fraction(what: str, value: float) -> None:
    if not 0 < value < 1:
        raise FedpriorError(f"{what}={value}; valid: between 0 and 1, such as 0.25")

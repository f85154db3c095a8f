"""What a partition is, what must hold for every one, and what the rules that make partitions have in common."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.errors import FedpriorError
from fedprior.files import array_digest, digest

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[np.integer[Any]]
LEGACY_SEED = 2**32 - 1  # the largest of NumPy's older generator, which the released partitions draw from
Split = tuple[tuple[Indices, ...], tuple[Indices, ...]]


@dataclass(frozen=True)
class Partition:
    """Each client's own training and test samples, as indices into the source."""

    train: tuple[Indices, ...]
    test: tuple[Indices, ...]
    y: Labels  # [n] the labels to use: the source's own, except for `lognormal(..., labels="released")`
    names: tuple[int | str, ...] | None = None  # what the clients are called; None: 0, 1, ...
    may_lack_test: bool = False  # whether it is meant that clients have no test sample

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.train)

    @property
    def ids(self) -> tuple[int | str, ...]:
        """What the clients are called."""
        return tuple(range(self.clients)) if self.names is None else self.names

    @property
    def fingerprint(self) -> str:
        """Of who holds which sample for what, with which label and under which name."""
        sizes = [np.array([len(samples) for samples in part]) for part in (self.train, self.test)]
        arrays = (*sizes, *self.train, *self.test, np.asarray(self.y))
        return digest(json.dumps(self.names), *(array_digest(a.astype(np.int64)) for a in arrays))


def check(partition: Partition) -> Partition:
    """Return the partition if each client can train and be tested and no sample is held twice; else say who cannot.

    A client without a test sample is valid only where the data's own split or a test_fraction of 0 asks for it.

    >>> check(Partition((np.array([0]),), (np.array([], int),), np.zeros(1, int)))
    Traceback (most recent call last):
    fedprior.errors.FedpriorError: client 0 has no test sample (1 train, 0 test); give it more samples or leave it out
    """
    if not partition.train or len(partition.train) != len(partition.test):
        given = f"{len(partition.train)} train and {len(partition.test)} test lists"
        raise FedpriorError(f"a partition needs one train and one test list for each of its clients; got {given}")
    if partition.names is not None:
        _check_names(partition.names, partition.clients)
    for client, train, test in zip(partition.ids, partition.train, partition.test, strict=True):
        for part, samples in (("train", train), ("test", test)):
            if not len(samples) and not (part == "test" and partition.may_lack_test):
                have = f"({len(train)} train, {len(test)} test)"
                raise FedpriorError(
                    f"client {client!r} has no {part} sample {have}; give it more samples or leave it out"
                )
    held = np.concatenate(partition.train + partition.test)
    if held.min() < 0 or held.max() >= len(partition.y):
        wrong = held[(held < 0) | (held >= len(partition.y))][0]
        raise FedpriorError(f"index {wrong} is no sample; valid: 0 to {len(partition.y) - 1}")
    times = np.bincount(held)
    if times.max() > 1:
        raise FedpriorError(f"sample {times.argmax()} is held {times.max()} times; each may be held once")
    return partition


def _check_names(names: Sequence[int | str], clients: int) -> None:
    if len(names) != clients:
        raise FedpriorError(f"{len(names)} names for {clients} clients; give one for each, or none")
    name, times = Counter(map(str, names)).most_common(1)[0]
    if times > 1:
        raise FedpriorError(f"{times} clients are called '{name}'; give each a name of its own")


def hold_out(partition: Partition, *, fraction: float, seed: int = 0) -> Split:
    """Split each client's training samples into train and validation; the test samples stay as they are.

    A client keeps at least one training sample, so one with a single sample gets an empty validation list. A client's
    split depends on the seed and its own number only, not on the other clients.

    >>> from fedprior.data.partitions.labels import iid
    >>> train, validation = hold_out(iid(np.zeros(16, int), clients=2), fraction=0.5)
    >>> [len(a) for a in train], [len(a) for a in validation]
    ([3, 3], [3, 3])
    """
    require_fraction("fraction", fraction)
    seeded_generator(seed)  # refuses a seed below 0
    pairs = []
    for client, samples in enumerate(partition.train):
        order = np.random.default_rng([seed, client]).permutation(samples)
        n = min(round(fraction * len(order)), len(order) - 1)
        pairs.append((order[n:], order[:n]))
    return tuple(train for train, _ in pairs), tuple(validation for _, validation in pairs)


def statistics(partition: Partition, n_classes: int) -> dict[str, float]:
    """Sizes and label skew of the clients, train and test together.

    `majority_share`: how often guessing each client's own most frequent label is right, over all samples; what a model
    that knows the client but sees no input can reach. `label_distance`: total variation between a client's labels and
    everybody's, averaged over clients; 0 is i.i.d., and 1 - 1/C is one class each in a balanced federation.

    >>> from fedprior.data.partitions.labels import pathological
    >>> s = statistics(pathological(np.repeat(np.arange(4), 8), clients=4, classes_per_client=1), 4)
    >>> s["clients"], s["train"], s["test"], s["majority_share"], s["label_distance"]
    (4, 24, 8, 1.0, 0.75)
    """
    counts = label_counts(partition, n_classes)
    sizes = counts.sum(1)
    share = counts / sizes[:, None]
    pooled = counts.sum(0) / counts.sum()
    return {
        "clients": partition.clients,
        "train": sum(map(len, partition.train)),
        "test": sum(map(len, partition.test)),
        "size_min": int(sizes.min()),
        "size_median": float(np.median(sizes)),
        "size_max": int(sizes.max()),
        "classes_per_client": float((counts > 0).sum(1).mean()),
        "majority_share": float(counts.max(1).sum() / counts.sum()),
        "label_distance": float(np.abs(share - pooled).sum(1).mean() / 2),
    }


def label_counts(partition: Partition, n_classes: int) -> npt.NDArray[np.int64]:
    """The number of samples of each client and class, [N, C]."""
    highest = int(partition.y.max())
    if highest >= n_classes:
        raise FedpriorError(f"n_classes={n_classes}, but there is a label {highest}; valid: {highest + 1} and above")
    held = [np.concatenate(pair) for pair in zip(partition.train, partition.test, strict=True)]
    return np.stack([np.bincount(partition.y[samples], minlength=n_classes) for samples in held])


def split_off_test(
    y: Labels,
    held: Sequence[Indices],
    test_fraction: float,
    rng: np.random.Generator,
    names: tuple[int | str, ...] | None = None,
) -> Partition:
    """Shuffle each client's samples and make this fraction of them its test; at least one each to train and to test.

    With a fraction of 0 all samples are for training, and nothing is tested.
    """
    if test_fraction != 0:
        require_fraction("test_fraction", test_fraction)
    train, test = [], []
    for samples in held:
        order = rng.permutation(samples)
        n = min(max(round(test_fraction * len(order)), 1), max(len(order) - 1, 0)) if test_fraction else 0
        train.append(order[n:])
        test.append(order[:n])
    return check(Partition(tuple(train), tuple(test), y, names, may_lack_test=test_fraction == 0))


def samples_by_class(y: Labels) -> list[Indices]:
    """The samples of each class, in the source's order; what is no list of labels is refused.

    >>> [samples.tolist() for samples in samples_by_class(np.array([1, 0, 1]))]
    [[1], [0, 2]]
    """
    if y.ndim != 1 or not len(y) or not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
        given = f"shape {y.shape}, type {y.dtype}" + (f", minimum {y.min()}" if y.size else "")
        raise FedpriorError(f"labels must be a list of integers from 0 upwards, one for each sample; got {given}")
    return _places(y, int(y.max()) + 1)


def samples_by_group(group: Labels, n: int) -> list[Indices]:
    """The samples of each writer or user, from the smallest number in ``group`` to the largest, of ``n`` samples."""
    if len(group) != n:
        raise FedpriorError(f"group has {len(group)} entries for {n} labels; give one for each sample")
    _, numbers = np.unique(group, return_inverse=True)
    return _places(numbers, int(numbers.max()) + 1)


def _places(numbers: Labels, count: int) -> list[Indices]:
    """Where each number below ``count`` occurs, in order."""
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers, minlength=count))[:-1])


def seeded_generator(seed: int) -> np.random.Generator:
    """A generator of this partition's own, so that the global ones are left alone."""
    require_seed(seed)
    return np.random.default_rng(seed)


def require_seed(seed: int, what: str = "seed", most: int | None = None) -> None:
    """Refuse what a generator cannot begin with."""
    if seed < 0 or (most is not None and seed > most):
        raise FedpriorError(f"{what}={seed}; valid: 0 " + ("and above" if most is None else f"to {most}"))


def require_clients(clients: int, samples: int | None = None) -> None:
    """Refuse a number of clients below 1, or one for which there are too few samples."""
    if clients < 1:
        raise FedpriorError(f"clients={clients}; valid: 1 and above")
    if samples is not None and samples < 2 * clients:
        raise FedpriorError(
            f"clients={clients} with {samples} samples; each needs one to train and one to test: at most {samples // 2}"
        )


def require_labels(given: int, classes: int) -> None:
    """Refuse a number of labels per client that is not between 1 and the number of classes."""
    if not 1 <= given <= classes:
        raise FedpriorError(f"{given} labels per client; valid: 1 to {classes}, the number of classes")


def require_positive(what: str, value: float) -> None:
    """Refuse what is not finite and above 0."""
    if not 0 < value < np.inf:
        raise FedpriorError(f"{what}={value}; valid: above 0")


def require_fraction(what: str, value: float) -> None:
    """Refuse what does not lie strictly between 0 and 1."""
    if not 0 < value < 1:
        raise FedpriorError(f"{what}={value}; valid: between 0 and 1, such as 0.25")

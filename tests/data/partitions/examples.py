"""Labels that tests partition, and what they ask of the partitions."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from fedprior.data.partitions import Partition

MNIST = np.repeat(np.arange(10), [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958])  # class sizes, pooled
CIFAR = np.repeat(np.arange(10), 6000)
SIX = np.repeat(np.arange(6), 40)
SEEDS = st.integers(0, 2**32 - 1)
few_examples = settings(max_examples=25, deadline=None)


def sizes(p: Partition) -> list[int]:
    return [len(a) + len(b) for a, b in zip(p.train, p.test, strict=True)]


def all_samples(p: Partition) -> np.ndarray:
    return np.concatenate(p.train + p.test)


def classes_of(p: Partition, client: int) -> set[int]:
    return set(p.y[np.concatenate([p.train[client], p.test[client]])].tolist())

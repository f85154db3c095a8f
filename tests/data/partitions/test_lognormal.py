"""The partition of the paper, against the sizes and the steps of the released generators."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from data.partitions.examples import CIFAR, MNIST, SIX, all_samples, sizes
from fedprior.data.partitions import Partition, grouped_counts, lognormal
from fedprior.errors import FedpriorError


def test_mnist_has_the_released_sizes() -> None:
    p = lognormal(MNIST, clients=100, labels_per_client=3)
    assert (sum(sizes(p)), sum(map(len, p.train)), sum(map(len, p.test))) == (59_229, 44_383, 14_846)
    assert (min(sizes(p)), float(np.median(sizes(p))), max(sizes(p))) == (74, 435.0, 4_017)
    assert np.array_equal(p.y, MNIST)


def test_cifar10_has_the_released_sizes() -> None:
    p = lognormal(CIFAR, clients=20, labels_per_client=3, rule="cifar10")
    assert (sum(sizes(p)), sum(map(len, p.train)), sum(map(len, p.test))) == (54_572, 40_923, 13_649)
    assert (min(sizes(p)), max(sizes(p))) == (1_150, 4_536)


def test_mnist_is_the_procedure_written_out() -> None:
    """Sample for sample, against the steps one after the other on one list per class and client."""
    y = np.random.default_rng(0).permutation(MNIST)
    pools = [np.flatnonzero(y == label).tolist() for label in range(10)]
    legacy, python = np.random.RandomState(1), random.Random(1)
    pointer = [0] * 10
    clients: list[list[tuple[int, int]]] = [[] for _ in range(100)]
    for u in range(100):
        for j in range(3):
            label = (u + j) % 10
            clients[u] += [(i, j) for i in pools[label][pointer[label] : pointer[label] + 10]]
            pointer[label] += 10
    props = legacy.lognormal(0, 2.0, (10, 100, 3))
    props = np.array([[[len(pool) - 1000]] for pool in pools]) * props / np.sum(props, (1, 2), keepdims=True)
    for u in range(100):
        for j in range(3):
            label = (u + j) % 10
            n = int(props[label, u // 10, j])
            r1 = python.randint(10, 200)
            r2 = python.randint(1, 10)
            n = n * r2 + r1
            if pointer[label] + n < len(pools[label]):
                clients[u] += [(i, label) for i in pools[label][pointer[label] : pointer[label] + n]]
                pointer[label] += n
    p = lognormal(y, clients=100, labels_per_client=3, labels="released")
    for u in range(100):
        python.shuffle(clients[u])
        cut = int(0.75 * len(clients[u]))
        for given_part, mine in ((clients[u][:cut], p.train[u]), (clients[u][cut:], p.test[u])):
            assert [(i, p.y[i]) for i in mine] == given_part


def test_cifar10_takes_its_test_samples_first() -> None:
    """With seed 1, `random` gives the requests of all turns first and then shuffles client 0's list."""
    p = lognormal(CIFAR, clients=20, labels_per_client=3, rule="cifar10")
    python = random.Random(1)
    for _ in range(60):
        python.randint(300, 600)
    own = sorted(np.concatenate([p.train[0], p.test[0]]).tolist())
    floor = [i for label in range(3) for i in range(6000 * label, 6000 * label + 10)]
    order = floor + [i for i in own if i not in set(floor)]
    python.shuffle(order)
    assert p.test[0].tolist() + p.train[0].tolist() == order
    assert len(p.train[0]) == int(0.75 * len(order))


def test_released_labels_repeat_the_error_in_train_and_test() -> None:
    right = lognormal(MNIST, clients=100, labels_per_client=3)
    wrong = lognormal(MNIST, clients=100, labels_per_client=3, labels="released")
    bad = all_samples(wrong)[wrong.y[all_samples(wrong)] != MNIST[all_samples(wrong)]]
    assert len(bad) == 2_700
    assert round(100 * len(bad) / len(all_samples(wrong)), 2) == 4.56
    assert np.isin(np.concatenate(wrong.test), bad).any()
    assert np.isin(np.concatenate(wrong.train), bad).any()
    assert set(wrong.y[bad].tolist()) == {0, 1, 2}
    assert all(np.array_equal(a, b) for a, b in zip(right.train + right.test, wrong.train + wrong.test, strict=True))
    for u in range(0, 100, 10):
        assert not np.isin(np.concatenate([wrong.train[u], wrong.test[u]]), bad).any()


def test_global_generators_are_left_alone() -> None:
    before = random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002
    lognormal(MNIST, clients=100, labels_per_client=2, numpy_seed=0, python_seed=0)
    grouped_counts(100, clients=3)
    assert random.getstate() == before[0]
    np.testing.assert_equal(np.random.get_state(legacy=False), before[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lognormal(SIX, clients=2, labels_per_client=1), "class 0 has 40 samples"),
        (
            lambda: lognormal(2 * MNIST, clients=2, labels_per_client=1),
            "class 1 has no samples; number the labels without",
        ),
        (
            lambda: lognormal(MNIST, clients=9, labels_per_client=3, numpy_seed=-1),
            "numpy_seed=-1; valid: 0 to 4294967295",
        ),
        (
            lambda: lognormal(MNIST, clients=9, labels_per_client=3, numpy_seed=2**32),
            "numpy_seed=4294967296; valid: 0 to",
        ),
        (lambda: lognormal(MNIST, clients=9, labels_per_client=11), "11 labels per client; valid: 1 to 10"),
        (lambda: lognormal(MNIST, clients=9, labels_per_client=3, rule="minst"), "did you mean 'mnist'"),  # type: ignore[arg-type]
        (lambda: lognormal(MNIST, clients=9, labels_per_client=3, labels="wrong"), "valid: correct, released"),  # type: ignore[arg-type]
        (lambda: lognormal(MNIST, clients=10_000, labels_per_client=3), "use fewer clients"),
        (lambda: lognormal(MNIST, clients=9, labels_per_client=3, train_fraction=1.0), "train_fraction=1.0; valid"),
        (
            lambda: lognormal(CIFAR, clients=20, labels_per_client=3, rule="cifar10", labels="released"),
            "only the mnist generator",
        ),
    ],
)
def test_wrong_values_are_told_in_one_line(call: Callable[[], Partition], message: str) -> None:
    with pytest.raises(FedpriorError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_request_that_would_use_up_a_class_is_skipped() -> None:
    """With python seed 2 a client asks for 2 (size - 1000) + 24, after its floor of 10: of 1,966 samples for all of them."""
    python = random.Random(2)
    assert (python.randint(10, 200), python.randint(1, 10)) == (24, 2)
    for size, given in ((1_965, 10 + 2 * 965 + 24), (1_966, 10)):
        p = lognormal(np.zeros(size, int), clients=1, labels_per_client=1, python_seed=2)
        assert sizes(p) == [given]

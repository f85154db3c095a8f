"""Partitions: exact sizes of the released ones, and what must hold for every one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprior.data import partition as parts
from fedprior.data.partition import Partition
from fedprior.errors import FedpriorError

MNIST = np.repeat(np.arange(10), [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958])  # class sizes, pooled
CIFAR = np.repeat(np.arange(10), 6000)
SIX = np.repeat(np.arange(6), 40)
bounded = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def sizes(p: Partition) -> list[int]:
    return [len(a) + len(b) for a, b in zip(p.train, p.test, strict=True)]


def held(p: Partition) -> np.ndarray:
    return np.concatenate(p.train + p.test)


def same(a: Partition, b: Partition) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.train + a.test + (a.y,), b.train + b.test + (b.y,), strict=True))


def labels(p: Partition, client: int) -> set[int]:
    return set(p.y[np.concatenate([p.train[client], p.test[client]])].tolist())


# --- the released generators ------------------------------------------------------------------------------------------


def test_mnist_has_the_released_sizes():
    p = parts.lognormal(MNIST, clients=100, labels_per_client=3)
    assert (sum(sizes(p)), sum(map(len, p.train)), sum(map(len, p.test))) == (59_229, 44_383, 14_846)
    assert (min(sizes(p)), np.median(sizes(p)), max(sizes(p))) == (74, 435, 4_017)
    assert np.array_equal(p.y, MNIST)


def test_cifar10_has_the_released_sizes():
    p = parts.lognormal(CIFAR, clients=20, labels_per_client=3, rule="cifar10")
    assert (sum(sizes(p)), sum(map(len, p.train)), sum(map(len, p.test))) == (54_572, 40_923, 13_649)
    assert (min(sizes(p)), max(sizes(p))) == (1_150, 4_536)


def test_mnist_is_the_procedure_written_out():
    """Sample for sample, against the steps one after the other on one list per class and client."""
    y = np.random.default_rng(0).permutation(MNIST)
    pools = [np.flatnonzero(y == label).tolist() for label in range(10)]
    legacy, python = np.random.RandomState(1), random.Random(1)
    pointer, clients = [0] * 10, [[] for _ in range(100)]
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
    p = parts.lognormal(y, clients=100, labels_per_client=3, labels="released")
    for u in range(100):
        python.shuffle(clients[u])
        cut = int(0.75 * len(clients[u]))
        for given_part, mine in ((clients[u][:cut], p.train[u]), (clients[u][cut:], p.test[u])):
            assert [(i, p.y[i]) for i in mine] == given_part


def test_cifar10_takes_its_test_samples_first():
    """With seed 1, `random` gives the requests of all turns first and then shuffles client 0's list."""
    p = parts.lognormal(CIFAR, clients=20, labels_per_client=3, rule="cifar10")
    python = random.Random(1)
    for _ in range(60):
        python.randint(300, 600)
    own = sorted(np.concatenate([p.train[0], p.test[0]]).tolist())
    floor = [i for label in range(3) for i in range(6000 * label, 6000 * label + 10)]
    order = floor + [i for i in own if i not in set(floor)]
    python.shuffle(order)
    assert p.test[0].tolist() + p.train[0].tolist() == order
    assert len(p.train[0]) == int(0.75 * len(order))


def test_released_labels_repeat_the_error_in_train_and_test():
    right = parts.lognormal(MNIST, clients=100, labels_per_client=3)
    wrong = parts.lognormal(MNIST, clients=100, labels_per_client=3, labels="released")
    bad = held(wrong)[wrong.y[held(wrong)] != MNIST[held(wrong)]]
    assert len(bad) == 2_700
    assert round(100 * len(bad) / len(held(wrong)), 2) == 4.56
    assert np.isin(np.concatenate(wrong.test), bad).any()
    assert np.isin(np.concatenate(wrong.train), bad).any()
    assert set(wrong.y[bad].tolist()) == {0, 1, 2}
    assert all(np.array_equal(a, b) for a, b in zip(right.train + right.test, wrong.train + wrong.test, strict=True))
    for u in range(0, 100, 10):
        assert not np.isin(np.concatenate([wrong.train[u], wrong.test[u]]), bad).any()


def test_sent140_has_the_released_user_counts():
    counts = parts.grouped_counts(7086, clients=10, alpha=0.5, floor=10, seed=1)
    assert counts.tolist() == [1529, 10, 199, 313, 1385, 1545, 375, 16, 1531, 183]


def test_global_generators_are_left_alone():
    before = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    parts.lognormal(MNIST, clients=100, labels_per_client=2, numpy_seed=0, python_seed=0)
    parts.grouped_counts(100, clients=3)
    assert random.getstate() == before[0]
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


# --- what holds for every partition -----------------------------------------------------------------------------------


@st.composite
def partitions(draw):
    """A function of the seed which makes some partition of some labels."""
    y = np.array(draw(st.lists(st.integers(0, 4), min_size=60, max_size=120)))
    y[:10] = np.tile(np.arange(5), 2)
    n = draw(st.integers(1, 8))
    fraction = draw(st.sampled_from([0.05, 0.25, 0.9]))
    alpha = draw(st.sampled_from([1e-3, 0.1, 1.0, 100.0]))
    group = np.arange(len(y)) % 15
    is_test = np.arange(len(y)) // 15 == 2
    common = {"test_fraction": fraction}
    return draw(
        st.sampled_from(
            [
                lambda seed: parts.iid(y, clients=n, seed=seed, **common),
                lambda seed: parts.dirichlet(y, clients=n, alpha=alpha, seed=seed, **common),
                lambda seed: parts.dirichlet(y, clients=n, alpha=alpha, sizes="free", seed=seed, **common),
                lambda seed: parts.pathological(SIX, clients=n, classes_per_client=1 + n % 6, seed=seed, **common),
                lambda seed: parts.natural(y, group, seed=seed, **common),
                lambda seed: parts.natural(y, group, is_test=is_test, seed=seed, **common),
                lambda seed: parts.grouped(y, group, clients=min(n, 7), floor=2, seed=seed, **common),
                lambda seed: parts.lognormal(
                    np.repeat(np.arange(5), 900),
                    clients=n,
                    labels_per_client=1 + n % 5,
                    rule="cifar10",
                    numpy_seed=seed,
                    python_seed=seed,
                ),
            ]
        )
    )


@bounded
@given(partitions(), seeds)
def test_every_partition_is_disjoint_complete_and_seeded(make, seed):
    p = make(seed)
    assert len(np.unique(held(p))) == len(held(p))
    assert all(len(a) and len(b) for a, b in zip(p.train, p.test, strict=True))
    assert all(i.dtype == np.int64 for i in p.train + p.test)
    assert same(p, make(seed))


@bounded
@given(partitions(), seeds, st.floats(0.01, 0.99))
def test_hold_out_splits_train_and_leaves_some(make, seed, fraction):
    p = make(0)
    train, validation = parts.hold_out(p, fraction=fraction, seed=seed)
    for own, a, b in zip(p.train, train, validation, strict=True):
        assert len(a)
        assert sorted(np.concatenate([a, b]).tolist()) == sorted(own.tolist())


@bounded
@given(st.integers(1, 20), st.sampled_from([1e-6, 0.05, 1.0, 1e4]), seeds)
def test_dirichlet_equal_sizes_are_equal(clients, alpha, seed):
    p = parts.dirichlet(SIX, clients=clients, alpha=alpha, seed=seed)
    assert set(sizes(p)) == {240 // clients}


@bounded
@given(st.integers(1, 60), st.sampled_from([1e-6, 0.05, 1.0]), seeds)
def test_dirichlet_free_uses_all_and_leaves_nobody_empty(clients, alpha, seed):
    p = parts.dirichlet(SIX, clients=clients, alpha=alpha, sizes="free", seed=seed)
    assert sum(sizes(p)) == 240
    assert min(sizes(p)) >= 2


@bounded
@given(st.integers(1, 12), st.integers(1, 6), seeds)
def test_pathological_gives_exactly_k_classes(clients, k, seed):
    p = parts.pathological(SIX, clients=clients, classes_per_client=k, seed=seed)
    own = [labels(p, u) for u in range(clients)]
    assert {len(classes) for classes in own} == {k}
    holders = [sum(label in classes for classes in own) for label in range(6)]
    assert max(holders) - min(holders) <= 1


def test_alpha_goes_from_one_class_to_iid():
    y = np.repeat(np.arange(4), 500)
    top = [
        np.mean([np.bincount(p.y[i], minlength=4).max() / len(i) for i in p.train])
        for p in (parts.dirichlet(y, clients=4, alpha=alpha, seed=3) for alpha in (1e-3, 1.0, 1e5))
    ]
    assert top[0] > top[1] > top[2]
    assert top[2] < 0.3


def test_natural_keeps_the_data_s_own_split():
    group, is_test = np.array([7, 3, 7, 3, 7]), np.array([False, True, True, False, False])
    p = parts.natural(np.zeros(5, int), group, is_test=is_test)
    assert [a.tolist() for a in p.train] == [[3], [0, 4]]
    assert [a.tolist() for a in p.test] == [[1], [2]]


def test_grouped_never_cuts_a_user_apart():
    group = np.random.default_rng(0).integers(0, 80, 1000)
    p = parts.grouped(np.zeros(1000, int), group, clients=5, floor=3)
    users = [set(group[np.concatenate(pair)].tolist()) for pair in zip(p.train, p.test, strict=True)]
    assert sum(map(len, users)) == len(set.union(*users)) == 80
    assert min(map(len, users)) >= 3


def test_grouped_leaves_small_users_out():
    group = np.repeat([0, 1, 2, 3], [1, 5, 5, 5])
    p = parts.grouped(np.zeros(16, int), group, clients=1, floor=1, min_samples=3)
    assert sorted(held(p).tolist()) == list(range(1, 16))


def test_hold_out_leaves_a_single_sample_in_train():
    p = parts.check(Partition((np.array([0]), np.array([1, 2])), (np.array([3]), np.array([4])), np.zeros(5, int)))
    train, validation = parts.hold_out(p, fraction=0.9)
    assert [len(a) for a in train] == [1, 1]
    assert [len(a) for a in validation] == [0, 1]


def test_one_client_s_hold_out_does_not_depend_on_the_others():
    p = parts.iid(SIX, clients=4)
    fewer = Partition(p.train[:2], p.test[:2], p.y)
    for whole, part in zip(parts.hold_out(p, fraction=0.3), parts.hold_out(fewer, fraction=0.3), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(whole, part, strict=False))


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parts.iid(SIX, clients=0), "clients=0; valid: 1 and above"),
        (lambda: parts.iid(SIX, clients=121), "at most 120"),
        (lambda: parts.iid(SIX, clients=2, test_fraction=1.0), "test_fraction=1.0; valid"),
        (lambda: parts.iid(SIX, clients=2, seed=-1), "seed=-1; valid"),
        (lambda: parts.iid(np.array([0.5, 1.0]), clients=1), "labels must be a list of integers"),
        (lambda: parts.iid(np.array([], int), clients=1), "labels must be a list of integers"),
        (lambda: parts.iid(np.array([-1, 0]), clients=1), "minimum -1"),
        (lambda: parts.dirichlet(SIX, clients=2, alpha=0.0), "alpha=0.0; valid: above 0"),
        (lambda: parts.dirichlet(SIX, clients=2, alpha=float("nan")), "alpha=nan; valid: above 0"),
        (lambda: parts.dirichlet(SIX, clients=2, alpha=1.0, sizes="equl"), "did you mean 'equal'"),
        (lambda: parts.pathological(SIX, clients=2, classes_per_client=7), "7 labels per client; valid: 1 to 6"),
        (lambda: parts.pathological(SIX, clients=400, classes_per_client=1), "class 0 has 40 samples for"),
        (lambda: parts.lognormal(SIX, clients=2, labels_per_client=1), "class 0 has 40 samples"),
        (lambda: parts.lognormal(MNIST, clients=9, labels_per_client=11), "11 labels per client; valid: 1 to 10"),
        (lambda: parts.lognormal(MNIST, clients=9, labels_per_client=3, rule="minst"), "did you mean 'mnist'"),
        (lambda: parts.lognormal(MNIST, clients=9, labels_per_client=3, labels="wrong"), "valid: correct, released"),
        (lambda: parts.lognormal(MNIST, clients=10_000, labels_per_client=3), "use fewer clients"),
        (
            lambda: parts.lognormal(CIFAR, clients=20, labels_per_client=3, rule="cifar10", labels="released"),
            "only the mnist generator",
        ),
        (lambda: parts.natural(SIX, np.arange(3)), "group has 3 entries for 240 labels"),
        (lambda: parts.natural(SIX, SIX, is_test=np.array([True])), "is_test has 1 entries for 240 labels"),
        (lambda: parts.natural(np.zeros(3, int), np.array([0, 0, 1])), "client 1 has no test sample"),
        (lambda: parts.natural(SIX, SIX, is_test=SIX == 4), "client 0 has no test sample"),
        (lambda: parts.grouped(SIX, SIX, clients=3, floor=3), "floor=3 users for each of 3 clients, with 6 users"),
        (lambda: parts.grouped(SIX, SIX, clients=2, floor=1, alpha=-1.0), "alpha=-1.0"),
        (lambda: parts.grouped(SIX, SIX, clients=2, floor=1, alpha=1e-9), "too small to draw from"),
        (lambda: parts.hold_out(parts.iid(SIX, clients=2), fraction=0.0), "fraction=0.0; valid"),
        (lambda: parts.check(Partition((), (), SIX)), "one train and one test list"),
    ],
)
def test_wrong_values_are_told_in_one_line(call, message):
    with pytest.raises(FedpriorError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_check_names_the_client_and_the_sample():
    one, none = np.array([0]), np.array([], int)
    train = tuple(np.array([2 * i]) for i in range(18))
    test = (*(np.array([2 * i + 1]) for i in range(17)), none)
    with pytest.raises(FedpriorError, match="client 17 has no test sample"):
        parts.check(Partition(train, test, np.zeros(40, int)))
    with pytest.raises(FedpriorError, match="client 0 has no train sample"):
        parts.check(Partition((none,), (one,), np.zeros(1, int)))
    with pytest.raises(FedpriorError, match="sample 0 is held 2 times"):
        parts.check(Partition((one,), (one,), np.zeros(1, int)))
    with pytest.raises(FedpriorError, match="index 5 is no sample; valid: 0 to 1"):
        parts.check(Partition((one,), (np.array([5]),), np.zeros(2, int)))

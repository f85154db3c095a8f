"""What is checked of a partition, held out of it and said about it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from data.partitions.examples import MNIST, SIX
from fedprior.data.partitions import Partition, check, hold_out, iid, lognormal, pathological, statistics
from fedprior.data.partitions.base import label_counts, split_off_test
from fedprior.errors import FedpriorError


def by_hand() -> Partition:
    """Client 0 holds labels 0 0 0 1, client 1 holds 1 1."""
    y = np.array([0, 0, 0, 1, 1, 1])
    return Partition((np.array([0, 1, 3]), np.array([4])), (np.array([2]), np.array([5])), y)


def test_hold_out_leaves_a_single_sample_in_train() -> None:
    p = check(Partition((np.array([0]), np.array([1, 2])), (np.array([3]), np.array([4])), np.zeros(5, int)))
    train, validation = hold_out(p, fraction=0.9)
    assert [len(a) for a in train] == [1, 1]
    assert [len(a) for a in validation] == [0, 1]


def test_one_client_s_hold_out_does_not_depend_on_the_others() -> None:
    p = iid(SIX, clients=4)
    fewer = Partition(p.train[:2], p.test[:2], p.y)
    for whole, part in zip(hold_out(p, fraction=0.3), hold_out(fewer, fraction=0.3), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(whole, part, strict=False))


def test_check_names_the_client_and_the_sample() -> None:
    one, none = np.array([0]), np.array([], int)
    train = tuple(np.array([2 * i]) for i in range(18))
    test = (*(np.array([2 * i + 1]) for i in range(17)), none)
    with pytest.raises(FedpriorError, match="client 17 has no test sample"):
        check(Partition(train, test, np.zeros(40, int)))
    with pytest.raises(FedpriorError, match="client 0 has no train sample"):
        check(Partition((none,), (one,), np.zeros(1, int)))
    with pytest.raises(FedpriorError, match="sample 0 is held 2 times"):
        check(Partition((one,), (one,), np.zeros(1, int)))
    with pytest.raises(FedpriorError, match="index 5 is no sample; valid: 0 to 1"):
        check(Partition((one,), (np.array([5]),), np.zeros(2, int)))


def test_what_can_be_neither_checked_nor_held_out_is_refused() -> None:
    with pytest.raises(FedpriorError, match="one train and one test list"):
        check(Partition((), (), SIX))
    with pytest.raises(FedpriorError, match=r"fraction=0\.0; valid"):
        hold_out(iid(SIX, clients=2), fraction=0.0)
    with pytest.raises(FedpriorError, match="seed=-1; valid"):
        hold_out(iid(SIX, clients=2), fraction=0.5, seed=-1)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a",), "1 names for 2 clients; give one for each, or none"),
        (("a", "b", "c"), "3 names for 2 clients"),
        (("a", "a"), "2 clients are called 'a'; give each a name of its own"),
        ((1, "1"), "2 clients are called '1'"),
    ],
)
def test_each_client_has_a_name_of_its_own(names: tuple[int | str, ...], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        check(dataclasses.replace(by_hand(), names=names))


def test_statistics_by_hand() -> None:
    assert statistics(by_hand(), 2) == {
        "clients": 2,
        "train": 4,
        "test": 2,
        "size_min": 2,
        "size_median": 3.0,
        "size_max": 4,
        "classes_per_client": 1.5,
        "majority_share": pytest.approx(5 / 6),
        "label_distance": pytest.approx((1 / 4 + 1 / 2) / 2),
    }
    assert label_counts(by_hand(), 3).tolist() == [[3, 1, 0], [0, 2, 0]]


def test_iid_is_near_and_one_class_each_is_far() -> None:
    y = np.repeat(np.arange(5), 400)
    near = statistics(iid(y, clients=4), 5)
    far = statistics(pathological(y, clients=5, classes_per_client=1), 5)
    assert near["label_distance"] < 0.05
    assert far["label_distance"] == pytest.approx(0.8)


def test_the_mnist_partition_has_its_known_majority_share() -> None:
    s = statistics(lognormal(MNIST, clients=100, labels_per_client=3), 10)
    assert round(s["majority_share"], 2) == 0.62
    assert (s["size_min"], s["size_median"], s["size_max"]) == (74, 435, 4017)


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(FedpriorError, match="n_classes=1, but there is a label 1; valid: 2 and above"):
        statistics(by_hand(), 1)


def test_what_is_held_out_by_hand() -> None:
    """0.45 of eight samples are 3.6: four. Which four depends on the seed, and is not the same for every client."""
    p = check(Partition((np.arange(8), np.arange(8, 16)), (np.array([16]), np.array([17])), np.zeros(18, int)))
    (first, second), validation = hold_out(p, fraction=0.45)
    assert [len(a) for a in validation] == [4, 4]
    assert sorted(first.tolist()) != sorted((second - 8).tolist())
    other, _ = hold_out(p, fraction=0.45, seed=1)
    assert [sorted(a.tolist()) for a in other] != [sorted(a.tolist()) for a in (first, second)]


def test_the_test_share_by_hand() -> None:
    """0.3 of eight samples are 2.4: two; and of two samples 0.6: one."""
    p = split_off_test(np.zeros(10, int), [np.arange(8), np.arange(8, 10)], 0.3, np.random.default_rng(0))
    assert [len(a) for a in p.train] == [6, 1]
    assert [len(a) for a in p.test] == [2, 1]
    assert sorted(np.concatenate(p.train + p.test).tolist()) == list(range(10))

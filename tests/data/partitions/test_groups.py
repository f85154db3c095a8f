"""Partitions by who made the samples: writers and users stay whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from data.partitions.examples import SIX, all_samples
from fedprior.data.partitions import Partition, grouped, grouped_counts, natural
from fedprior.errors import FedpriorError


def test_sent140_has_the_released_user_counts() -> None:
    counts = grouped_counts(7086, clients=10, alpha=0.5, floor=10, seed=1)
    assert counts.tolist() == [1529, 10, 199, 313, 1385, 1545, 375, 16, 1531, 183]


def test_natural_keeps_the_data_s_own_split() -> None:
    group, is_test = np.array([7, 3, 7, 3, 7]), np.array([False, True, True, False, False])
    p = natural(np.zeros(5, int), group, is_test=is_test)
    assert [a.tolist() for a in p.train] == [[3], [0, 4]]
    assert [a.tolist() for a in p.test] == [[1], [2]]


def test_a_writer_without_samples_is_no_client() -> None:
    p = natural(np.zeros(8, int), np.repeat([0, 2], 4), group_names=("ada", "bob", "eve"))
    assert p.ids == ("ada", "eve")


def test_grouped_never_cuts_a_user_apart() -> None:
    group = np.random.default_rng(0).integers(0, 80, 1000)
    p = grouped(np.zeros(1000, int), group, clients=5, floor=3)
    users = [set(group[np.concatenate(pair)].tolist()) for pair in zip(p.train, p.test, strict=True)]
    assert sum(map(len, users)) == len(set.union(*users)) == 80
    assert min(map(len, users)) >= 3


def test_grouped_leaves_small_users_out() -> None:
    group = np.repeat([0, 1, 2, 3], [1, 5, 5, 5])
    p = grouped(np.zeros(16, int), group, clients=1, floor=1, min_samples=3)
    assert sorted(all_samples(p).tolist()) == list(range(1, 16))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: natural(SIX, SIX, group_names=("a",)),
            "group 5 has no name among 1 group_names; number the groups from 0",
        ),
        (lambda: natural(SIX, SIX - 1, group_names=tuple("abcdef")), "group -1 has no name"),
        (
            lambda: natural(SIX, SIX, group_names=tuple("abcdea")),
            "2 clients are called 'a'; give each a name of its own",
        ),
        (lambda: natural(SIX, SIX, is_test=np.full(240, "test")), "is_test of sample 0 is 'test'; valid: True and"),
        (lambda: natural(SIX, SIX, seed=-1), "seed=-1; valid: 0 and above"),
        (lambda: grouped(SIX, SIX, clients=2, floor=1, seed=2**32), "seed=4294967296; valid: 0 to 4294967295"),
        (lambda: grouped_counts(9, clients=2, floor=1, seed=-1), "seed=-1; valid: 0 to 4294967295"),
        (lambda: natural(SIX, np.arange(3)), "group has 3 entries for 240 labels"),
        (lambda: natural(SIX, SIX, is_test=np.array([True])), "is_test has 1 entries for 240 labels"),
        (lambda: natural(np.zeros(3, int), np.array([0, 0, 1])), "client 1 has no test sample"),
        (lambda: natural(SIX, SIX, is_test=SIX == 4), "client 4 has no train sample"),
        (lambda: natural(SIX, SIX, test_fraction=-0.1), "test_fraction=-0.1; valid"),
        (lambda: grouped(SIX, SIX, clients=3, floor=3), "floor=3 users for each of 3 clients, with 6 users"),
        (lambda: grouped(SIX, SIX, clients=2, floor=1, alpha=-1.0), "alpha=-1.0"),
        (lambda: grouped(SIX, SIX, clients=2, floor=1, alpha=1e-9), "too small to draw from"),
    ],
)
def test_wrong_values_are_told_in_one_line(call: Callable[[], Partition], message: str) -> None:
    with pytest.raises(FedpriorError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_user_of_just_enough_samples_stays() -> None:
    group = np.repeat([0, 1, 2], [2, 3, 5])
    p = grouped(np.zeros(10, int), group, clients=1, floor=1, min_samples=3)
    assert sorted(all_samples(p).tolist()) == list(range(2, 10))


def test_nothing_is_tested_where_that_is_asked_for() -> None:
    for p in (natural(SIX, SIX, test_fraction=0), natural(SIX, SIX, is_test=np.zeros(240, bool))):
        assert sum(map(len, p.train)) == 240
        assert [len(test) for test in p.test] == [0] * 6
        assert sorted(all_samples(p).tolist()) == list(range(240))


def test_the_data_s_own_split_may_leave_a_client_untested() -> None:
    is_test = (np.arange(240) % 5 == 0) & (SIX != 2)
    assert [len(test) > 0 for test in natural(SIX, SIX, is_test=is_test).test] == [True, True, False, True, True, True]
    assert not natural(SIX, SIX, test_fraction=0.1).may_lack_test  # a fraction is for all clients
    with pytest.raises(FedpriorError, match="client 1 has no test sample"):
        natural(np.zeros(5, int), np.array([0, 0, 1, 2, 2]))

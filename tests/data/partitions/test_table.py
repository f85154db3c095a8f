"""The table of partitions: what holds for every one, how settings name them, and how a user adds one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.partitions.examples import SEEDS, SIX, all_samples, few_examples
from fedprior.data.federation import federate
from fedprior.data.partitions import PARTITIONS, Partition, check_options, hold_out, split_off_test, split_source
from fedprior.data.sources import from_arrays, load
from fedprior.errors import FedpriorError

Seeded = Callable[[int], Partition]


def same(a: Partition, b: Partition) -> bool:
    return all(np.array_equal(x, y) for x, y in zip((*a.train, *a.test, a.y), (*b.train, *b.test, b.y), strict=True))


@st.composite
def seeded_partitions(draw: st.DrawFn) -> Seeded:
    """A function of the seed which makes some partition of some labels."""
    y = np.array(draw(st.lists(st.integers(0, 4), min_size=60, max_size=120)))
    y[:10] = np.tile(np.arange(5), 2)
    n = draw(st.integers(1, 8))
    fraction = {"test_fraction": draw(st.sampled_from([0.05, 0.25, 0.9]))}
    skew = {"clients": n, "alpha": draw(st.sampled_from([1e-3, 0.1, 1.0, 100.0]))} | fraction
    group = np.arange(len(y)) % 15
    is_test = np.arange(len(y)) // 15 == 2
    kind, arrays, options = draw(
        st.sampled_from(
            [
                ("iid", (y,), {"clients": n} | fraction),
                ("dirichlet", (y,), skew),
                ("dirichlet", (y,), skew | {"sizes": "free"}),
                ("pathological", (SIX,), {"clients": n, "classes_per_client": 1 + n % 6} | fraction),
                ("natural", (y, group), fraction),
                ("natural", (y, group), fraction | {"is_test": is_test}),
                ("grouped", (y, group), {"clients": min(n, 7), "floor": 2} | fraction),
                ("lognormal", (np.repeat(np.arange(5), 900),), {"clients": n, "rule": "cifar10"}),
            ]
        )
    )
    function = PARTITIONS.find(kind)
    if kind == "lognormal":
        labels = {"labels_per_client": 1 + n % 5}
        return lambda seed: function(*arrays, numpy_seed=seed, python_seed=seed, **labels, **options)
    return lambda seed: function(*arrays, seed=seed, **options)


@few_examples
@given(seeded_partitions(), SEEDS)
def test_every_partition_is_disjoint_complete_and_seeded(make: Seeded, seed: int) -> None:
    p = make(seed)
    assert len(np.unique(all_samples(p))) == len(all_samples(p))
    assert all(len(a) and len(b) for a, b in zip(p.train, p.test, strict=True))
    assert all(i.dtype == np.int64 for i in p.train + p.test)
    assert same(p, make(seed))


@few_examples
@given(seeded_partitions(), SEEDS, st.floats(0.01, 0.99))
def test_hold_out_splits_train_and_leaves_some(make: Seeded, seed: int, fraction: float) -> None:
    p = make(0)
    train, validation = hold_out(p, fraction=fraction, seed=seed)
    for own, a, b in zip(p.train, train, validation, strict=True):
        assert len(a)
        assert sorted(np.concatenate([a, b]).tolist()) == sorted(own.tolist())


# --- settings ---------------------------------------------------------------------------------------------------------


def test_names_are_listed_in_order() -> None:
    assert PARTITIONS.names()[:6] == ["lognormal", "pathological", "dirichlet", "natural", "grouped", "iid"]


def test_settings_name_a_partition_and_its_arguments() -> None:
    digits = load("digits")
    options = {"clients": 7, "alpha": 0.3, "seed": 2}
    assert check_options({"kind": "dirichlet", **options}, "task 'mine'") == options
    split = split_source(digits, {"kind": "dirichlet", **options})
    assert same(split, PARTITIONS.find("dirichlet")(digits.y, **options))


def test_the_data_give_groups_and_their_own_test_split() -> None:
    whose, is_test = [1, 0, 1, 0], [False, True, True, False]
    split = split_source(from_arrays([[0.0]] * 4, [0] * 4, whose, is_test=is_test), {"kind": "natural"})
    assert [a.tolist() for a in split.train + split.test] == [[0], [3], [2], [1]]
    with pytest.raises(FedpriorError, match="partition 'natural' needs writers or users, and digits has none"):
        split_source(load("digits"), {"kind": "natural"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "task 'mine': 'partition.kind' is missing; valid: dirichlet, grouped, iid, lognormal, natural, path"),
        ({"kind": "idd"}, r"unknown partition kind 'idd' \(did you mean 'iid'\?\); valid: dirichlet, grouped, iid"),
        ({"kind": 3}, "unknown partition kind '3'"),
        ({"kind": "iid"}, "partition 'iid': 'clients' is missing"),
        ({"kind": "iid", "clients": "3"}, r"partition 'iid': clients: input should be a valid integer \(given: '3'\)"),
        ({"kind": "iid", "clients": 3.5}, "partition 'iid': clients: input should be a valid integer"),
        (
            {"kind": "iid", "clients": 3, "sed": 1},
            r"unknown key 'sed' in partition 'iid' \(did you mean 'seed'\?\); valid",
        ),
        ({"kind": "iid", "clients": 3, "y": [0, 1]}, "unknown key 'y' in partition 'iid'"),
        ({"kind": "dirichlet", "clients": 3, "alpha": 1, "sizes": "big"}, "sizes: input should be 'equal' or 'free'"),
    ],
)
def test_wrong_settings_are_told_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message) as error:
        check_options(settings, "task 'mine'")
    assert "\n" not in str(error.value)


# --- a partition of the user's own ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_names")
def test_a_registered_partition_works_by_name() -> None:
    def by_first_feature(x: np.ndarray, y: np.ndarray, *, clients: int, test_fraction: float = 0.25) -> Partition:
        shares = np.array_split(np.argsort(x[:, 0], kind="stable"), clients)
        return split_off_test(y, shares, test_fraction, np.random.default_rng(0))

    PARTITIONS.register("by-first-feature", by_first_feature)
    x = np.random.default_rng(1).normal(size=(40, 2))
    source = from_arrays(x, np.arange(40) % 3)
    split = split_source(source, {"kind": "by-first-feature", "clients": 4})
    own = [source.x[np.concatenate(pair), 0] for pair in zip(split.train, split.test, strict=True)]
    assert all(a.max() < b.min() for a, b in pairwise(own))
    assert federate(source, split).n_clients == 4
    with pytest.raises(FedpriorError, match="unknown key 'test' in partition 'by-first-feature'"):
        check_options({"kind": "by-first-feature", "clients": 4, "test": 0.5}, "task 'mine'")
    with pytest.raises(FedpriorError, match="there is a partition kind 'iid' already"):
        PARTITIONS.register("iid", by_first_feature)


@pytest.mark.usefixtures("own_names")
def test_a_function_without_annotations_or_with_an_optional_group_may_be_registered() -> None:
    def halves(y, group=None, **anything):  # type: ignore[no-untyped-def]
        assert group is None
        return split_off_test(y, np.array_split(np.arange(len(y)), 2), 0.5, np.random.default_rng(0))

    PARTITIONS.register("halves", halves)
    assert split_source(load("digits"), {"kind": "halves"}).clients == 2


@pytest.mark.usefixtures("own_names")
def test_a_registered_partition_is_checked_like_any_other() -> None:
    everything_twice = Partition((np.array([0, 1]),), (np.array([1]),), np.zeros(2, int))
    PARTITIONS.register("twice", lambda y: everything_twice)
    with pytest.raises(FedpriorError, match="sample 1 is held 2 times"):
        split_source(from_arrays([[0.0], [1.0]], [0, 0]), {"kind": "twice"})

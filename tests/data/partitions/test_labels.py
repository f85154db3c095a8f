"""Partitions by label: how many classes, how large, how skewed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.partitions.examples import SEEDS, SIX, classes_of, few_examples, sizes
from fedprior.data.partitions import Partition, dirichlet, iid, pathological
from fedprior.data.partitions.base import label_counts
from fedprior.errors import FedpriorError


@few_examples
@given(st.integers(1, 20), st.sampled_from([1e-6, 0.05, 1.0, 1e4]), SEEDS)
def test_dirichlet_equal_sizes_are_equal(clients: int, alpha: float, seed: int) -> None:
    p = dirichlet(SIX, clients=clients, alpha=alpha, seed=seed)
    assert set(sizes(p)) == {240 // clients}


@few_examples
@given(st.integers(1, 60), st.sampled_from([1e-6, 0.05, 1.0]), SEEDS)
def test_dirichlet_free_uses_all_and_leaves_nobody_empty(clients: int, alpha: float, seed: int) -> None:
    p = dirichlet(SIX, clients=clients, alpha=alpha, sizes="free", seed=seed)
    assert sum(sizes(p)) == 240
    assert min(sizes(p)) >= 2


@few_examples
@given(st.integers(1, 12), st.integers(1, 6), SEEDS)
def test_pathological_gives_exactly_k_classes(clients: int, k: int, seed: int) -> None:
    p = pathological(SIX, clients=clients, classes_per_client=k, seed=seed)
    own = [classes_of(p, u) for u in range(clients)]
    assert {len(classes) for classes in own} == {k}
    holders = [sum(label in classes for classes in own) for label in range(6)]
    assert max(holders) - min(holders) <= 1


def test_a_class_that_nobody_has_is_dealt_to_nobody() -> None:
    """Labels 0, 2 and 5: three classes, of which each client has two, as when they are numbered 0, 1 and 2."""
    gaps = np.array([0, 2, 5])[SIX % 3]
    with pytest.raises(FedpriorError, match="4 labels per client; valid: 1 to 3"):
        pathological(gaps, clients=4, classes_per_client=4)
    p, q = (pathological(y, clients=4, classes_per_client=2) for y in (gaps, SIX % 3))
    assert [classes_of(p, u) for u in range(4)] == [{[0, 2, 5][k] for k in classes_of(q, u)} for u in range(4)]


def test_alpha_goes_from_one_class_to_iid() -> None:
    y = np.repeat(np.arange(4), 500)
    top = [
        np.mean([np.bincount(p.y[i], minlength=4).max() / len(i) for i in p.train])
        for p in (dirichlet(y, clients=4, alpha=alpha, seed=3) for alpha in (1e-3, 1.0, 1e5))
    ]
    assert top[0] > top[1] > top[2]
    assert top[2] < 0.3


@pytest.mark.parametrize("clients", [1, 2])
def test_one_and_two_clients_of_two_samples_each_can_train_and_be_tested(clients: int) -> None:
    y = np.arange(2 * clients) % 2
    for p in (
        iid(y, clients=clients),
        dirichlet(y, clients=clients, alpha=0.1),
        dirichlet(y, clients=clients, alpha=0.1, sizes="free"),
        pathological(y, clients=clients, classes_per_client=2 if clients == 1 else 1),
    ):
        assert [len(samples) for samples in p.train + p.test] == [1] * (2 * clients)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid(SIX, clients=0), "clients=0; valid: 1 and above"),
        (lambda: iid(SIX, clients=121), "at most 120"),
        (lambda: iid(SIX, clients=2, test_fraction=1.0), "test_fraction=1.0; valid"),
        (lambda: iid(SIX, clients=2, seed=-1), "seed=-1; valid"),
        (lambda: iid(np.array([0.5, 1.0]), clients=1), "labels must be a list of integers"),
        (lambda: iid(np.array([], int), clients=1), "labels must be a list of integers"),
        (lambda: iid(np.array([-1, 0]), clients=1), "minimum -1"),
        (lambda: dirichlet(SIX, clients=2, alpha=0.0), "alpha=0.0; valid: above 0"),
        (lambda: dirichlet(SIX, clients=2, alpha=float("nan")), "alpha=nan; valid: above 0"),
        (lambda: dirichlet(SIX, clients=2, alpha=1.0, sizes="equl"), "did you mean 'equal'"),  # type: ignore[arg-type]
        (lambda: pathological(SIX, clients=2, classes_per_client=7), "7 labels per client; valid: 1 to 6"),
        (lambda: pathological(SIX, clients=400, classes_per_client=1), "class 0 has 40 samples for"),
    ],
)
def test_wrong_values_are_told_in_one_line(call: Callable[[], Partition], message: str) -> None:
    with pytest.raises(FedpriorError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_alpha_sets_the_sizes_where_they_are_free() -> None:
    """The largest part of a class that one client has: nearly all of it for a small alpha, a quarter for a large one."""
    y = np.repeat(np.arange(4), 500)
    top = [
        np.mean(label_counts(dirichlet(y, clients=4, alpha=alpha, sizes="free", seed=3), 4).max(0) / 500)
        for alpha in (1e-2, 1.0, 1e3)
    ]
    assert top[0] > 0.9
    assert top[0] > top[1] > top[2]
    assert top[2] < 0.3

"""Samples laid out client by client: whose they are, what is held out, and who joins later."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fedprior.data.federation import Federation, Samples, federate, part_newcomers
from fedprior.data.partitions import Partition, iid
from fedprior.data.sources import Source, from_arrays
from fedprior.errors import FedpriorError


@pytest.fixture(scope="module")
def source() -> Source:
    rng = np.random.default_rng(0)
    return from_arrays(rng.normal(size=(60, 2)), rng.integers(0, 3, 60))


@pytest.fixture(scope="module")
def partition(source: Source) -> Partition:
    return iid(source.y, clients=4)


def of_client(samples: Samples | None, i: int) -> np.ndarray:
    assert samples is not None
    start, size = int(samples.start[i]), int(samples.size[i])
    return np.asarray(samples.x)[start : start + size]


def test_samples_lie_client_by_client_and_validation_is_held_out(source: Source, partition: Partition) -> None:
    whole, held = federate(source, partition), federate(source, partition, validation=0.25)
    assert whole.n_clients == 4
    assert whole.validation is None
    assert held.validation is not None
    for i in range(4):
        assert np.array_equal(of_client(whole.train, i), source.x[partition.train[i]])
        assert np.array_equal(of_client(whole.test, i), source.x[partition.test[i]])
        both = np.concatenate([of_client(held.train, i), of_client(held.validation, i)])
        assert np.array_equal(np.sort(both, axis=0), np.sort(of_client(whole.train, i), axis=0))
    assert (whole.fingerprint, whole.n_classes) == (source.fingerprint, source.n_classes)


def test_clients_of_one_and_two_samples_are_laid_out_too(source: Source) -> None:
    train = (np.array([7]), np.array([9, 8]))
    federation = federate(source, Partition(train, (np.array([0]), np.array([1, 2])), source.y), validation=0.5)
    assert federation.validation is not None
    assert np.asarray(federation.train.size).tolist() == [1, 1]
    assert np.asarray(federation.validation.size).tolist() == [0, 1]
    assert np.array_equal(of_client(federation.train, 0), source.x[[7]])
    assert len(of_client(federation.validation, 0)) == 0
    assert len(federation.test.x) == 3


def test_clients_taken_out_of_a_partition_keep_their_names_and_samples(source: Source, partition: Partition) -> None:
    whole = federate(source, partition, validation=0.25)
    some = federate(source, partition, validation=0.25, clients=np.array([1, 3]))
    assert (whole.ids, some.ids) == ((0, 1, 2, 3), (1, 3))
    assert (whole.numbers.tolist(), some.numbers.tolist()) == ([0, 1, 2, 3], [1, 3])
    for part in ("train", "test", "validation"):
        for k, i in enumerate(some.numbers):
            assert np.array_equal(of_client(getattr(some, part), k), of_client(getattr(whole, part), i))


def test_labels_are_the_partition_s(source: Source, partition: Partition) -> None:
    other = Partition(partition.train, partition.test, 2 - partition.y)
    assert np.array_equal(
        np.asarray(federate(source, other).train.y), 2 - np.asarray(federate(source, partition).train.y)
    )


def test_a_partition_that_leaves_a_client_empty_is_refused(source: Source) -> None:
    with pytest.raises(FedpriorError, match="client 0 has no test sample"):
        federate(source, Partition((np.array([0]),), (np.array([], int),), source.y))


def test_samples_are_copied_to_devices_once(source: Source, partition: Partition) -> None:
    federation: Federation = federate(source, partition)
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert federation.placed("train", where) is federation.placed("train", where)
    assert np.array_equal(np.asarray(federation.placed("test", where).x), federation.test.x)


@pytest.mark.parametrize(("n", "fraction"), [(2, 0.01), (2, 0.99), (7, 0.2), (100, 0.2)])
def test_some_clients_train_and_some_join_later(n: int, fraction: float) -> None:
    staying, joining = part_newcomers(n, fraction)
    assert len(joining) == min(max(round(fraction * n), 1), n - 1)
    assert sorted([*staying, *joining]) == list(range(n))
    assert np.array_equal(joining, part_newcomers(n, fraction)[1])


def test_one_client_alone_cannot_be_a_newcomer() -> None:
    with pytest.raises(FedpriorError, match=r"new_clients = 0\.2 .* only one client"):
        part_newcomers(1, 0.2)

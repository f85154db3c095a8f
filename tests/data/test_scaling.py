"""Scaling is learnt from the samples that are trained on, and from no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from fedprior.data.federation import Federation, federate
from fedprior.data.partitions import Partition, natural
from fedprior.data.preparation import Preparation
from fedprior.data.scaling import standardize
from fedprior.data.sources import Source, from_arrays
from fedprior.errors import FedpriorError

PARTS = ("train", "validation", "test")
STAYING, JOINING = np.array([0, 1, 3]), np.array([2])


def source_of(x: np.ndarray) -> Source:
    return from_arrays(x, np.arange(80) % 2, np.repeat(np.arange(4), 20))


def laid_out(x: np.ndarray) -> tuple[Federation, Federation]:
    """Three clients that train, with validation samples, and one that joins later."""
    source = source_of(x)
    assert source.group is not None
    partition: Partition = natural(source.y, source.group, test_fraction=0.25)
    return tuple(federate(source, partition, 0.2, clients=who) for who in (STAYING, JOINING))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(0).normal([5.0, -300.0], [2.0, 50.0], (80, 2)).astype(np.float32)


def test_every_part_is_scaled_as_the_training_samples_say(x: np.ndarray) -> None:
    given = laid_out(x)
    staying, joining, remarks = standardize(*given)
    assert remarks == ()
    assert joining is not None
    scaler = StandardScaler().fit(np.asarray(given[0].train.x, float))
    for before, after in zip(given, (staying, joining), strict=True):
        for part in PARTS:
            raw, scaled = (np.asarray(getattr(one, part).x) for one in (before, after))
            assert scaled.dtype == np.float32
            assert scaled == pytest.approx(scaler.transform(raw), abs=1e-5)
            assert np.array_equal(after.preparation(raw), scaled)  # as a saved model will do it, bit by bit
    assert staying.fingerprint != given[0].fingerprint
    assert staying.split == given[0].split


@pytest.mark.parametrize("part", ["test", "validation", "newcomers"])
def test_what_is_not_trained_on_changes_nothing_of_the_training_samples(x: np.ndarray, part: str) -> None:
    first, newcomers = laid_out(x)
    rows = newcomers.train.x if part == "newcomers" else getattr(first, part).x
    other = x.copy()
    other[(x[:, None] == np.asarray(rows)).all(2).any(1)] *= 1000
    again = laid_out(other)
    assert np.array_equal(standardize(*again)[0].train.x, standardize(first, newcomers)[0].train.x)
    assert not np.array_equal(other, x)


def test_a_constant_column_is_named_and_not_divided_by_zero(x: np.ndarray) -> None:
    values = np.column_stack([np.full(80, 0.1), x, np.full(80, -7e8)])
    federation, newcomers = laid_out(values)
    columns = ("site size", "age", "dose", "year")
    named = Federation(**{**fields_of(federation), "preparation": Preparation(columns=columns)})
    scaled, _, remarks = standardize(named, newcomers)
    assert remarks == (
        "columns 'site size', 'year' are the same in all training samples, from which nothing can be learnt",
    )
    assert np.all(np.asarray(scaled.train.x)[:, [0, 3]] == 0)
    assert scaled.preparation.columns == columns
    (only,) = standardize(federation)[2]
    assert only == "2 of the 4 numbers of a sample are the same in all training samples"


def fields_of(federation: Federation) -> dict[str, Any]:
    return {key: value for key, value in vars(federation).items() if key != "_placed"}


def test_samples_of_any_shape_are_scaled_number_by_number(x: np.ndarray) -> None:
    flat, shaped = (laid_out(values)[0] for values in (np.tile(x, 3), np.tile(x, 3).reshape(80, 3, 2)))
    scaled = standardize(shaped)[0]
    assert scaled.train.x.shape[1:] == (3, 2)
    assert np.array_equal(np.asarray(scaled.train.x).reshape(-1, 6), standardize(flat)[0].train.x)


def test_token_ids_are_no_quantities() -> None:
    source = from_arrays([[0, 1]] * 8, [0, 1] * 4, [0] * 8, vectors=np.zeros((2, 3)))
    assert source.group is not None
    with pytest.raises(FedpriorError, match='normalize="standard" for token ids'):
        standardize(federate(source, natural(source.y, source.group)))

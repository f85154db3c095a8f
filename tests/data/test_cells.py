"""Cells that are numbers, and those that are not."""

from __future__ import annotations

import numpy as np
import pytest

from fedprior.data.cells import Fault, Faults, array_numbers, numbers


def found(*cells: str) -> dict[str, Fault]:
    faults = Faults()
    numbers(cells, "age", 10, faults)
    return faults.found.get("age", {})


def test_numbers_are_read_to_the_nearest_of_32_bits() -> None:
    faults = Faults()
    assert np.array_equal(numbers(["0.1", " -3 ", "1E-3"], "age", 0, faults), np.array([0.1, -3, 1e-3], np.float32))
    assert faults.found == {}


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("", "missing"),
        ("  ", "missing"),
        ("NaN", "missing"),
        ("-nan", "missing"),
        ("1_000", "separated"),
        ("1,5", "separated"),
        ("1'000", "separated"),
        ("-Infinity", "infinite"),
        ("3.5e38", "infinite"),
        ("true", "text"),
        ("0x10", "text"),
        ("-", "text"),
    ],
)
def test_what_is_no_number_is_noted_with_its_row(cell: str, kind: str) -> None:
    assert found("1", cell, "2", cell) == {kind: Fault(2, 11, cell)}


def test_arrays_are_looked_at_sample_by_sample() -> None:
    faults = Faults()
    values = np.ones((4, 2, 2))
    values[2, 1] = np.nan
    values[3] = 1e39
    array_numbers(values, "x", faults)
    assert faults.found == {"x": {"missing": Fault(2, 2, "nan"), "infinite": Fault(4, 3, "1e+39")}}

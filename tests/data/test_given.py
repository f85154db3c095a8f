"""Names of clients and classes as their owners give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedprior.data.given import as_flags, client_ids, named_labels, require_finite
from fedprior.data.sources import from_arrays
from fedprior.errors import FedpriorError


def test_clients_are_called_what_their_owner_calls_them() -> None:
    for given in ([3, 1, 3], ["St. C", "a,b\n=1", "St. C"], ["007", "12", "007"]):
        assert client_ids(np.array(given)) == given
    assert client_ids(np.array([2.0, 1.0])) == [2, 1]
    assert [type(i) for i in client_ids(np.array([2, 1], np.int64))] == [int, int]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1.0, float("nan")], "client_id of sample 1 is nan"),
        ([1.5], "client_id of sample 0 is 1.5; say who holds the sample, by a whole number or a text"),
        ([True, False], "client_id of sample 0 is True"),
        (np.array(["a", None], object), "client_id of sample 1 is None"),
        (["a", ""], "client_id of sample 1 is ''"),
        (["a", "b\ud800"], r"client_id of sample 1 is 'b.ud800', which holds half a character"),
        (["a" * 1000, "b" * 100_001], "client_id of sample 1 has 100,001 characters; valid: at most 100,000"),
        (np.array(["1", 1], object), "clients '1' and 1 look the same in records; rename one of them"),
    ],
)
def test_what_is_no_name_is_refused(given: Any, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        client_ids(np.asarray(given))


@pytest.mark.parametrize(
    ("y", "numbers", "names"),
    [
        ([0, 1, 2, 1], [0, 1, 2, 1], None),
        ([0, 2, 2], [0, 2, 2], None),  # a class that nobody has
        ([1, 2, 3, 1], [0, 1, 2, 0], (1, 2, 3)),
        ([-1, 1, -1], [0, 1, 0], (-1, 1)),
        (["well", "ill"], [1, 0], ("ill", "well")),
        (np.array(["b", "a"], object), [1, 0], ("a", "b")),
        ([True, False], [1, 0], None),
    ],
)
def test_labels_keep_their_names(y: Any, numbers: list[int], names: tuple[int | str, ...] | None) -> None:
    found, called = named_labels(y, None)
    assert (found.tolist(), called) == (numbers, names)
    source = from_arrays(np.zeros((len(numbers), 1)), y)
    assert (source.class_names, source.n_classes) == (names, max(numbers) + 1)


@pytest.mark.parametrize("name", ["ill\nwell", "ill\x1b[31m", "\u202eill", "il\ud800"])
def test_names_of_classes_that_cannot_be_printed_are_refused(name: str) -> None:
    """They head the columns of a table: a line break in one would make every record unreadable."""
    with pytest.raises(FedpriorError, match=r"label .* of sample 1 holds what cannot be printed; rename it"):
        from_arrays(np.zeros((3, 1)), ["well", name, "well"])
    assert named_labels(["Größe", "می\u200cشود", "a\xa0b"], None)[1] is not None


@pytest.mark.parametrize("flags", [[0, 1], [False, True], [0.0, 1.0], np.array([False, True], object)])
def test_flags_are_true_or_false(flags: Any) -> None:
    assert as_flags(flags, "is_test").tolist() == [False, True]


def test_what_is_not_finite_is_told_by_its_sample() -> None:
    require_finite(np.zeros((0, 3)))  # a federation without test samples has none to prepare
    with pytest.raises(FedpriorError, match="sample 1 of x has a value that is not finite"):
        require_finite(np.array([[[0.0]], [[np.inf]]]), " of x")


def test_other_names_are_other_data() -> None:
    prints = {from_arrays([[0.0], [1.0]], y).fingerprint for y in ([0, 1], [1, 2], ["a", "b"], ["a", "c"])}
    assert len(prints) == 4


def test_a_stray_label_is_told_at_once() -> None:
    y = np.arange(50) % 4
    y[17] = 10**9
    with pytest.raises(
        FedpriorError, match=r"label 1000000000 of sample 17 is far from the others \(0, 1, 2, 3, \.\.\.\)"
    ):
        from_arrays(np.zeros((50, 1)), y)
    with pytest.raises(FedpriorError, match="labels such as 'a' are texts, which need no n_classes"):
        from_arrays([[0.0]], ["a"], n_classes=2)

"""A file of one's own as a source: labels, clients and the split by the names of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprior.data.own_file import from_file
from fedprior.data.sources import Source
from fedprior.errors import FedpriorError


def visits(
    folder: Path, labels: Any = ("ill", "well"), sites: Any = ("A", "B"), parts: Any = ("train", "test")
) -> Path:
    """Eight visits; names are gone through again and again."""
    rows = [f"{k},{labels[k % len(labels)]},{sites[k % len(sites)]},{parts[k % len(parts)]}" for k in range(8)]
    path = folder / "visits.csv"
    path.write_text("\n".join(["age,diagnosis,site,part", *rows]))
    return path


def source(folder: Path, split: str | None = None, **columns: Any) -> Source:
    return from_file(
        visits(folder, **columns), label="diagnosis", client="site", split=split, ignore=[] if split else ["part"]
    )


def test_a_source(tmp_path: Path) -> None:
    read = source(tmp_path, split="part", sites=["A", "A", "B", "B"])
    assert (read.name, read.n_classes, read.class_names, read.group_names) == (
        "visits.csv",
        2,
        ("ill", "well"),
        ("A", "B"),
    )
    assert read.x.tolist() == [[float(k)] for k in range(8)]
    assert read.is_test is not None
    assert read.group is not None
    assert read.is_test.tolist() == [False, True] * 4
    assert read.group.tolist() == [0, 0, 1, 1] * 2
    assert (read.preparation.columns, read.preparation.shape) == (("age",), (1,))


@pytest.mark.parametrize(
    ("sites", "names"),
    [
        (["7", "12"], (7, 12)),
        (["007", "12"], ("007", "12")),
        (["-3", "0"], (-3, 0)),
        (["St. C", "=SUM(A1)"], ("St. C", "=SUM(A1)")),
        (["only one"], ("only one",)),
        (["1", "9" * 5000], ("1", "9" * 5000)),
    ],
)
def test_clients_are_called_what_their_owner_calls_them(
    sites: list[str], names: tuple[Any, ...], tmp_path: Path
) -> None:
    assert source(tmp_path, sites=sites).group_names == names


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["0", "1"], None),
        (["1", "2"], (1, 2)),
        (["1.0", "0.0"], None),
        (["01", "02"], ("01", "02")),
        (["true", "false"], ("false", "true")),
        (["none", "mild"], ("mild", "none")),
    ],
)
def test_labels_keep_their_names(labels: list[str], names: tuple[Any, ...] | None, tmp_path: Path) -> None:
    read = source(tmp_path, labels=labels)
    assert (read.class_names, read.n_classes) == (names, 2)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"sites": ["A", "", "B", "NA"]}, "4 missing values in column 'site' of visits.csv, the first in line 3; every"),
        ({"labels": ["ill"] * 7 + [""]}, "1 missing value in column 'diagnosis' of visits.csv, the first in line 9"),
        ({"labels": ["ill"]}, "column 'diagnosis' of visits.csv holds one class only .'ill'.; there is nothing"),
        ({"labels": ["0.5", "1.0"]}, "has 0.5 in line 2; a label is a class, by a whole number or a text, and no quantity"),
        ({"labels": list("abcdefgh")}, "holds 8 different labels in 8 rows; name the column of classes as data.label"),
        ({"labels": ["0", "1", "2", "9999999"]}, r"label 9999999 of line 5 is far from the others \(0, 1, 2, \.\.\.\)"),
        ({"split": "part", "parts": ["train", "dev"]}, "column 'part' of visits.csv says 'dev' in line 3; valid: train and"),
        ({"labels": ["0", str(2**40)]}, "column 'diagnosis' of visits.csv has 1099511627776 in line 3; give classes"),
        ({"split": "part", "parts": ["train", "1"]}, "says '1' in line 3"),
        ({"split": "part", "parts": ["train", ""]}, "4 missing values in column 'part'"),
    ],
)  # fmt: skip
def test_names_that_make_no_sense(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match=message):
        source(tmp_path, **columns)


@pytest.mark.parametrize("parts", [["Train", "TEST"], ["false", "True"], ["0", "1"]])
def test_the_words_for_the_split(parts: list[str], tmp_path: Path) -> None:
    is_test = source(tmp_path, split="part", parts=parts).is_test
    assert is_test is not None
    assert is_test.tolist() == [False, True] * 4


def test_the_fingerprint_is_of_what_was_read(tmp_path: Path) -> None:
    """The file may be moved, renamed, packed or have other columns that are ignored."""
    first = source(tmp_path).fingerprint
    moved = visits(tmp_path).rename(tmp_path / "moved.csv")
    options: dict[str, Any] = {"label": "diagnosis", "client": "site"}
    assert from_file(moved, ignore=["part"], **options).fingerprint == first
    assert from_file(moved, features=["age"], **options).fingerprint == first
    changed: dict[str, dict[str, Any]] = {
        "a label": {"labels": ["ill", "well", "well"]},
        "its name": {"labels": ["ill", "fine"]},
        "a client": {"sites": ["A", "B", "B"]},
        "the split": {"split": "part"},
    }
    prints = {first, *(source(tmp_path, **change).fingerprint for change in changed.values())}
    text = visits(tmp_path).read_text()
    for other in (text.replace("age", "dose"), text.replace("\n7,", "\n7.5,")):
        moved.write_text(other)
        prints.add(from_file(moved, ignore=["part"], **options).fingerprint)
    assert len(prints) == 7


def test_arrays_in_a_file_are_a_source(tmp_path: Path) -> None:
    x = np.arange(48.0).reshape(8, 2, 3)
    np.savez(tmp_path / "a.npz", x=x, y=[True, False] * 4, who=np.arange(8) % 2 + 1, part=[False, True] * 4)
    read = from_file(tmp_path / "a.npz", label="y", client="who", split="part")
    assert np.array_equal(read.x, x)
    assert read.y.tolist() == [1, 0] * 4
    assert (read.group_names, read.preparation.columns, read.preparation.shape) == ((1, 2), ("x",), (2, 3))

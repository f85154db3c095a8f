"""Files with arrays, Parquet files, and reading for prediction."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprior.data.columns import Columns
from fedprior.data.table_file import read_features, read_table
from fedprior.errors import FedpriorError

X = np.arange(24, dtype=float).reshape(4, 3, 2)
WANTED = Columns(named=("y", "who"))


def saved(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def test_arrays_of_any_shape(tmp_path: Path) -> None:
    table = read_table(saved(tmp_path, x=X, y=[1, 0, 1, 0], who=np.array(["a", "b", "a", "b"])), WANTED)
    assert table.x.dtype == np.float32
    assert np.array_equal(table.x, X)
    assert table.others == {"y": [1, 0, 1, 0], "who": ["a", "b", "a", "b"]}
    again = read_features(tmp_path / "data.npz", ["x"])
    assert np.array_equal(again.x, X)
    assert again.others == {}
    columns = read_table(saved(tmp_path, age=[1, 2], dose=[0.5, 0.25], y=[0, 1], who=[b"a", b"b"]), WANTED)
    assert (columns.columns, columns.x.tolist()) == (("age", "dose"), [[1.0, 0.5], [2.0, 0.25]])
    assert columns.others["who"] == ["a", "b"]
    foreign = read_table(saved(tmp_path, x=[1, 2], y=[0, 1], who=["Köln".encode(), b"b"]), WANTED)
    assert foreign.others["who"] == ["Köln", "b"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "y": [0, 1]}, "unknown column 'who' of data.npz; valid: x, y"),
        ({"x": X, "y": [0, 1], "who": [1] * 4}, r"array 'y' of data.npz has shape \(2,\) where 'x' has \(4, 3, 2\)"),
        ({"x": X, "y": [0] * 4, "who": 3}, r"array 'who' of data.npz has shape \(\)"),
        ({"x": X, "z": X, "y": [0] * 4, "who": [1] * 4}, r"several arrays of data.npz could be the samples \('x' \(4, 3"),
        ({"x": np.where(X == 13, np.nan, X), "y": [0] * 4, "who": [1] * 4}, r"1 missing value .* sample 2 \(counted"),
        ({"x": np.where(X == 13, 1e300, X), "y": [0] * 4, "who": [1] * 4}, "'x' of data.npz has '1e.300' in sample 2"),
        ({"x": ["a"] * 4, "y": [0] * 4, "who": [1] * 4}, "column 'x' of data.npz holds text"),
        ({"x": X, "y": [0] * 4, "who": ["é".encode("latin-1")] * 4}, r"'who' of data.npz holds bytes that are no UTF-8 .b"),
        ({"x": X[:0], "y": [], "who": []}, "data.npz holds no samples"),
        ({"x": np.array([None] * 4), "y": [0] * 4, "who": [1] * 4}, "cannot read data.npz .*allow_pickle=False"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match=message):
        read_table(saved(tmp_path, **arrays), WANTED)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"PK no archive")
    np.save(tmp_path / "one.npy", X)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    (tmp_path / "folder.csv").mkdir()
    np.savez_compressed(tmp_path / "packed.npz", x=np.arange(999.0), y=np.arange(999), who=np.arange(999))
    packed = bytearray((tmp_path / "packed.npz").read_bytes())
    packed[60:90] = bytes(byte ^ 0xFF for byte in packed[60:90])
    (tmp_path / "packed.npz").write_bytes(packed)
    for name, message in {
        "nowhere.csv": "cannot read the data file .*nowhere.csv: No such file or directory",
        "nowhere.npz": "No such file",
        "nowhere.parquet": "No such file",
        "folder.csv": "folder.csv: Is a directory",
        "broken.npz": "cannot read broken.npz",
        "packed.npz": "cannot read packed.npz .error: Error",
        "one.npz": "one.npz holds a single array",
        "sheet.xlsx": "sheet.xlsx is of no kind that can be read; valid: .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .npz",
    }.items():
        with pytest.raises(FedpriorError, match=message):
            read_table(tmp_path / name, WANTED)


def parquet(folder: Path, **columns: Any) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), folder / "data.parquet")
    return folder / "data.parquet"


def test_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path, **{"blood.p": [1, 2], "ok": [True, False], "y": ["ill", "well"], "who": [7, 8]})
    table = read_table(path, WANTED)
    assert (table.columns, table.x.tolist()) == (("blood.p", "ok"), [[1.0, 1.0], [2.0, 0.0]])
    assert table.others == {"y": ["ill", "well"], "who": [7, 8]}
    for columns, message in (
        (
            {"age": [1, None, None]},
            r"2 missing values in column 'age' of data.parquet, the first in row 1 \(counted from 0\)",
        ),
        ({"age": [1.0, float("inf"), 2.0]}, "column 'age' of data.parquet has 'inf' in row 1"),
        ({"age": ["x", "y", "z"]}, "column 'age' of data.parquet holds text .'x' in row 0"),
        ({"age": [None] * 3}, "3 missing values"),
    ):
        with pytest.raises(FedpriorError, match=message):
            read_table(parquet(tmp_path, **columns, y=[0, 1, 0], who=[1, 1, 1]), WANTED)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(FedpriorError, match=r"cannot read data.parquet"):
        read_table(path, WANTED)


@pytest.mark.parametrize("index", ["__index_level_0__", "visit"])
def test_the_index_of_a_data_frame_is_no_feature_unless_it_is_named(index: str, tmp_path: Path) -> None:
    """Where rows are sorted by label, it would tell the label."""
    pq = pytest.importorskip("pyarrow.parquet")
    path = parquet(tmp_path, age=[61, 48], y=[0, 1], who=[7, 8], **{index: [3, 5]})
    about = {b"pandas": json.dumps({"index_columns": [index, {"kind": "range"}]}).encode()}
    pq.write_table(pq.read_table(path).replace_schema_metadata(about), path)
    assert read_table(path, WANTED).columns == ("age",)
    assert read_table(path, Columns(("age", index), ("y", "who"))).x.tolist() == [[61.0, 3.0], [48.0, 5.0]]
    assert read_table(path, Columns(named=("y", index), ignore=("who",))).others == {"y": [0, 1], index: [3, 5]}
    assert read_features(path, ["age"], keep=None).others == {"y": [0, 1], "who": [7, 8], index: [3, 5]}
    for other in (b"{no JSON", b"[1]", b"null", b'{"index_columns": null}'):  # of whatever wrote it
        pq.write_table(pq.read_table(path).replace_schema_metadata({b"pandas": other}), path)
        assert read_table(path, WANTED).columns == ("age", index)


def test_parquet_needs_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FedpriorError, match=r"reading data.parquet needs pyarrow; pip install 'fedprior\[hub\]'"):
        read_table(tmp_path / "data.parquet", WANTED)


def test_reading_for_prediction(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("note,dose,who,age\nx,0.5,A,61\ny,0.25,B,48\n")
    table = read_features(path, ["age", "dose"], keep=["who", "id"])
    assert table.x.tolist() == [[61.0, 0.5], [48.0, 0.25]]
    assert table.others == {"who": ["A", "B"]}
    assert list(read_features(path, ["age"], keep=None).others) == ["note", "dose", "who"]
    with pytest.raises(FedpriorError, match=r"unknown column 'bp' of new.csv; valid: age, dose, note, who"):
        read_features(path, ["age", "bp"])
    with pytest.raises(
        FedpriorError, match=r"column 'note' of new.csv holds text .* or use a model that does without it"
    ):
        read_features(path, ["note"])


def test_a_column_that_is_only_kept_need_not_have_a_name(tmp_path: Path) -> None:
    """As of pandas, which writes its index into a first column without a name."""
    path = tmp_path / "new.csv"
    path.write_text(",dose,age\n7,0.5,61\n")
    table = read_features(path, ["age"], keep=None)
    assert table.x.tolist() == [[61.0]]
    assert table.others == {"": ["7"], "dose": ["0.5"]}
    path.write_text(",,age\n7,8,61\n")
    with pytest.raises(FedpriorError, match=r"column 1 of new.csv has no name"):
        read_features(path, ["age"], keep=None)

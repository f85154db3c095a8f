"""fedprior predict: the saved model's own answers, beside what else stands in the file."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from models.made import X, predictor
from program import fedprior, refused

from fedprior.models.saved import Predictor

COLUMNS = tuple("abcdef")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a table with six columns."""
    made = predictor("mclr")
    named = dataclasses.replace(made, preparation=dataclasses.replace(made.preparation, columns=COLUMNS))
    return named.save(tmp_path_factory.mktemp("model") / "st-c.safetensors")


def loaded(path: Path) -> Predictor:
    from fedprior.models.saved import load

    return load(path)


def table(path: Path, columns: tuple[str, ...], extra: str = "patient") -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([extra, *columns])
        for k, x in enumerate(X[:10]):
            writer.writerow([f"{k:03d}", *(repr(float(x[COLUMNS.index(name)])) for name in columns)])
    return path


def test_columns_are_found_by_name_and_others_stay(model: Path, tmp_path: Path) -> None:
    shuffled = table(tmp_path / "new.csv", ("c", "a", "f", "b", "e", "d"))
    out = fedprior("predict", model, shuffled, "--probabilities").out
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = loaded(model)
    assert [row["prediction"] for row in rows] == expected.predict(X[:10]).tolist()
    assert [row["patient"] for row in rows[:2]] == ["000", "001"]
    given = [[float(row[f"p({name})"]) for name in expected.classes] for row in rows]
    assert np.array_equal(np.array(given, np.float32), expected.predict_proba(X[:10]))
    assert list(rows[0]) == ["patient", "prediction", "p(ill)", "p(well)", "p(?)"]


def test_a_file_is_written_whole_and_its_column_gets_a_free_name(model: Path, tmp_path: Path) -> None:
    done = fedprior("predict", model, table(tmp_path / "new.csv", COLUMNS, "prediction"), "-o", tmp_path / "out.csv")
    assert "10 predictions" in done.out
    assert "has a column 'prediction' already; it is kept as it is" in done.err
    assert "the model's predictions are in 'prediction_'" in done.err
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "prediction,prediction_"


def test_a_column_without_a_name_is_told_and_kept(model: Path, tmp_path: Path) -> None:
    done = fedprior("predict", model, table(tmp_path / "new.csv", COLUMNS, ""))
    assert "new.csv has a column without a name; it is kept as it is" in done.err
    assert done.out.splitlines()[0] == ",prediction"


def test_arrays_come_from_npz(tmp_path: Path) -> None:
    path = predictor("mclr").save(tmp_path / "m")
    np.savez(tmp_path / "new.npz", x=X[:4], other=X[4:6])
    expected = loaded(path)
    for words, samples in (((), X[:4]), (("--array", "other"), X[4:6])):
        out = fedprior("predict", path, tmp_path / "new.npz", *words).out
        assert out.split() == ["prediction", *expected.predict(samples)]


def test_bad_input_is_one_line(model: Path, tmp_path: Path) -> None:
    lacking = table(tmp_path / "lacking.csv", COLUMNS[:-1])
    nowhere = predictor("mclr").save(tmp_path / "arrays")
    holes = tmp_path / "holes.csv"
    holes.write_text(table(tmp_path / "t.csv", COLUMNS).read_text().replace("003,", "003,NA"))
    for words, text in (
        ((model, lacking), "unknown column 'f' of lacking.csv"),
        ((model, holes), "column 'a' of holes.csv holds text"),
        ((model, tmp_path / "none.csv"), "cannot read the data file"),
        ((model, model), "is of no kind that can be read"),
        ((lacking, lacking), "lacking.csv"),
        ((nowhere, lacking), "knows no columns; give its samples as an .npz file"),
        ((model, lacking, "--array", "x"), "--array names an array of an .npz file"),
        ((model, table(tmp_path / "new.csv", COLUMNS), "-o", tmp_path), "cannot write"),
    ):
        refused(fedprior("predict", *words), text)

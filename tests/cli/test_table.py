"""fedprior table: the tables of runs that are already there."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from program import Outcome, contents, fedprior, refused

import fedprior as fp
from cli.commands import COMPARE, ROWS
from fedprior.records.runs import RunFolder

pytestmark = pytest.mark.xdist_group("cli")  # one worker makes the comparison that all of them look at


def test_the_table_of_records_is_the_table_of_the_run(compared: tuple[Path, Outcome]) -> None:
    folder, _ = compared
    again = fedprior(*COMPARE, "--resume", "--out", folder.parent)
    assert again.code == 0
    before = contents(folder)
    table = fedprior("table", folder)
    assert (table.code, table.err) == (0, "")
    *printed, last = again.out.splitlines()
    assert table.out.splitlines() == printed
    assert last.startswith("curves: ")
    assert (folder / "curves.png").read_bytes()[:4] == b"\x89PNG"
    words = table.out.split()
    assert all(word in words for word in ROWS)
    assert contents(folder) == before


def test_other_formats_and_rounds(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, outcome = compared
    accuracy = json.loads(outcome.out)["results"]["mh"]["metrics"]["accuracy"]["personal"]["own"]
    flat = list(csv.DictReader(io.StringIO(fedprior("table", folder, "--format", "csv").out)))
    where = {"variant": "mh", "method": "mh", "metric": "accuracy", "model": "personal", "data": "own"}
    where |= {"average": "mean", "round": "last10"}
    (one,) = (line for line in flat if where.items() <= line.items())
    assert float(one["mean"]) == accuracy["mean"]["last10"]["mean"]
    for choice, words in (("best", "the test chose it"), ("validation", "chosen on validation")):
        table = fedprior("table", folder, "--format", "markdown", "--round", choice)
        assert words in table.out
        assert f"{accuracy['weighted'][choice]['mean']:.2f} ±" in table.out
    assert "optimistic" not in fedprior("table", folder).out  # best-on-test is shown only when asked for
    assert fedprior("table", folder, "--format", "html").out.startswith("<table>")
    refused(fedprior("table", folder, "--format", "mardown"), "did you mean 'markdown'")
    refused(fedprior("table", folder, "--round", "first"), "valid: best, last, last10, validation")
    alone = fedprior("table", folder / "mh")
    assert alone.code == 0
    assert "has no Local-only runs" in alone.err
    refused(fedprior("table", folder / "nowhere"), "no runs at or below")
    RunFolder(tmp_path / "0").begin(RunFolder(folder / "local" / "0").config)
    begun = fedprior("table", tmp_path)
    assert (begun.code, begun.out) == (2, "")
    assert begun.err.splitlines()[-1].startswith("error: nothing to show: no run at or below")


def test_other_metrics(compared: tuple[Path, Outcome]) -> None:
    folder, outcome = compared
    metrics = json.loads(outcome.out)["results"]["fedavg"]["metrics"]
    f1 = fedprior("table", folder, "--metric", "macro_f1", "--format", "markdown").out
    assert f1.startswith("digits-mclr: test macro f1 in percent, last round.")
    number = metrics["macro_f1"]["personal"]["own"]["mean"]["last"]
    line = next(line for line in f1.splitlines() if line.startswith("| fedavg R=2 | both |"))  # one model, one row
    assert f"| {number['mean']:.2f} ± {number['std']:.2f} |" in line
    brier = fedprior("table", folder, "--metric", "brier", "--format", "markdown").out
    assert "brier: lower is better" in brier
    assert f"| {metrics['brier']['personal']['own']['mean']['last']['mean']:.3f} ± " in brier  # no percentage
    classes = fedprior("table", folder, "--metric", "class_accuracy", "--format", "markdown").out.splitlines()
    assert [line.split(" | ")[2] for line in classes if re.match(r"\| mh [^|]*\| global", line)] == list("0123456789")
    one = fedprior("table", folder, "--metric", "class_accuracy[3]")
    assert "class accuracy[3] in percent" in one.out
    refused(fedprior("table", folder, "--metric", "f1"), "unknown metric 'f1'", "macro_f1")


@pytest.mark.slow
def test_rows_against_tasks(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, _ = compared
    for row in ("local", "fedavg"):  # one seed of two rows, as if it were another task's
        shutil.copytree(folder / row / "0", tmp_path / row / "0")
        path = tmp_path / row / "0" / "config.json"
        config = json.loads(path.read_text())
        config["run"]["task"]["name"] = "other"
        path.write_text(json.dumps(config))
    table = fedprior("table", folder, tmp_path, "--tasks")
    assert (table.code, table.err) == (0, "")
    lines = [line.split() for line in table.out.splitlines()]
    assert ["method", "model", "digits-mclr", "other", "Avg", "Std"] in lines
    summaries = fp.Results.read(folder, tmp_path).summary()
    for row, shown in (("local", ["local", "R=2", "personal"]), ("fedavg", ["fedavg", "R=2", "both"])):
        numbers = [of[row]["metrics"]["accuracy"]["personal"]["own"]["weighted"]["last"] for of in summaries.values()]
        assert [number["seeds"] for number in numbers] == [[0, 1], [0]]
        (line,) = (line for line in lines if line[:3] == shown)
        means = [number["mean"] for number in numbers]
        assert line[-2:] == [f"{np.mean(means):.2f}", f"{np.std(means, ddof=1):.2f}"]
    (line,) = (line for line in lines if (line[:1], line[3:4]) == (["mh"], ["personal"]))
    assert line[-3:] == ["-", "-", "-"]  # it was not run on both
    f1 = fedprior("table", folder, tmp_path, "--tasks", "--metric", "macro_f1", "--format", "markdown")
    assert f1.out.startswith("test macro f1 in percent on own test samples, weighted by samples, last round.")
    refused(fedprior("table", folder, tmp_path, "--tasks", "--metric", "class_accuracy"), "a value for each class")

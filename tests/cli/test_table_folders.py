"""fedprior table and compare on folders made by hand: which rows and columns, of what, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from analysis.handmade import evaluated, record, written_below
from program import fedprior, refused

from fedprior.records.schema import ClientRow, Row, RunRecord
from fedprior.study.results import Results

SAMPLES = (10, 20, 40, 10)
VALUES = {"local": (50, 60, 70, 80), "fedavg": (60, 60, 60, 80), "pfedme": (70, 60, 70, 90), "mh": (70, 60, 70, 90)}


def run(variant: str, seed: int = 0, **more: Any) -> RunRecord:
    values = VALUES[variant.split()[0]]
    changed = more.pop("changed", {})
    averaged, clients = evaluated([{"accuracy": values}], SAMPLES)
    if variant == "fedavg":
        averaged += [row._replace(model="global") for row in averaged]
        clients += [row._replace(model="global") for row in clients]
    made = record(variant, seed, averaged, clients, **more)
    return RunRecord({**made.config, "changed": changed}, *_rest(made))


def on_validation() -> tuple[list[Row], list[ClientRow]]:
    averaged, clients = evaluated([{"accuracy": (40, 50, 60, 70)}], SAMPLES)
    return [row._replace(data="validation") for row in averaged], [row._replace(data="validation") for row in clients]


def _rest(made: RunRecord) -> Any:
    return made.status, made.round, made.rows, made.clients, made.where


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in VALUES:
        written_below(tmp_path, run(name, changed={"lam": 30.0} if name == "mh" else {}))
    return tmp_path


def table(*arguments: object) -> list[list[str]]:
    outcome = fedprior("table", *arguments)
    assert outcome.code == 0, outcome.err
    return [line.split() for line in outcome.out.splitlines()]


def test_what_was_changed_what_is_one_and_what_is_equal(folder: Path) -> None:
    lines = table(folder)
    assert [line[:3] for line in lines[3:7]] == [  # the registry's order, Local first
        ["local", "personal", "66.25"],
        ["fedavg", "both", "62.50"],
        ["pfedme", "personal", "70.00"],
        ["mh", "lam=30", "personal"],
    ]
    text = " ".join(word for line in lines for word in line)
    assert "both: the personal models are the global one" in text
    assert "equal for every client: pfedme, mh lam=30" in text
    assert (
        "worst 10%: 1 of 4 clients, 10 to 20 test samples, one of them up to 10.0 points; 2 clients have under" in text
    )
    compared = " ".join(fedprior("compare", folder).out.split())
    assert "equal for every client: pfedme, mh lam=30" in compared
    assert "2 clients have under 20: for these, one sample is worth more than 5 points" in compared


def test_rows_and_columns_are_chosen(folder: Path) -> None:
    lines = table(folder, "--rows", "mh lam=30,local", "--columns", "method,weighted,n")
    assert lines[1:5] == [
        ["method", "weighted", "n"],
        lines[2],
        ["mh", "lam=30", "70.00", "1"],
        ["local", "66.25", "1"],
    ]
    markdown = fedprior("table", folder, "--rows", "mh", "--rows", "fedavg", "--format", "markdown").out.splitlines()
    assert [line.split(" | ")[0] for line in markdown[4:6]] == ["| mh lam=30", "| fedavg"]
    refused(fedprior("table", folder, "--rows", "mhh"), "unknown row 'mhh' (did you mean 'mh'?); valid: fedavg, local")
    refused(fedprior("table", folder, "--columns", "method,wieghted"), "(did you mean 'weighted'?); valid: grads, ")
    comparison = json.loads(fedprior("compare", folder, "--rows", "mh,local", "--json").out)
    assert list(comparison["variants"]) == ["mh", "local"]
    assert comparison["against"] == "local"
    flat = fedprior("table", folder, "--columns", "method,mean", "--format", "csv").out.splitlines()
    assert flat[:2] == ['method,"own test, mean"', "local,65.00"]


def test_one_order_for_tables_comparisons_summaries_and_pictures(folder: Path) -> None:
    asked = ["mh", "local", "pfedme", "fedavg"]  # as of run and study
    by_registry = ["local", "fedavg", "pfedme", "mh"]  # of folders
    for results, order in ((Results([run(name) for name in asked]), asked), (Results.read(folder), by_registry)):
        ((rows,), (table,)) = results.summary().values(), results.tables().values()
        assert list(rows) == order
        assert [line[0].split()[0] for line in table.body] == order
        assert list(results.compare().variants) == order
        with patch("fedprior.report.figures.learning_curves") as draw:
            results.curves()
        assert list(draw.call_args.args[1]) == order


def test_json_holds_the_numbers_and_what_stands_behind_them(folder: Path) -> None:
    shown = json.loads(fedprior("table", folder, "--json", "--rows", "mh,pfedme").out)["toy"]
    assert list(shown["results"]) == ["mh", "pfedme"]
    assert shown["results"]["mh"]["changed"] == {"lam": 30.0}
    assert shown["equal"] == [["mh", "pfedme"]]
    assert shown["support"]["samples"] == list(SAMPLES)


def test_other_partitions_have_tables_of_their_own(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for name in ("mh", "local"):
        written_below(other, run(name, partition={"seed": 2}, fingerprint="g"))
    outcome = fedprior("table", folder)
    titles = [line for line in outcome.out.splitlines() if "test accuracy" in line]
    assert titles == [
        "toy, partition.seed = 2: test accuracy in percent, last round",  # as the folders stand
        "toy, partition.seed = 1: test accuracy in percent, last round",
    ]
    assert f"(partition.seed: 2 in {other / 'toy/local/0'}, 1 in {folder / 'toy/fedavg/0'})" in outcome.err
    assert outcome.err.count("warning") == 1
    refused(fedprior("compare", folder), "partition.seed: ", str(other / "toy/local/0"), "give the folders of one")


def test_a_round_that_validation_would_choose_needs_validation(folder: Path, tmp_path: Path) -> None:
    way = ("no ", "validation samples to choose a round by", "--set validation=0.2")
    refused(fedprior("table", folder, "--round", "validation"), "toy held out no", *way)
    refused(fedprior("table", folder, "--round", "validation", "--tasks"), "toy held out no", *way)
    refused(fedprior("compare", folder, "--round", "validation"), *way)
    held, (seen, own) = run("mh", partition={"seed": 2}), on_validation()
    everything = (*held.rows, *seen), (*held.clients, *own)
    written_below(tmp_path / "held", RunRecord(held.config, held.status, 1, *everything))
    outcome = fedprior("table", folder, "--round", "validation")
    assert outcome.code == 0
    assert outcome.out.count("round chosen on validation") == 1
    assert "toy, partition.seed = 1 held out no validation samples" in outcome.err


def test_cells_of_sweeps_do_not_disturb(folder: Path) -> None:
    before = fedprior("table", folder)
    seen = on_validation()
    for cell, lam in (("a", 1.0), ("b", 2.0)):
        place = written_below(folder / cell, record("mh", 0, *seen, settings={"lam": lam}, numbers_as_data=["lam"]))
        sweep = folder / "toy" / "sweep" / "mh" / cell / "0"
        sweep.parent.mkdir(parents=True)
        place.rename(sweep)
    after = fedprior("table", folder)
    assert (after.code, after.out) == (0, before.out)
    assert "2 runs of sweeps are left out" in after.err
    assert fedprior("compare", folder).code == 0
    refused(fedprior("table", folder / "toy" / "sweep"), "nothing to show", "only runs of sweeps")


@pytest.mark.parametrize("width", [40, 60, 200])
def test_a_terminal_of_any_width(folder: Path, width: int) -> None:
    for command in ("table", "compare"):
        text = fedprior(command, folder, columns=width).out
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
        assert "lam=30" in text.split()


def test_what_shapes_a_table_is_refused_beside_json(folder: Path) -> None:
    for option in (("--format", "csv"), ("--tasks",), ("--columns", "mean")):
        refused(fedprior("table", folder, "--json", *option), "--json prints all numbers", "choose one")
    refused(fedprior("compare", folder, "--json", "--format", "csv"), "--json prints all numbers", "choose one")

"""Tables from series whose numbers are known."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedprior.analysis.tables import (
    Series,
    collect,
    facts,
    read_series,
    render,
    reported,
    rich_table,
    rows,
    summarize,
)
from fedprior.errors import FedpriorError
from fedprior.evaluate import AVERAGES
from fedprior.methods import METHODS
from fedprior.records import METRICS, RunFolder

VALUES = {1: 40.0, 2: 60.0, 3: 50.0, 4: 60.0, 5: 55.0}


def series(
    values: dict[int, float], models: tuple[str, ...] = ("personal", "global"), pooled: float | None = None
) -> Series:
    found: Series = {(model, "own", average): dict(values) for model in models for average in AVERAGES}
    if pooled is not None:
        found |= {("personal", "pooled", average): {max(values): pooled} for average in AVERAGES}
    return found


def test_the_round_that_is_reported() -> None:
    found = reported(series(VALUES), "personal", "own", "mean")
    assert found == {"last": 55.0, "last10": pytest.approx(53.0), "validation": None, "best": 60.0}
    long = {t: float(t) for t in range(1, 31)}
    assert reported(series(long), "personal", "own", "mean")["last10"] == np.mean(range(21, 31))
    sparse = {t: float(t) for t in range(5, 101, 5)}  # ten evaluations, not ten rounds
    assert reported(series(sparse), "personal", "own", "mean")["last10"] == np.mean(range(55, 101, 5))


def test_validation_chooses_the_first_best_round_and_not_the_best_on_test() -> None:
    s = series(VALUES)
    s["personal", "validation", "weighted"] = {1: 30.0, 2: 20.0, 3: 70.0, 4: 70.0, 5: 10.0}
    found = reported(s, "personal", "own", "mean")
    assert found["validation"] == VALUES[3]
    assert found["best"] == 60.0
    assert reported(s, "global", "own", "mean")["validation"] is None  # its own validation, or none


def test_what_was_seen_once_has_no_best_round() -> None:
    s = series(VALUES, pooled=33.0)
    s["personal", "validation", "weighted"] = dict(VALUES)
    assert reported(s, "personal", "pooled", "mean") == {"last": 33.0, "last10": None, "validation": None, "best": None}
    assert reported(s, "nobody", "own", "mean") == dict.fromkeys(("last", "last10", "validation", "best"))


def about(gradients: int = 140, hvps: int = 0, **run: Any) -> dict[str, Any]:
    cost = {"gradients": gradients, "hvps": hvps, "forward": 3, "down": 1.0, "up": 0.5, "state": 2.0}
    return facts({"run": {"rounds": 7, **run}, "cost": cost})


def results(
    methods: tuple[str, ...] = ("local", "fedavg", "pfedme-released"),
    seeds: int = 5,
    known: dict[str, Any] | None = None,
) -> dict[str, Any]:
    shift = np.linspace(-12.5, 12.5, seeds)
    return summarize(
        {
            name: {
                seed: series(
                    {t: v + shift[seed] for t, v in VALUES.items()},
                    ("personal",) if name == "local" else ("personal", "global"),
                    20.0,
                )
                for seed in range(seeds)
            }
            for name in methods
        },
        dict.fromkeys(methods, about() if known is None else known),
    )


def test_numbers_over_seeds() -> None:
    number = results(seeds=3)["fedavg"]["personal"]["own"]["mean"]["last"]
    assert number == {"mean": pytest.approx(55), "std": pytest.approx(12.5), "seeds": [0, 1, 2]}
    assert results(seeds=1)["fedavg"]["personal"]["own"]["mean"]["last"]["std"] is None
    assert results()["local"]["global"]["pooled"]["mean"] == {"last": None, "last10": None, "best": None}


def test_rows_name_what_they_hold() -> None:
    found = rows(results(seeds=3))
    assert found[0] == ("local", "personal", *["55.00 ± 12.50"] * 3, "20.00 ± 0.00", "140", "3")
    assert [line[:2] for line in found] == [
        ("local", "personal"),
        ("fedavg", "personal"),
        ("fedavg", "global"),
        ("pfedme-released", "personal"),
        ("pfedme-released", "global"),
    ]
    assert rows(results(seeds=1), "best")[1] == ("fedavg", "personal", "47.50", "47.50", "47.50", "-", "140", "1")
    with pytest.raises(FedpriorError, match=r"unknown round 'lats' \(did you mean 'last'"):
        rows(results(), "lats")


def test_what_a_method_costs_stands_beside_its_numbers() -> None:
    assert rows(results(known=about(120, 20)))[0][-2:] == ("120+20h", "5")
    assert "h: Hessian-vector products" in render("t", results(known=about(120, 20)), "last", "markdown")
    assert "Hessian" not in render("t", results(), "last", "markdown")
    assert rows(results(known=facts({"run": {"rounds": 3}})))[0][-2:] == ("-", "5")  # a run from before it was recorded
    assert rows(results(known={}))[0][-2:] == ("-", "5")
    assert results()["fedavg"]["cost"]["up"] == 0.5
    flat = next(csv.DictReader(io.StringIO(render("t", results(), "last", "csv"))))
    cost = {name: flat[name] for name in ("gradients", "hvps", "forward", "down", "up", "state", "rounds")}
    assert list(cost.values()) == ["140", "0", "3", "1.0", "0.5", "2.0", "7"]


def test_a_budget_shows_the_rounds_of_each_method() -> None:
    found = results(known=about(budget={"gradients": 14000}))
    assert rows(found)[0][-3:] == ("140", "7", "5")
    assert "at 14,000 gradients for a client that trains every round" in render("t", found, "last", "markdown")
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(rich_table("t", found))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    assert sum(line.count("55.00±9.88") for line in lines) == 15
    assert "rounds" not in render("t", results(), "last", "latex")


def test_newcomers_are_shown_where_there_are_any() -> None:
    one = series(VALUES, pooled=33.0) | {("newcomer", "own", average): {5: 42.0} for average in AVERAGES}
    found = summarize({"fedavg": {0: one, 1: series(VALUES)}})
    assert rows(found)[2] == ("fedavg", "newcomer", "42.00", "42.00", "42.00", "-", "-", "1")
    assert found["fedavg"]["newcomer"]["own"]["mean"]["best"] is None  # they were looked at once
    assert "newcomer" not in summarize({"fedavg": {1: series(VALUES)}})["fedavg"]
    assert "held out of training" in render("t", found, "last", "latex")
    assert "held out of training" not in render("t", results(), "last", "latex")


@pytest.mark.parametrize("choice", ["last", "best"])
def test_no_number_wraps_at_80_columns(choice: str) -> None:
    found = results(tuple(METHODS))
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(rich_table("digits-mclr", found, choice))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text
    heading = next(i for i, line in enumerate(lines) if line.startswith("method"))
    assert lines[heading].split() == ["method", "model", "weighted", "mean", "worst", "10%", "pooled", "grads", "n"]
    wanted = rows(found, choice)
    body = lines[heading + 2 : heading + 2 + len(wanted)]
    for line, row in zip(body, wanted, strict=True):
        assert line.split()[-7:] == [cell.replace(" ± ", "±") for cell in row[1:]]
        assert line.startswith((row[0], " "))
    assert ("optimistic" in text) == (choice == "best")


@pytest.mark.parametrize("width", [80, 66])
def test_a_name_too_long_folds_and_the_numbers_do_not(width: int) -> None:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(rich_table("t", results(("a-method-with-quite-a-long-name",))))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert sum(line.count("55.00±9.88") for line in lines) == 6
    assert max(map(len, lines)) <= width


def test_formats() -> None:
    found = results(seeds=3)
    markdown = render("task", found, "last", "markdown").splitlines()
    assert markdown[0].startswith("task: test accuracy in percent, last round")
    assert {line.count("|") for line in markdown[2:]} == {9}
    assert markdown[4].startswith("| local | personal | 55.00 ± 12.50 |")
    latex = render("task", {"a_b": found["fedavg"]}, "last", "latex")
    assert r"a\_b & personal & 55.00 $\pm$ 12.50" in latex
    assert {line.count("&") for line in latex.splitlines() if "&" in line} == {7}
    flat = list(csv.DictReader(io.StringIO(render("task", found, "last", "csv"))))
    assert {row["round"] for row in flat} == {"last", "last10", "best"}
    one = next(
        r for r in flat if (r["method"], r["model"], r["average"], r["round"]) == ("fedavg", "global", "mean", "best")
    )
    assert (one["task"], one["data"], one["seeds"]) == ("task", "own", "0 1 2")
    assert float(one["mean"]) == pytest.approx(60)
    assert not [r for r in flat if (r["method"], r["model"]) == ("local", "global")]
    with pytest.raises(FedpriorError, match="unknown format 'html'"):
        render("task", found, "last", "html")


# -- from records ------------------------------------------------------------------------------------------------------


def record(path: Path, method: str, seed: int, status: str = "finished", **more: Any) -> RunFolder:
    folder = RunFolder(path / method / str(seed))
    run = {"name": "toy", "method": method, "seed": seed, "rounds": 2, **more}
    folder.begin({"run": run, "environment": {}})
    folder.append(
        "metrics.csv", [(t, "personal", "own", average, 10.0 * t + seed, 1.0) for t in (1, 2) for average in AVERAGES]
    )
    folder.set_status(status, 2)
    return folder


def test_collect_reads_what_was_written(tmp_path: Path) -> None:
    runs = [record(tmp_path, method, seed) for method in ("pfedme", "local") for seed in (0, 10, 2)]
    (tmp_path / "config.json").write_text("{}")  # of somebody else
    found = collect([tmp_path])
    assert list(found["toy"]) == ["local", "pfedme"]  # the order of the registry
    assert found["toy"]["pfedme"][10]["personal", "own", "mean"] == {1: 20.0, 2: 30.0}
    assert read_series(runs[0]) == found["toy"]["pfedme"][0]
    with open(runs[0].path / "metrics.csv", "a") as file:  # a run going on at this moment
        file.write("3,personal,o")
    assert read_series(runs[0]) == found["toy"]["pfedme"][0]
    assert tuple(runs[0].rows("metrics.csv")[0]) == METRICS


def test_collect_refuses_what_cannot_be_averaged(tmp_path: Path) -> None:
    record(tmp_path / "a", "local", 0)
    with pytest.raises(FedpriorError, match="two runs of toy, local, seed 0; give folders that do not overlap"):
        collect([tmp_path, tmp_path / "a"])
    with pytest.raises(FedpriorError, match="no runs at or below"):
        collect([tmp_path / "nowhere"])
    record(tmp_path / "a", "local", 1, settings={"alpha": 3})
    with pytest.raises(FedpriorError, match="seeds of toy, local differ in their settings"):
        collect([tmp_path])


def test_collect_tells_what_is_left_out_or_not_comparable(tmp_path: Path) -> None:
    record(tmp_path, "local", 0)
    record(tmp_path, "mh", 0, "diverged")
    record(tmp_path, "lg", 0, "stopped")
    record(tmp_path, "fedavg", 0, batch=7)
    told: list[str] = []
    found = collect([tmp_path], told.append)
    assert list(found["toy"]) == ["local", "fedavg", "lg"]
    told = [text.replace(str(tmp_path), "") for text in told]
    assert "/mh/0 diverged in round 2 and is left out" in told
    assert "/lg/0 is not finished; its last evaluation is reported" in told
    assert sum(text.startswith("runs of toy are not of one experiment (batch: ") for text in told) >= 1
    told = []
    for method, length in (("local", 14), ("mh", 2)):
        record(tmp_path / "budget", method, 0, rounds=length, budget={"gradients": 280})
    assert list(collect([tmp_path / "budget"], told.append)["toy"]) == ["local", "mh"]
    assert not told
    record(tmp_path / "budget", "lg", 0, rounds=2)
    collect([tmp_path / "budget"], told.append)
    assert len(told) >= 1
    assert json.dumps(summarize(found["toy"]))

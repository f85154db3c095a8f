"""Tables of numbers that are known."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from analysis.handmade import CLASS_ACCURACY, COST, MACRO_F1, both_models, record, rows
from rich.console import Console

from fedprior.analysis.summary import over_tasks, summarize
from fedprior.errors import FedpriorError
from fedprior.records.schema import ACCURACY, AVERAGES, NLL, Row, RunRecord
from fedprior.report.layouts import run_table, sweep_table, task_table
from fedprior.report.tables import Table, render, rich_table

VALUES = {1: 40.0, 2: 60.0, 3: 50.0, 4: 60.0, 5: 55.0}
WORK = (
    "4",
    "560",
    "2.8k",
    "27.5k",
)  # of COST: 4 clients, 140 gradients each, 5 rounds done of 7, 1000 (4 + .5 * 3) numbers a round
METHODS = ("local", "fedavg", "scaffold", "perfedavg", "pfedme", "pfedme-released", "ditto", "fedamp", "mh-released")


def results(
    variants: tuple[str, ...] = ("local", "fedavg", "pfedme-released"), seeds: int = 5, **known: Any
) -> dict[str, Any]:
    known = {"protocol": {"rounds": 7}, **known}
    shift = np.linspace(-12.5, 12.5, seeds)
    runs: dict[str, dict[int, RunRecord]] = {}
    for name in variants:
        runs[name] = {}
        for seed in range(seeds):
            values = {t: v + shift[seed] for t, v in VALUES.items()}
            local = [*rows(values), *rows({5: 20.0}, data="pooled")]
            runs[name][seed] = record(name, seed, local if name == "local" else both_models(values, 20.0), **known)
    return summarize(runs)


def lines_of(table: Table, width: int = 80) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    console.print(rich_table(table))
    written: str = console.file.getvalue()  # type: ignore[attr-defined]
    return written.splitlines()


# -- the runs of a task ------------------------------------------------------------------------------------------------


def test_rows_name_what_they_hold() -> None:
    body = run_table("t", results(seeds=3)).body
    assert body[0] == ("local", "personal", *["55.00 ± 12.50"] * 3, "20.00 ± 0.00", *WORK, "3")
    assert [line[:2] for line in body] == [
        ("local", "personal"),
        ("fedavg", "personal"),
        ("fedavg", "global"),
        ("pfedme-released", "personal"),
        ("pfedme-released", "global"),
    ]
    one = run_table("t", results(seeds=1), "best").body[1]
    assert one == ("fedavg", "personal", "47.50", "47.50", "47.50", "-", *WORK, "1")
    with pytest.raises(FedpriorError, match=r"unknown round 'lats' \(did you mean 'last'"):
        run_table("t", results(), "lats")


def test_settings_of_one_method_are_rows_of_their_own() -> None:
    made = {**results(("mh",), 1), **results(("mh aggregated=50",), 1, own={"aggregated": 50})}
    assert [line[0] for line in run_table("t", made).body] == ["mh"] * 2 + ["mh aggregated=50"] * 2
    flat = list(csv.DictReader(io.StringIO(render(run_table("t", made), "csv"))))
    assert {(row["variant"], row["method"]) for row in flat} == {("mh", "mh"), ("mh aggregated=50", "mh")}


def test_what_a_method_costs_stands_beside_its_numbers() -> None:
    twice = results(cost={**COST, "gradients": 120, "hvps": 20})
    assert run_table("t", twice).body[0][-5:] == ("4", "480+80h", "2.4k+400h", "27.5k", "5")
    assert "h: Hessian-vector products" in render(run_table("t", twice), "markdown")
    assert "Hessian" not in render(run_table("t", results()), "markdown")
    assert run_table("t", results(cost=None)).body[0][-5:] == (*"----", "5")  # from before it was recorded
    before = results(cost={key: value for key, value in COST.items() if key != "parameters"})
    assert run_table("t", before).body[0][-5:] == (*WORK[:3], "-", "5")  # from before the model's size was
    flat = next(csv.DictReader(io.StringIO(render(run_table("t", results()), "csv"))))
    cost = {name: flat[name] for name in ("gradients", "hvps", "forward", "down", "up", "state", "rounds")}
    assert list(cost.values()) == ["140", "0", "3", "1.0", "0.5", "2.0", "5"]
    federation = {name: flat[f"federation_{name}"] for name in ("clients", "gradients", "hvps", "numbers")}
    assert list(federation.values()) == ["4", "560", "0", "5500.0"]


def test_rows_say_what_was_changed_for_all() -> None:
    made = results(("local", "mh", "mh K=2"), 1) | results(("mine",), 1, method="mh")
    for name in ("mh", "mh K=2", "mine"):
        made[name] |= {"changed": {"K": 2, "lam": 30.0}, "wrappers": {"beta": 2.0}}
    table = run_table("t", made)
    changed = "mh K=2 lam=30 beta=2"
    assert [line[0] for line in table.body] == ["local", changed, changed, changed, changed, "mine", "mine"]
    assert table.note == "mine: K=2 lam=30 beta=2"  # a name of one's own stays what it is


def test_a_budget_shows_the_rounds_of_each_method() -> None:
    table = run_table("t", results(protocol={"rounds": 7, "budget": {"gradients": 14000}}))
    assert table.body[0][-6:] == (*WORK, "5", "5")
    assert "at 14,000 gradients of a client that trains in every round" in render(table, "markdown")
    total = run_table("t", results(protocol={"rounds": 7, "budget": {"megabytes": 1.5}}))
    assert "at 1.5 megabytes sent" in render(total, "markdown")
    lines = lines_of(table)
    assert max(map(len, lines)) <= 80
    assert sum(line.count("55.00±9.88") for line in lines) == 15
    assert "rounds" not in render(run_table("t", results()), "latex")


def test_newcomers_are_shown_where_there_are_any() -> None:
    one = [*both_models(VALUES, 33.0), *rows({5: 42.0}, "newcomer"), *rows({5: 41.0}, "newcomer-global")]
    made = summarize({"fedavg": {0: record("fedavg", 0, one), 1: record("fedavg", 1, both_models(VALUES))}})
    table = run_table("t", made)
    assert table.body[2] == ("fedavg", "newcomer", "42.00", "42.00", "42.00", "-", "4", "560", "2.8k", "27.5k", "1")
    assert table.body[3][:3] == ("fedavg", "newcomer-global", "41.00")
    assert any("new global" in line for line in lines_of(table))
    assert "held out of training" in render(table, "latex")
    assert "held out of training" not in render(run_table("t", results()), "latex")


@pytest.mark.parametrize("choice", ["last", "best"])
def test_no_number_wraps_at_80_columns(choice: str) -> None:
    table = run_table("digits-mclr", results(METHODS), choice)
    lines = lines_of(table)
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    heading = next(i for i, line in enumerate(lines) if line.startswith("method"))
    assert lines[heading].split() == ["method", "model", "weighted", "mean", "worst", "10%", "pooled", "grads", "n"]
    for line, row in zip(lines[heading + 2 : heading + 2 + len(table.body)], table.body, strict=True):
        shown = (*row[1:6], row[8], row[10])  # of what it costs, the gradients in the run
        assert line.split()[-7:] == [cell.replace(" ± ", "±") for cell in shown]
        assert line.startswith((row[0], " "))
    assert ("optimistic" in "".join(lines)) == (choice == "best")
    if choice == "last":
        assert lines[0].rstrip() == "digits-mclr: test accuracy in percent, last round"


@pytest.mark.parametrize("width", [80, 66])
def test_where_a_name_is_too_long_columns_fold(width: int) -> None:
    lines = lines_of(run_table("t", results(("a-method-with-quite-a-long-name",))), width)
    assert sum(line.count("55.00±9.88") for line in lines) == 6
    assert max(map(len, lines)) <= width
    assert all("a-method-with-quite-a-long-name" in line for line in lines if "personal" in line)


def test_formats() -> None:
    made = results(seeds=3)
    table = run_table("task", made)
    markdown = render(table, "markdown").splitlines()
    assert markdown[0] == "task: test accuracy in percent, last round."
    assert markdown[-1] == "± standard deviation over n seeds."
    assert {line.count("|") for line in markdown[2:-2]} == {12}
    assert markdown[4].startswith("| local | personal | 55.00 ± 12.50 |")
    latex = render(run_table("task", {"a_b": made["fedavg"]}), "latex")
    assert r"a\_b & personal & 55.00 $\pm$ 12.50" in latex
    assert {line.count("&") for line in latex.splitlines() if "&" in line} == {7}  # short headings, fewer columns
    flat = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert {row["round"] for row in flat} == {"last", "last10", "best"}
    wanted = {"variant": "fedavg", "model": "global", "average": "mean", "round": "best", "metric": "accuracy"}
    (one,) = (row for row in flat if wanted.items() <= row.items())
    assert (one["task"], one["method"], one["data"], one["seeds"]) == ("task", "fedavg", "own", "0 1 2")
    assert float(one["mean"]) == pytest.approx(60)
    assert not [row for row in flat if (row["variant"], row["model"]) == ("local", "global")]
    assert "<td" in table._repr_html_()


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_every_metric_has_its_table() -> None:
    infos = (ACCURACY, NLL, MACRO_F1)
    values = {"accuracy": 90.0, "nll": 0.3214, "macro_f1": 0.8765}
    new = {0: record("mh", 0, [Row(3, "personal", "own", a, values) for a in AVERAGES], metrics=infos)}
    old = {0: record("local", 0, rows({3: 80.0}))}
    made = summarize({"local": old, "mh": new})
    f1 = run_table("toy", made, metric="macro_f1")
    assert f1.title == "toy: test macro f1, last round"
    work = ("4", "560", "1.68k", "16.5k")  # 3 rounds
    assert f1.body == (
        ("local", "personal", "-", "-", "-", "-", *work, "0"),  # a record from before it was measured
        ("mh", "personal", "0.876", "0.876", "0.876", "-", *work, "1"),
    )
    nll = run_table("toy", made, metric="nll")
    assert nll.body[1][2] == "0.321"
    assert "lower is better" in nll.note
    assert "lower" not in f1.note
    flat = list(csv.DictReader(io.StringIO(render(f1, "csv"))))
    assert {row["metric"] for row in flat} == {"accuracy", "nll", "macro_f1"}  # whichever table it is
    assert next(float(row["mean"]) for row in flat if row["metric"] == "macro_f1") == 0.8765
    with pytest.raises(FedpriorError, match="unknown metric 'f1'; valid: accuracy, macro_f1, nll"):
        run_table("toy", made, metric="f1")


def test_a_metric_per_class_has_a_row_for_each() -> None:
    names = ("cat", "dog")
    made = [
        Row(
            1,
            model,
            "own",
            average,
            {f"class_accuracy[{name}]": 50.0 + k for k, name in enumerate(names)} | {"nll": loss},
        )
        for model, loss in (("personal", 0.5), ("global", 1.0))
        for average in AVERAGES
    ]
    run = record("mh", 0, made, metrics=(ACCURACY, NLL, CLASS_ACCURACY), class_names=names)
    table = run_table("toy", summarize({"mh": {0: run}}), metric="class_accuracy")
    assert table.head[:4] == ("method", "model", "class", "own test, weighted")
    assert [line[:4] for line in table.body] == [
        ("mh", model, name, f"{50 + k}.00") for model in ("personal", "global") for k, name in enumerate(names)
    ]
    lines = [line.split() for line in lines_of(table)]
    assert lines[0] == ["toy:", "test", "class", "accuracy", "in", "percent,", "last", "round"]
    assert ["dog", "51.00", "51.00", "51.00", "-", "560", "1"] in lines
    assert r"mh & personal & cat & 50.00" in render(table, "latex")
    assert r"\begin{tabular}{lllrrrrrr}" in render(table, "latex")
    one = run_table("toy", summarize({"mh": {0: run}}), metric="class_accuracy[dog]")
    assert [line[:3] for line in one.body] == [("mh", "personal", "51.00"), ("mh", "global", "51.00")]
    flat = csv.DictReader(io.StringIO(render(table, "csv")))
    assert {row["metric"] for row in flat} == {"nll", "class_accuracy[cat]", "class_accuracy[dog]"}


# -- several tasks -----------------------------------------------------------------------------------------------------


def test_a_table_over_tasks() -> None:
    one, two = results(("mh", "local"), 3), results(("mh",), 3)
    table = task_table(over_tasks({"digits-mclr": one, "mnist-mclr": two}))
    assert table.head == ("method", "model", "digits-mclr", "mnist-mclr", "Avg", "Std")
    assert table.body == (
        ("mh", "personal", "55.00 ± 12.50", "55.00 ± 12.50", "55.00", "0.00"),
        ("mh", "global", "55.00 ± 12.50", "55.00 ± 12.50", "55.00", "0.00"),
        ("local", "personal", "55.00 ± 12.50", "-", "-", "-"),
    )
    assert table.title == "test accuracy in percent on own test samples, weighted by samples, last round"
    for format in ("text", "markdown", "latex", "html"):
        assert render(table, format).replace(r"$\pm$", "±").replace(" ± ", "±").count("55.00±12.50") == 5
    flat = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert [(row["variant"], row["task"]) for row in flat if row["model"] == "personal"] == [
        *(("mh", "digits-mclr"), ("mh", "mnist-mclr"), ("mh", "all tasks")),
        ("local", "digits-mclr"),
    ]
    assert float(flat[2]["mean"]) == pytest.approx(55)
    nll = [Row(1, "personal", "own", a, {"nll": 0.5}) for a in AVERAGES]
    other = summarize({"mh": {0: record("mh", 0, nll)}})
    worst = task_table(over_tasks({"a": other, "b": other}, metric="nll", average="worst_decile", choice="last10"))
    assert (
        worst.title == "test nll on own test samples, worst tenth of clients, mean of the last evaluations, at most 10"
    )
    assert worst.body == (("mh", "personal", "0.500", "0.500", "0.500", "0.000"),)
    assert "lower is better" in worst.note


# -- sweeps ------------------------------------------------------------------------------------------------------------


def test_a_sweep_marks_the_chosen_setting() -> None:
    cells = [
        {"setting": {"lam": 0.1, "start": "w"}, "validation": {"mean": 80.0, "std": 1.5, "seeds": [0, 1]}},
        {"setting": {"lam": 15.0, "start": "w"}, "validation": {"mean": 90.0, "std": None, "seeds": [0]}},
        {"setting": {"lam": 1e30, "start": "theta"}, "validation": None, "diverged": "in round 2 with seed 0"},
    ]
    table = sweep_table({"cells": cells, "chosen": {"lam": 15.0, "start": "w"}, "at_end": {"lam": "largest"}})
    assert table.head == ("lam", "start", "validation", "n", "")
    assert table.note == (
        "± standard deviation over n seeds; lam = 15 is the largest that was tried: beyond it may lie a better one"
    )
    assert [line.split() for line in render(table, "text").splitlines()[2:5]] == [
        ["0.1", "w", "80.00±1.50", "2"],
        ["15", "w", "90.00", "1", "chosen"],
        ["1e+30", "theta", "diverged", *["in", "round", "2", "with", "seed", "0"]],
    ]

"""Numbers over seeds, variants and tasks, against a plain recomputation."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from analysis.handmade import CLASS_ACCURACY, COST, MACRO_F1, both_models, record, rows
from fedprior.analysis.grouping import group
from fedprior.analysis.summary import (
    facts,
    measured_columns,
    models_of,
    number_of,
    over_tasks,
    summarize,
)
from fedprior.errors import FedpriorError
from fedprior.records.schema import ACCURACY, AVERAGES, NLL, Row, RunRecord, Times
from fedprior.report.layouts import task_table

VALUES = {1: 40.0, 2: 60.0, 3: 50.0, 4: 60.0, 5: 55.0}


def by_seed(variant: str, seeds: int = 3, **more: Any) -> dict[int, RunRecord]:
    shift = np.linspace(-12.5, 12.5, seeds)
    made = (
        record(variant, seed, both_models({t: v + shift[seed] for t, v in VALUES.items()}, 20.0), **more)
        for seed in range(seeds)
    )
    return {one.seed: one for one in made}


def test_numbers_over_seeds() -> None:
    number = summarize({"fedavg": by_seed("fedavg")})["fedavg"]["metrics"]["accuracy"]["personal"]["own"]["mean"][
        "last"
    ]
    assert number == {"mean": pytest.approx(55), "std": pytest.approx(12.5), "seeds": [0, 1, 2]}
    alone = summarize({"fedavg": by_seed("fedavg", 1)})["fedavg"]["metrics"]["accuracy"]["personal"]
    assert alone["own"]["mean"]["last"]["std"] is None
    local = summarize({"local": {0: record("local", 0, rows(VALUES))}})["local"]["metrics"]["accuracy"]
    assert local["global"]["pooled"]["mean"] == {"last": None, "last10": None, "best": None}


def test_every_number_of_every_metric_is_a_plain_recomputation() -> None:
    rng = np.random.default_rng(0)
    infos = (ACCURACY, NLL, MACRO_F1)
    where = [
        (model, data, average, t)
        for model in ("personal", "global")
        for data, last in (("own", 12), ("validation", 12), ("pooled", 1))
        for average in AVERAGES
        for t in range(13 - last, 13)
    ]
    drawn = {info.name: {(s, *key): rng.random() for s in (3, 1) for key in where} for info in infos}
    runs = {
        s: record("mh", s, [Row(t, m, d, a, {n: of[s, m, d, a, t] for n, of in drawn.items()}) for m, d, a, t in where])
        for s in (3, 1)
    }
    runs = {s: record("mh", s, run.rows, metrics=infos) for s, run in runs.items()}
    metrics = summarize({"mh": runs})["mh"]["metrics"]
    assert list(metrics) == ["accuracy", "nll", "macro_f1"]
    for info in infos:
        best = max if info.better == "higher" else min
        of = drawn[info.name]
        for model in ("personal", "global"):
            for average in AVERAGES:
                want: dict[str, list[float]] = {"last": [], "last10": [], "validation": [], "best": []}
                for s in (1, 3):
                    own = {t: of[s, model, "own", average, t] for t in range(1, 13)}
                    seen = {t: of[s, model, "validation", "weighted", t] for t in range(1, 13)}
                    want["last"].append(own[12])
                    want["last10"].append(float(np.mean([own[t] for t in range(3, 13)])))
                    want["validation"].append(own[best(seen, key=lambda t: seen[t])])
                    want["best"].append(best(own.values()))
                for choice, numbers in want.items():
                    assert metrics[info.name][model]["own"][average][choice] == {
                        "mean": pytest.approx(np.mean(numbers), rel=1e-12),
                        "std": pytest.approx(np.std(numbers, ddof=1), rel=1e-12),
                        "seeds": [1, 3],
                    }
                pooled = metrics[info.name][model]["pooled"][average]
                assert pooled["last"]["mean"] == pytest.approx(
                    np.mean([of[s, model, "pooled", average, 12] for s in (1, 3)])
                )
                assert pooled["best"] is None  # seen at the last round only


def test_a_metric_that_only_some_seeds_have_says_which() -> None:
    old = record("mh", 0, rows(VALUES))
    new = record("mh", 1, [Row(5, "personal", "own", a, {"accuracy": 1.0, "macro_f1": 0.5}) for a in AVERAGES])
    new = record("mh", 1, new.rows, metrics=(ACCURACY, NLL, MACRO_F1))
    metrics = summarize({"mh": {0: old, 1: new}})["mh"]["metrics"]
    assert metrics["macro_f1"]["personal"]["own"]["mean"]["last"] == {"mean": 0.5, "std": None, "seeds": [1]}
    assert metrics["accuracy"]["personal"]["own"]["mean"]["last"]["seeds"] == [0, 1]
    assert metrics["nll"]["personal"]["own"]["mean"]["last"] is None


def test_what_is_known_of_a_variant_stands_beside_its_numbers() -> None:
    made = by_seed("mh aggregated=50", own={"aggregated": 50}, settings={"lam": 3.0}, protocol={"rounds": 7})
    about = summarize({"mh aggregated=50": made})["mh aggregated=50"]
    assert (about["method"], about["settings"], about["protocol"]) == ("mh", {"lam": 3.0}, {"aggregated": 50})
    assert (about["cost"], about["rounds"]) == (COST, 5)  # done, of the 7 that were planned
    assert about["model_megabytes"] == 1000 * 4 / 1e6
    assert about["megabytes_sent"] == pytest.approx(5 * 1000 * (1.0 * 4 + 0.5 * 50) * 4 / 1e6)  # in the 5 rounds done
    assert about["seconds"] is None  # by hand, in no time
    timed = {
        s: dataclasses.replace(r, times=tuple(Times(t, s + 1.0, 0.5) for t in range(1, 6))) for s, r in made.items()
    }
    assert facts(timed)["seconds"] == {"mean": 12.5, "std": 5.0, "seeds": [0, 1, 2]}
    assert "budget" not in about
    assert about["measured"]["nll"] == {"unit": "", "better": "lower", "per_class": False, "about": NLL.about}
    assert json.loads(json.dumps(about)) == about
    spent = facts({0: record(protocol={"budget": {"gradients": 14000}}, cost=None)})
    assert (spent["budget"], spent["cost"]) == ({"gradients": 14000}, None)  # from before the cost was recorded


def test_newcomers_are_there_where_any_joined() -> None:
    one = record("fedavg", 0, [*both_models(VALUES, 33.0), *rows({5: 42.0}, "newcomer")])
    about = summarize({"fedavg": {0: one, 1: record("fedavg", 1, both_models(VALUES))}})["fedavg"]
    number = about["metrics"]["accuracy"]["newcomer"]["own"]["mean"]
    assert number["last"] == {"mean": 42.0, "std": None, "seeds": [0]}
    assert number["best"] is None  # they were looked at once
    assert list(models_of(about)) == ["personal", "global", "newcomer"]
    without = summarize({"fedavg": {1: record("fedavg", 1, both_models(VALUES))}})["fedavg"]
    assert "newcomer" not in without["metrics"]["accuracy"]


def test_models_that_nothing_tells_apart_are_one() -> None:
    def made(*more: Row, seeds: int = 2) -> dict[str, Any]:
        runs = {s: record("fedavg", s, [*rows(VALUES), *rows(VALUES, "global"), *more]) for s in range(seeds)}
        return summarize({"fedavg": runs})["fedavg"]

    pooled = rows(VALUES, "global", "pooled")
    for rounded in (55.0, 55.0 + 1e-7):  # sums over pooled samples are rounded
        assert models_of(made(*pooled, *rows({5: rounded}, data="pooled"))) == {"both": "global"}
    assert list(models_of(made(*pooled, *rows({5: 54.0}, data="pooled")))) == ["personal", "global"]
    joined = [*rows({5: 42.0}, "newcomer"), *rows({5: 42.0}, "newcomer-global")]
    assert list(models_of(made(*joined))) == ["both", "newcomer-both"]
    one = [Row(3, model, "own", "mean", {"nll": nll}) for model, nll in (("personal", 0.5), ("global", 0.25))]
    assert list(models_of(made(*one))) == ["personal", "global"]  # one loss at one round is enough
    assert list(models_of(summarize({"local": {0: record("local", 0, rows(VALUES))}})["local"])) == ["personal"]


def test_settings_of_one_method_stand_side_by_side() -> None:
    runs = [*by_seed("mh").values(), *by_seed("mh aggregated=50", own={"aggregated": 50}).values()]
    told: list[str] = []
    results = summarize(group(runs, warn=told.append)["toy"])
    assert list(results) == ["mh", "mh aggregated=50"]
    assert {about["method"] for about in results.values()} == {"mh"}
    assert told == []


def test_columns_of_a_metric() -> None:
    results = summarize(
        {
            "mh": {0: record("mh", metrics=(ACCURACY, CLASS_ACCURACY), class_names=("cat", "dog"))},
            "local": {0: record("local", metrics=(ACCURACY,))},
        }
    )
    assert list(measured_columns(results, "accuracy")) == ["accuracy"]
    assert list(measured_columns(results, "class_accuracy")) == ["class_accuracy[cat]", "class_accuracy[dog]"]
    assert list(measured_columns(results, "class_accuracy[dog]")) == ["class_accuracy[dog]"]
    with pytest.raises(FedpriorError, match="unknown metric 'brier'; valid: accuracy, class_accuracy"):
        measured_columns(results, "brier")
    assert number_of(results["local"], "class_accuracy[cat]", "personal", "own", "mean", "last") is None
    with pytest.raises(FedpriorError, match=r"unknown round 'lats' \(did you mean 'last'"):
        number_of(results["local"], "accuracy", "personal", "own", "mean", "lats")


# -- over tasks --------------------------------------------------------------------------------------------------------

PAPER = (53.38, 57.04, 82.75, 80.09, 86.59, 88.26, 57.51, 70.86)  # FedAvg's global model in the paper's Table 1


def test_over_tasks_as_in_the_papers_first_table() -> None:
    results = {
        f"task{k}": summarize({"fedavg": {0: record("fedavg", 0, rows({3: value}, "global"), task=f"task{k}")}})
        for k, value in enumerate(PAPER)
    }
    (row,) = over_tasks(results).rows
    assert (row.variant, row.model) == ("fedavg", "global")
    assert row.average is not None
    assert row.std is not None
    assert (round(row.average, 2), round(row.std, 2)) == (72.06, 14.34)


def test_a_row_that_lacks_a_task_has_no_average() -> None:
    one = summarize({"local": {0: record("local", 0, rows({3: 50.0}))}, "mh": by_seed("mh")})
    two = summarize({"mh": by_seed("mh", task="two"), "lg": by_seed("lg", task="two")})
    over = over_tasks({"one": one, "two": two})
    assert over.tasks == ("one", "two")
    assert [(row.variant, row.model) for row in over.rows] == [
        ("local", "personal"),
        *(("mh", "personal"), ("mh", "global")),
        *(("lg", "personal"), ("lg", "global")),
    ]
    same = {0: record("mh", 0, [*rows(VALUES), *rows(VALUES, "global")])}
    assert [row.model for row in over_tasks({"a": summarize({"mh": same}), "b": summarize({"mh": same})}).rows] == [
        "both"
    ]
    mixed = over_tasks({"a": summarize({"mh": same}), "two": two}).rows  # one model on one task, two on the other
    assert [row.model for row in mixed if row.variant == "mh"] == ["personal", "global"]
    by_variant = {row.variant: row for row in over.rows}
    assert by_variant["local"].numbers["two"] is None
    assert (by_variant["local"].average, by_variant["local"].std) == (None, None)
    assert [by_variant["mh"].average, by_variant["mh"].std] == pytest.approx([55, 0])
    (alone, *_) = over_tasks({"one": one}).rows
    assert (alone.average, alone.std) == (50.0, None)


def test_over_tasks_takes_any_metric_average_and_round() -> None:
    made = [Row(t, "personal", "own", a, {"nll": t + k}) for t in (1, 2) for k, a in enumerate(AVERAGES)]
    results = {task: summarize({"mh": {0: record("mh", 0, made, task=task)}}) for task in ("one", "two")}
    (row,) = over_tasks(results, metric="nll", average="mean", choice="best").rows
    assert row.average == 2.0  # the first round's, since lower is better
    with pytest.raises(FedpriorError, match="unknown metric 'f1'"):
        over_tasks(results, metric="f1")
    classes = record("mh", metrics=(CLASS_ACCURACY,), class_names=("0", "1"))
    with pytest.raises(FedpriorError, match="class_accuracy has a value for each class"):
        over_tasks({"one": summarize({"mh": {0: classes}})}, metric="class_accuracy")


def test_numbers_need_nothing_heavy() -> None:
    heavy = ("jax", "scipy.stats", "matplotlib", "rich")
    code = (
        "import sys, fedprior.analysis.choice, fedprior.analysis.compare, fedprior.report.layouts, fedprior.report.figures;"
        f"print(*(name for name in {heavy!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_row_over_tasks_has_the_settings_that_it_has_on_all_of_them() -> None:
    def on(task: str, **changed: float) -> RunRecord:
        run = record("mh", 0, rows({1: 50.0}), task=task)
        return dataclasses.replace(run, config={**run.config, "changed": changed})

    records = {"one": on("one", lam=15.0, K=2), "two": on("two", lam=30.0, K=2), "three": on("three", K=2)}
    over = over_tasks({task: summarize({"mh": {0: run}}) for task, run in records.items()})
    (row,) = over.rows
    assert row.about == {"method": "mh", "changed": {"K": 2}, "wrappers": {}}
    assert row.apart == {"lam": {"one": 15.0, "two": 30.0}}
    table = task_table(over)
    assert table.body[0][0] == "mh K=2"
    assert "mh: lam = 15 on one, 30 on two, unchanged on three" in table.note

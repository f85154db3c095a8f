"""fedprior run: what it prints and writes, metrics, and rows named by what they change."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program import Outcome, fedprior, refused

from cli.commands import COMPARE, METRICS, ONE, QUICK, ROWS
from fedprior import methods
from fedprior.records.runs import RunFolder
from fedprior.records.schema import AVERAGES, Status
from fedprior.registry import Registry

pytestmark = pytest.mark.xdist_group("cli")  # one worker makes the comparison that all of them look at

# -- what it prints ----------------------------------------------------------------------------------------------------


def test_json_is_one_object_and_agrees_with_the_clients_own_values(compared: tuple[Path, Outcome]) -> None:
    folder, outcome = compared
    summary = json.loads(outcome.out)
    assert (folder / "summary.json").read_text() == outcome.out
    assert tuple(summary["results"]) == ROWS
    assert summary["task"] == "digits-mclr"
    for row, about in summary["results"].items():
        series = [by_round(folder / row / str(seed)) for seed in (0, 1)]
        for model in ("personal", "global"):
            for data in ("own", "pooled"):
                for average in AVERAGES:
                    by_choice = about["metrics"]["accuracy"][model][data][average]
                    values = [s.get((model, data, average), {}) for s in series]
                    for choice, number in by_choice.items():
                        both = [chosen(v, choice, s, model) for v, s in zip(values, series, strict=True)]
                        wanted = [value for value in both if value is not None]
                        if len(wanted) < 2:
                            assert number is None, (row, model, data, average, choice)
                            continue
                        assert number["mean"] == pytest.approx(np.mean(wanted), rel=1e-12)
                        assert number["std"] == pytest.approx(np.std(wanted, ddof=1), rel=1e-9, abs=1e-12)
                        assert number["seeds"] == [0, 1]
    accuracy = {row: about["metrics"]["accuracy"] for row, about in summary["results"].items()}
    assert accuracy["local"]["global"]["own"]["mean"]["last"] is None  # it has no global model
    assert accuracy["mh"]["personal"]["pooled"]["mean"]["best"] is None  # seen at the last round only
    assert accuracy["mh"]["personal"]["pooled"]["mean"]["last"] is not None
    assert 30 < accuracy["mh"]["personal"]["own"]["weighted"]["last"]["mean"] < 100  # percent, not parts


def by_round(run: Path) -> dict[tuple[str, str, str], dict[int, float]]:
    """The three averages of accuracy at every round, from clients.csv and numpy alone."""
    rows: dict[tuple[int, str, str], list[tuple[float, int]]] = {}
    with open(run / "clients.csv", newline="") as file:
        for r in csv.DictReader(file):
            correct = float(r["accuracy"]) * int(r["samples"]) / 100
            rows.setdefault((int(r["round"]), r["model"], r["data"]), []).append((correct, int(r["samples"])))
    series: dict[tuple[str, str, str], dict[int, float]] = {}
    for (t, model, data), pairs in rows.items():
        correct, samples = np.array(pairs).T
        assert np.allclose(correct, np.round(correct))
        each = np.sort(100 * correct / samples)
        weighted = 100 * correct.sum() / samples.sum()
        worst = each[: max(1, len(each) // 10)].mean()
        for average, value in zip(AVERAGES, (weighted, each.mean(), worst), strict=True):
            series.setdefault((model, data, average), {})[t] = value
            if (model, data) == ("global", "own"):  # one model on the union of all samples
                series.setdefault((model, "pooled", average), {})[t] = weighted
    with open(run / "metrics.csv", newline="") as file:  # what is summarized is what is recorded
        recorded = {
            (r["model"], r["data"], r["average"], int(r["round"])): float(r["accuracy"]) for r in csv.DictReader(file)
        }
    expected = {(*key, t): value for key, values in series.items() for t, value in values.items()}
    assert recorded == pytest.approx(expected)
    return series


def chosen(values: dict[int, float], choice: str, series: dict[Any, dict[int, float]], model: str) -> float | None:
    if not values or (len(values) == 1 and choice != "last"):
        return None
    validation = series[model, "validation", "weighted"]
    return {
        "last": values[12],
        "last10": float(np.mean([values[t] for t in range(3, 13)])) if len(values) > 1 else None,
        "best": max(values.values()),
        "validation": values[min(validation, key=lambda t: (-validation[t], t))] if len(values) > 1 else None,
    }[choice]


def test_every_metric_is_in_the_json_and_can_be_asked_for(compared: tuple[Path, Outcome]) -> None:
    folder, outcome = compared
    about = json.loads(outcome.out)["results"]["mh"]
    assert list(about["measured"]) == ["accuracy", "nll", *METRICS]
    classes = [f"class_accuracy[{c}]" for c in range(10)]
    assert list(about["metrics"]) == ["accuracy", "nll", *METRICS[:-1], *classes]
    with open(folder / "mh" / "0" / "clients.csv", newline="") as file:
        each = [r for r in csv.DictReader(file) if (r["round"], r["model"], r["data"]) == ("12", "personal", "own")]
    assert len(each) == 20
    first = {metric: np.mean([float(r[metric]) for r in each]) for metric in ("macro_f1", "nll")}
    with open(folder / "mh" / "1" / "clients.csv", newline="") as file:
        each = [r for r in csv.DictReader(file) if (r["round"], r["model"], r["data"]) == ("12", "personal", "own")]
    for metric, mean in first.items():
        both = [mean, np.mean([float(r[metric]) for r in each])]
        number = about["metrics"][metric]["personal"]["own"]["mean"]["last"]
        assert number["mean"] == pytest.approx(np.mean(both))
    printed = fedprior(*COMPARE, "--resume", "--metric", "macro_f1", "--out", folder.parent)
    assert printed.code == 0
    assert printed.out.startswith("digits-mclr: test macro f1 in percent, last round")
    number = about["metrics"]["macro_f1"]["personal"]["own"]["weighted"]["last"]
    line = next(line for line in printed.out.splitlines() if line.startswith("mh "))
    assert f"{number['mean']:.2f}±{number['std']:.2f}" in line
    per_class = fedprior(*COMPARE, "--resume", "--metric", "class_accuracy", "--out", folder.parent)
    assert per_class.code == 0  # although there is no curve for each class
    assert sum(line.split()[-1:] == ["2"] for line in per_class.out.splitlines()) == 10 * (
        1 + 1 + 2
    )  # FedAvg has one model


def test_a_metric_that_is_not_measured(tmp_path: Path) -> None:
    """A metric with a value per class is measured only where it is asked for."""
    done = fedprior(*ONE, "--metric", "class_accuracy[3]", "--json", "--out", tmp_path)
    assert done.code == 0, done.err
    measured = json.loads(done.out)["results"]["fedavg"]["measured"]
    assert list(measured) == ["accuracy", "nll", "balanced_accuracy", "macro_f1", "brier", "ece", "class_accuracy"]
    without = (*ONE[:2], "-m", "mh:metrics=[]")
    refused(
        fedprior(*without, "--metric", "ece", "--out", tmp_path / "new"), "row 'mh metrics=[]'", "does not measure ece"
    )
    assert not (tmp_path / "new").exists()


# -- rows --------------------------------------------------------------------------------------------------------------


def test_rows_are_named_by_what_they_change(tmp_path: Path) -> None:
    rows = ("-m", "mh", "-m", "mh:beta=2", "-m", "mh:aggregated=5,lam=30")
    command = ("run", "digits-mclr", *rows, "--no-local", "--rounds", "2", *QUICK)
    done = fedprior(*command, "--set", "pooled=never", "--json", "--out", tmp_path)
    assert done.code == 0, done.err
    results = json.loads(done.out)["results"]
    names = ["mh", "mh beta=2", "mh aggregated=5 lam=30"]
    assert list(results) == names
    assert {p.name for p in (tmp_path / "digits-mclr").iterdir() if p.is_dir()} == set(names)
    assert [results[name]["wrappers"] for name in names] == [{}, {"beta": 2.0}, {}]
    assert [results[name]["protocol"] for name in names] == [{}, {}, {"aggregated": 5}]
    runs = [RunFolder(tmp_path / "digits-mclr" / name / "0").config["run"] for name in names]
    assert [run["protocol"]["aggregated"] for run in runs] == [4, 4, 5]
    assert [run["variant"]["settings"]["lam"] for run in runs] == [15.0, 15.0, 30.0]
    assert [run["variant"]["settings"]["R"] for run in runs] == [2, 2, 2]
    assert all(about["method"] == "mh" for about in results.values())
    last = [results[name]["metrics"]["nll"]["personal"]["own"]["mean"]["last"]["mean"] for name in names]
    assert len(set(last)) == 3
    table = fedprior("table", tmp_path)
    assert all(name in " ".join(table.out.split()) for name in ("mh beta=2", "mh aggregated=5", "lam=30"))
    assert "not of one experiment" not in table.err  # the rows say what they change
    compared = json.loads(fedprior("compare", tmp_path, "--against", "mh beta=2", "--json").out)
    assert compared["against"] == "mh beta=2"
    assert set(compared["variants"]) == set(names)


@pytest.mark.parametrize(
    ("metric", "parts"),
    [
        ("class_accuracy[dog]", ("digits-mclr has no such class", "10 classes (0, 1, 2,")),
        ("class_accuracy[3", ("has no such class",)),
        ("accuracy[3]", ("accuracy has no value for each class", "--metric accuracy")),
    ],
)
def test_a_class_that_is_not_there_is_refused_before_anything_runs(
    tmp_path: Path, metric: str, parts: tuple[str, ...]
) -> None:
    refused(fedprior(*ONE, "--metric", metric, "--out", tmp_path), metric, *parts)
    assert not list(tmp_path.iterdir())


def test_what_set_says_holds_for_every_row_that_does_not_say_otherwise(tmp_path: Path) -> None:
    rows = ("-m", "fedavg", "-m", "fedavg:beta=0.5,alpha=0.2")
    done = fedprior(
        *("run", "digits-mclr", *rows, "--rounds", "1", "--set", "beta=2", "--set", "alpha=0.1", "--set", "R=2"),
        *("--set", "pooled=never", "--out", tmp_path),
    )
    assert done.code == 0, done.err
    names = ("local", "fedavg", "fedavg beta=0.5 alpha=0.2")
    runs = [RunFolder(tmp_path / "digits-mclr" / name / "0").config["run"]["variant"] for name in names]
    assert [run["wrappers"] for run in runs] == [{}, {"beta": 2.0}, {"beta": 0.5}]  # Local has no global model
    assert [run["settings"]["alpha"] for run in runs] == [0.1, 0.1, 0.2]


def test_all_stands_for_every_method_that_the_model_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: methods.METHODS.find(name) for name in ("local", "mh", "fedpac")}
    monkeypatch.setattr(methods, "METHODS", Registry("method", few))
    short = ("--rounds", "1", *QUICK, "--set", "pooled=never", "--json", "--out", tmp_path)
    done = fedprior("run", "digits-mclr", "-m", "all", *short)
    assert done.code == 0, done.err
    assert list(json.loads(done.out)["results"]) == ["local", "mh"]
    assert "warning: fedpac is left out: FedPAC" in " ".join(done.err.split())
    refused(fedprior("run", "digits-mclr", "-m", "all", "-m", "fedpac", *short), "FedPAC")  # asked for by its name
    again = fedprior("run", "digits-mclr", "-m", "all", "--no-local", *short, "--resume")
    assert list(json.loads(again.out)["results"]) == ["mh"]


def test_a_setting_that_does_nothing_is_warned_about(tmp_path: Path) -> None:
    idle = fedprior(
        *("run", "digits-mclr", "-m", "meg", "--no-local", "--rounds", "1", *QUICK),
        *("--set", "eta=0", "--set", "eta_alpha=0.5", "--set", "pooled=never", "--out", tmp_path),
    )
    assert idle.code == 0
    lines = idle.err.splitlines()
    assert "warning: meg: eta = 0 is valid, but switches off what eta controls" in lines
    assert any(line.startswith("warning: meg: eta_alpha needs ") for line in lines)
    assert "meg" in idle.out


@pytest.mark.slow
def test_a_diverging_run_stops_and_the_others_go_on(tmp_path: Path) -> None:
    command = ("run", "digits-mclr", "-m", "pfedme", "-m", "fedavg", "--rounds", "3", *QUICK, "--set", "alpha=1e9")
    outcome = fedprior(*command, "--json", "--out", tmp_path, "--checkpoint-seconds", "0")
    assert outcome.code == 1
    summary = json.loads(outcome.out)
    assert list(summary["results"]) == ["local", "fedavg"]
    line = next(line for line in outcome.err.splitlines() if line.startswith("diverged: "))
    assert line == f"diverged: {summary['diverged'][0]}"
    assert "pfedme diverged in round " in line
    assert "alpha * lam = 1.5e+10 is above 1" in line
    assert "try a smaller alpha or alpha_m or lam" in line
    run = RunFolder(tmp_path / "digits-mclr" / "pfedme" / "0")
    assert str(run.path) in line
    status, at = run.status
    assert status is Status.DIVERGED
    assert run.config["run"]["variant"]["settings"]["alpha"] == 1e9
    table = fedprior("table", tmp_path)
    assert "pfedme" not in table.out
    assert f"{run.path} diverged in round {at} and is left out" in table.err

    alone = fedprior(*command[:4], "--no-local", *command[6:], "--json", "--out", tmp_path / "alone")
    assert alone.code == 1
    assert json.loads(alone.out)["results"] == {}


def test_all_does_not_hide_a_setting_that_is_not_valid(tmp_path: Path) -> None:
    refused(
        fedprior("run", "digits-mclr", "-m", "all", "--set", "K=0", "--out", tmp_path / "out"), "K = 0 is not valid"
    )
    assert not list(tmp_path.iterdir())

"""What came of runs: numbers, models, tables and pictures."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis import handmade
from program import timeless

import fedprior as fp
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status
from fedprior.study.results import Results
from study.small import run, small_task

pytestmark = pytest.mark.xdist_group("results")  # its fixture runs: once is enough

MH = "mh:R=3,K=2,alpha=0.1,alpha_m=0.1,lam=2"
SETTINGS = {"rounds": 4, "eval_every": 3}


@pytest.fixture(scope="module")
def results() -> list[fp.Result]:
    return [run(None, seed, MH, **SETTINGS) for seed in (0, 1)]


def test_results_hold_what_was_evaluated(results: list[fp.Result]) -> None:
    first, second = results
    assert (first.name, first.seed, second.seed) == ("mh R=3 K=2 alpha=0.1 alpha_m=0.1 lam=2", 0, 1)
    rows = first.record.rows
    assert sorted({row.round for row in rows}) == [3, 4]  # every third round, and the last
    assert {row.round for row in rows if row[1:3] == ("personal", "pooled")} == {4}
    assert {row[:3] for row in first.record.clients} == {
        *((t, model, "own") for t in (3, 4) for model in ("personal", "global")),
        (4, "personal", "pooled"),
    }
    own = [row for row in first.record.clients if row[:3] == (4, "personal", "own")]
    count, accuracy, nll = (
        np.array([row.samples for row in own]),
        *(np.array([row.values[name] for row in own]) for name in ("accuracy", "nll")),
    )
    assert first.accuracy() == pytest.approx(np.average(accuracy, weights=count))
    assert first.accuracy("personal", "own", "mean") == pytest.approx(np.mean(accuracy))
    assert first.accuracy("global", "pooled") == pytest.approx(first.accuracy("global", "own", "weighted"))
    assert first.value("nll") == pytest.approx(np.average(nll, weights=count))
    assert rows != second.record.rows
    assert repr(first).endswith("seed 0: finished, round 4)")
    with pytest.raises(fp.FedpriorError, match="has no 'global' model evaluated on 'validation'"):
        first.accuracy("global", "validation")
    with pytest.raises(fp.FedpriorError, match=r"unknown metric 'acuracy'.*did you mean 'accuracy'"):
        first.value("acuracy")


def test_every_metric_is_recorded_for_all_and_for_each(results: list[fp.Result]) -> None:
    record = results[0].record
    names = {"accuracy", "nll", "balanced_accuracy", "macro_f1", "brier", "ece"}
    assert set(record.metrics) == names
    assert all(set(row.values) == names for row in record.rows)
    assert all(set(row.values) == names for row in record.clients)
    own = [row for row in record.clients if row[:3] == (4, "personal", "own")]
    assert [row.client for row in own] == [0, 1, 2, 3, 4]
    assert [row.samples for row in own] == small_task(**SETTINGS).federation.test.size.tolist()
    means = next(row.values for row in record.rows if row[:4] == (4, "personal", "own", "mean"))
    for name in names:
        assert means[name] == pytest.approx(np.mean([row.values[name] for row in own]))


def test_the_models_are_those_that_were_scored(results: list[fp.Result]) -> None:
    result, test = results[0], small_task(**SETTINGS).federation.test
    for client in (0, 4):
        own = slice(int(test.start[client]), int(test.start[client] + test.size[client]))
        x, y = jnp.asarray(test.x[own]), np.asarray(test.y[own])
        weights, models = result.personal_model(client)
        assert weights.tolist() == [1.0]
        for name, model in (("personal", models[0]), ("global", result.global_model())):
            hits = int(np.sum(np.argmax(np.asarray(jax.vmap(model)(x)), 1) == y))
            (row,) = [row for row in result.record.clients if row[:4] == (4, name, "own", client)]
            assert 100 * hits / len(y) == row.values["accuracy"]
    with pytest.raises(fp.FedpriorError, match="client 5 does not exist; valid: 0, 1, 2, 3, 4"):
        result.personal_model(5)


def test_records_in_memory_are_those_on_disk(results: list[fp.Result], tmp_path: Path) -> None:
    written = run(tmp_path, 0, MH, **SETTINGS)
    for record in (written.record, RunFolder(tmp_path).record()):
        for part in ("config", "status", "round", "rows"):
            assert getattr(record, part) == getattr(results[0].record, part)
        assert list(record.clients) == list(results[0].record.clients)
    assert (written.record.where, results[0].record.where) == (str(tmp_path), "memory")


def test_results_are_tables_and_pictures(results: list[fp.Result], tmp_path: Path) -> None:
    together = Results([result.record for result in results], runs=results)
    assert (len(together), repr(together)) == (2, "Results(2 runs)")
    assert list(together) == together[results[0].name] == results
    with pytest.raises(fp.FedpriorError, match="unknown row 'pfedme'"):
        together["pfedme"]
    ((task, rows),) = together.summary().items()
    assert (task, list(rows)) == ("arrays", [results[0].name])
    number = rows[results[0].name]["metrics"]["accuracy"]["personal"]["own"]["weighted"]["last"]
    assert number["mean"] == pytest.approx(np.mean([result.accuracy() for result in results]))
    assert number["seeds"] == [0, 1]
    html = together._repr_html_()
    assert "<table" in html
    assert f"{number['mean']:.2f}" in html
    assert Results([])._repr_html_() == "<p>no runs</p>"
    loss = rows[results[0].name]["metrics"]["nll"]["personal"]["own"]["weighted"]["last"]["mean"]
    assert any(f"{loss:.3f}"[:4] in "".join(map(str, line)) for line in together.table(metric="nll").body)
    together.curves(path=tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    lost = handmade.record("ditto", 0, task="arrays", status=Status.DIVERGED)
    figure = Results([*together.records, lost]).curves(diverged=["mh lam=9", results[0].name])
    assert figure is not None
    assert "not shown, since they diverged: ditto, mh lam=9" in figure.axes[0].get_title(loc="left").splitlines()
    with pytest.raises(fp.FedpriorError, match="unknown task 'digits'"):
        together.curves(task="digits")
    with pytest.raises(fp.FedpriorError, match="there are no runs to draw"):
        Results([]).curves()


def test_results_are_read_from_folders(results: list[fp.Result], tmp_path: Path) -> None:
    for seed in (0, 1):
        run(tmp_path / str(seed), seed, MH, **SETTINGS)
    read = Results.read(tmp_path)
    together = Results([result.record for result in results])
    assert timeless(read.summary()) == timeless(together.summary())
    with pytest.raises(fp.FedpriorError, match="no runs at or below"):
        Results.read(tmp_path / "none")

"""Training on all samples: nothing is tested, nothing is recorded of a test, and all of it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from program import contents

import fedprior as fp
from fedprior.methods.local import Local
from fedprior.study.recorder import run_trial
from fedprior.study.trial import Trial
from study.small import stop_after

MODEL = eqx.nn.Linear(3, 3, key=jax.random.key(0))
ROW = "fedavg:R=2"


def task(**changes: Any) -> fp.Task:
    """Three classes on five clients."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    x = (2 * np.eye(3)[y] + rng.normal(size=(120, 3))).astype(np.float32)
    given = {"test_fraction": 0.0, "rounds": 3, "batch": 8, "metrics": [], **changes}
    return fp.task_from_arrays(x, y, np.arange(120) % 5, MODEL, **given)


def test_all_samples_are_trained_on(tmp_path: Path) -> None:
    opened = task()
    assert opened.federation.train.size.sum() == 120
    assert not opened.federation.is_tested
    (result,) = fp.run(opened, ROW, out=tmp_path)
    assert result.finished
    assert (result.record.rows, list(result.record.clients)) == ((), [])
    assert not result.record.is_tested
    weights, (model,) = result.personal_model(3)
    assert weights.tolist() == [1.0]
    assert np.isfinite(model.weight).all()
    assert not np.array_equal(model.weight, MODEL.weight)
    with pytest.raises(
        fp.FedpriorError, match=r"fedavg R=2 has no 'personal' model evaluated on 'own' .*: nothing was tested"
    ):
        result.accuracy()
    assert fp.task_from_arrays(
        np.zeros((10, 3)), np.arange(10) % 2, np.arange(10) % 2, MODEL, is_test=np.zeros(10, bool)
    ).federation.test.size.tolist() == [0, 0]


def test_a_stopped_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    trial = Trial(fp.Study(task(), [ROW], local=False).programs[0], 0)
    for name in ("whole", "parts"):
        stop = stop_after(2) if name == "parts" else {}
        run_trial(trial, tmp_path / name, checkpoint_seconds=0, **stop)
    assert contents(tmp_path / "parts") != contents(tmp_path / "whole")
    run_trial(trial, tmp_path / "parts", resume=True, checkpoint_seconds=0)
    run_trial(trial, tmp_path / "parts", resume=True, checkpoint_seconds=0)  # a finished one is reused
    ends = [contents(tmp_path / name)["checkpoints/round-00000003.safetensors"] for name in ("whole", "parts")]
    assert ends[0] == ends[1]


class Quiet(Local):
    """A method that tells nothing of its steps."""

    def local(self, *given: Any) -> tuple[Any, Any, Any]:
        return *super().local(*given)[:2], {}


def test_numbers_that_left_the_finite_are_noticed_without_a_test() -> None:
    """No loss is looked at, and the method reports none."""
    results = fp.Study(task(rounds=8), [Quiet(R=2, alpha=3e38)], local=False).run()
    assert [text[:23] for text in results.diverged] == ["quiet diverged in round"]


def test_validation_samples_are_still_looked_at(tmp_path: Path) -> None:
    opened = task(validation=0.25)
    (result,) = fp.run(opened, ROW, out=tmp_path)
    assert {row.data for row in result.record.rows} == {"validation"}
    assert 0 <= result.accuracy(data="validation") <= 100
    fp.run(opened, ROW, out=tmp_path, resume=True)
    results = fp.Results.read(tmp_path)
    for call in (results.table, results.curves, results.task_table):
        with pytest.raises(
            fp.FedpriorError, match=r"there are no runs to .*: nothing was tested \(no client has test samples\)"
        ):
            call()
    with pytest.raises(fp.FedpriorError, match="nothing to compare: no run has been evaluated"):
        results.compare()
    assert results._repr_html_() == "<p>no runs</p>"


def test_too_few_samples_to_hold_any_out_for_validation() -> None:
    (result,) = fp.run(task(validation=0.01, test_fraction=0.25), ROW)
    assert {row.data for row in result.record.rows} == {"own", "pooled"}


def test_a_client_without_test_samples_is_left_out_of_averages() -> None:
    who = np.arange(120) % 5
    is_test = (np.arange(120) % 4 == 0) & (who != 4)
    opened = task(is_test=is_test, pooled="every")
    (text,) = opened.remarks
    assert text == "1 of 5 clients have no test samples (4): they train, and are left out of all test numbers"
    assert f"arrays: {text}" in fp.Study(opened, [ROW], local=False).remarks()
    (result,) = fp.run(opened, ROW)
    last = [row for row in result.record.clients if row.round == 3 and (row.model, row.data) == ("personal", "own")]
    assert [row.client for row in last] == [0, 1, 2, 3]
    accuracies = np.array([row.values["accuracy"] for row in last])
    assert result.accuracy(average="mean") == pytest.approx(accuracies.mean())
    assert result.accuracy(average="worst_decile") == pytest.approx(accuracies.min())
    samples = np.array([row.samples for row in last])
    assert result.accuracy() == pytest.approx(np.average(accuracies, weights=samples))
    assert result.personal_model(4)[0].tolist() == [1.0]


def test_newcomers_are_tested_where_they_have_test_samples() -> None:
    """The clients that train have none, as of a split of their own."""
    first = task(new_clients=0.2)
    assert first.newcomers is not None
    (newcomer,) = first.newcomers.ids
    assert fp.run(first, ROW)[0].record.rows == ()
    is_test = (np.arange(120) % 5 == newcomer) & (np.arange(120) % 2 == 0)
    (result,) = fp.run(task(new_clients=0.2, is_test=is_test), ROW)
    assert {(row.model, row.data, row.round) for row in result.record.rows} == {
        (model, "own", 3) for model in ("newcomer", "newcomer-global")
    }
    results = fp.Results([result.record])
    assert [line[1] for line in results.table().body] == ["newcomer-both"]


def test_scaling_is_learnt_from_the_clients_that_train() -> None:
    """And not from newcomers, who come later."""
    opened = task(new_clients=0.2, validation=0.2, test_fraction=0.25, normalize="standard")
    train = np.asarray(opened.federation.train.x)
    assert train.mean(0) == pytest.approx([0, 0, 0], abs=1e-6)
    assert train.std(0) == pytest.approx([1, 1, 1], abs=1e-6)
    assert opened.newcomers is not None
    assert opened.newcomers.preparation is opened.federation.preparation

"""Runs by the library's own interface, without records."""

from __future__ import annotations

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior as fp
from fedprior.methods import make
from fedprior.records import RunFolder
from fedprior.run import Diverged, Progress, Trial


@pytest.fixture(scope="module")
def task() -> fp.Task:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 150)
    x = (2 * np.eye(3)[y] + rng.normal(size=(150, 3))).astype(np.float32)
    return fp.task_from_arrays(
        x,
        y,
        np.arange(150) % 6,
        lambda key: eqx.nn.Linear(3, 3, key=key),
        rounds=4,
        aggregated=3,
        batch=8,
        eval_every=3,
    )


@pytest.fixture(scope="module")
def results(task: fp.Task) -> list[fp.Result]:
    return fp.run(task, make("mh", R=3, K=2, alpha=0.1, alpha_m=0.1, lam=2.0), seeds=2)


def test_results_hold_what_was_evaluated(results: list[fp.Result]) -> None:
    first, second = results
    assert (first.name, first.seed, second.seed) == ("pfedbred", 0, 1)
    assert sorted({row[0] for row in first.rows}) == [3, 4]  # every third round, and the last
    assert {row[0] for row in first.rows if row[1:3] == ("personal", "pooled")} == {4}
    assert sorted(first.scores) == sorted(
        [(t, model, "own") for t in (3, 4) for model in ("personal", "global")] + [(4, "personal", "pooled")]
    )
    score = first.scores[4, "personal", "own"]
    assert first.accuracy() == pytest.approx(100 * score.correct.sum() / score.count.sum())
    assert first.accuracy("personal", "own", "mean") == pytest.approx(np.mean(100 * score.correct / score.count))
    assert first.accuracy("global", "pooled") == pytest.approx(first.accuracy("global", "own", "weighted"))
    assert first.rows != second.rows
    with pytest.raises(fp.FedpriorError, match="has no 'global' model evaluated on 'validation'"):
        first.accuracy("global", "validation")


def test_the_models_are_those_that_were_scored(results: list[fp.Result], task: fp.Task) -> None:
    result, test = results[0], task.federation.test
    for client in (0, 5):
        own = slice(int(test.start[client]), int(test.start[client] + test.size[client]))
        x, y = jnp.asarray(test.x[own]), np.asarray(test.y[own])
        weights, models = result.personal_model(client)
        assert weights.tolist() == [1.0]
        for name, model in (("personal", models[0]), ("global", result.global_model())):
            hits = int(np.sum(np.argmax(np.asarray(jax.vmap(model)(x)), 1) == y))
            assert hits == result.scores[4, name, "own"].correct[client]
    with pytest.raises(fp.FedpriorError, match="client 6 does not exist; valid: 0 to 5"):
        result.personal_model(6)


def test_a_watcher_sees_every_round(task: fp.Task) -> None:
    seen: list[Progress] = []
    trial = Trial(task, make("local", R=1), "local")
    result = trial.run(3, watch=seen.append)
    assert [(p.round, p.rounds) for p in seen] == [(t, 4) for t in range(5)]
    assert [p.accuracy is None for p in seen] == [True, True, True, False, False]
    assert seen[-1].accuracy == result.accuracy()
    assert result.global_model() is None
    again = trial.run(3, should_stop=lambda: True)
    assert (again.finished, int(again.state.round)) == (False, 1)


def test_a_diverging_run_says_what_to_try_and_keeps_its_records(task: fp.Task, tmp_path: Path) -> None:
    trial = Trial(task, make("pfedme", R=3, K=2, alpha=1e9), "pfedme")
    with pytest.raises(
        Diverged, match=r"pfedme diverged in round \d: .*alpha \* lam = 1.5e\+10 is above 1.*try a smaller alpha"
    ):
        trial.run(0, tmp_path)
    assert RunFolder(tmp_path).status["status"] == "diverged"
    with pytest.raises(Diverged):
        trial.run(0)


def test_beta_acts_where_there_is_a_global_model(task: fp.Task) -> None:
    relaxed = fp.task_from_arrays(
        np.zeros((40, 3), np.float32),
        np.arange(40) % 2,
        np.arange(40) % 4,
        lambda key: eqx.nn.Linear(3, 2, key=key),
        beta=2.0,
    )
    assert Trial(relaxed, make("local")).config(0)["run"]["beta"] == 1.0
    assert Trial(relaxed, make("fedavg")).config(0)["run"]["beta"] == 2.0

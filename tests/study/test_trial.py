"""A trial: the rounds that it gives, what is due when, and what becomes of numbers that leave the finite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedprior as fp
from fedprior.records.checkpoint import to_bytes
from fedprior.records.runs import RunFolder
from fedprior.records.schema import FORMAT, Status
from fedprior.study.environment import environment
from fedprior.study.program import Program
from fedprior.study.recorder import run_trial
from fedprior.study.trial import Diverged, Progress, Trial
from study.small import run, small_program, small_task

LOCAL = "local:R=1"


def test_a_trial_is_a_generator_of_rounds() -> None:
    trial = Trial(small_program(LOCAL, eval_every=4), 3)
    rounds = list(trial.rounds(trial.init()))
    assert [done.number for done in rounds] == [1, 2, 3, 4, 5, 6]
    assert [int(done.state.round) for done in rounds[-1:]] == [6]
    assert [done.scores is None for done in rounds] == [True, True, True, False, True, False]
    assert [set(done.scores or {}) for done in rounds if done.scores] == [
        {("personal", "own")},
        {("personal", "own"), ("personal", "pooled")},
    ]
    assert all(done.train_seconds > 0 and done.evaluation_seconds >= 0 for done in rounds)
    first = next(trial.rounds(trial.init()))
    again = list(trial.rounds(first.state))
    assert [done.number for done in again] == [2, 3, 4, 5, 6]
    assert to_bytes(again[-1].state) == to_bytes(rounds[-1].state)


@pytest.mark.parametrize(
    ("pooled", "when"), [("last", {6}), ("every", {4, 6}), ("never", set())], ids=["last", "every", "never"]
)
def test_what_is_due_when(pooled: str, when: set[int]) -> None:
    trial = Trial(Program(small_task(eval_every=4, pooled=pooled), fp.Variant.parse(LOCAL)), 0)
    rounds = range(1, 7)
    assert {t for t in rounds if trial.schedule.is_due(t)} == {4, 6}
    assert {t for t in rounds if trial.schedule.is_wanted(t, "personal", "pooled")} == when
    assert {t for t in rounds if trial.schedule.is_wanted(t, "personal", "own")} == {4, 6}
    assert {t for t in rounds if trial.schedule.is_wanted(t, "global", "pooled")} == {4, 6}  # it costs nothing
    assert {t for t in rounds if trial.schedule.is_wanted(t, "newcomer", "own")} == {6}


def test_a_watcher_sees_every_round() -> None:
    seen: list[Progress] = []
    result = run(None, 3, LOCAL, eval_every=4, watch=seen.append)
    assert [(p.round, p.rounds) for p in seen] == [(t, 6) for t in range(7)]
    assert [p.accuracy is None for p in seen] == [True, True, True, True, False, False, False]
    assert seen[-1].accuracy == result.accuracy()
    assert [len(p.rows) > 0 for p in seen] == [False, False, False, False, True, False, True]
    assert [row for p in seen for row in p.rows] == list(result.record.rows)
    assert seen[-1].seconds > seen[1].seconds > seen[0].seconds == 0
    assert result.global_model() is None
    again = run(None, 3, LOCAL, eval_every=4, should_stop=lambda: True)
    assert (again.finished, int(again.state.round), again.record.status) == (False, 1, Status.STOPPED)


def test_a_diverging_run_says_what_to_try_and_keeps_its_records(tmp_path: Path) -> None:
    trial = Trial(Program(small_task(), fp.Variant.parse("pfedme:R=3,K=2,alpha=1e9")), 0)
    with pytest.raises(
        Diverged, match=r"pfedme.* diverged in round \d: .*alpha \* lam = 1.5e\+10 is above 1.*try a smaller alpha"
    ) as caught:
        run_trial(trial, tmp_path)
    assert RunFolder(tmp_path).status == (Status.DIVERGED, caught.value.round)
    with pytest.raises(Diverged):
        run_trial(trial)


def test_what_is_recorded_of_a_run() -> None:
    config = Trial(small_program(), 2).config()
    assert json.loads(json.dumps(config)) == config
    assert (config["format"], config["environment"]) == (FORMAT, environment())
    run = config["run"]
    assert list(run) == ["task", "protocol", "variant", "seed", "clients", "fingerprint", "split", "client_ids"]
    assert (run["seed"], run["clients"], run["task"]["name"]) == (2, 5, "arrays")
    assert run["variant"]["name"] == "meg R=2 K=2"
    assert run["variant"]["method"] == "meg"
    assert (run["variant"]["settings"]["R"], run["variant"]["settings"]["mean"]) == (2, "meg")
    assert (run["protocol"]["rounds"], run["protocol"]["aggregated"], run["protocol"]["participation"]) == (6, 2, "all")
    assert not {"metrics", "clients_per_vmap"} & {*run["protocol"]}  # a run's states do not depend on these
    assert [metric["name"] for metric in config["metrics"]][:2] == ["accuracy", "nll"]
    assert config["cost"]["gradients"] == 4
    assert set(config["environment"]) == {"fedprior", "jax", "jaxlib", "numpy", "python", "machine"}


def test_a_wrapper_that_does_nothing_is_not_recorded() -> None:
    def wrappers(row: str) -> object:
        return Trial(Program(small_task(), fp.Variant.parse(row)), 0).config()["run"]["variant"]["wrappers"]

    assert wrappers("fedavg:R=1,beta=1,fine_tune=0") == {}
    assert wrappers("fedavg:R=1,beta=2,fine_tune=1") == {"beta": 2.0, "fine_tune": 1}


def test_metrics_are_chosen_by_name_and_one_has_a_column_for_each_class(tmp_path: Path) -> None:
    program = Program(small_task(rounds=1), fp.Variant.parse("local:R=1,metrics=['class_accuracy']"))
    result = run_trial(Trial(program, 0), tmp_path)
    names = ["accuracy", "nll", *(f"class_accuracy[{c}]" for c in range(3))]
    assert list(result.record.rows[0].values) == names
    assert (tmp_path / "clients.csv").read_text().splitlines()[0].split(",")[5:-1] == names
    assert RunFolder(tmp_path).record().rows == run_trial(Trial(program, 0)).record.rows

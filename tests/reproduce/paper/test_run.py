"""What a plan guesses, and what becomes of runs that diverge or fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

import fedprior as fp
from fedprior.errors import FedpriorError
from fedprior.reproduce.paper import run, tasks
from fedprior.reproduce.paper.numbers import Runs, runs_by_cell
from fedprior.reproduce.paper.run import train
from fedprior.study.cells import Cell
from fedprior.study.results import Lost, Results
from fedprior.study.study import Study
from fedprior.study.trial import Trial


class Losing:
    """A study of which every run is lost."""

    def __init__(self, *how: str):
        self.how = how

    def cells(self, out: Path | None = None) -> list[Any]:
        return [Cell("toy", "mh", k, cast("Trial", None), None) for k, _ in enumerate(self.how)]

    def run(self, out: Path, **options: Any) -> Results:
        return Results([], lost=[Lost("toy", "mh", how, f"mh: {how} {k}") for k, how in enumerate(self.how)])


def lose(tmp_path: Path, *studies: Losing) -> Results | None:
    return train(cast("list[Study]", studies), tmp_path, watch=lambda cell, progress: None, warn=lambda text: None)


def test_a_run_that_failed_makes_no_table(tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match="a run failed: mh: failed 0, and 1 more; the same command tries again"):
        lose(tmp_path, Losing("failed", "diverged"), Losing("failed"))
    results = lose(tmp_path, Losing("diverged"))
    assert results is not None
    assert results.diverged == ["mh: diverged 0"]  # which is a result


def test_what_diverged_is_kept_beside_the_others(tmp_path: Path) -> None:
    rows: dict[str, dict[str, object]] = {"fedavg": {}, "lost": {"method": "fedavg", "alpha": 1e30}}
    for _ in range(2):  # trained, and found again
        study = fp.Study("digits-mclr", rows, local=False, rounds=2, eval_every=1)
        results = run.train([study], tmp_path, watch=lambda cell, progress: None, warn=lambda text: None)
        assert results is not None
        assert len(results.diverged) == 1
        runs = runs_by_cell(results)
        assert list(runs["digits-mclr", "fedavg"].finished) == [0]
        assert runs.get(("digits-mclr", "lost")) == Runs({}, (0,))


def test_a_guess_counts_evaluations_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.SECONDS_PER_GRADIENT, "digits-mclr", 1.0)
    task = fp.task("digits-mclr")
    samples, clients = int(task.federation.test.size.sum()), task.federation.n_clients
    seconds = {}
    for every in (1, 20):
        study = fp.Study(task, {"mh-released": {"R": 1}}, local=False, eval_every=every)
        seconds[every] = run.guess(study.cells()[0])
    gradients, evaluation = 7 * clients, 2 * samples / 20 / 3  # both models; a forward pass is a third of a gradient
    assert seconds[1] == pytest.approx(tasks.SECONDS_PER_ROUND + gradients + evaluation)
    assert seconds[20] == pytest.approx(tasks.SECONDS_PER_ROUND + gradients + evaluation / 20)

"""What a plan guesses, and what becomes of runs that diverge."""

from __future__ import annotations

import pytest

import fedprior as fp
from fedprior.reproduce.paper import run, tasks


def test_a_guess_counts_evaluations_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.SECONDS_PER_GRADIENT, "digits-mclr", 1.0)
    task = fp.task("digits-mclr")
    samples, clients = int(task.federation.test.size.sum()), task.federation.n_clients
    seconds = {}
    for every in (1, 20):
        study = fp.Study(task, {"mh-released": {"R": 1}}, local=False, eval_every=every)
        seconds[every] = run.guess(study.cells()[0])
    gradients, evaluation = 7 * clients, 2 * samples / 20 / 3  # both models; a forward pass is a third of a gradient
    assert seconds[1] == pytest.approx(gradients + evaluation)
    assert seconds[20] == pytest.approx(gradients + evaluation / 20)

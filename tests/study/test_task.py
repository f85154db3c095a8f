"""Tasks: settings with their data, and from arrays."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

import fedprior as fp
from fedprior.study import data_file
from fedprior.study import task as study_task
from fedprior.study.settings import read
from fedprior.study.task import open_task
from study.small import small_task


def test_a_task_holds_all_that_a_method_needs() -> None:
    task = fp.task("digits-mclr", **{"partition.clients": 4, "validation": 0.2})
    assert repr(task) == "Task('digits-mclr': 4 clients, 10 classes)"
    assert (task.name, task.federation.n_clients, task.partition.clients) == ("digits-mclr", 4, 4)
    assert task.federation.validation is not None
    assert task.newcomers is None
    assert task.content is not None
    again = open_task(read(task.content))
    assert (again.settings, again.protocol) == (task.settings, task.protocol)
    assert np.array_equal(again.federation.train.x, task.federation.train.x)


def test_a_protocol_is_changed_and_the_rest_is_shared() -> None:
    task = small_task()
    other = task.with_protocol(rounds=3)
    assert (task.protocol.rounds, other.protocol.rounds) == (6, 3)
    assert other.federation is task.federation
    with pytest.raises(fp.FedpriorError, match=r"task 'arrays': rounds: input should be a valid integer"):
        task.with_protocol(rounds="3")


def test_a_task_from_arrays() -> None:
    rng = np.random.default_rng(0)
    x, y, who = rng.normal(size=(40, 3)), np.arange(40) % 2, np.repeat(["b", "a"], 20)
    is_test = np.arange(40) % 4 == 0

    def build(key: jax.Array) -> eqx.Module:
        return eqx.nn.Linear(3, 2, key=key)

    task = fp.task_from_arrays(x, y, who, build, name="mine", is_test=is_test, rounds=2, aggregated=1)
    assert (task.name, task.protocol.rounds, task.federation.n_clients) == ("mine", 2, 2)
    assert task.federation.test.size.tolist() == [5, 5]
    assert task.content is None  # no other process has the arrays
    starts = [task.problem.init(jax.random.key(seed)) for seed in (0, 1)]
    assert float((starts[0] - starts[1]).norm()) > 0
    ready = fp.task_from_arrays(x, y, who, build(jax.random.key(3)))
    same = [ready.problem.init(jax.random.key(seed)) for seed in (0, 1)]
    assert float((same[0] - same[1]).norm()) == 0
    for settings, message in (
        ({"aggregated": 3}, "aggregated = 3 clients per round, but there are 2; valid: 1 to 2"),
        ({"round": 3}, r"unknown key 'round' in task 'arrays' \(did you mean 'rounds'\?\)"),
        ({"data": {"source": "digits"}}, "'data' is no setting of a task from arrays, where x, y and normalize say it"),
        ({"partition": {"kind": "iid", "clients": 2}}, "'partition' is no setting .* client_id, is_test and"),
        ({"new_clients": 0.5, "aggregated": 2}, "but there are 1 besides 1 newcomers"),
    ):
        with pytest.raises(fp.FedpriorError, match=message):
            fp.task_from_arrays(x, y, who, build, **settings)


def test_the_samples_go_with_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What JAX remembers of a task that was run must not keep its samples in memory."""
    held: list[weakref.ref[Any]] = []
    settings: dict[str, Any] = {"partition.clients": 4, "aggregated": 2, "rounds": 1}

    def opened(data: Any) -> Any:
        source = data_file.open_source(data)
        source = dataclasses.replace(source, x=source.x.copy())
        held.append(weakref.ref(source.x))
        return source

    monkeypatch.setattr(study_task, "open_source", opened)
    study = fp.Study("digits-mclr", ["fedavg"], **settings)
    (task,) = study.tasks
    held.append(weakref.ref(task.federation.train.x))
    study.run()
    del study, task
    gc.collect()
    assert len(held) == 2
    assert all(one() is None for one in held)

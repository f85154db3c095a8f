"""One variant on one task: nothing works before it is needed, and numbers may be data."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior as fp
from fedprior.core.batch import Batch
from fedprior.methods import make
from fedprior.study.program import Program, has_global_model, method_for
from fedprior.study.rehearsal import traceable
from study.small import small_task


def test_a_program_compiles_nothing_until_it_runs() -> None:
    program = Program(small_task(), fp.Variant.of("mh", R=2))
    assert set(vars(program)) == {"task", "variant", "data", "only_validation", "_compiler", "_otherwise"}
    program.check()
    assert not {"_all", "_merge", "_starting", "samples"} & set(vars(program.engine))


def test_the_row_goes_before_the_task() -> None:
    task = fp.task("digits-mclr", lam=3.0, rounds=7)
    assert method_for(task, fp.Variant.of("mh")).lam == 3.0  # type: ignore[attr-defined]
    assert method_for(task, fp.Variant.of("mh", lam=2)).lam == 2.0  # type: ignore[attr-defined]
    own = make("mh", lam=9.0, alpha=0.1, alpha_m=0.1)
    assert method_for(task, fp.Variant.of(own)) is own
    program = Program(task, fp.Variant.of("mh", rounds=5, batch=3))
    assert (program.rounds, program.protocol.batch, program.engine.batch_size) == (5, 3, 3)


def test_a_batch_is_no_longer_than_the_largest_client() -> None:
    rng = np.random.default_rng(0)
    who, y = np.repeat(np.arange(4), [8, 12, 20, 40]), rng.integers(0, 2, 80)

    def task(**settings: Any) -> fp.Task:
        return fp.task_from_arrays(
            rng.normal(size=(80, 3)), y, who, lambda key: eqx.nn.Linear(3, 2, key=key), rounds=2, **settings
        )

    largest = int(max(task().federation.train.size))
    assert Program(task(batch=20), fp.Variant.of("fedavg")).engine.batch_size == 20
    assert Program(task(batch=10_000), fp.Variant.of("fedavg")).engine.batch_size == largest == 30
    joining = task(batch=10_000, new_clients=0.5)
    assert joining.newcomers is not None
    everyone = (*joining.federation.train.size, *joining.newcomers.train.size)
    assert Program(joining, fp.Variant.of("fedavg")).engine.batch_size == max(everyone)


def test_a_batch_of_everything_is_the_full_gradient() -> None:
    rng = np.random.default_rng(0)
    x, y, who = rng.normal(size=(60, 3)), rng.integers(0, 2, 60), np.repeat(np.arange(3), 20)
    task = fp.task_from_arrays(
        *(x, y, who, lambda key: eqx.nn.Linear(3, 2, key=key)), rounds=1, batch=10_000, aggregated=3, test_fraction=0
    )
    program = Program(task, fp.Variant.of("fedavg", R=1, alpha=0.5))
    start = program.engine.init(0)
    w0 = start.server
    all_at_once = Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y), jnp.ones(60))  # clients of equal size
    expected = w0 - 0.5 * task.problem.grad(w0, all_at_once)
    ended, _ = program.engine.step(start)
    assert float((ended.server - expected).norm()) < 1e-6


@pytest.mark.parametrize(("name", "has"), [("local", False), ("fedavg", True), ("mh", True), ("fedamp", False)])
def test_which_methods_have_one_model_for_all(name: str, has: bool) -> None:
    assert has_global_model(small_task(), make(name)) == has


def test_numbers_as_data_are_those_of_the_method_that_is_run() -> None:
    task, row = small_task(), fp.Variant.of("pfedme", R=2, K=2)
    data = traceable(task, row)
    assert {"lam", "alpha"} <= {*data}
    program = Program(task, row, data=data)
    values = program.values(make("pfedme", lam=3.0))
    assert values.keys() == {*data}
    assert float(values["lam"]) == 3.0
    assert Program(task, row).values(make("pfedme")) == {}
    state = program.engine.init(0, values)
    assert np.asarray(state.values["lam"]) == 3.0

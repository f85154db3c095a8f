"""One variant on one task: nothing works before it is needed, and numbers may be data."""

from __future__ import annotations

import numpy as np
import pytest

import fedprior as fp
from fedprior.methods import make
from fedprior.study.program import Program, has_global_model, method_for, traceable
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

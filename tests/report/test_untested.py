"""What is said of runs of which nothing was tested."""

from __future__ import annotations

import dataclasses

from analysis.handmade import record, rows

from fedprior.analysis.grouping import group
from fedprior.records.schema import Row, RunRecord, Status
from fedprior.report.untested import untested_runs


def untested(variant: str, seed: int = 0, of: tuple[Row, ...] = (), status: Status = Status.FINISHED) -> RunRecord:
    run = record(variant, seed, of, status=status)
    return dataclasses.replace(run, config={**run.config, "tested": False})


def test_runs_without_a_test_are_named() -> None:
    runs = [untested("local"), untested("mh"), untested("fedavg", status=Status.DIVERGED)]
    (told,) = untested_runs([*runs, record("pfedme", rows=rows({1: 50.0}), task="other")]).values()
    assert told.text == "toy: nothing was tested, since no client has test samples; trained: local, mh"
    assert told.validation == {}


def test_their_validation_numbers_are_those_of_the_last_round() -> None:
    held_out = [untested("mh", seed, tuple(rows({1: 90.0, 2: 60.0 + seed}, data="validation"))) for seed in (0, 1)]
    (told,) = untested_runs(held_out).values()
    assert told.validation["mh"]["mean"] == 60.5
    assert told.text.endswith(
        "accuracy in percent of the personal models on validation samples, last round: mh 60.50 ± 0.71"
    )


def test_they_have_no_place_among_runs_that_were_tested() -> None:
    warnings: list[str] = []
    tested = record("mh", rows=rows({1: 50.0}))
    held_out = untested("local", of=tuple(rows({1: 90.0}, data="validation")))
    assert list(group([tested, held_out, untested("fedavg")], warn=warnings.append)["toy"]) == ["mh"]
    assert warnings == ["toy: 2 runs left out, of which nothing was tested (no client has test samples)"]

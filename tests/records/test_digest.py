"""What a digest keeps of a run, and what is said of one that is damaged."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from analysis.handmade import evaluated, record, rows

from fedprior.analysis.series import reported, series_of
from fedprior.errors import FedpriorError
from fedprior.records.digest import digest_of, record_of
from fedprior.records.schema import LabelCounts, RunRecord, Status


def run() -> RunRecord:
    """Two clients, three rounds, a third model that is scored at the end alone."""
    averaged, clients = evaluated([{"accuracy": [50.0 + t, 80.0 - t / 3]} for t in range(3)], (10, 30))
    joined = rows({3: 100 / 3}, "newcomer")
    counts = LabelCounts(("cat", 1), {"ada": {"train": [3, 4], "test": [1, 0]}, 7: {"train": [0, 2]}})
    return replace(record("mh", 4, [*averaged, *joined], clients), read_labels=lambda: counts)


def through_json(given: RunRecord) -> RunRecord:
    return record_of(json.loads(json.dumps(digest_of(given))), "there")


def test_numbers_are_those_of_the_run() -> None:
    whole, kept = run(), through_json(run())
    assert (kept.task, kept.variant, kept.seed, kept.round) == (whole.task, whole.variant, whole.seed, whole.round)
    assert kept.config == whole.config
    assert kept.status is Status.FINISHED
    for model in ("personal", "newcomer"):
        numbers = [reported(series_of(each), model, "own", "weighted") for each in (whole, kept)]
        assert numbers[0] == numbers[1]  # bit by bit
    assert kept.label_counts == whole.label_counts
    assert series_of(kept)["personal", "own", "weighted"] == series_of(whole)["personal", "own", "weighted"]
    assert [row for row in kept.rows if row.round == 3] == [row for row in whole.rows if row.round == 3]
    assert list(kept.clients) == [row for row in whole.clients if row.round == 3]
    assert kept.where == "there"


def test_a_digest_of_a_digest_is_the_same() -> None:
    once = json.dumps(digest_of(run()))
    assert json.dumps(digest_of(record_of(json.loads(once), "there"))) == once


def test_a_run_that_diverged_before_anything_was_evaluated() -> None:
    lost = replace(record("mh", 0), status=Status.DIVERGED, round=2)
    kept = through_json(lost)
    assert (kept.status, kept.round, kept.rows, kept.clients, kept.label_counts) == (Status.DIVERGED, 2, (), (), None)


@pytest.mark.parametrize(
    "change",
    [
        {"curves": None},
        {"status": "lost"},
        {"round": "many"},
        {"round": math.inf},
        {"last": [[1, "personal"]]},
        {"clients": [{"model": "personal"}]},
        {"curves": [{"model": "personal", "data": "own", "rounds": [1, 2], "accuracy": [1.0], "gce": [None]}]},
        {"config": {}},
        {"labels": 3},
    ],
)
def test_what_is_no_digest_is_refused(change: dict[str, Any]) -> None:
    content = digest_of(run()) | change
    with pytest.raises(FedpriorError, match=r"^there "):
        record_of(content, "there")
    with pytest.raises(FedpriorError, match="there holds no records of runs"):
        record_of([], "there")

"""Records of a sample of the clients: averages stay those of all, runs resume to the same bytes, and readers are told."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import fedprior as fp
from fedprior.errors import FedpriorError
from fedprior.records.thinning import MANY, SAMPLE, automatic, recorded
from fedprior.study.program import Program
from fedprior.study.recorder import run_trial
from fedprior.study.remarks import remarks_on
from fedprior.study.trial import Trial
from study.small import small_task, stop_after

SETTINGS = {"rounds": 3, "client_rows": 2}
SENTENCE = "2 of 5 clients are recorded one by one"


def trial(row: str = "fedavg:R=1", **settings: object) -> Trial:
    return Trial(Program(small_task(**{**SETTINGS, **settings}), fp.Variant.parse(row)), 0)


def clients_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "clients.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("thinned")
    for row in ("fedavg:R=1", "local:R=1"):
        run_trial(trial(row), folder / row[:5], checkpoint_seconds=0)
    return folder


def test_the_same_clients_in_every_round_and_run(out: Path) -> None:
    smallest = sorted(map(str, range(5)), key=lambda c: hashlib.sha256(c.encode()).hexdigest())[:2]
    for name in ("fedav", "local"):
        for t in "123":
            rows = [row for row in clients_of(out / name) if row["round"] == t and row["data"] == "own"]
            assert {row["client"] for row in rows} == set(smallest)
        assert json.loads((out / name / "config.json").read_text())["client_rows"] == 2
        counts = json.loads((out / name / "label_counts.json").read_text())["clients"]
        assert {str(each["client"]) for each in counts} == set(smallest)


def test_averages_are_of_all_clients(out: Path, tmp_path: Path) -> None:
    run_trial(trial(client_rows="all"), tmp_path / "all", checkpoint_seconds=0)
    assert (tmp_path / "all/metrics.csv").read_bytes() == (out / "fedav/metrics.csv").read_bytes()
    assert "client_rows" not in json.loads((tmp_path / "all/config.json").read_text())
    run_trial(trial("local:R=1", client_rows="all"), tmp_path / "local", checkpoint_seconds=0)
    whole, some = fp.Results.read(tmp_path).compare(), fp.Results.read(out).compare()
    ours, theirs = some.variants["fedavg R=1"], whole.variants["fedavg R=1"]
    assert ours.difference is not None
    assert theirs.difference is not None
    assert ours.difference.mean.mean == pytest.approx(theirs.difference.mean.mean)
    assert ours.fairness["worst_decile"]["mean"] == pytest.approx(theirs.fairness["worst_decile"]["mean"])
    assert len(ours.per_client) == 2
    assert len(theirs.per_client) == 5
    assert some.support is None
    assert whole.support is not None
    assert whole.lacks == []


def test_readers_are_told(out: Path, tmp_path: Path) -> None:
    results = fp.Results.read(out)
    assert SENTENCE in results.compare().lacks[0]
    assert SENTENCE in results.table().note
    told: list[str] = []
    page = results.report(tmp_path / "page.html", warn=told.append)
    assert SENTENCE in page.read_text()
    assert any(SENTENCE in text for text in told)


def test_a_stopped_run_resumes_to_the_same_bytes(out: Path, tmp_path: Path) -> None:
    run_trial(trial(), tmp_path / "run", checkpoint_seconds=0, **stop_after(2))
    with pytest.raises(FedpriorError, match="--set client_rows=2"):
        run_trial(trial(client_rows=3), tmp_path / "run", resume=True)
    run_trial(trial(), tmp_path / "run", resume=True, checkpoint_seconds=0)
    for name in ("clients.csv", "metrics.csv", "label_counts.json", "config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (out / "fedav" / name).read_bytes()


def test_lost_rows_of_a_sampled_client_are_noticed(out: Path, tmp_path: Path) -> None:
    run_trial(trial(), tmp_path / "run", checkpoint_seconds=0)
    path = tmp_path / "run/clients.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2] + lines[3:]))
    with pytest.raises(FedpriorError, match="missing"):
        fp.Results.read(tmp_path)


def test_only_very_large_federations_are_thinned_by_themselves() -> None:
    assert (automatic(MANY), automatic(MANY + 1)) == ("all", SAMPLE)
    ids = tuple(range(100))
    assert set(recorded(ids, 5)) < set(recorded(ids, 20))  # a smaller sample is part of a larger one
    assert recorded(ids, 100).tolist() == list(ids)


def test_the_pooled_test_of_very_many_models_is_made_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_task(rounds=3)
    tested = int(np.sum(task.federation.test.size))
    for most, expected in ((5 * tested, "last"), (5 * tested - 1, "never")):
        monkeypatch.setattr("fedprior.study.program.MOST_POOLED", most)
        program = Program(task, fp.Variant.parse("local"))
        assert program.pooled == expected
        assert any("not scored on the pooled test" in text for text in remarks_on(program)) == (expected == "never")
    assert Program(small_task(rounds=3, pooled="every"), fp.Variant.parse("local")).pooled == "every"

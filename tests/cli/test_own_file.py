"""The program on a user's own file: from a table to numbers, or to models that nothing was tested of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import contents, fedprior, refused
from visits import written

QUICK = ("-m", "fedavg", "--no-local", "--set", "R=2")


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Beside a table with a column that is always the same."""
    path = written(tmp_path_factory.mktemp("own"))
    table = path.parent / "data" / "visits.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([lines[0] + ",year", *(line + ",2024" for line in lines[1:])]))
    return path


def test_a_table_is_run_and_looked_at(task: Path, tmp_path: Path) -> None:
    outcome = fedprior("run", task, *QUICK, "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "mine: test accuracy in percent, last round" in outcome.out
    warning = " ".join(outcome.err.split())
    assert (
        "warning: mine: column 'year' is the same in all training samples, from which nothing can be learnt" in warning
    )
    clients = (tmp_path / "mine" / "fedavg" / "0" / "clients.csv").read_text()
    assert '"a,b"' in clients
    assert "007" in clients
    shown = fedprior("partition", task, "--json")
    assert json.loads(shown.out)["clients"] == 3
    refused(
        fedprior("run", task, "--set", "data.label=age", *QUICK, "--out", tmp_path),
        "column 'diagnosis' of visits.csv holds text",
    )


@pytest.mark.slow
def test_workers_find_the_file(task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(task.parent)
    alone = fedprior("run", task.name, *QUICK, "--seeds", "2", "--out", tmp_path / "alone")
    shared = fedprior("run", task.name, *QUICK, "--seeds", "2", "--out", tmp_path / "shared", "--workers", "2")
    assert (alone.code, shared.code) == (0, 0), shared.err
    names = [name for name in contents(tmp_path / "alone") if name.endswith(("metrics.csv", "config.json"))]
    assert len(names) == 4
    assert all(contents(tmp_path / "alone")[name] == contents(tmp_path / "shared")[name] for name in names)


def test_a_run_on_all_samples_says_that_nothing_was_tested(task: Path, tmp_path: Path) -> None:
    everything = (*QUICK, "--set", "partition.test_fraction=0", "--out", tmp_path)
    outcome = fedprior("run", task, *everything)
    assert outcome.code == 0, outcome.err
    said = "mine: nothing was tested, since no client has test samples; trained: fedavg"
    assert outcome.out.startswith(said)
    again = fedprior("run", task, *everything, "--resume", "--rounds", "3", "--json")
    assert again.code == 0, again.err
    summary = json.loads(again.out)
    assert (summary["tested"], summary["results"], summary["validation"]) == (False, {}, {})
    for command in ("table", "compare"):
        left = fedprior(command, tmp_path)
        assert left.code == 2
        assert "Traceback" not in left.err
        lines = " ".join(left.err.split())
        assert "warning: mine: 1 run left out, of which nothing was tested (no client has test samples)" in lines
        assert f"error: nothing to {'show' if command == 'table' else 'compare'}: " in lines


def test_validation_numbers_are_shown_where_nothing_was_tested(task: Path, tmp_path: Path) -> None:
    outcome = fedprior(
        "run", task, *QUICK, "--set", "partition.test_fraction=0", "--set", "validation=0.25", "--out", tmp_path
    )
    assert outcome.code == 0, outcome.err
    text = "accuracy in percent of the personal models on validation samples, last round: fedavg "
    assert text in outcome.out
    assert text in " ".join(fedprior("table", tmp_path).err.split())


def test_a_sweep_needs_no_test(task: Path, tmp_path: Path) -> None:
    outcome = fedprior(
        *("sweep", task, "-m", "fedavg", "--grid", "alpha=0.01,0.1", "--set", "partition.test_fraction=0"),
        *("--set", "R=2", "--out", tmp_path),
    )
    assert outcome.code == 0, outcome.err
    assert f"fedprior run {task} --method fedavg" in outcome.out

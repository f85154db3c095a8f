"""A run's folder, file by file, and the same interface in memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import CLASS_ACCURACY, config
from program import contents

from fedprior.errors import FedpriorError
from fedprior.records import runs
from fedprior.records.checkpoint import to_bytes
from fedprior.records.reading import column_names
from fedprior.records.runs import MemoryRun, RunFolder, find_runs
from fedprior.records.schema import ACCURACY, NLL, ClientRow, MetricInfo, Row, Status, Times, plain
from fedprior.records.tables import TABLES, header
from records.states import state

CONFIG = config()
BRIER = MetricInfo("brier", "", "lower")


def with_changes(**run: Any) -> dict[str, Any]:
    return {**CONFIG, "run": {**CONFIG["run"], **run}}


def longer(rounds: int) -> dict[str, Any]:
    return with_changes(protocol={**CONFIG["run"]["protocol"], "rounds": rounds})


def round_of(t: int) -> tuple[list[Row], list[ClientRow], Times]:
    """What round t gave."""
    values = {"accuracy": 50.0, "nll": 1.0 / t}
    rows = [Row(t, "personal", data, "mean", values) for data in ("own", "pooled")]
    return rows, [ClientRow(t, "personal", data, 0, 4, values) for data in ("own", "pooled")], Times(t, 0.1, 0.2)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.begin(CONFIG)
    return run


def test_a_run_begins(folder: RunFolder) -> None:
    assert folder.exists
    assert folder.config == plain(CONFIG)
    assert folder.status == (Status.RUNNING, 0)
    assert folder.written_format == 2
    assert all(folder.rows(table) == [] for table in TABLES)
    assert find_runs(folder.path.parent) == [folder]
    assert not RunFolder(folder.path / "none").exists
    (folder.path / "config.json").write_text('{"run": 3}')
    with pytest.raises(FedpriorError, match="does not describe a run"):
        folder.config  # noqa: B018


def test_a_folder_may_vanish_while_runs_are_looked_for(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.path.parent / "gone").mkdir()
    scan = os.scandir

    def too_late(path: Any) -> Any:
        return scan(f"{path}/not" if str(path).endswith("gone") else path)

    monkeypatch.setattr(os, "scandir", too_late)
    assert find_runs(folder.path.parent) == [folder]


def test_runs_that_were_gathered_by_links_are_found_once(folder: RunFolder, tmp_path: Path) -> None:
    """Also where links go round in circles, lead to one place twice, or to nowhere."""
    gathered, more = tmp_path / "gathered", tmp_path / "gathered" / "more"
    more.mkdir(parents=True)
    (gathered / "z").symlink_to(folder.path.parent)
    (more / "same").symlink_to(folder.path)
    (more / "round").symlink_to(gathered)
    (more / "nowhere").symlink_to(tmp_path / "none")
    assert [run.path.resolve() for run in find_runs(gathered)] == [folder.path.resolve()]
    (folder.path.parent / "a").symlink_to(folder.path)
    assert find_runs(folder.path.parent) == [folder]  # by its own name rather than by that of a link


def test_a_status_is_one_of_four(folder: RunFolder) -> None:
    for status in Status:
        folder.set_status(status, 3)
        assert folder.status == (status, 3)
        assert json.loads((folder.path / "status.json").read_text()) == {"status": str(status), "round": 3}
    for content in (
        '{"status": "resting", "round": 1}',
        '{"status": "running"}',
        '{"status": "running", "round": "x"}',
    ):
        (folder.path / "status.json").write_text(content)
        with pytest.raises(FedpriorError, match=r"does not say how the run stands \(valid: running, stopped, diverged"):
            folder.status  # noqa: B018
    (folder.path / "status.json").unlink()
    assert folder.status == (Status.RUNNING, 0)


def test_memory_and_folder_give_the_same_record(folder: RunFolder) -> None:
    memory = MemoryRun()
    memory.begin({**CONFIG, "run": {**CONFIG["run"], "clients": (1, 2)}})
    assert memory.record().config["run"]["clients"] == [1, 2]  # as JSON would give it back
    memory.begin(CONFIG)
    for run in (folder, memory):
        for t in (1, 2):
            run.append(*round_of(t))
        run.save(state(2), 2)
        run.set_status(Status.FINISHED, 2)
    one, other = folder.record(), memory.record()
    assert (one.where, other.where) == (str(folder.path), "memory")
    for part in ("config", "status", "round", "rows"):
        assert getattr(one, part) == getattr(other, part)
    assert list(one.clients) == list(other.clients)
    assert len(one.rows) == 4


def test_columns_follow_the_metrics(tmp_path: Path) -> None:
    per_class = config(metrics=(ACCURACY, NLL, CLASS_ACCURACY), class_names=("a", "b"))
    assert column_names(per_class) == ["accuracy", "nll", "class_accuracy[a]", "class_accuracy[b]"]
    run = RunFolder(tmp_path)
    run.begin(per_class)
    row = Row(1, "personal", "own", "mean", {"accuracy": 5.0, "nll": 1.0, "class_accuracy[b]": 7.0})
    run.append([row], [], Times(1, 0.1, 0.2))
    assert (tmp_path / "metrics.csv").read_text().splitlines()[0] == (
        "round,model,data,average,accuracy,nll,class_accuracy[a],class_accuracy[b],check"
    )
    assert run.rows("metrics.csv") == [row]


def test_the_newest_two_checkpoints_are_kept(folder: RunFolder) -> None:
    assert folder.restore(state()) == (None, [])
    for t in range(1, 5):
        folder.save(state(t), t)
    assert [p.name for p in folder.checkpoints] == ["round-00000003.safetensors", "round-00000004.safetensors"]
    newest, damaged = folder.restore(state())
    assert newest is not None
    assert (int(newest.round), damaged) == (4, [])
    assert to_bytes(newest) == to_bytes(state(4))


def test_a_checkpoint_that_is_not_what_was_written_is_passed_over(folder: RunFolder) -> None:
    for t in (1, 2):
        folder.save(state(t), t)
    newest = folder.checkpoints[-1]
    data = newest.read_bytes()
    for hurt in (data[:-3], data[:-1] + bytes([data[-1] ^ 128]), b"", to_bytes(state(2))):
        newest.write_bytes(hurt)
        older, damaged = folder.restore(state())
        assert older is not None
        assert (int(older.round), damaged) == (1, [newest.name])


def test_rewind_drops_what_lies_beyond(folder: RunFolder) -> None:
    for t in (1, 2, 3):
        folder.append(*round_of(t))
        folder.save(state(t), t)
    (folder.path / "checkpoints" / "round-00000004.safetensors.tmp").write_bytes(b"half")
    (folder.path / "clients.csv").write_text("")  # its head is gone as well
    names = ["accuracy", "nll"]
    folder.rewind(2, names, lambda t, model, data: (t, data) != (1, "pooled"))
    assert [row[:3] for row in folder.rows("metrics.csv")] == [
        (1, "personal", "own"),
        (2, "personal", "own"),
        (2, "personal", "pooled"),
    ]
    assert [row.round for row in folder.rows("times.csv")] == [1, 2]
    assert (folder.path / "clients.csv").read_text() == header("clients.csv", names)
    assert [p.name for p in (folder.path / "checkpoints").iterdir()] == ["round-00000002.safetensors"]


@pytest.mark.parametrize("table", TABLES)
def test_a_damaged_line_is_cut_by_rewinding(folder: RunFolder, table: str) -> None:
    for t in (1, 2):
        folder.append(*round_of(t))
    path, rows = folder.path / table, folder.rows(table)
    whole = path.read_text()
    head, first, *rest = whole.splitlines(keepends=True)
    path.write_bytes((head + first.replace(".", "\ufffd", 1) + "".join(rest)).encode() + b"\xff2,personal,ow")
    folder.rewind(2, ["accuracy", "nll"])
    assert path.read_text() == head + "".join(rest)
    assert folder.rows(table) == rows[1:]


def test_rewinding_a_whole_run_touches_nothing(folder: RunFolder) -> None:
    for t in (1, 2):
        folder.append(*round_of(t))
        folder.save(state(t), t)
    before = {p: p.stat().st_ino for p in folder.path.rglob("*")}
    folder.rewind(2, ["accuracy", "nll"])
    assert {p: p.stat().st_ino for p in folder.path.rglob("*")} == before


def test_a_table_takes_other_metrics_from_now_on(folder: RunFolder) -> None:
    """Rounds recorded before leave new metrics empty."""
    folder.append(*round_of(1))
    more = {**config(metrics=(ACCURACY, NLL, BRIER)), "environment": {"jax": "new"}}
    folder.rewind(1, column_names(more))
    folder.update(more)
    row = Row(2, "personal", "own", "mean", {"accuracy": 1.0, "nll": 2.0, "brier": 3.0})
    folder.append([row], [], Times(2, 0.1, 0.2))
    assert folder.rows("metrics.csv") == [*round_of(1)[0], row]
    assert [info["name"] for info in folder.config["metrics"]] == ["accuracy", "nll", "brier"]
    assert folder.config["environment"] == {}  # where the run began


def test_only_the_same_settings_resume(folder: RunFolder) -> None:
    assert folder.check_same(CONFIG) == []
    assert folder.check_same(longer(9)) == []
    assert folder.check_same(config(metrics=(ACCURACY, BRIER))) == []
    elsewhere = folder.check_same({**CONFIG, "environment": {"jax": "2"}})
    assert elsewhere == ["resuming with another jax: None then, '2' now"]
    with pytest.raises(FedpriorError, match=r"variant.settings.lam: 15.0 then, 2.0 now.*use another --out"):
        folder.check_same(config(settings={"lam": 2.0}))
    with pytest.raises(FedpriorError, match="beta: None then, 2 now"):
        folder.check_same(with_changes(beta=2))
    folder.update(longer(9))
    assert folder.config == plain(longer(9))


def test_tuples_are_the_lists_that_json_makes_of_them(tmp_path: Path) -> None:
    widths = with_changes(widths=(3, 4))
    folder = RunFolder(tmp_path)
    folder.begin(widths)
    assert folder.check_same(widths) == []
    assert json.loads((tmp_path / "config.json").read_text())["run"]["widths"] == [3, 4]


def test_beginning_anew_leaves_nothing_of_the_old_run(folder: RunFolder) -> None:
    folder.append(*round_of(1))
    folder.save(state(1), 1)
    folder.set_status(Status.FINISHED, 1)
    folder.begin(with_changes(seed=1))
    fresh = RunFolder(folder.path.parent / "fresh")
    fresh.begin(with_changes(seed=1))
    assert contents(folder.path) == contents(fresh.path)


def test_so_it_does_in_memory() -> None:
    run = MemoryRun(where="here")
    run.begin(CONFIG)
    run.append(*round_of(1))
    run.keep_best({}, 1)
    run.set_status(Status.FINISHED, 1)
    before = run.record()
    run.begin(with_changes(seed=1))
    fresh = MemoryRun(where="here")
    fresh.begin(with_changes(seed=1))
    assert run == fresh
    assert run.best_state(1) is None
    assert len(before.rows) == 2  # a record stays what it was


def test_the_settings_are_not_read_again_in_every_round(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names of very many clients in them, that takes longer than the round."""

    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} was read")

    folder.update(config(metrics=(ACCURACY, BRIER)))
    folder.rewind(0, ["accuracy", "brier"])
    with monkeypatch.context() as patch:
        patch.setattr(runs, "read_json", refuse)
        folder.append(*round_of(1))
    assert [set(row.values) for row in folder.rows("metrics.csv")] == [{"accuracy"}] * 2
    RunFolder(folder.path).append(*round_of(2))  # who goes on with it reads them once
    assert len(folder.rows("metrics.csv")) == 4


def test_a_table_that_cannot_be_read_is_told(folder: RunFolder) -> None:
    (folder.path / "metrics.csv").unlink()
    with pytest.raises(FedpriorError, match=r"cannot read .*metrics.csv: No such file"):
        folder.rows("metrics.csv")
    (folder.path / "metrics.csv").mkdir()
    with pytest.raises(FedpriorError, match=r"cannot read .*metrics.csv: it is no plain file; remove it"):
        folder.rows("metrics.csv")

"""The page of runs that are still at work."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import record, rows, written, written_below

from fedprior.errors import FedpriorError
from fedprior.records.lock import hold
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Row, RunRecord, Status, Times
from fedprior.report.page import live
from fedprior.report.page.blocks import Reading
from fedprior.report.page.live import Watched
from fedprior.report.page.page import unpacked
from report.page.made import made


def payload(page: str) -> Any:
    found = re.search(r'id="payload">([^<]*)<', page)
    assert found is not None
    return unpacked(found[1])


def statuses(page: str) -> list[str]:
    """How the runs stand as the tables of a page tell it."""
    return re.findall(r'data-label="status">([^<]*)<', page)


class Later(Watched):
    """Watched by a clock that goes on by ten seconds before each look."""

    def __init__(self, *folders: Path):
        self.now = 0.0
        super().__init__(folders, clock=lambda: self.now)

    def page(self) -> tuple[str, str]:
        self.now += 10
        return super().page()


def grown(given: RunRecord, run: RunFolder, upto: int, since: int = 0) -> None:
    """Write the rounds after ``since`` up to ``upto``, as a run at work does."""
    for t in range(since + 1, upto + 1):
        mine = [r for r in given.rows if r.round == t], [r for r in given.clients if r.round == t]
        run.append(*mine, Times(t, 0.25, 0.5))


def test_runs_may_be_still_to_come_and_so_may_their_folder(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "runs"):
        watched = Later(folder)
        version, page = watched.page()
        assert "There are no runs yet" in page
        assert payload(page)["live"] == version
    (tmp_path / "file").touch()
    for place in ("file", "nowhere/runs"):
        with pytest.raises(FedpriorError, match=f"{place} is no folder, and none will be made there"):
            Watched([tmp_path / place])


def test_the_page_grows_with_a_run(tmp_path: Path) -> None:
    local, mh = made(("local", "mh"), 1, rounds=8)
    written_below(tmp_path, local)
    run = RunFolder(tmp_path / "toy" / "mh" / "0")
    watched = Later(tmp_path)
    alone = watched.version()
    with hold(run.path):
        run.begin(mh.config)
        run.set_status(Status.RUNNING, 0)
        grown(mh, run, 2)
        version, page = watched.page()
        assert version != alone
        (task,) = payload(page)["tasks"]
        assert [(m["id"], m["rounds"]) for m in task["methods"]] == [("local", 8), ("mh", 2)]
        assert "2 runs: 1 finished, 1 running." in page
        assert statuses(page) == ["finished", "running"]
        assert watched.version() == version  # nothing has changed
        grown(mh, run, 5, since=2)
        with (run.path / "metrics.csv").open("a") as file:
            file.write("6,personal,own,weigh")  # in the middle of a row
        later, page = watched.page()
        assert later != version
        assert payload(page)["tasks"][0]["methods"][1]["rounds"] == 5
    killed, page = watched.page()  # its process is gone, without a word
    assert killed != later
    assert "2 runs: 1 finished, 0 running." in page
    assert statuses(page) == ["finished", "interrupted"]
    assert payload(page)["tasks"][0]["methods"][1]["rounds"] == 5


def test_only_what_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    looked: list[str] = []
    read_run, look_at = live._read, live.reading

    def counted_read(run: RunFolder) -> RunRecord | str:
        read.append(run.path.parent.name)
        return read_run(run)

    def counted_reading(record: RunRecord) -> Reading:
        looked.append(record.variant)
        return look_at(record)

    monkeypatch.setattr(live, "_read", counted_read)
    monkeypatch.setattr(live, "reading", counted_reading)
    for each in made(seeds=1, rounds=3):
        written_below(tmp_path, each)
    watched = Later(tmp_path)
    watched.page()
    assert sorted(read) == sorted(looked) == ["fedavg", "local", "mh"]
    read.clear()
    looked.clear()
    watched.page()
    assert read == looked == []
    (tmp_path / "toy" / "mh" / "0" / "status.json").touch()
    watched.page()
    assert read == looked == ["mh"]


def test_a_page_that_could_not_be_made_is_made_when_it_is_next_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise MemoryError

    watched = Later(tmp_path)
    before, _ = watched.page()
    folder = written_below(tmp_path, made(("mh",), 1, rounds=2)[0])
    with monkeypatch.context() as patched:
        patched.setattr(live, "page", fail)
        with pytest.raises(MemoryError):
            watched.page()
    version, page = watched.page()
    assert payload(page)["live"] == version != before
    assert list(watched._readings) == [str(folder)]
    shutil.rmtree(folder)
    watched.page()
    assert not watched._readings


def test_folders_are_not_looked_at_all_the_time(tmp_path: Path) -> None:
    now = [0.0]
    watched = Watched([tmp_path], clock=lambda: now[0])
    first = watched.version()
    for each in made(("mh",), 1, rounds=2):
        written_below(tmp_path, each)
    now[0] += live.PAUSE / 2
    assert watched.version() == first
    now[0] += live.PAUSE
    assert watched.version() != first


def test_a_damaged_run_is_told_and_the_others_are_shown(tmp_path: Path) -> None:
    folders = [written_below(tmp_path, each) for each in made(seeds=1, rounds=3)]
    (folders[1] / "metrics.csv").write_text("nonsense")
    page = Later(tmp_path).page()[1]
    assert "its heading is lost" in page
    assert [m["id"] for m in payload(page)["tasks"][0]["methods"]] == ["local", "mh"]


def test_damaged_label_counts_are_told_and_all_numbers_are_shown(tmp_path: Path) -> None:
    folders = [written_below(tmp_path, each) for each in made(seeds=1, rounds=3)]
    (folders[1] / "label_counts.json").write_text("{}")
    page = Later(tmp_path).page()[1]
    assert "label_counts.json is not what a run writes" in page
    assert [m["id"] for m in payload(page)["tasks"][0]["methods"]] == ["fedavg", "local", "mh"]


def test_runs_that_cannot_be_shown_together_are_told(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        written_below(tmp_path / folder, made(("mh",), 1, rounds=2)[0])
    page = Later(tmp_path).page()[1]
    assert "two runs of toy, mh, seed 0" in page


def test_what_is_wrong_in_one_task_does_not_hide_the_others(tmp_path: Path) -> None:
    for each in made(seeds=1, rounds=2):
        written_below(tmp_path, each)
    for k, run in enumerate(made(("mh",), 2, rounds=2, task="mixed")):
        run.config["run"]["variant"]["settings"]["lam"] = float(k)
        written_below(tmp_path, run)
    page = Later(tmp_path).page()[1]
    assert "seeds of mixed, mh differ in their settings" in page
    assert [task["name"] for task in payload(page)["tasks"]] == ["toy"]


def test_a_run_whose_clients_cannot_be_read_is_told_and_the_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_run = live._read

    def gone_meanwhile(run: RunFolder) -> RunRecord | str:
        found = read_run(run)
        if run.path.parent.name == "mh":
            (run.path / "clients.csv").unlink()  # it is read when it is first looked at
        return found

    monkeypatch.setattr(live, "_read", gone_meanwhile)
    for each in made(seeds=1, rounds=2):
        written_below(tmp_path, each)
    page = Later(tmp_path).page()[1]
    assert "clients.csv: No such file" in page
    assert [m["id"] for m in payload(page)["tasks"][0]["methods"]] == ["fedavg", "local"]


def test_sweeps_are_shown_while_they_run(tmp_path: Path) -> None:
    for lam, end in ((1.0, 60.0), (15.0, 80.0)):
        cell = record(f"mh lam={lam:g}", 0, [*rows({1: 40.0, 2: end}, data="validation")], numbers_as_data=["lam"])
        folder = tmp_path / "toy" / "sweep" / "mh" / f"{lam:g}" / "0"
        written(folder, _with_clients(cell))
        RunFolder(folder).set_status(Status.RUNNING if lam == 1.0 else Status.FINISHED, 2)
    page = Later(tmp_path).page()[1]
    assert "Sweep of mh on toy" in page
    assert "2 runs: 1 finished, 0 running, 2 of them of sweeps." in page
    assert statuses(page) == ["finished, 2 of 2 rounds", "interrupted, 2 of 2 rounds"]


def _with_clients(cell: RunRecord) -> RunRecord:
    """The cell with one client's values, which are its averages."""
    from fedprior.records.schema import ClientRow

    ends: dict[int, Row] = {row.round: row for row in cell.rows}
    clients = tuple(ClientRow(t, "personal", "validation", 0, 10, row.values) for t, row in ends.items())
    return RunRecord(cell.config, cell.status, cell.round, cell.rows, clients, cell.where)

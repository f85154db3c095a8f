"""Damaged records are noticed: no wrong number, but an error that names the file, the line, and the way back."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import evaluated, record, written

from fedprior.analysis.clients import client_values
from fedprior.errors import FedpriorError
from fedprior.records import tables
from fedprior.records.lock import hold
from fedprior.records.reading import check_resumable
from fedprior.records.runs import RunFolder, find_runs
from fedprior.records.schedule import Schedule
from fedprior.records.schema import ACCURACY, NLL, ClientRow, Row, Status, Times

OLD = Path(__file__).parent.parent / "fixtures" / "format1" / "digits-mclr"
SAMPLES, CLIENTS = [3, 5], ["a", 'b,\n"c"']


def values(shift: float = 0.0) -> tuple[list[Row], list[ClientRow]]:
    """Three rounds of two clients, one of whom has a name of two lines."""
    by_round = [{"accuracy": [30.0 * t, 20.5 + shift], "nll": [1 / t, 0.5]} for t in (1, 2, 3)]
    return evaluated(by_round, SAMPLES, metrics=(ACCURACY, NLL), names=CLIENTS)


def whole(path: Path, shift: float = 0.0, status: Status = Status.FINISHED) -> RunFolder:
    return written(path, record("mh", 0, *values(shift), status=status, protocol={"rounds": 3}, client_ids=CLIENTS))


def line(n: int, new: Callable[[str], str]) -> Callable[[str], str]:
    """Change line n (counted from 1) of a text."""

    def change(text: str) -> str:
        lines = text.split("\n")
        lines[n - 1] = new(lines[n - 1])
        return "\n".join(lines)

    return change


def cell(n: int, k: int, new: str) -> Callable[[str], str]:
    """Replace cell k of line n."""
    return line(n, lambda text: ",".join([*text.split(",")[:k], new, *text.split(",")[k + 1 :]]))


HURT: dict[str, tuple[Callable[[str], str], str]] = {
    "a changed digit": (line(6, lambda text: text.replace("40.25", "41.25")), "line 6: its checksum is wrong"),
    "999": (cell(7, 4, "999"), "line 7: its checksum is wrong"),
    "nan": (cell(7, 4, "nan"), "line 7: its checksum is wrong"),
    "garbled": (line(5, lambda text: "\0\ufffd#" * 5), "line 5: its checksum is wrong"),
    "cut in a line": (lambda text: text[:-12], "line 10: its checksum is wrong"),
    "cut at a line": (lambda text: "\n".join(text.split("\n")[:9]) + "\n", ": rows of round 3 are missing"),
    "a round gone": (lambda text: "\n".join(text.split("\n")[:4] + text.split("\n")[7:]), ": rows of round 2 are "),
    "a line gone": (lambda text: "\n".join(text.split("\n")[:5] + text.split("\n")[6:]), ": rows of round 2 are "),
    "a line twice": (line(6, lambda text: f"{text}\n{text}"), "line 7: it repeats line 6"),
    "lines swapped": (lambda t: "\n".join((a := t.split("\n"))[:1] + a[7:10] + a[1:7] + a[10:]), "line 5: round 1 st"),
    "emptied": (lambda text: "", "line 1: the file is empty"),
    "no heading": (lambda text: text.partition("\n")[2], "line 1: its heading is lost"),
    "another heading": (line(1, lambda text: text.replace("accuracy", "acuracy")), "'acuracy' is no column"),
    "columns swapped": (line(1, lambda text: text.replace("accuracy,nll", "nll,accuracy")), "is not that of clients"),
    "no checksums": (line(1, lambda text: text.removesuffix(",check")), "line 2: "),
    "more at the end": (lambda text: text + "\n", "line 11: its checksum is wrong"),
}


@pytest.mark.parametrize("how", HURT)
def test_a_damaged_table_is_refused_with_its_line_and_the_way_back(tmp_path: Path, how: str) -> None:
    run = whole(tmp_path / "run")
    assert len(run.record().rows) == 9
    path, (change, told) = run.path / "metrics.csv", HURT[how]
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before
    with pytest.raises(FedpriorError) as caught:
        run.record()
    message = str(caught.value)
    assert message.startswith(str(path))
    assert told in message
    assert "restore the file from a copy; or repeat the command" in message
    assert "--resume" in message
    assert "--overwrite" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (cell(2, 5, "99.0"), "line 2: its checksum is wrong"),
        (line(4, lambda text: text.replace("c", "d")), "line 3: its checksum is wrong"),  # within a name of two lines
        (lambda text: text[: text.index("\n3,") + 1], "rows of round 3 are missing"),
        (lambda text: "\n".join(text.split("\n")[:1] + text.split("\n")[2:]), "rows of round 1 are missing"),
        (lambda text: "", "line 1: the file is empty"),
    ],
)
def test_so_are_the_clients_own_values(tmp_path: Path, change: Callable[[str], str], told: str) -> None:
    run = whole(tmp_path)
    assert [row.client for row in run.record().clients] == CLIENTS * 3
    path = tmp_path / "clients.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(FedpriorError, match=f"clients.csv.*{told}"):
        run.record()
    with pytest.raises(FedpriorError, match=f"clients.csv.*{told}"):
        run.rows("clients.csv")


def test_a_time_that_is_damaged_is_told_and_one_that_is_missing_is_not_counted(tmp_path: Path) -> None:
    run, path = whole(tmp_path), tmp_path / "times.csv"
    text = path.read_text()
    path.write_text(cell(3, 1, "0.24")(text))
    with pytest.raises(FedpriorError, match=r"times.csv, line 3: its checksum is wrong"):
        run.record()
    path.write_text(text.replace(text.split("\n")[2] + "\n", ""))
    assert [row.round for row in run.record().times] == [1, 3]


@pytest.mark.parametrize("name", ["metrics.csv", "clients.csv", "times.csv", "config.json"])
def test_a_run_of_which_a_file_is_missing_is_not_passed_over(tmp_path: Path, name: str) -> None:
    run = whole(tmp_path)
    (tmp_path / name).unlink()
    assert find_runs(tmp_path) == [run]
    assert run.exists  # and so is not begun anew unasked
    with pytest.raises(FedpriorError, match=name):
        run.record()


def test_what_is_no_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")  # of somebody else
    begun = RunFolder(tmp_path / "begun")
    begun.begin(record("mh").config)
    (begun.path / "config.json").unlink()  # the last file that is written when a run begins
    assert find_runs(tmp_path) == []
    assert not begun.exists


def test_a_table_of_another_run_is_noticed(tmp_path: Path) -> None:
    one, other = whole(tmp_path / "one"), whole(tmp_path / "other", shift=1.0)
    shutil.copy(other.path / "metrics.csv", one.path / "metrics.csv")
    with pytest.raises(FedpriorError, match=r"metrics.csv, line 8: weighted accuracy .* is not that of clients.csv"):
        one.record()


@pytest.mark.parametrize(
    "tail", ["4", "4,personal,own,mean,30.0,0.33", "4,personal,own,weighted,1,1,00", '4,"per', "\0" * 9]
)
def test_a_line_that_was_being_written_is_no_damage_while_a_run_is_at_work_or_was_killed(
    tmp_path: Path, tail: str
) -> None:
    run = whole(tmp_path)
    rows = run.record().rows
    for table in ("metrics.csv", "clients.csv", "times.csv"):
        with open(tmp_path / table, "a") as file:
            file.write(tail)
    with pytest.raises(FedpriorError, match="its checksum is wrong"):
        run.record()
    with hold(tmp_path):
        assert run.record().rows == rows
    run.set_status(Status.RUNNING, 0)
    assert (run.record().rows, len(run.record().clients)) == (rows, 6)
    if '"' in tail:
        return  # a name may go on in the next line
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write("\n4,")
    with pytest.raises(FedpriorError, match="its checksum is wrong"):  # a line that was ended was not being written
        run.record()


def test_the_status_says_how_far_tables_go(tmp_path: Path) -> None:
    run = whole(tmp_path)
    run.set_status(Status.STOPPED, 2)
    with pytest.raises(
        FedpriorError, match=r"line \d+: it is of round 3, but status.json says that the run ended before it"
    ):
        run.record()
    run.set_status(Status.DIVERGED, 3)
    with pytest.raises(FedpriorError, match="it is of round 3"):
        run.record()
    run.set_status(Status.DIVERGED, 4)
    assert len(run.record().rows) == 9
    written(tmp_path, record("mh", 0, *values(), protocol={"rounds": 9}, client_ids=CLIENTS))
    run.set_status(Status.STOPPED, 4)
    with pytest.raises(FedpriorError, match="rows of round 4 are missing"):
        run.record()


@pytest.mark.parametrize(
    ("n", "k", "new", "told"),
    [
        (5, 4, "999", "line 5: it holds a number that no run gives"),
        (5, 4, "nan", "line 5: it holds a number that no run gives"),
        (5, 5, "inf", "line 5: it holds a number that no run gives"),
        (5, 0, "0", "line 5: it holds a number that no run gives"),
        (5, 4, "", "line 5: a value is missing"),
        (5, 4, "11,5", "line 5: "),
        (5, 4, "15.0", "line 5: weighted accuracy 15 is not that of clients.csv"),
    ],
)
def test_without_checksums_numbers_are_taken_again(tmp_path: Path, n: int, k: int, new: str, told: str) -> None:
    """As of the first format: `mh` has global, personal and newcomers' models, on own, pooled and validation data."""
    for method in ("mh", "scaffold"):
        shutil.copytree(OLD / method / "0", tmp_path / method)
        assert RunFolder(tmp_path / method).record().rows
    path = tmp_path / "mh" / "metrics.csv"
    path.write_text(cell(n, k, new)(path.read_text()))
    with pytest.raises(FedpriorError, match=rf"metrics.csv, {told}"):
        RunFolder(tmp_path / "mh").record()


def test_clients_without_samples_have_no_averages(tmp_path: Path) -> None:
    shutil.copytree(OLD / "mh" / "0", tmp_path / "mh")
    path = tmp_path / "mh" / "clients.csv"
    head, *lines = path.read_text().splitlines()
    assert head.endswith(",samples")
    path.write_text("\n".join([head, *(line.rpartition(",")[0] + ",0" for line in lines)]) + "\n")
    with pytest.raises(FedpriorError, match=r"clients.csv: no client has samples in round 1; restore the file"):
        RunFolder(tmp_path / "mh").record()


@pytest.mark.parametrize("how", ["at work", "killed"])
def test_between_two_tables_of_a_round_all_averages_have_their_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    run, looked = whole(tmp_path), list[list[int]]()
    run.set_status(Status.RUNNING, 0)
    averages, of_clients = values()
    rows = [row._replace(round=4) for row in averages if row.round == 3]
    clients = [row._replace(round=4) for row in of_clients if row.round == 3]
    encode = tables.encode

    def look_first(*args: Any) -> str:
        read = run.record()
        looked.append(client_values(read, "personal", "last", ACCURACY).rounds)
        return encode(*args)

    monkeypatch.setattr(tables, "encode", look_first)
    with hold(tmp_path) if how == "at work" else contextlib.nullcontext():
        run.append(rows, clients, Times(4, 0.25, 0.5))
    assert looked == [[3], [3], [4]]


@pytest.mark.parametrize("how", ["999", "a round gone", "a line twice", "columns swapped", "emptied"])
def test_a_run_does_not_go_on_with_a_hole_in_its_records(tmp_path: Path, how: str) -> None:
    run, schedule = whole(tmp_path), Schedule(3)
    assert check_resumable(tmp_path, CLIENTS, schedule, 3) == []
    path = run.path / "metrics.csv"
    path.write_text(HURT[how][0](path.read_text()))
    with pytest.raises(
        FedpriorError, match=r"metrics.csv.*; restore the file from a copy, or start anew \(--overwrite"
    ):
        check_resumable(tmp_path, CLIENTS, schedule, 3)


def refusal(call: Callable[[], object]) -> str:
    """What an error says; nothing where there is none."""
    try:
        call()
    except FedpriorError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("has", [(), ("validation",)])
def test_it_may_be_that_no_recorded_client_has_samples(tmp_path: Path, has: tuple[str, ...]) -> None:
    """Of a large federation, some clients are recorded one by one, perhaps none of them with test or validation samples."""
    rows = [row._replace(data=data) for row in values()[0] for data in ("own", "validation")]
    clients = [row._replace(data=data) for row in values()[1] for data in has]
    for thinned in (True, False):
        made = record("mh", 0, rows, clients, protocol={"rounds": 3}, client_ids=CLIENTS)
        made.config.update({"client_rows": 2} if thinned else {})
        run = written(tmp_path / str(thinned), made)
        resumed = refusal(partial(check_resumable, run.path, CLIENTS, Schedule(3), 3, thinned))
        for told in (refusal(run.record), resumed):
            assert bool(told) == (not thinned), told
            assert thinned or "clients.csv" in told
        if thinned:
            assert list(run.record().clients) == clients


def test_rows_of_recorded_clients_that_are_lost_are_noticed(tmp_path: Path) -> None:
    made = record("mh", 0, *values(), protocol={"rounds": 3}, client_ids=CLIENTS)
    made.config["client_rows"] = 2
    path = written(tmp_path, made).path / "clients.csv"
    text = path.read_text()
    path.write_text(text[: text.index("\n3,") + 1])
    with pytest.raises(FedpriorError, match="rows of round 3 are missing"):
        RunFolder(tmp_path).record()
    with pytest.raises(FedpriorError, match="rows of round 3 are lost"):
        check_resumable(tmp_path, CLIENTS, Schedule(3), 3, thinned=True)


def test_damage_beyond_the_checkpoint_is_told_and_no_obstacle(tmp_path: Path) -> None:
    whole(tmp_path)
    for name, n in (("metrics.csv", 9), ("times.csv", 2)):
        (tmp_path / name).write_text(line(n, lambda text: text + "0")((tmp_path / name).read_text()))
    told = check_resumable(tmp_path, CLIENTS, Schedule(3), 2)
    assert [text.removeprefix(str(tmp_path) + os.sep) for text in told] == [
        "metrics.csv, line 9: its checksum is wrong",
        "times.csv, line 2: its checksum is wrong",
    ]


def test_reading_gives_what_was_written(tmp_path: Path) -> None:
    run, (rows, clients) = whole(tmp_path), values()
    mine = run.record()
    assert (list(mine.rows), list(mine.clients)) == (rows, clients)
    assert mine.times == tuple(Times(t, 0.25, 0.5) for t in (1, 2, 3))

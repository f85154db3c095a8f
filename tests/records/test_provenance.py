"""When, how and by which version a run was made, which labels its clients have, and how long it took."""

from __future__ import annotations

import errno
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import record
from study.small import run, small_program, small_task, stop_after

import fedprior as fp
from fedprior.errors import FedpriorError
from fedprior.records.memory import MemoryRun
from fedprior.records.provenance import read, read_labels, write
from fedprior.records.runs import RunFolder
from fedprior.records.schema import LabelCounts, RunRecord, Session, Status, Times
from fedprior.study.recorder import run_trial
from fedprior.study.trial import Trial

pytestmark = pytest.mark.xdist_group("resume")  # which has compiled these programs


def test_every_start_of_a_run_is_recorded(tmp_path: Path) -> None:
    run(tmp_path, command="fedprior run arrays --out 'my runs'", **stop_after(2))
    (first,) = RunFolder(tmp_path).record().provenance or ()
    assert (first.command, first.fedprior) == ("fedprior run arrays --out 'my runs'", fp.__version__)
    assert first.ended is not None
    assert datetime.fromisoformat(first.begun) <= datetime.fromisoformat(first.ended)
    run(tmp_path, resume=True)
    one, two = RunFolder(tmp_path).record().provenance or ()
    assert (one, two.command) == (first, None)  # the second was run from Python
    before = (tmp_path / "provenance.json").read_bytes()
    run(tmp_path, resume=True, command="again")  # a finished run is reused
    assert (tmp_path / "provenance.json").read_bytes() == before
    run(tmp_path, overwrite=True, **stop_after(1))
    (anew,) = RunFolder(tmp_path).record().provenance or ()
    assert anew.begun > two.begun


def test_a_run_that_was_killed_has_no_end(tmp_path: Path) -> None:
    def killed(progress: Any) -> None:
        if progress.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, watch=killed)
    (session,) = RunFolder(tmp_path).record().provenance or ()
    assert session.ended is None


def test_labels_are_counted_and_can_be_left_out(tmp_path: Path) -> None:
    """Left out, that is no other run: it goes on, and what was there is gone."""
    run(tmp_path, validation=0.2, **stop_after(1))
    counts = RunFolder(tmp_path).record().label_counts
    assert counts is not None
    task = small_task(validation=0.2)
    assert counts.classes == (0, 1, 2)
    assert list(counts.clients) == [0, 1, 2, 3, 4]
    for part in ("train", "test", "validation"):
        samples = getattr(task.federation, part)
        for k, client in enumerate(counts.clients):
            own = samples.y[samples.start[k] : samples.start[k] + samples.size[k]].tolist()
            assert counts.clients[client][part] == [own.count(c) for c in (0, 1, 2)]
    silent = Trial(small_program(validation=0.2, rounds=6, record_labels=False), 0)
    assert run_trial(silent, tmp_path, resume=True, checkpoint_seconds=0).finished
    assert RunFolder(tmp_path).record().label_counts is None
    assert not (tmp_path / "label_counts.json").exists()
    assert "record_labels" not in (tmp_path / "config.json").read_text()


def test_newcomers_labels_are_counted_too() -> None:
    counts = Trial(small_program(new_clients=0.4), 0).label_counts()
    assert counts is not None
    assert set(counts.clients) == {0, 1, 2, 3, 4}
    assert sum(sum(part) for of in counts.clients.values() for part in of.values()) == 120


def test_old_records_say_nothing_of_it(tmp_path: Path) -> None:
    old = record("mh")
    assert (old.provenance, old.label_counts, old.seconds) == (None, None, None)
    assert read(tmp_path) is None


@pytest.mark.parametrize(
    ("times", "round_", "status", "seconds"),
    [
        ([1, 2, 3], 3, Status.FINISHED, 2.25),
        ([1, 3], 3, Status.FINISHED, None),  # one was lost
        ([1, 2], 3, Status.FINISHED, None),
        ([1, 2], 3, Status.DIVERGED, 1.5),  # a round that diverges is not timed
        ([1, 2, 3], 0, Status.RUNNING, 2.25),
    ],
)
def test_the_time_of_all_rounds(times: list[int], round_: int, status: Status, seconds: float | None) -> None:
    rows = tuple(Times(t, 0.25, 0.5) for t in times)
    assert RunRecord({}, status, round_, (), (), times=rows).seconds == seconds


def test_memory_keeps_it_too() -> None:
    memory, counts = MemoryRun(), LabelCounts(("a",), {"St. C": {"train": [3]}})
    session = Session("2026-01-01T00:00:00+00:00", None, None, "1")
    memory.sign(session, counts)
    memory.append([], [], Times(1, 0.25, 0.5))
    assert (memory.record().provenance, memory.record().label_counts) == ((session,), counts)
    assert memory.record().seconds == 0.75


def test_any_name_of_a_client_or_class_survives(tmp_path: Path) -> None:
    counts = LabelCounts(('"ill"\n', "well"), {"007": {"train": [1, 2]}, 7: {"train": [3, 4], "test": [0, 0]}})
    write(tmp_path, Session("now", None, "fedprior run 'ä\x1b'", "1"), counts)
    run = RunFolder(tmp_path)
    run.begin(record("mh").config)
    assert run.record().label_counts is None  # of the run that was there before
    write(tmp_path, Session("now", None, "fedprior run 'ä\x1b'", "1"), counts)
    assert run.record().label_counts == counts
    assert run.record().provenance == (Session("now", None, "fedprior run 'ä\x1b'", "1"),)


def test_label_counts_that_are_damaged_are_written_anew(tmp_path: Path) -> None:
    counts = LabelCounts(("a",), {7: {"train": [3]}})
    (tmp_path / "label_counts.json").write_bytes(b"\xff")
    write(tmp_path, Session("now", None, None, "1"), counts)
    assert read_labels(tmp_path) == counts


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"sessions": 3}', '{"sessions": [{"begun": 3}]}', "{", '{"sessions": [3]}']
)
def test_what_no_run_writes_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "provenance.json").write_text(content)
    with pytest.raises(FedpriorError, match=r"provenance.json"):
        read(tmp_path)


def test_a_disk_that_fills_up_is_told_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is full as the run begins or as it ends."""
    real, met = os.replace, 0

    for when in (1, 2):
        folder, met = tmp_path / str(when), 0

        def replace_(old: Any, new: Any, when: int = when) -> None:
            nonlocal met
            if Path(new).name == "provenance.json":
                met += 1
                if met == when:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(old, new)

        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", replace_)
            with pytest.raises(FedpriorError, match=r"cannot write .*provenance.json: No space left"):
                run(folder)
        assert run(folder, resume=True).finished
        assert json.loads((folder / "provenance.json").read_text())["sessions"]

"""Event files for TensorBoard: read back by hand, and by TensorBoard where it is installed."""

from __future__ import annotations

import math
import shutil
import struct
from pathlib import Path

import pytest
from program import fedprior, refused

from fedprior.records.schema import Row
from fedprior.report.events import EventFiles, checksum, event

ROWS = [
    Row(5, "personal", "own", "weighted", {"accuracy": 71.5, "nll": 0.25}),
    Row(5, "global", "own", "mean", {"accuracy": 50.0}),
    Row(300, "personal", "own", "weighted", {"accuracy": 80.0}),
]


def written(folder: Path) -> Path:
    files = EventFiles(folder)
    files.add("toy/mh/0", ROWS[:2])
    files.add("toy/mh/0", ROWS[2:])
    files.add("toy/mh/1", [])
    (path,) = folder.rglob("*tfevents*")
    assert path.parent == folder / "toy" / "mh" / "0"
    return path


def records(path: Path) -> list[bytes]:
    """The contents of an event file's records, their checksums checked."""
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        content = data[12 : 12 + length]
        for part, stored in ((data[:8], data[8:12]), (content, data[12 + length : 16 + length])):
            value = (struct.unpack("<I", stored)[0] - 0xA282EAD8) & 0xFFFFFFFF
            assert ((value >> 17) | (value << 15)) & 0xFFFFFFFF == checksum(part)
        found.append(content)
        data = data[16 + length :]
    return found


def test_an_event_by_hand(tmp_path: Path) -> None:
    first, fifth, last = records(written(tmp_path))
    assert first[9:] == b"\x1a\x0dbrain.Event:2"
    assert fifth[9:11] == b"\x10\x05"  # the step
    assert b"accuracy/personal own weighted\x15" + struct.pack("<f", 71.5) in fifth
    assert b"nll/personal own weighted\x15" + struct.pack("<f", 0.25) in fifth
    assert b"accuracy/global own mean\x15" + struct.pack("<f", 50.0) in fifth
    assert last[9:12] == b"\x10\xac\x02"  # 300 = 2 * 128 + 44


def test_a_number_too_large_for_single_precision_is_infinite() -> None:
    for value, stored in ((1e39, math.inf), (-1e39, -math.inf), (math.inf, math.inf)):
        assert event(0.0, 1, {"perplexity": value}).endswith(b"perplexity\x15" + struct.pack("<f", stored))


def test_tensorboard_reads_them(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(written(tmp_path).parent))
    events.Reload()
    scalars = events.Scalars("accuracy/personal own weighted")
    assert [(one.step, one.value) for one in scalars] == [(5, 71.5), (300, 80.0)]
    assert [one.value for one in events.Scalars("accuracy/global own mean")] == [50.0]


def test_a_run_writes_them_and_a_resumed_one_goes_on(tmp_path: Path) -> None:
    words = (
        "run",
        "digits-mclr",
        "-m",
        "fedavg",
        "--no-local",
        "--set",
        "partition.clients=4",
        "--set",
        "aggregated=2",
    )
    places = ("--out", tmp_path / "runs", "--tensorboard", tmp_path / "events")
    assert fedprior(*words, "--rounds", "2", *places).code == 0
    assert fedprior(*words, "--rounds", "3", *places, "--resume").code == 0
    files = sorted((tmp_path / "events" / "digits-mclr" / "fedavg" / "0").iterdir())
    steps = [[content[10] for content in records(path)[1:]] for path in files]
    assert steps == [[1, 2], [3]]


def test_a_study_may_have_more_runs_than_files_can_be_open(tmp_path: Path) -> None:
    own = Path("/proc/self/fd")
    if not own.exists():
        pytest.skip("this system does not list the files that are open")
    files = EventFiles(tmp_path)
    before = len(list(own.iterdir()))
    for seed in range(40):
        files.add(f"toy/mh/{seed}", ROWS[:1])
    assert len(list(own.iterdir())) <= before + 5
    files.add("toy/mh/0", ROWS[2:])  # the first one goes on
    (path,) = (tmp_path / "toy" / "mh" / "0").iterdir()
    assert len(records(path)) == 3


def test_files_that_are_removed_meanwhile_are_begun_anew(tmp_path: Path) -> None:
    files = EventFiles(tmp_path)
    files.add("toy/mh/0", ROWS[:1])
    shutil.rmtree(tmp_path / "toy")
    files.add("toy/mh/0", ROWS[2:])
    (path,) = tmp_path.rglob("*tfevents*")
    assert len(records(path)) == 2


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ("run", "digits-mclr", "-m", "fedavg", "--no-local", "--rounds", "1", "--out", tmp_path / "runs")
    refused(fedprior(*words, "--tensorboard", tmp_path / "file"), "cannot write")

"""A run that was stopped, killed, moved or lengthened ends with the bytes of one that was not."""

from __future__ import annotations

import errno
import functools
import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import kill_run
import pytest
import safetensors
import safetensors.numpy
from kill_run import Blow
from program import contents, kept
from toys import blobs, engine_of, rounds

import fedprior as fp
from fedprior import files
from fedprior.methods import make
from fedprior.records import runs
from fedprior.records.checkpoint import pack, to_bytes, unpack
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status
from fedprior.study.program import Program
from fedprior.study.recorder import run_trial
from fedprior.study.trial import Trial
from study.small import run as run_small
from study.small import small_program, small_task, stop_after

pytestmark = [pytest.mark.bits, pytest.mark.xdist_group("resume")]  # its fixtures run: once is enough

# -- processes that are killed -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of `kill_run`, left alone."""
    out = tmp_path_factory.mktemp("alone")
    done = kill_run.start(out)
    assert done.returncode == 0, done.stderr
    return out


SLOW = pytest.mark.slow


@SLOW
@pytest.mark.parametrize(
    ("how", "python"),
    [("torn", False), ("renamed", False), ("anytime", False), ("torn", True), ("anytime", True)],
)
def test_a_killed_study_resumes_to_the_same_bytes(alone: Path, tmp_path: Path, how: str, python: bool) -> None:
    """From the command line and from Python alike: both give the records of the study that was left alone."""
    blow = {
        "torn": Blow("written", kill_run.ROUNDS + 3, torn=True),  # in the second cell
        "renamed": Blow("renamed", 4),
        "anytime": Blow("delay", delay=random.uniform(0, kill_run.duration(alone))),
    }[how]
    killed = kill_run.start(tmp_path, blow, python=python)
    assert killed.returncode == -signal.SIGKILL or how == "anytime"
    if how != "anytime":
        left = kill_run.checkpoints(tmp_path)
        last = r"1/round-00000003.safetensors.\w+.tmp" if how == "torn" else "0/round-00000004.safetensors"
        assert re.fullmatch(last, left[-1])
    resumed = kill_run.start(tmp_path, resume=True, python=python)
    assert resumed.returncode == 0, resumed.stderr
    assert kill_run.outcome(tmp_path) == kill_run.outcome(alone), str(blow)
    assert len(kill_run.checkpoints(tmp_path)) == runs.KEPT * len(kill_run.SEEDS)


@SLOW
def test_ctrl_c_ends_the_round_and_says_how_to_go_on(alone: Path, tmp_path: Path) -> None:
    stopped = kill_run.start(tmp_path, Blow("renamed", 4, signals=(int(signal.SIGINT),)))
    assert stopped.returncode == 130
    assert "--resume" in stopped.stderr.splitlines()[-1]
    assert "Traceback" not in stopped.stderr
    assert RunFolder(kill_run.folder(tmp_path)).status == (Status.STOPPED, 5)
    assert kill_run.start(tmp_path, resume=True).returncode == 0
    assert kill_run.outcome(tmp_path) == kill_run.outcome(alone)


# -- within this process -----------------------------------------------------------------------------------------------


run = functools.partial(run_small, validation=0.2)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The run that was left alone."""
    folder = tmp_path_factory.mktemp("once")
    run(folder)
    return kept(folder)


def test_stopping_after_every_round_changes_nothing(tmp_path: Path, once: dict[str, bytes]) -> None:
    for n in range(1, 6):
        result = run(tmp_path, resume=True, **stop_after(n))
        assert (result.finished, int(result.state.round)) == (False, n)
        assert RunFolder(tmp_path).status == (Status.STOPPED, n)
    result = run(tmp_path, resume=True)
    assert result.finished
    assert kept(tmp_path) == once
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "best-00000002.safetensors",  # on validation
        "round-00000005.safetensors",
        "round-00000006.safetensors",
    ]
    assert [row.round for row in RunFolder(tmp_path).rows("times.csv")] == [1, 2, 3, 4, 5, 6]


def test_a_finished_run_is_reused_untouched(tmp_path: Path) -> None:
    def written() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    first = run(tmp_path)
    before, when = contents(tmp_path), written()
    again = run(tmp_path, resume=True, watch=lambda p: None)
    assert (contents(tmp_path), written()) == (before, when)
    assert again.record.rows == first.record.rows
    assert again.accuracy() == first.accuracy()
    to_host = (
        first.trial.program.engine.placement.to_host
    )  # idle slots are filled by a restored state, and do not matter
    assert to_bytes(to_host(again.state)) == to_bytes(to_host(first.state))


@pytest.mark.parametrize("settings", [{}, {"eval_every": 4}], ids=["plain", "sparse"])
def test_a_run_made_longer_equals_one_of_that_length(tmp_path: Path, settings: dict[str, Any]) -> None:
    """The shorter run's last round was evaluated (and pooled) only because it was the last; the longer has no such rows."""
    run(tmp_path / "long", rounds=6, **settings)
    run(tmp_path / "short", rounds=3, **settings)
    short = RunFolder(tmp_path / "short").rows("metrics.csv")
    assert (3, "personal", "pooled") in {row[:3] for row in short}
    result = run(tmp_path / "short", rounds=6, resume=True, **settings)
    assert kept(tmp_path / "short") == kept(tmp_path / "long")
    assert [row.round for row in result.record.rows if row[1:4] == ("personal", "own", "mean")] == (
        [1, 2, 3, 4, 5, 6] if not settings else [4, 6]
    )


def test_a_run_cannot_end_before_where_it_is(tmp_path: Path) -> None:
    run(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(
        fp.FedpriorError, match="at round 6 of 6 already and cannot end at rounds = 3; give more rounds"
    ):
        run(tmp_path, rounds=3, resume=True)
    assert contents(tmp_path) == before
    run(tmp_path / "stopped", **stop_after(3))
    with pytest.raises(fp.FedpriorError, match="at round 3 of 6"):  # the last round's own evaluation could not be had
        run(tmp_path / "stopped", rounds=3, resume=True)


@pytest.mark.parametrize("how", ["cut", "flipped", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path, once: dict[str, bytes], how: str) -> None:
    run(tmp_path, **stop_after(4))
    newest = tmp_path / "checkpoints" / "round-00000004.safetensors"
    whole = newest.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])  # one bit of a number: nothing but the checksum sees it
    newest.write_bytes({"cut": whole[: len(whole) // 2], "flipped": flipped, "empty": b""}[how])
    seen: list[int] = []
    result = run(tmp_path, resume=True, watch=lambda p: seen.append(p.round))
    assert seen == [3, 4, 5, 6]
    assert result.warnings == ["checkpoint round-00000004.safetensors is damaged; going on from round 3"]
    assert kept(tmp_path) == once


def test_without_any_whole_checkpoint_a_run_starts_anew(tmp_path: Path, once: dict[str, bytes]) -> None:
    run(tmp_path, **stop_after(4))
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(b"nonsense")
    assert len(run(tmp_path, resume=True).warnings) == 2
    assert kept(tmp_path) == once


def test_without_its_checkpoints_a_run_says_that_it_starts_anew(tmp_path: Path, once: dict[str, bytes]) -> None:
    run(tmp_path, **stop_after(4))
    shutil.rmtree(tmp_path / "checkpoints")
    assert run(tmp_path, resume=True).warnings == ["no checkpoint is left; beginning again from round 0"]
    assert kept(tmp_path) == once


@pytest.mark.parametrize(
    "tail", ["5,perso", "5,personal,own,mean,1", "\0\0\0\0\n", "\n", "junk,a,b,c,d,e\n", '5,"personal', b"\xff\xfe\n"]
)
def test_half_written_lines_are_cut(tmp_path: Path, once: dict[str, bytes], tail: str | bytes) -> None:
    run(tmp_path, **stop_after(4))
    for table in ("metrics.csv", "clients.csv", "times.csv"):
        with open(tmp_path / table, "ab") as file:
            file.write(tail if isinstance(tail, bytes) else tail.encode())
    run(tmp_path, resume=True)
    assert kept(tmp_path) == once
    assert [row.round for row in RunFolder(tmp_path).rows("times.csv")] == [1, 2, 3, 4, 5, 6]


def test_a_damaged_line_of_a_round_that_is_run_again_is_replaced(tmp_path: Path, once: dict[str, bytes]) -> None:
    run(tmp_path, **stop_after(4))
    (tmp_path / "checkpoints" / "round-00000004.safetensors").unlink()
    for table in ("metrics.csv", "clients.csv"):
        text = (tmp_path / table).read_text()
        assert text.count("\n4,") > 2
        (tmp_path / table).write_text(text.replace("\n4,personal", "\n4,impersonal"))
    run(tmp_path, resume=True)
    assert kept(tmp_path) == once


@pytest.mark.parametrize("table", ["metrics.csv", "clients.csv"])
@pytest.mark.parametrize("how", ["all", "one", "damaged", "head"])
def test_lost_rows_are_told(tmp_path: Path, table: str, how: str) -> None:
    """No run goes on with a hole in its records."""
    run(tmp_path, **stop_after(4))
    text = (tmp_path / table).read_text()
    lines = text.splitlines(keepends=True)
    second = [line for line in lines if line.startswith("2,")]
    hurt = {
        "all": "".join(line for line in lines if line not in second),
        "one": text.replace(second[-1], ""),
        "damaged": text.replace(second[-1], second[-1].replace("2,", "3,", 1)),  # only the checksum tells
        "head": text[1:],
    }[how]
    (t, line) = (1, ", line 1: its heading is lost") if how == "head" else (2, "")
    line = f", line {1 + lines.index(second[-1])}: its checksum is wrong" if how == "damaged" else line
    (tmp_path / table).write_text(hurt)
    before = contents(tmp_path)
    told = rf"{table}{line}.* rows of round {t} are lost; restore the file from a copy, or start anew \(--overwrite"
    with pytest.raises(fp.FedpriorError, match=told):
        run(tmp_path, resume=True)
    assert contents(tmp_path) == before  # so that it can be restored by hand


def test_what_is_damaged_and_not_needed_goes(tmp_path: Path, once: dict[str, bytes]) -> None:
    run(tmp_path)
    path = tmp_path / "metrics.csv"
    path.write_text(path.read_text() + "junk\n")
    with pytest.raises(fp.FedpriorError, match=r"metrics.csv, line \d+: its checksum is wrong; .*--resume"):
        RunFolder(tmp_path).record()
    (warning,) = run(tmp_path, resume=True).warnings
    assert "its checksum is wrong, which is not needed and goes" in warning
    assert kept(tmp_path) == once


def test_another_environment_warns_and_goes_on(tmp_path: Path, once: dict[str, bytes]) -> None:
    run(tmp_path, **stop_after(4))
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["environment"]["jaxlib"] = "0.0.1"
    path.write_text(json.dumps(config))
    result = run(tmp_path, resume=True)
    assert len(result.warnings) == 1
    assert result.warnings[0].startswith("resuming with another jaxlib: '0.0.1' then, ")
    assert (tmp_path / "metrics.csv").read_bytes() == once["metrics.csv"]


def test_other_settings_are_refused_untouched(tmp_path: Path) -> None:
    run(tmp_path, **stop_after(2))
    before = contents(tmp_path)
    with pytest.raises(fp.FedpriorError, match=r"a run of other settings \(seed: 0 then, 1 now\); use another --out"):
        run(tmp_path, 1, resume=True)
    variant = fp.Variant.of("meg", {"R": 2, "K": 2, "lam": 7}, name="meg R=2 K=2")
    other = Trial(Program(small_program(validation=0.2).task, variant), 0)
    with pytest.raises(fp.FedpriorError, match=r"variant\.settings\.lam: 15.0 then, 7.0 now"):
        run_trial(other, tmp_path, resume=True)
    with pytest.raises(
        fp.FedpriorError, match="already holds a run; --resume goes on with it, --overwrite replaces it"
    ):
        run(tmp_path)
    assert contents(tmp_path) == before


def test_overwriting_leaves_nothing_of_the_old_run(tmp_path: Path, once: dict[str, bytes]) -> None:
    run(tmp_path, rounds=6, eval_every=4)
    result = run(tmp_path, overwrite=True, **stop_after(1))
    assert {p.name for p in (tmp_path / "checkpoints").iterdir()} == {
        "best-00000001.safetensors",
        "round-00000001.safetensors",
    }
    assert {row.round for row in result.record.rows} == {1}
    run(tmp_path, resume=True)
    assert kept(tmp_path) == once


def test_a_kill_while_overwriting_leaves_no_states_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: dict[str, bytes]
) -> None:
    """Whichever file was the last to be replaced, no run goes on from a state of another."""

    class Killed(BaseException):
        pass

    for count in (1, 2, 3, 4):
        folder, met = tmp_path / str(count), 0
        run(folder, rounds=6, eval_every=4)

        def moment(where: str, path: Path, count: int = count) -> None:
            nonlocal met
            met += 1
            if met == count:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(files, "moment", moment)
            with pytest.raises(Killed):
                run(folder, overwrite=True)
        assert not list((folder / "checkpoints").glob("*"))
        run(folder, overwrite=True)
        assert kept(folder) == once


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("append", "clients.csv"),
        ("fsync", "metrics.csv"),
        ("checkpoint", "round-00000003.safetensors"),
        ("rename", "round-00000003.safetensors"),
    ],
)
def test_a_full_disk_is_told_and_the_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: dict[str, bytes], where: str, named: str
) -> None:
    full = False

    def watch(progress: Any) -> None:
        nonlocal full
        full = progress.round == 2

    def until_full(real: Callable[..., Any], error: Exception = FULL) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if full:
                raise error
            return real(*args, **kwargs)

        return call

    def half(name: Any, mode: str = "r", **options: Any) -> Any:
        file = open(name, mode, **options)  # noqa: SIM115
        if full and mode == "a":
            file.write("3,personal,ow")
            file.close()
            raise FULL
        return file

    with monkeypatch.context() as patched:
        if where == "append":
            patched.setattr(runs, "open", half, raising=False)
        elif where == "checkpoint":
            error = safetensors.SafetensorError("I/O error: No space left on device (os error 28)")
            patched.setattr(safetensors.numpy, "save_file", until_full(safetensors.numpy.save_file, error))
        else:
            name = {"fsync": "fsync", "rename": "replace"}[where]
            patched.setattr(os, name, until_full(getattr(os, name)))
        with pytest.raises(fp.FedpriorError, match=f"cannot write .*{named}: .*No space left.*; free some space or"):
            run(tmp_path, watch=watch)
    assert not list(tmp_path.rglob("*.tmp"))
    run(tmp_path, resume=True)
    assert kept(tmp_path) == once


def test_a_state_moves_between_one_device_and_two() -> None:
    problem, data = blobs()
    engines = [
        engine_of(problem, make("mh", R=2, K=2), data, batch_size=8, aggregated=3, devices=jax.devices()[:devices])
        for devices in (1, 2)
    ]
    reference = to_bytes(engines[0].placement.to_host(rounds(engines[0], 4)))
    for first, second in (engines, engines[::-1]):
        state = first.placement.to_host(rounds(first, 2))
        moved = second.placement.from_host(unpack(pack(state), second.host_template()))
        for _ in range(2):
            moved, _ = second.step(moved)
        assert to_bytes(second.placement.to_host(moved)) == reference


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ({"rounds": 2}, {"rounds": 3}),
        ({"budget.gradients": 20}, {"budget.gradients": 30}),
        ({"rounds": 2}, {}),
    ],
)
def test_a_row_whose_length_is_its_own_is_made_longer_too(
    tmp_path: Path, short: dict[str, Any], long: dict[str, Any]
) -> None:
    def study(own: dict[str, Any]) -> fp.Study:
        task = small_task(rounds=3, pooled="never")
        return fp.Study(task, {"short": {"method": "fedavg", "R": 10, **own}}, local=False)

    (first,) = study(short).run(tmp_path / "both").runs
    (resumed,) = study(long).run(tmp_path / "both", resume=True).runs
    study(long).run(tmp_path / "once")
    assert (first.record.round, resumed.record.round) == (2, 3)
    files = [kept(tmp_path / out / "arrays" / "short" / "0") for out in ("both", "once")]
    assert files[0].pop("checkpoints/round-00000002.safetensors")  # the last state of the shorter run
    assert files[0] == files[1]
    with pytest.raises(fp.FedpriorError, match=r"budget"):
        study({"budget.megabytes": 1.0}).run(tmp_path / "both", resume=True)

"""A run that was stopped, killed, moved or lengthened ends with the bytes of one that was not."""

from __future__ import annotations

import errno
import functools
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import kill_run
import numpy as np
import pytest
import safetensors
from kill_run import Blow
from program import contents
from toys import SIZES, blobs, rounds

import fedprior as fp
from fedprior import records
from fedprior.engine import Engine
from fedprior.methods import make
from fedprior.records import RunFolder, pack, to_bytes, unpack
from fedprior.run import Trial

# -- processes that are killed -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `kill_run`, left alone."""
    out = tmp_path_factory.mktemp("alone")
    done = kill_run.start(out)
    assert done.returncode == 0, done.stderr
    return out


SLOW = pytest.mark.slow


@pytest.mark.parametrize("how", ["torn", pytest.param("renamed", marks=SLOW), pytest.param("anytime", marks=SLOW)])
def test_a_killed_run_resumes_to_the_same_bytes(alone: Path, tmp_path: Path, how: str) -> None:
    blow = {
        "torn": Blow("written", 5, torn=True),
        "renamed": Blow("renamed", 7),
        "anytime": Blow("delay", delay=random.uniform(0, kill_run.duration(alone))),
    }[how]
    killed = kill_run.start(tmp_path, blow)
    assert killed.returncode == -signal.SIGKILL or how == "anytime"
    if how != "anytime":
        left = kill_run.checkpoints(tmp_path)
        assert left[-1] == ("round-00000005.safetensors.tmp" if how == "torn" else "round-00000007.safetensors")
    resumed = kill_run.start(tmp_path, resume=True)
    assert resumed.returncode == 0, resumed.stderr
    assert kill_run.outcome(tmp_path) == kill_run.outcome(alone), str(blow)
    assert len(kill_run.checkpoints(tmp_path)) == records.KEPT


@SLOW
def test_ctrl_c_ends_the_round_and_says_how_to_go_on(alone: Path, tmp_path: Path) -> None:
    stopped = kill_run.start(tmp_path, Blow("renamed", 4, signals=(int(signal.SIGINT),)))
    assert stopped.returncode == 130
    assert "--resume" in stopped.stderr.splitlines()[-1]
    assert "Traceback" not in stopped.stderr
    assert RunFolder(kill_run.folder(tmp_path)).status == {"status": "stopped", "round": 5}
    assert kill_run.start(tmp_path, resume=True).returncode == 0
    assert kill_run.outcome(tmp_path) == kill_run.outcome(alone)


# -- within this process -----------------------------------------------------------------------------------------------


@functools.cache
def trial(length: int, **settings: Any) -> Trial:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 120)
    x = (np.eye(3)[y] + rng.normal(size=(120, 3))).astype(np.float32)
    task = fp.task_from_arrays(
        x,
        y,
        np.arange(120) % 5,
        lambda key: eqx.nn.Linear(3, 3, key=key),
        rounds=length,
        aggregated=2,
        batch=8,
        **settings,
    )
    return Trial(task, make("meg", R=2, K=2), "meg")


def run(folder: Path, length: int = 6, **options: Any) -> fp.Result:
    settings = {key: options.pop(key) for key in ("eval_every", "validation") if key in options}
    return trial(length, **settings).run(0, folder, checkpoint_seconds=0, **options)


def kept(folder: Path) -> dict[str, bytes]:
    """All of a run but its times."""
    return {name: content for name, content in contents(folder).items() if name != "times.csv"}


def after(n: int) -> dict[str, Callable[..., Any]]:
    """Options that stop a run after round n."""
    seen: list[int] = []
    return {"watch": lambda p: seen.append(p.round), "should_stop": lambda: seen[-1] == n - 1}


def test_stopping_after_every_round_changes_nothing(tmp_path: Path) -> None:
    run(tmp_path / "once")
    for n in range(1, 6):
        result = run(tmp_path / "often", resume=True, **after(n))
        assert (result.finished, int(result.state.round)) == (False, n)
    result = run(tmp_path / "often", resume=True)
    assert result.finished
    assert kept(tmp_path / "often") == kept(tmp_path / "once")
    assert sorted(p.name for p in (tmp_path / "once" / "checkpoints").iterdir()) == [
        "round-00000005.safetensors",
        "round-00000006.safetensors",
    ]
    times = RunFolder(tmp_path / "often").rows("times.csv")
    assert [row["round"] for row in times] == ["1", "2", "3", "4", "5", "6"]


def test_a_finished_run_is_reused_untouched(tmp_path: Path) -> None:
    first = run(tmp_path)
    before = contents(tmp_path)
    again = run(tmp_path, resume=True, watch=lambda p: None)
    assert contents(tmp_path) == before
    assert again.rows == first.rows
    assert again.accuracy() == first.accuracy()


@pytest.mark.parametrize("settings", [{}, {"eval_every": 4, "validation": 0.2}], ids=["plain", "sparse"])
def test_a_run_made_longer_equals_one_of_that_length(tmp_path: Path, settings: dict[str, Any]) -> None:
    """The shorter run's last round was evaluated (and pooled) only because it was the last; the longer has no such rows."""
    run(tmp_path / "long", 6, **settings)
    run(tmp_path / "short", 3, **settings)
    short = RunFolder(tmp_path / "short").rows("metrics.csv")
    assert ("3", "personal", "pooled") in {(r["round"], r["model"], r["data"]) for r in short}
    result = run(tmp_path / "short", 6, resume=True, **settings)
    assert kept(tmp_path / "short") == kept(tmp_path / "long")
    assert [row[0] for row in result.rows if row[1:] and row[2:4] == ("own", "mean") and row[1] == "personal"] == (
        [1, 2, 3, 4, 5, 6] if not settings else [4, 6]
    )


def test_a_run_cannot_end_before_where_it_is(tmp_path: Path) -> None:
    run(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(
        fp.FedpriorError, match="at round 6 of 6 already and cannot end at rounds = 3; give more rounds"
    ):
        run(tmp_path, 3, resume=True)
    assert contents(tmp_path) == before
    run(tmp_path / "stopped", **after(3))
    with pytest.raises(fp.FedpriorError, match="at round 3 of 6"):  # the last round's own evaluation could not be had
        run(tmp_path / "stopped", 3, resume=True)


@pytest.mark.parametrize("how", ["cut", "flipped", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path, how: str) -> None:
    run(tmp_path / "once")
    run(tmp_path / "hurt", **after(4))
    newest = tmp_path / "hurt" / "checkpoints" / "round-00000004.safetensors"
    whole = newest.read_bytes()
    flipped = whole[:-1] + bytes([whole[-1] ^ 1])  # one bit of a number: nothing but the checksum sees it
    newest.write_bytes({"cut": whole[: len(whole) // 2], "flipped": flipped, "empty": b""}[how])
    seen: list[int] = []
    result = run(tmp_path / "hurt", resume=True, watch=lambda p: seen.append(p.round))
    assert seen == [3, 4, 5, 6]
    assert result.warnings == ["checkpoint round-00000004.safetensors is damaged; going on from round 3"]
    assert kept(tmp_path / "hurt") == kept(tmp_path / "once")


def test_without_any_whole_checkpoint_a_run_starts_anew(tmp_path: Path) -> None:
    run(tmp_path / "once")
    run(tmp_path / "hurt", **after(4))
    for path in (tmp_path / "hurt" / "checkpoints").iterdir():
        path.write_bytes(b"nonsense")
    assert len(run(tmp_path / "hurt", resume=True).warnings) == 2
    assert kept(tmp_path / "hurt") == kept(tmp_path / "once")


@pytest.mark.parametrize("tail", ["5,perso", "5,personal,own,mean,1", "\x00\x00\x00\x00\n", "\n", "junk,a,b,c,d,e\n"])
def test_half_written_lines_are_cut(tmp_path: Path, tail: str) -> None:
    run(tmp_path / "once")
    run(tmp_path / "hurt", **after(4))
    for table in ("metrics.csv", "clients.csv"):
        with open(tmp_path / "hurt" / table, "a") as file:
            file.write(tail)
    run(tmp_path / "hurt", resume=True)
    assert kept(tmp_path / "hurt") == kept(tmp_path / "once")


def test_lost_rows_are_told(tmp_path: Path) -> None:
    run(tmp_path, **after(4))
    lines = (tmp_path / "metrics.csv").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.csv").write_text("".join(line for line in lines if not line.startswith("2,")))
    with pytest.raises(fp.FedpriorError, match=r"metrics\.csv has lost round 2; start anew with --overwrite"):
        run(tmp_path, resume=True)


def test_another_environment_warns_and_goes_on(tmp_path: Path) -> None:
    run(tmp_path / "once")
    run(tmp_path / "moved", **after(4))
    path = tmp_path / "moved" / "config.json"
    config = json.loads(path.read_text())
    config["environment"]["jaxlib"] = "0.0.1"
    path.write_text(json.dumps(config))
    result = run(tmp_path / "moved", resume=True)
    assert len(result.warnings) == 1
    assert result.warnings[0].startswith("resuming with another jaxlib: '0.0.1' then, ")
    assert (tmp_path / "moved" / "metrics.csv").read_bytes() == (tmp_path / "once" / "metrics.csv").read_bytes()


def test_other_settings_are_refused_untouched(tmp_path: Path) -> None:
    run(tmp_path, **after(2))
    before = contents(tmp_path)
    with pytest.raises(fp.FedpriorError, match=r"a run of other settings \(seed: 0 then, 1 now\); use another --out"):
        trial(6).run(1, tmp_path, resume=True)
    other = Trial(trial(6).task, make("meg", R=2, K=2, lam=7), "meg")
    with pytest.raises(fp.FedpriorError, match=r"settings.lam: 15.0 then, 7.0 now"):
        other.run(0, tmp_path, resume=True)
    with pytest.raises(
        fp.FedpriorError, match="already holds a run; --resume goes on with it, --overwrite replaces it"
    ):
        run(tmp_path)
    assert contents(tmp_path) == before


def test_overwriting_leaves_nothing_of_the_old_run(tmp_path: Path) -> None:
    run(tmp_path / "once")
    run(tmp_path / "old", 6, eval_every=4, validation=0.2)
    result = run(tmp_path / "old", overwrite=True, **after(1))
    assert [p.name for p in (tmp_path / "old" / "checkpoints").iterdir()] == ["round-00000001.safetensors"]
    assert {row[0] for row in result.rows} == {1}
    run(tmp_path / "old", resume=True)
    assert kept(tmp_path / "old") == kept(tmp_path / "once")


def test_a_kill_while_overwriting_leaves_no_states_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever file was the last to be replaced, no run goes on from a state of another."""

    class Killed(BaseException):
        pass

    run(tmp_path / "once")
    for count in (1, 2, 3, 4):
        folder, met = tmp_path / str(count), 0
        run(folder, 6, eval_every=4, validation=0.2)

        def moment(where: str, path: Path, count: int = count) -> None:
            nonlocal met
            met += 1
            if met == count:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(records, "_moment", moment)
            with pytest.raises(Killed):
                run(folder, overwrite=True)
        assert not list((folder / "checkpoints").glob("*"))
        run(folder, overwrite=True)
        assert kept(folder) == kept(tmp_path / "once")


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("append", "metrics.csv"),
        ("fsync", "metrics.csv"),
        ("checkpoint", "round-00000003.safetensors"),
        ("rename", "round-00000003.safetensors"),
    ],
)
def test_a_full_disk_is_told_and_the_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, named: str
) -> None:
    run(tmp_path / "once")
    folder, full = tmp_path / "full", False

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
            patched.setattr(records, "open", half, raising=False)
        elif where == "checkpoint":
            error = safetensors.SafetensorError("I/O error: No space left on device (os error 28)")
            patched.setattr(safetensors.numpy, "save_file", until_full(safetensors.numpy.save_file, error))
        else:
            name = {"fsync": "fsync", "rename": "replace"}[where]
            patched.setattr(os, name, until_full(getattr(os, name)))
        with pytest.raises(fp.FedpriorError, match=f"cannot write .*{named}: .*No space left.*; free some space or"):
            run(folder, watch=watch)
    assert not list(folder.rglob("*.tmp"))
    run(folder, resume=True)
    assert kept(folder) == kept(tmp_path / "once")


def test_a_state_moves_between_one_device_and_two() -> None:
    problem, data = blobs()
    n = len(SIZES)
    engines = [
        Engine(problem, make("mh", R=2, K=2), data, batch_size=8, aggregated=3, devices=jax.devices()[:devices])
        for devices in (1, 2)
    ]
    reference = to_bytes(rounds(engines[0], 4), n)
    for first, second in (engines, engines[::-1]):
        state = rounds(first, 2)
        moved = unpack(pack(state, n), second.init(5), n)
        for _ in range(2):
            moved, _ = second.step(moved)
        assert to_bytes(moved, n) == reference

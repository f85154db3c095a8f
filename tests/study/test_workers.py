"""Cells in other processes: what travels, and that one that crashes loses no other."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from program import fedprior, kept, timeless

import fedprior as fp
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Row, Status
from fedprior.study import workers
from fedprior.study.cells import Cell, job_of
from fedprior.study.results import Results
from fedprior.study.trial import Progress
from fedprior.study.workers import Pool, work
from study.small import small_task

pytestmark = pytest.mark.xdist_group("workers")  # its fixture runs: once is enough

SETTINGS: dict[str, Any] = {
    "partition.clients": 4,
    **{"aggregated": 2, "rounds": 3, "pooled": "never", "metrics": [], "R": 1},
}
OPTIONS = {"resume": False, "overwrite": False, "checkpoint_seconds": 0.0}


def study(rows: Any = ("local", "fedavg"), seeds: int = 2, **more: Any) -> fp.Study:
    return fp.Study("digits-mclr", list(rows), local=False, seeds=seeds, **{**SETTINGS, **more})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """The study without an executor."""
    out = tmp_path_factory.mktemp("alone")
    return out, study().run(out, checkpoint_seconds=0)


def echo(job: dict[str, Any]) -> dict[str, Any]:
    """In another process: what it is."""
    import jax

    if job.get("end"):
        os._exit(3)
    return {
        "pid": os.getpid(),
        "devices": jax.config.values["jax_num_cpu_devices"],
        "flags": os.environ.get("XLA_FLAGS", ""),
    }


class Inside(Executor):
    """Runs every job at once in this process; ``broken`` says what becomes of some of them."""

    def __init__(self, broken: dict[int, Exception] | None = None):
        self.broken, self.count = broken or {}, 0

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        error = self.broken.get(self.count)
        self.count += 1
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(json.loads(json.dumps(fn(*arguments, **options))))
        return future


# -- what travels ------------------------------------------------------------------------------------------------------


def test_a_worker_takes_and_returns_plain_data(alone: tuple[Path, Results], tmp_path: Path) -> None:
    cell = study().cells(tmp_path)[2]
    job = json.loads(json.dumps(job_of(cell, OPTIONS)))
    outcome = work(job)
    assert json.loads(json.dumps(outcome)) == outcome == {"status": "finished", "message": "", "warnings": []}
    mine = Path("digits-mclr") / "fedavg" / "0"
    assert kept(tmp_path / mine) == kept(alone[0] / mine)
    again = work(job)
    assert again["status"] == "failed"
    assert "already holds a run; --resume goes on with it" in again["message"]


def test_any_executor_gives_the_same_records(alone: tuple[Path, Results], tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    rows: dict[str, list[Row]] = {}

    def watch(cell: Cell, progress: Progress | None) -> None:
        assert progress is not None
        seen.append((cell.variant, cell.seed, progress.round))
        rows.setdefault(str(cell.folder), []).extend(progress.rows)

    with ThreadPoolExecutor(1) as executor:
        results = study().run(tmp_path, executor=executor, watch=watch, checkpoint_seconds=0)
    assert kept(tmp_path) == kept(alone[0])
    assert seen == [(name, seed, 3) for name in ("local", "fedavg") for seed in (0, 1)]
    assert rows == {record.where: list(record.rows) for record in results.records}
    assert [record.where for record in results.records] == [
        str(tmp_path / "digits-mclr" / name / str(seed)) for name in ("local", "fedavg") for seed in (0, 1)
    ]
    assert timeless(results.summary()) == timeless(alone[1].summary())


@pytest.mark.parametrize(
    ("error", "message"),
    [(BrokenExecutor("gone"), "its process ended"), (MemoryError("too much"), "it failed with MemoryError: too much")],
)
def test_a_crashed_cell_loses_no_other(
    alone: tuple[Path, Results], tmp_path: Path, error: Exception, message: str
) -> None:
    failed: list[Cell] = []

    def watch(cell: Cell, progress: Progress | None) -> None:
        if progress is None:
            failed.append(cell)

    results = study().run(tmp_path, executor=Inside({1: error}), watch=watch, checkpoint_seconds=0)
    assert [(cell.variant, cell.seed) for cell in failed] == [("local", 1)]
    folder = tmp_path / "digits-mclr" / "local" / "1"
    assert (results.failed, results.diverged) == ([f"local: {message} (seed 1; records kept in {folder})"], [])
    assert [(record.variant, record.seed) for record in results.records] == [("local", 0), ("fedavg", 0), ("fedavg", 1)]
    new: list[tuple[str, int]] = []

    def note(cell: Cell, progress: Progress | None) -> None:
        new.extend([(cell.variant, cell.seed)] * bool(progress and progress.rows))

    again = study().run(tmp_path, executor=Inside(), resume=True, checkpoint_seconds=0, watch=note)
    assert (len(again), again.lost) == (4, [])
    assert new == [("local", 1)]  # the others were done
    assert kept(tmp_path) == kept(alone[0])


def test_a_cell_that_diverges_loses_no_other(tmp_path: Path) -> None:
    results = study(["fedavg:alpha=1e38", "local"], 1).run(tmp_path, executor=Inside())
    assert [record.variant for record in results.records] == ["local"]
    folder = tmp_path / "digits-mclr" / "fedavg alpha=1e+38" / "0"
    (text,) = results.diverged
    assert (results.failed, results.lost[0].row) == ([], "fedavg alpha=1e+38")
    assert text.startswith(
        "fedavg alpha=1e+38 diverged in round 1: its numbers are no longer finite; try a smaller alpha"
    )
    assert text.endswith(f"(seed 0; records kept in {folder})")


def test_what_cannot_travel_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(fp.FedpriorError, match="was made from arrays, which no other process has"):
        fp.Study(small_task(), ["local"]).run(tmp_path, executor=Inside())
    with pytest.raises(fp.FedpriorError, match="need a folder for their records; give out="):
        study().run(executor=Inside())
    assert list(tmp_path.iterdir()) == []


def test_stopping_cancels_what_has_not_begun(tmp_path: Path) -> None:
    class Waiting(Executor):
        def submit(self, fn: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
            return Future()

    results = study().run(tmp_path, executor=Waiting(), should_stop=lambda: True)
    assert (len(results), results.diverged) == (0, [])


# -- processes ---------------------------------------------------------------------------------------------------------


def test_a_pool_shares_out_the_cores_and_replaces_a_process_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "8")
    monkeypatch.setattr(workers, "cores", lambda: 6)
    with Pool(1) as pool:
        first, second = (pool.submit(echo, {}).result() for _ in range(2))
        assert first == second == {"pid": first["pid"], "devices": 6, "flags": ""}
        assert first["pid"] != os.getpid()
        with pytest.raises(BrokenExecutor):
            pool.submit(echo, {"end": True}).result()
        assert pool.submit(echo, {}).result()["pid"] != first["pid"]
    assert Pool(4)._share == 1
    assert not multiprocessing.active_children()


def last(seconds: float) -> dict[str, Any]:
    """In another process: how it takes a request to end, and much patience."""
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(seconds)
    return {"is": "alive"}


def test_workers_leave_it_to_the_parent_to_end() -> None:
    with Pool(1) as pool:
        assert pool.submit(last, 0.0).result() == {"is": "alive"}


def test_a_second_interrupt_ends_the_processes_at_once() -> None:
    begun = time.monotonic()

    def interrupted() -> None:
        with Pool(1) as pool:
            future = pool.submit(last, 600.0)
            while not (pool._processes and pool._processes[0]._processes):
                time.sleep(0.05)
            assert not future.done()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - begun < 60
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_two_processes_give_the_same_records(alone: tuple[Path, Results], tmp_path: Path) -> None:
    seen: dict[tuple[str, int], list[int]] = {}
    rows: dict[str, list[Row]] = {}

    def watch(cell: Cell, progress: Progress | None) -> None:
        assert progress is not None
        seen.setdefault((cell.variant, cell.seed), []).append(progress.round)
        rows.setdefault(str(cell.folder), []).extend(progress.rows)

    with Pool(2) as pool:
        results = study().run(tmp_path, executor=pool, watch=watch, checkpoint_seconds=0)
    assert kept(tmp_path) == kept(alone[0])
    assert timeless(results.summary()) == timeless(alone[1].summary())
    assert len(seen) == 4
    assert rows == {record.where: list(record.rows) for record in results.records}
    assert all(rounds[-1] == 3 and rounds == sorted(rounds) for rounds in seen.values())


@pytest.mark.slow
def test_a_killed_process_loses_one_cell(alone: tuple[Path, Results], tmp_path: Path) -> None:
    killed: list[int] = []
    with Pool(2) as pool:

        def watch(cell: Cell, progress: Progress | None) -> None:
            if progress is not None and progress.round == 2 and not killed:
                killed.extend(pool._processes[0]._processes)
                os.kill(killed[0], signal.SIGKILL)

        results = study(rounds=200, seeds=2).run(tmp_path, executor=pool, watch=watch, checkpoint_seconds=0)
    assert len(results) == 3
    assert results.diverged == []
    (text,) = results.failed
    assert "its process ended" in text
    again = study(rounds=200, seeds=2).run(tmp_path, resume=True, checkpoint_seconds=0)
    assert (len(again), again.lost) == (4, [])
    study(rounds=200, seeds=2).run(tmp_path / "alone", checkpoint_seconds=0)
    assert kept(tmp_path / "digits-mclr") == kept(tmp_path / "alone" / "digits-mclr")


@pytest.mark.slow
def test_processes_are_asked_to_stop(tmp_path: Path) -> None:
    begun: list[str] = []

    def watch(cell: Cell, progress: Progress | None) -> None:
        begun.append(cell.variant)

    with Pool(2) as pool:
        results = study(rounds=2000).run(
            tmp_path, executor=pool, watch=watch, should_stop=lambda: len(begun) > 3, checkpoint_seconds=0
        )
    assert len(results) < 4
    assert {record.status for record in results.records} == {Status.STOPPED}
    for record in results.records:
        assert RunFolder(Path(record.where)).status == (Status.STOPPED, record.round)


@pytest.mark.slow
def test_the_command_line_shares_out_the_cores(alone: tuple[Path, Results], tmp_path: Path) -> None:
    given = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    done = fedprior(
        *("run", "digits-mclr", "-m", "local", "-m", "fedavg", "--seeds", 2, *given, "--workers", 2),
        *("--checkpoint-seconds", 0, "--out", tmp_path),
    )
    assert done.code == 0, done.err
    assert "4 of 4 done" in done.err  # which of two processes ends last is not known
    records = {name: c for name, c in kept(tmp_path).items() if not name.endswith((".png", "summary.json"))}
    assert records == kept(alone[0])

"""Cells in other processes: what a worker does, a pool of workers on this machine, and waiting for all of them.

This file imports nothing heavy, so that a new process can settle its share of the cores before JAX starts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprior.core import cores
from fedprior.errors import FedpriorError, first_line

if TYPE_CHECKING:
    from fedprior.study.cells import Cell
    from fedprior.study.program import Program
    from fedprior.study.results import Results

_asked: Any = None  # in a worker of this machine: whether all should stop
_reports: Any = None  # in a worker of this machine: where progress goes


class Pool(ThreadPoolExecutor):
    """Worker processes that share out the cores of this machine, report their progress and can be asked to stop.

    Each thread of the pool has a process of its own, so that a process that crashes takes one cell with it and no other.
    """

    def __init__(self, workers: int):
        super().__init__(workers)
        self._share = max(1, cores() // workers)
        self._context = multiprocessing.get_context("spawn")
        self._asked = self._context.RawValue("b", 0)  # without a lock, which a killed process could keep
        self._own = threading.local()
        self._processes: list[ProcessPoolExecutor] = []
        self._reports: list[Any] = []  # a queue for each process, since a queue has a lock as well

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Call a function in a process."""
        return super().submit(self._call, fn, *arguments, **options)

    def _call(self, fn: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if getattr(self._own, "process", None) is None:
            reports = self._context.Queue()
            given = (self._share, self._asked, reports)
            self._own.process = ProcessPoolExecutor(1, self._context, _prepare, given)
            self._processes.append(self._own.process)
            self._reports.append(reports)
        try:
            return self._own.process.submit(fn, *arguments, **options).result()
        except BrokenExecutor:
            self._own.process = None  # the next cell gets a new one
            raise

    def ask_to_stop(self) -> None:
        """Let every cell end after the round at hand."""
        self._asked.value = 1

    def drain_reports(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """The progress since the last call: the folder of a cell, and what its watcher is told."""
        for reports in list(self._reports):
            with contextlib.suppress(queue.Empty):
                while True:
                    yield reports.get_nowait()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads and their processes."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        for process in self._processes:
            process.shutdown(wait, cancel_futures=cancel_futures)

    def end(self) -> None:
        """End the processes at once; what their cells have not kept since their newest checkpoints is lost."""
        self.ask_to_stop()  # a process that is only now being made
        super().shutdown(wait=False, cancel_futures=True)
        for executor in self._processes:
            for process in list((executor._processes or {}).values()):
                process.kill()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.end()
        elif kind is not None:  # nobody waits for the cells any more
            self.ask_to_stop()
        self.shutdown(cancel_futures=kind is not None)


def _prepare(share: int, asked: Any, reports: Any) -> None:
    """In a new worker: take a share of the cores; Ctrl-C and requests to end are the parent's to handle."""
    global _asked, _reports
    for number in (signal.SIGINT, signal.SIGTERM):  # both may be sent to a whole group of processes
        signal.signal(number, signal.SIG_IGN)
    _asked, _reports = asked, reports
    reports.cancel_join_thread()  # a worker may end though nobody reads what it reported
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    os.environ["JAX_NUM_CPU_DEVICES"] = str(share)
    if "jax" in sys.modules:  # imported by the user's own program
        import jax

        with contextlib.suppress(RuntimeError):  # it has started already
            jax.config.update("jax_num_cpu_devices", share)


def work(job: dict[str, Any]) -> dict[str, Any]:
    """Build and run one cell from plain data; what comes back is plain data too."""
    from fedprior.study.recorder import run_trial
    from fedprior.study.trial import Diverged, Progress, Trial

    def watch(progress: Progress) -> None:
        if _reports is not None:
            _reports.put((job["folder"], tuple(progress)))

    try:
        trial = Trial(_program(json.dumps(job["task"]), json.dumps(job["variant"])), job["seed"])
        result = run_trial(
            trial,
            Path(job["folder"]),
            watch=watch,
            should_stop=lambda: _asked is not None and bool(_asked.value),
            **job["options"],
        )
    except Diverged as error:
        return {"status": "diverged", "message": str(error), "warnings": []}
    except FedpriorError as error:
        return {"status": "failed", "message": str(error), "warnings": []}
    return {"status": result.record.status.value, "message": "", "warnings": result.warnings}


@functools.lru_cache(maxsize=2)
def _program(task: str, variant: str) -> Program:
    """The program of a cell, from JSON; the seeds that a worker runs one after the other share it."""
    from fedprior.study.program import Program
    from fedprior.study.settings import read
    from fedprior.study.task import open_task
    from fedprior.study.variant import Variant

    return Program(open_task(read(json.loads(task))), Variant(**json.loads(variant)))


def run_jobs(
    executor: Executor,
    cells: Sequence[Cell],
    jobs: Sequence[dict[str, Any]],
    results: Results,
    watch: Callable[[Cell, Any], None],
    warn: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> None:
    """Run all jobs and gather their records; a cell that diverges, fails or crashes loses no other."""
    from fedprior.records.runs import RunFolder
    from fedprior.study.recorder import last_accuracy
    from fedprior.study.results import Lost
    from fedprior.study.trial import Progress

    by_folder = {job["folder"]: cell for cell, job in zip(cells, jobs, strict=True)}
    told = {job["folder"]: _recorded(job) for job in jobs}  # the last round of which the watcher has the rows
    waiting: dict[Future[dict[str, Any]], Cell] = {
        executor.submit(work, job): cell for cell, job in zip(cells, jobs, strict=True)
    }
    while waiting:
        done, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
        if isinstance(executor, Pool):
            for folder, progress in executor.drain_reports():
                if folder in by_folder:
                    watch(by_folder[folder], latest := Progress(*progress))
                    told[folder] = latest.round
        if should_stop():
            if isinstance(executor, Pool):
                executor.ask_to_stop()
            waiting = {future: cell for future, cell in waiting.items() if not future.cancel()}
        for future in done & waiting.keys():
            cell = waiting.pop(future)
            by_folder.pop(str(cell.folder))
            outcome = _outcome(future)
            for text in outcome["warnings"]:
                warn(f"{cell.variant}, seed {cell.seed}: {text}")
            if (how := outcome["status"]) in ("diverged", "failed"):
                whose = f"{cell.variant}: " if how == "failed" else ""
                kept = f"seed {cell.seed}; records kept in {cell.folder}"
                results.lost.append(Lost(cell.task, cell.variant, how, f"{whose}{outcome['message']} ({kept})"))
                watch(cell, None)
            elif cell.folder is not None:
                results.records.append(record := RunFolder(cell.folder).record())
                rest = tuple(row for row in record.rows if row.round > told[str(cell.folder)])
                watch(cell, Progress(record.round, cell.trial.program.rounds, last_accuracy(record.rows), 0.0, rest))
    order = {str(cell.folder): k for k, cell in enumerate(cells)}
    results.records.sort(key=lambda record: order.get(record.where, -1))  # what was reused comes first, as it did


def _recorded(job: dict[str, Any]) -> int:
    """The round up to which a cell was recorded before it goes on."""
    from fedprior.records.runs import RunFolder

    run = RunFolder(Path(job["folder"]))
    return run.status[1] if run.exists and job["options"]["resume"] else 0


def _outcome(future: Future[dict[str, Any]]) -> dict[str, Any]:
    """What a worker returned, or what kept it from returning anything."""
    crash = future.exception()
    if crash is None:
        return future.result()
    how = "its process ended" if isinstance(crash, BrokenExecutor) else f"it failed with {first_line(crash)}"
    return {"status": "failed", "message": how, "warnings": []}

"""A page of runs that are still at work: read again what has changed, and nothing else."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedprior.analysis.grouping import is_cell
from fedprior.errors import FedpriorError
from fedprior.records.lock import holder
from fedprior.records.runs import FILES, RunFolder, find_runs
from fedprior.records.schema import RunRecord
from fedprior.records.standing import standing
from fedprior.report.page.blocks import Reading
from fedprior.report.page.blocks import reading as reading
from fedprior.report.page.gather import Gathered, TaskNumbers, gather
from fedprior.report.page.page import page
from fedprior.report.page.sweeps import Swept
from fedprior.report.words import counted

Signature = tuple[tuple[str, int, int], ...]
PAUSE = 0.5  # seconds between two looks at the folders
BUSY = 3.0  # times what a page takes to make are between two of them


class Watched:
    """The runs at or below some folders, and their page as of now; may be asked from several threads."""

    def __init__(
        self,
        folders: Iterable[Path],
        *,
        order: Sequence[str] = (),
        partition: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.folders = [Path(folder) for folder in folders]
        for folder in self.folders:
            if not folder.is_dir() and (folder.exists() or not folder.absolute().parent.is_dir()):
                raise FedpriorError(
                    f"{folder} is no folder, and none will be made there; give one in which runs are, or will be"
                )
        self.order, self.partition, self._clock = tuple(order), partition, clock
        self._runs: dict[Path, tuple[Signature, RunRecord | str]] = {}
        self._readings: dict[str, tuple[RunRecord, Reading]] = {}  # of the same record, by where it is
        self._lock = threading.Lock()
        self._looked, self._made, self._took = -1e9, -1e9, 0.0
        self._seen, self._version, self._page = "", "", ""

    def page(self) -> tuple[str, str]:
        """The version of the page, and the page."""
        with self._lock:
            self._look()
            return self._version, self._page

    def version(self) -> str:
        """The version of the page, which changes as runs go on."""
        return self.page()[0]

    def _look(self) -> None:
        """See what has changed, unless that was just done; while a page takes long to make, it is not made all the time."""
        now = self._clock()
        if self._version and (now - self._looked < PAUSE or now - self._made < BUSY * self._took):
            return
        runs = {run.path: run for folder in self.folders for run in find_runs(folder)}
        signatures = {path: _signature(run) for path, run in runs.items()}
        self._looked = now
        seen = hashlib.sha256(repr(sorted((str(path), s) for path, s in signatures.items())).encode()).hexdigest()
        if seen == self._seen and self._version:
            return
        for path, run in runs.items():
            if path not in self._runs or self._runs[path][0] != signatures[path]:
                self._runs[path] = signatures[path], _read(run)
        self._runs = {path: self._runs[path] for path in runs}
        self._readings = {where: self._readings[where] for where in map(str, runs) if where in self._readings}
        self._page = page(self._gather(), live=seen[:16])
        self._seen, self._version = seen, seen[:16]  # now that the page is made
        self._made, self._took = self._clock(), self._clock() - now

    def _gather(self) -> Gathered:
        records = [record for _, record in self._runs.values() if isinstance(record, RunRecord)]
        problems = [record for _, record in self._runs.values() if isinstance(record, str)]
        standing = [_standing(records)] if records else ["There are no runs yet; the page shows them as they come."]
        together: dict[tuple[str, bool], list[RunRecord]] = {}  # what is wrong in one task is not in the way of others
        for record in records:
            if (problem := self._problem(record)) is None:
                together.setdefault((record.task, is_cell(record)), []).append(record)
            else:
                problems.append(problem)
        tasks, sweeps, notes = list[TaskNumbers](), list[Swept](), list[str]()
        for each in together.values():
            try:
                gathered = gather(each, self.order, self.partition, read=self._reading)
            except FedpriorError as error:
                gathered = Gathered([], [], [str(error)])
            tasks += gathered.tasks
            sweeps += gathered.sweeps
            notes += gathered.notes
        return Gathered(tasks, sweeps, [*standing, *problems, *notes])

    def _problem(self, record: RunRecord) -> str | None:
        """Why a run cannot be shown though its averages can be read: the clients' own values are read only now."""
        if is_cell(record):  # whose clients are not looked at
            return None
        try:
            self._reading(record)
        except (FedpriorError, OSError) as error:
            return str(error)
        return None

    def _reading(self, record: RunRecord) -> Reading:
        """What a page needs of a run, which is read once for as long as the run does not change."""
        known = self._readings.get(record.where)
        if known is None or known[0] is not record:
            known = self._readings[record.where] = record, reading(record)
        return known[1]


def _signature(run: RunFolder) -> Signature:
    """What changes when a run goes on: the sizes and times of its files, and whether a process is at work there."""
    found = []
    for name in FILES:
        try:
            about = (run.path / name).stat()
        except OSError:
            continue
        found.append((name, about.st_mtime_ns, about.st_size))
    return (*found, ("at work", int(holder(run.path) is not None), 0))


def _read(run: RunFolder) -> RunRecord | str:
    """A run as it stands, or what is wrong with it: others are shown all the same."""
    try:
        return run.record()
    except (FedpriorError, OSError) as error:
        return str(error)


def _standing(records: Sequence[RunRecord]) -> str:
    """How many runs there are and how they stand."""
    words = [standing(record.status, Path(record.where))[0] for record in records]
    cells = sum(map(is_cell, records))
    parts = [f"{counted(len(records), 'run')}: {words.count('finished')} finished, {words.count('running')} running"]
    if cells:
        parts.append(f"{cells} of them of sweeps")
    return ", ".join(parts) + "."

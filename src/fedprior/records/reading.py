"""Reading a run's tables: they are what the run wrote, or an error says in which line they are not, and the way back.

A damaged line does not fit its checksum. A missing line leaves its round with fewer rows than other rounds have. A table of
another run holds other averages than those of the clients' values, which are taken again. Tables of the first format have no
checksums, so that all of their averages are taken again.
"""

from __future__ import annotations

import functools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedprior.errors import FedpriorError
from fedprior.files import read_bytes
from fedprior.records import tables
from fedprior.records.lock import holder
from fedprior.records.schedule import Schedule
from fedprior.records.schema import ACCURACY, NLL, ClientId, ClientRow, MetricInfo, Row, Status, Times, averages
from fedprior.records.thinning import KEY

MOST_TABLE = 2**32  # bytes
AGAIN = "start anew (--overwrite, or delete the folder)"
WAY_BACK = (
    "restore the file from a copy; or repeat the command that made the run with --resume, which goes on if all that is "
    f"damaged lies beyond a checkpoint; or {AGAIN}"
)


def damaged(path: Path, reason: str, line: int | None = None, way_back: str = WAY_BACK) -> FedpriorError:
    """The error of records that are not what a run wrote."""
    return FedpriorError(f"{path}{'' if line is None else f', line {line}'}: {reason}; {way_back}")


def column_names(config: dict[str, Any]) -> list[str]:
    """The metrics' columns that a configuration asks for."""
    infos = [MetricInfo(**info) for info in config["metrics"]]
    return [column for info in infos for column in info.columns(config.get("class_names", ()))]


class Standing(NamedTuple):
    """How far a run's tables must go."""

    config: dict[str, Any]
    status: Status
    last: int  # the round up to which nothing may be missing

    @staticmethod
    def of(folder: Path, config: dict[str, Any], status: Status, at: int) -> Standing:
        """How the run in a folder stands; while a process is at work there, the tables are ahead of all else."""
        if holder(folder) is not None:
            return Standing(config, Status.RUNNING, 0)
        return Standing(config, status, at - 1 if status is Status.DIVERGED else at)

    @property
    def clients(self) -> Sequence[ClientId]:
        """What the clients are called, newcomers included, where they have names of their own."""
        names: Sequence[ClientId] = self.config["run"].get("client_ids", ())
        return names


def text_of(path: Path) -> str:
    """The text of a table."""
    return read_bytes(path, MOST_TABLE).decode(errors="replace")


def read(path: Path, standing: Standing) -> tables.Scan:
    """A whole table; any damage is an error."""
    found = tables.scan(path.name, text_of(path), standing.clients)
    _check_scan(path, found, standing)
    _check_once(path, found)
    if path.name != "times.csv":  # a time may have been lost, and the run have gone on
        _check_kinds(path, found, standing)
    return found


def read_metrics(folder: Path, standing: Standing) -> tuple[Row, ...]:
    """The averages over clients, compared with the clients' own values."""
    path, beside = folder / "metrics.csv", folder / "clients.csv"
    found = read(path, standing)
    if found.checked:  # the values of most clients are not needed, and reading them takes long
        text = text_of(beside)
        outline = tables.outline(beside.name, text)
        _check_scan(beside, outline, standing)
        _check_kinds(beside, outline, standing)
        last = max((row.round for row in found.rows if row.round <= standing.last), default=0)
        clients = tables.rows_of(text, {last}, standing.clients)
    else:
        clients = [row for row in read(beside, standing).rows if isinstance(row, ClientRow)]
    _check_averages(path, found, clients, standing.last, KEY in standing.config)
    return tuple(row for row in found.rows if isinstance(row, Row))


def check_resumable(
    folder: Path, clients: Sequence[ClientId], schedule: Schedule, at: int, thinned: bool = False
) -> list[str]:
    """Refuse tables that do not hold all rows of the rounds up to a state from which a run is to go on.

    What else is damaged is of rounds that will be run again, or a time: the first such line of each table is returned.
    ``thinned``: whether the table of clients holds only some of them.
    """
    way_back = f"restore the file from a copy, or {AGAIN}"
    scans, told = {}, []
    for name in tables.TABLES:
        path = folder / name
        found = scans[name] = tables.scan(name, text_of(path) if os.path.lexists(path) else "", clients)
        rows = Counter(map(_kind, found.rows))
        if name != "times.csv" and (t := _of_table(schedule, name, thinned).gap(rows, at)) is not None:
            line, reason = found.damage[0] if found.damage else (None, "lines are missing")
            raise damaged(path, f"{reason}, and rows of round {t} are lost", line, way_back)
        _check_once(path, found, way_back)
        told += [] if found.torn else [f"{path}, line {line}: {reason}" for line, reason in found.damage[:1]]
    values = [row for row in scans["clients.csv"].rows if isinstance(row, ClientRow)]
    _check_averages(folder / "metrics.csv", scans["metrics.csv"], values, at, thinned, way_back)
    return told


class LazyRows(Sequence[ClientRow]):
    """Rows that are read when they are first looked at: most tables need none of the clients' own."""

    def __init__(self, read: Callable[[], list[ClientRow]], of_rounds: Callable[[Collection[int]], list[ClientRow]]):
        self._read, self.of_rounds = functools.cache(read), of_rounds

    def __getitem__(self, k: Any) -> Any:
        return self._read()[k]

    def __len__(self) -> int:
        return len(self._read())


def _kind(row: tables.AnyRow) -> tuple[int, str, str]:
    t, model, data, *_ = row
    return t, str(model), str(data)


def _check_scan(path: Path, found: tables.Scan, standing: Standing) -> None:
    running = standing.status is Status.RUNNING
    if found.damage and not (running and found.torn):
        raise damaged(path, found.damage[0].reason, found.damage[0].line)
    if not running:
        known = {*tables.columns(path.name, column_names(standing.config)), tables.CHECK}
        if odd := [name for name in found.columns if name not in known]:
            raise damaged(path, f"'{odd[0]}' is no column of this table", 1)
    above = 0
    for row, line in zip(found.rows, found.lines, strict=True):
        if row[0] < above:
            raise damaged(path, f"round {row[0]} stands below round {above}", line)
        if not running and row[0] > standing.last and path.name != "times.csv":
            raise damaged(path, f"it is of round {row[0]}, but status.json says that the run ended before it", line)
        above = row[0]


def _check_once(path: Path, found: tables.Scan, way_back: str = WAY_BACK) -> None:
    before: dict[tuple[Any, ...], int] = {}
    for row, line in zip(found.rows, found.lines, strict=True):
        if (other := before.setdefault(row[:1] if isinstance(row, Times) else row[:4], line)) != line:
            raise damaged(path, f"it repeats line {other}", line, way_back)


def _check_kinds(path: Path, found: tables.Scan, standing: Standing) -> None:
    schedule = _of_table(Schedule.of(standing.config), path.name, KEY in standing.config)
    t = schedule.gap(Counter(map(_kind, found.rows)), standing.last)
    if t is not None:
        raise damaged(path, f"rows of round {t} are missing")


def _of_table(schedule: Schedule, table: str, thinned: bool) -> Schedule:
    """The schedule of one table; where clients are ``thinned``, it may be that none of those recorded has any samples."""
    return schedule._replace(scored=False) if thinned and table == "clients.csv" else schedule


def _check_averages(
    path: Path, found: tables.Scan, clients: Sequence[ClientRow], last: int, thinned: bool, way_back: str = WAY_BACK
) -> None:
    """Refuse averages that are not those of the clients' values: at the last round, to tell tables of two runs, or at all
    rounds where no checksums vouch for them. Where clients are ``thinned``, averages are of others, too, and
    tell nothing.
    """
    judged = {row.round for row in found.rows if row.round <= last}
    judged = {max(judged)} if judged and found.checked else judged
    own: dict[tuple[int, str, str], list[ClientRow]] = defaultdict(list)
    for client in clients:
        if client.round in judged:
            own[client[:3]].append(client)
    lost = set(own)
    for row, line in zip(found.rows, found.lines, strict=True):
        if not isinstance(row, Row) or row.round not in judged:
            continue
        # The global model on pooled data: one model on the union of all samples, which is what `weighted` is.
        derived = (row.model, row.data) == ("global", "pooled")
        kind, average = ((row.round, "global", "own"), "weighted") if derived else (row[:3], row.average)
        if kind not in own and not thinned:  # else it may be that none of those recorded has such samples
            raise damaged(path, f"clients.csv has nothing of round {kind[0]}, {kind[1]} on {kind[2]}", line, way_back)
        lost.discard(kind)
        for info in () if thinned else (ACCURACY, NLL):
            given = [(client.values[info.name], client.samples) for client in own[kind] if info.name in client.values]
            if not given or info.name not in row.values:
                continue
            values, samples = (np.array(column, float) for column in zip(*given, strict=True))
            if not (samples > 0).any():
                raise damaged(
                    path.with_name("clients.csv"), f"no client has samples in round {row.round}", None, way_back
                )
            should = averages(values, samples, info.higher_is_better).get(average)
            if should is None or not np.isclose(row.values[info.name], should, rtol=1e-6, atol=1e-9):
                reason = f"{average} {info.name} {row.values[info.name]:g} is not that of clients.csv ({should})"
                raise damaged(path, reason, line, way_back)
    if lost:
        t, model, data = min(lost)
        raise damaged(path, f"rows of round {t}, {model} on {data}, are missing", way_back=way_back)

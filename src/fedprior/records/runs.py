"""A run's folder; `memory` has the same interface.

    runs/<task>/<variant>/<seed>/
        config.json      the format, the resolved settings, the metrics, versions and the data's fingerprint
        metrics.csv      round, model, data, average, and a column per metric
        clients.csv      round, model, data, client, samples, and a column per metric: every client's own values
        times.csv        round, seconds of training, seconds of evaluation
        provenance.json  when, by which command and by which version the run was begun and resumed
        label_counts.json   how many samples of each class each client has, unless that is left out
        status.json      running, stopped, diverged or finished, and the round
        checkpoints/     the newest two states and, with validation samples, that of the best round (safetensors)

Files are replaced, never edited in place, except the tables, which are appended to and cut back to the checkpoint's round
on resume. A run killed at any moment goes on from its newest checkpoint with the bits it would have had.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fedprior.errors import FedpriorError
from fedprior.files import no_links, plain, read_bytes, read_json, replace_file, write_json, write_text, writing
from fedprior.records import best, provenance, tables
from fedprior.records.formats import upgrade
from fedprior.records.lock import NAME
from fedprior.records.memory import MemoryRun as MemoryRun
from fedprior.records.memory import Run as Run
from fedprior.records.reading import MOST_TABLE, LazyRows, Standing, column_names, damaged, read, read_metrics, text_of
from fedprior.records.sameness import check_same
from fedprior.records.schema import ClientRow, LabelCounts, Row, RunRecord, Session, Status, Times
from fedprior.records.shape import MOST, check_shape

T = TypeVar("T")
KEPT = 2  # checkpoints
FILES = ("config.json", "status.json", *tables.TABLES, *provenance.FILES)
Wanted = Callable[[int, str, str], bool]  # (round, model, data) -> whether such a row stays


@dataclass(frozen=True)
class RunFolder:
    """One run's files."""

    path: Path
    _columns: list[str] = field(default_factory=list, init=False, repr=False, compare=False)  # of metrics, once begun

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.path)

    @property
    def checkpoints(self) -> list[Path]:
        """The files of saved states, oldest first."""
        return best.states(self.path, "round")

    @property
    def exists(self) -> bool:
        """Whether a run was begun here; not if it was killed while it began, with nothing done yet."""
        if "config.json" in self.files or not {"status.json", *tables.TABLES} <= self.files:
            return "config.json" in self.files
        try:
            return self.status != (Status.RUNNING, 0)
        except FedpriorError:
            return True

    @property
    def files(self) -> set[str]:
        """Which of a run's files are there, whatever they hold."""
        return {name for name in FILES if os.path.lexists(self.path / name)}

    @property
    def written_format(self) -> int:
        """The number of the format that the configuration was written in."""
        number = read_json(path := self.path / "config.json").get("format", 1)
        if not isinstance(number, int):
            raise FedpriorError(f"{path} does not describe a run of fedprior: its format is {number!r}, no number")
        return number

    @property
    def config(self) -> dict[str, Any]:
        """The resolved settings, as of the current format."""
        path = self.path / "config.json"
        if not os.path.lexists(path):
            raise damaged(path, "the file is missing, though there are records of a run")
        content = read_json(path)
        try:
            check_shape(config := upgrade(content, str(path)), str(path))
        except (KeyError, TypeError, AttributeError) as error:  # of an older format, or what claims to be one
            raise FedpriorError(f"{path} does not describe a run of fedprior: {error!r}") from error
        return config

    @property
    def status(self) -> tuple[Status, int]:
        """How the run stands, and its last round."""
        path = self.path / "status.json"
        content: dict[str, Any] = read_json(path) if path.exists() else {"status": "running", "round": 0}
        status, at = content.get("status"), content.get("round")
        if status not in list(Status) or not isinstance(at, int) or not 0 <= at <= MOST:
            raise damaged(path, f"it does not say how the run stands (valid: {', '.join(Status)}, and a round)")
        return Status(str(status)), at

    def begin(self, config: dict[str, Any]) -> None:
        """Start a new run here, in place of whatever run was here."""
        states = self.path / "checkpoints"
        with writing(self.path):
            if states.exists():  # they go first and the settings come last: no run ever meets the states of another
                shutil.rmtree(states)
        self.set_status(Status.RUNNING, 0)
        provenance.remove(self.path)
        for name in tables.TABLES:
            write_text(self.path / name, tables.header(name, column_names(config)))
        write_json(self.path / "config.json", config)
        self._columns[:] = column_names(config)

    def check_plain(self) -> None:
        """Refuse a folder in which a link, or anything that is no file, stands in place of a run's file."""
        states = self.path / "checkpoints"
        files = [self.path / name for name in (*FILES, NAME)] + self.checkpoints
        for path, is_right in [(states, stat.S_ISDIR), *((path, stat.S_ISREG) for path in files)]:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if not is_right(mode := path.lstat().st_mode):
                    what = "a link to elsewhere" if stat.S_ISLNK(mode) else "no plain file"
                    raise FedpriorError(f"{path} is {what}, which nothing is read from or written to; remove it")

    def check_same(self, config: dict[str, Any]) -> list[str]:
        """Refuse to resume a run of other settings, data or start; return what else to know as warnings."""
        return check_same(self.where, self.config, plain(config))

    def update(self, config: dict[str, Any]) -> None:
        """Let the run have this configuration from now on: more rounds, other metrics, the current format."""
        if (new := plain(config)) != (old := read_json(self.path / "config.json")):
            now = {key: new[key] for key in ("format", "run", "start", "data_file", "deployed") if key in new}
            write_json(self.path / "config.json", {**old, **now, **_measured(new)})
        self._columns[:] = column_names(new)

    def set_status(self, status: Status, at: int) -> None:
        """Say how the run stands."""
        write_json(self.path / "status.json", {"status": status.value, "round": at})

    def append(self, rows: Sequence[Row], clients: Sequence[ClientRow], times: Times | None) -> None:
        """Add what one round gave to the tables."""
        metrics = self._columns or column_names(self.config)  # reading all settings in each round would take long
        groups: tuple[tuple[str, Iterable[tables.AnyRow]], ...] = (
            ("clients.csv", clients),  # first, so that whoever reads meanwhile finds the clients behind every average
            ("metrics.csv", rows),
            ("times.csv", [] if times is None else [times]),
        )
        for table, group in groups:
            if text := tables.encode(table, group, metrics):
                path = self.path / table
                with writing(path), open(path, "a", encoding="utf-8", newline="", opener=no_links) as file:
                    file.write(text)

    def save(self, state: Any, at: int) -> None:
        """Keep the state of round ``at``; older checkpoints than the newest two go."""
        from fedprior.records import checkpoint

        for table in tables.TABLES:  # what the checkpoint relies on must be on disk before it
            with writing(self.path / table), open(self.path / table, "rb") as file:
                os.fsync(file.fileno())
        checkpoint.write(self.path / "checkpoints" / f"round-{at:08d}.safetensors", state)
        self._prune()

    def _prune(self) -> None:
        for old in self.checkpoints[:-KEPT]:
            with writing(old):
                old.unlink()

    def keep_best(self, arrays: best.Arrays, t: int) -> None:
        """Keep the state of round t beside the newest ones."""
        best.write(self.path, arrays, t)

    def best_state(self, t: int) -> best.Arrays | None:
        """The state of round t if it was kept as the best, and is whole."""
        return best.read(self.path, t)

    def drop_best(self, values: Mapping[int, float]) -> None:
        """Drop the states that are not the best up to one of the newest ones, given the values of all rounds so far."""
        best.drop_others(self.path, self.checkpoints, values)

    def restore(self, like: T) -> tuple[T | None, list[str]]:
        """The newest whole state (None if there is none) and the names of damaged checkpoints, which were passed over."""
        from fedprior.records import checkpoint

        damaged: list[str] = []
        for path in reversed(self.checkpoints):
            arrays = checkpoint.read(path)
            if arrays is not None:
                return checkpoint.unpack(arrays, like), damaged
            damaged.append(path.name)
        return None, damaged

    def rewind(self, last: int, metrics: Sequence[str], wanted: Wanted = lambda t, model, data: True) -> None:
        """Drop what lies beyond round ``last``: checkpoints, and rows of the tables; of these also what was not written
        whole and what is not ``wanted``. The tables then have the columns of these metrics.
        """
        states = self.path / "checkpoints"
        with writing(states):
            for path in [*self.path.glob("*.????????.tmp"), *states.glob("*.tmp"), *self.checkpoints]:
                if path.suffix == ".tmp" or int(path.stem.split("-")[1]) > last:
                    path.unlink()
        self._prune()
        for table in tables.TABLES:
            stays = [
                row
                for row in self.scan(table).rows
                if row.round <= last and (isinstance(row, Times) or wanted(row.round, row.model, row.data))
            ]
            kept = (tables.header(table, metrics) + tables.encode(table, stays, metrics)).encode()
            path = self.path / table
            if not os.path.lexists(path) or kept != read_bytes(path, MOST_TABLE):
                replace_file(path, partial(Path.write_bytes, data=kept))

    def scan(self, table: str) -> tables.Scan:
        """What one of the tables holds, damaged or not; where there is none, its heading is lost."""
        path = self.path / table
        return tables.scan(table, text_of(path) if os.path.lexists(path) else "", self.standing.clients)

    def rows(self, table: str) -> list[Any]:
        """All rows of one of the tables; any damage is an error."""
        return read(self.path / table, self.standing).rows

    def clients_of(self, rounds: Collection[int]) -> list[ClientRow]:
        """The clients' own values in some rounds, which is far faster than to read all of a long table."""
        return tables.rows_of(text_of(self.path / "clients.csv"), rounds, self.standing.clients)

    @property
    def standing(self) -> Standing:
        """How far the tables must go."""
        return Standing.of(self.path, self.config, *self.status)

    def sign(self, session: Session, label_counts: LabelCounts | None) -> None:
        """Say when and how the run is being made, or has been, and which labels the clients have (None: leave that out)."""
        provenance.write(self.path, session, label_counts)

    def record(self) -> RunRecord:
        """The run as it stands; damaged records are an error."""
        self.check_plain()
        # Read first: a run in progress writes its tables before its status.
        (status, at), standing = self.status, self.standing
        times = tuple(row for row in read(self.path / "times.csv", standing).rows if isinstance(row, Times))
        rows = read_metrics(self.path, standing)
        clients = LazyRows(lambda: self.rows("clients.csv"), self.clients_of)
        sessions, labels = provenance.read(self.path), partial(provenance.read_labels, self.path)
        return RunRecord(standing.config, status, at, rows, clients, self.where, times, sessions, labels)


def _measured(config: dict[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in ("metrics", "class_names") if key in config}


def find_runs(folder: Path) -> list[RunFolder]:
    """Every run at or below a folder, in order: also one of which a file is missing, so that it is not passed over."""
    places = [place for place, names in _folders(folder) if not {"config.json", "status.json"}.isdisjoint(names)]
    runs = [RunFolder(place) for place in sorted(places)]
    return [run for run in runs if run.exists and len(run.files) > 1]  # other programs have a config.json, too


def _folders(top: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every folder at or below one with all names in it, each once, links followed: after all that needs none."""
    waiting, seen = [str(top)], set[str]()
    for start in waiting:
        for place, folders, files in os.walk(start):  # unlike rglob, it does not mind that a folder vanishes just now
            if (real := os.path.realpath(place)) in seen:
                folders.clear()
                continue
            seen.add(real)
            yield Path(place), [*folders, *files]
            waiting += sorted(path for name in folders if os.path.islink(path := os.path.join(place, name)))

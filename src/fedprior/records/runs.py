"""Where a run is kept: in a folder, or in memory with the same interface.

    runs/<task>/<variant>/<seed>/
        config.json      the format, the resolved settings, the metrics, versions and the data's fingerprint
        metrics.csv      round, model, data, average, and a column per metric
        clients.csv      round, model, data, client, samples, and a column per metric: every client's own values
        times.csv        round, seconds of training, seconds of evaluation
        status.json      running, stopped, diverged or finished, and the round
        checkpoints/     the newest two states (safetensors)

Files are replaced, never edited in place, except the tables, which are appended to and cut back to the checkpoint's round
on resume. A run killed at any moment goes on from its newest checkpoint with the bits it would have had.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedprior.errors import FedpriorError
from fedprior.files import read_json, replace_file, write_json, writing
from fedprior.records import tables
from fedprior.records.sameness import check_same
from fedprior.records.schema import (
    ClientId,
    ClientRow,
    Row,
    RunRecord,
    Status,
    Times,
    plain,
    upgrade,
)

T = TypeVar("T")
KEPT = 2  # checkpoints
Wanted = Callable[[int, str, str], bool]  # (round, model, data) -> whether such a row stays


class Run(Protocol):
    """What a recorder writes to."""

    @property
    def where(self) -> str:
        """What to call the place in a message."""

    def begin(self, config: dict[str, Any]) -> None:
        """Start a new run here, in place of whatever run was here."""

    def append(self, rows: Sequence[Row], clients: Sequence[ClientRow], times: Times) -> None:
        """Add what one round gave."""

    def save(self, state: Any, at: int) -> None:
        """Keep a state from which the run can go on."""

    def set_status(self, status: Status, at: int) -> None:
        """Say how the run stands."""

    def record(self) -> RunRecord:
        """The run as it stands, for analysis."""


def column_names(config: dict[str, Any]) -> list[str]:
    """The metrics' columns that a configuration asks for."""
    names: list[str] = []
    for info in config["metrics"]:
        labels = config.get("class_names", []) if info["per_class"] else None
        names += [info["name"]] if labels is None else [f"{info['name']}[{label}]" for label in labels]
    return names


@dataclass
class MemoryRun:
    """A run that is kept nowhere else."""

    where: str = "memory"
    config: dict[str, Any] = field(default_factory=dict)
    status: Status = Status.RUNNING
    round: int = 0
    rows: list[Row] = field(default_factory=list)
    clients: list[ClientRow] = field(default_factory=list)

    def begin(self, config: dict[str, Any]) -> None:
        """Start anew."""
        self.config = plain(config)

    def append(self, rows: Sequence[Row], clients: Sequence[ClientRow], times: Times) -> None:
        """Add what one round gave."""
        self.rows += rows
        self.clients += clients

    def save(self, state: Any, at: int) -> None:
        """Keep nothing: who runs in memory has the state."""

    def set_status(self, status: Status, at: int) -> None:
        """Say how the run stands."""
        self.status, self.round = status, at

    def record(self) -> RunRecord:
        """The run as it stands."""
        return RunRecord(self.config, self.status, self.round, tuple(self.rows), tuple(self.clients), self.where)


@dataclass(frozen=True)
class RunFolder:
    """One run's files."""

    path: Path

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.path)

    @property
    def checkpoints(self) -> list[Path]:
        """The files of saved states, oldest first."""
        return sorted((self.path / "checkpoints").glob("round-*.safetensors"))

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "config.json").exists()

    @property
    def written_format(self) -> int:
        """The number of the format that the configuration was written in."""
        return int(read_json(self.path / "config.json").get("format", 1))

    @property
    def config(self) -> dict[str, Any]:
        """The resolved settings, as of the current format."""
        path = self.path / "config.json"
        return upgrade(read_json(path), str(path))

    @property
    def status(self) -> tuple[Status, int]:
        """How the run stands, and its last round."""
        path = self.path / "status.json"
        content: dict[str, Any] = read_json(path) if path.exists() else {"status": "running", "round": 0}
        try:
            return Status(content["status"]), int(content["round"])
        except (KeyError, ValueError, TypeError) as error:
            valid = ", ".join(Status)
            raise FedpriorError(f"{path} does not say how the run stands ({error}); valid: {valid}") from error

    def begin(self, config: dict[str, Any]) -> None:
        """Start a new run here, in place of whatever run was here."""
        states = self.path / "checkpoints"
        with writing(self.path):
            if states.exists():  # they go first and the settings come last: no run ever meets the states of another
                shutil.rmtree(states)
            self.path.mkdir(parents=True, exist_ok=True)
            for name in tables.TABLES:
                (self.path / name).write_text(tables.header(name, column_names(config)), encoding="utf-8")
        self.set_status(Status.RUNNING, 0)
        write_json(self.path / "config.json", config)

    def check_same(self, config: dict[str, Any]) -> list[str]:
        """Refuse to resume a run of other settings, data or start; return what else to know as warnings."""
        return check_same(self.where, self.config, plain(config))

    def update(self, config: dict[str, Any]) -> None:
        """Let the run have this configuration from now on: more rounds, other metrics, the current format."""
        if (new := plain(config)) != (old := read_json(self.path / "config.json")):
            now = {key: new[key] for key in ("format", "run", "start") if key in new}
            write_json(self.path / "config.json", {**old, **now, **_measured(new)})

    def set_status(self, status: Status, at: int) -> None:
        """Say how the run stands."""
        write_json(self.path / "status.json", {"status": status.value, "round": at})

    def append(self, rows: Sequence[Row], clients: Sequence[ClientRow], times: Times) -> None:
        """Add what one round gave to the tables."""
        metrics = column_names(self.config)
        groups: tuple[tuple[str, Iterable[tables.AnyRow]], ...] = (
            ("metrics.csv", rows),
            ("clients.csv", clients),
            ("times.csv", [times]),
        )
        for table, group in groups:
            if text := tables.encode(table, group, metrics):
                with writing(self.path / table), open(self.path / table, "a", encoding="utf-8", newline="") as file:
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
            for path in [*states.glob("*.tmp"), *self.checkpoints]:
                if path.suffix == ".tmp" or int(path.stem.split("-")[1]) > last:
                    path.unlink()
        self._prune()
        for table in tables.TABLES:
            text = self._text(table)
            stays = [
                row
                for row in tables.decode(table, text, self._client_ids)
                if row.round <= last and (isinstance(row, Times) or wanted(row.round, row.model, row.data))
            ]
            kept = tables.header(table, metrics) + tables.encode(table, stays, metrics)
            if kept != text:
                replace_file(self.path / table, partial(_write, text=kept))

    def _text(self, table: str) -> str:
        path = self.path / table
        try:
            with open(path, encoding="utf-8", errors="replace", newline="") as file:
                return file.read()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise FedpriorError(f"cannot read {path}: {error.strerror}") from error

    def rows(self, table: str, rounds: Collection[int] | None = None) -> list[Any]:
        """All whole rows of one of the tables, or only those of some rounds, which is far faster where there are many."""
        text = self._text(table)
        if rounds is not None and '"' not in text:  # else a row may take several lines
            head, *lines = text.split("\n")
            begins = tuple(f"{t}," for t in rounds)
            text = "\n".join([head, *(line for line in lines if line.startswith(begins)), ""])
        return [row for row in tables.decode(table, text, self._client_ids) if rounds is None or row.round in rounds]

    @property
    def _client_ids(self) -> Sequence[ClientId]:
        """What the clients are called, newcomers included, where they have names of their own."""
        return self.config["run"].get("client_ids", ()) if self.exists else ()

    def record(self) -> RunRecord:
        """The run as it stands."""
        status, at = self.status
        clients = LazyRows(partial(self.rows, "clients.csv"))
        return RunRecord(self.config, status, at, tuple(self.rows("metrics.csv")), clients, self.where)


class LazyRows(Sequence[ClientRow]):
    """Rows that are read when they are first looked at: most tables need none of the clients' own."""

    def __init__(self, read: Callable[..., list[ClientRow]]):
        self._read, self.of_rounds = functools.cache(read), read

    def __getitem__(self, k: Any) -> Any:
        return self._read()[k]

    def __len__(self) -> int:
        return len(self._read())


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def _measured(config: dict[str, Any]) -> dict[str, Any]:
    return {key: config[key] for key in ("metrics", "class_names") if key in config}


def find_runs(folder: Path) -> list[RunFolder]:
    """Every run at or below a folder, in order."""
    places = [path.parent for path in sorted(folder.rglob("config.json"))]
    return [RunFolder(place) for place in places if (place / "metrics.csv").exists()]

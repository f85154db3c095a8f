"""A run's folder: what was run, what came out, and how to go on.

    runs/<task>/<method>/<seed>/
        config.json      the resolved settings, versions and the data's fingerprint
        metrics.csv      round, model, data, average, accuracy (percent), loss
        clients.csv      round, model, data, client, accuracy, loss, samples: every client's own value
        times.csv        round, seconds of training, seconds of evaluation
        status.json      running, stopped, diverged or finished, and the round
        checkpoints/     the newest two states (safetensors)

Files are replaced, never edited in place, except the tables, which are appended to and cut back to the checkpoint's round
on resume. A run killed at any moment goes on from its newest checkpoint with the bits it would have had.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from fedprior.engine import State
from fedprior.errors import FedpriorError

METRICS = ("round", "model", "data", "average", "accuracy", "loss")
PER_CLIENT = ("round", "model", "data", "client", "accuracy", "loss", "samples")
TIMES = ("round", "train_seconds", "evaluation_seconds")
TABLES = {"metrics.csv": METRICS, "clients.csv": PER_CLIENT, "times.csv": TIMES}
KEPT = 2  # checkpoints


def _moment(where: str, path: Path) -> None:
    """Called at named moments of replacing a file, so that tests can kill the process there. Does nothing."""


# -- states as bytes ---------------------------------------------------------------------------------------------------


def _named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def pack(state: State, n_clients: int) -> dict[str, np.ndarray]:
    """A state as named arrays, without the idle places that fill up the devices."""
    real = state._replace(
        **{part: jax.tree.map(lambda x: x[:n_clients], getattr(state, part)) for part in ("clients", "cursor")}
    )
    return {
        name: np.array(jax.device_get(jax.random.key_data(leaf) if _is_key(leaf) else leaf))
        for name, leaf in _named(real).items()
    }


def unpack(arrays: dict[str, np.ndarray], template: State, n_clients: int) -> State:
    """The state that was packed, laid out like ``template`` (a state of the same run, on any number of devices)."""
    wanted = _named(template)
    if set(wanted) != set(arrays):
        odd = sorted(set(wanted) ^ set(arrays))[0]
        raise FedpriorError(
            f"the checkpoint does not fit this run (differs at {odd}); was it written by another method?"
        )
    place_axis = {name for name in wanted if name.startswith((".clients", ".cursor"))}

    def restore(name: str, like: Any) -> Any:
        value, data_like = arrays[name], jax.random.key_data(like) if _is_key(like) else like
        if name in place_axis:
            filling = np.zeros((data_like.shape[0] - n_clients, *value.shape[1:]), value.dtype)
            value = np.concatenate([value, filling])
        if value.shape != data_like.shape or value.dtype != data_like.dtype:
            raise FedpriorError(
                f"the checkpoint does not fit this run: {name} is {value.dtype}{list(value.shape)}, "
                f"but {data_like.dtype}{list(data_like.shape)} is needed"
            )
        placed = jax.device_put(value, data_like.sharding)
        return jax.random.wrap_key_data(placed) if _is_key(like) else placed

    leaves = [restore(name, like) for name, like in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def to_bytes(state: State, n_clients: int) -> bytes:
    """A state as bytes (safetensors)."""
    return safetensors.numpy.save(pack(state, n_clients))


def from_bytes(data: bytes, template: State, n_clients: int) -> State:
    """The state behind ``to_bytes``."""
    return unpack(safetensors.numpy.load(data), template, n_clients)


# -- files -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FedpriorError(
            f"cannot write {path}: {reason}; free some space or choose another folder with --out"
        ) from error


def replace_file(path: Path, write: Any) -> None:
    """Write a file so that it is either the old one or the whole new one: ``write(temporary path)``, sync, rename."""
    temporary = path.with_name(path.name + ".tmp")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(temporary)
            _moment("written", path)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _moment("renamed", path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_json(path: Path, content: Any) -> None:
    """Replace a JSON file."""
    replace_file(path, lambda p: p.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n"))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say what is wrong with the file."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FedpriorError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise FedpriorError(f"{path} does not hold a JSON object")
    return content


def _digest(arrays: dict[str, np.ndarray]) -> str:
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode() + arrays[name].tobytes())
    return found.hexdigest()


def _read_checkpoint(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a checkpoint, or None where the file is not what was written."""
    try:
        with safetensors.safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
            digest = (file.metadata() or {}).get("sha256")
    except (safetensors.SafetensorError, OSError):
        return None
    return arrays if digest == _digest(arrays) else None


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """In what two nested settings differ, one text each.

    >>> differences({"a": {"b": 1}}, {"a": {"b": 2}})
    ['a.b: 1 then, 2 now']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            d for k in sorted({*old, *new}) for d in differences(old.get(k), new.get(k), f"{where}.{k}" if where else k)
        ]
    return [] if old == new else [f"{where}: {old!r} then, {new!r} now"]


def _lines(text: str) -> list[str]:
    """The whole lines; what follows the last line end was being written when the run was killed."""
    return text[: text.rfind("\n") + 1].splitlines(keepends=True)


@dataclass(frozen=True)
class RunFolder:
    """One run's files."""

    path: Path

    @property
    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("round-*.safetensors"))

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "config.json").exists()

    @property
    def config(self) -> dict[str, Any]:
        """The resolved settings."""
        path = self.path / "config.json"
        content = read_json(path)
        if not isinstance(content.get("run"), dict) or not isinstance(content.get("environment"), dict):
            raise FedpriorError(f"{path} does not describe a run of fedprior; use another folder")
        return content

    @property
    def status(self) -> dict[str, Any]:
        """Running, stopped, diverged or finished."""
        path = self.path / "status.json"
        return read_json(path) if path.exists() else {"status": "running", "round": 0}

    def begin(self, config: dict[str, Any]) -> None:
        """Start a new run here, in place of whatever run was here."""
        states = self.path / "checkpoints"
        with _writing(self.path):
            if states.exists():  # they go first and the settings come last: no run ever meets the states of another
                shutil.rmtree(states)
            self.path.mkdir(parents=True, exist_ok=True)
            for name, columns in TABLES.items():
                (self.path / name).write_text(",".join(columns) + "\n")
        self.set_status("running", 0)
        write_json(self.path / "config.json", config)

    def check_same(self, config: dict[str, Any]) -> list[str]:
        """Refuse to resume a run of other settings; return what else differs (versions, machine) as warnings."""
        old, config = self.config, json.loads(json.dumps(config))
        apart = differences({**old["run"], "rounds": 0}, {**config["run"], "rounds": 0})
        if apart:
            raise FedpriorError(
                f"{self.path} holds a run of other settings ({'; '.join(apart[:3])}); use another --out"
            )
        return differences(old["environment"], config["environment"])

    def extend(self, rounds: int) -> None:
        """Let the run be one of ``rounds`` rounds from now on."""
        old = self.config
        write_json(self.path / "config.json", {**old, "run": {**old["run"], "rounds": rounds}})

    def set_status(self, status: str, at: int, **more: Any) -> None:
        """Say how the run stands."""
        write_json(self.path / "status.json", {"status": status, "round": at, **more})

    def append(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows to one of the tables. Numbers are written so that reading them gives the same bits."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        with _writing(self.path / table), open(self.path / table, "a") as file:
            file.write(text.getvalue())

    def save(self, state: State, n_clients: int) -> None:
        """Keep the state; older checkpoints than the newest two go."""
        at = int(state.round)
        for table in TABLES:  # what the checkpoint relies on must be on disk before it
            with _writing(self.path / table), open(self.path / table, "rb") as file:
                os.fsync(file.fileno())
        path = self.path / "checkpoints" / f"round-{at:08d}.safetensors"
        arrays = pack(state, n_clients)
        mark = {"sha256": _digest(arrays)}
        replace_file(path, lambda p: safetensors.numpy.save_file(arrays, p, metadata=mark))
        self._prune()

    def _prune(self) -> None:
        for old in self._checkpoints[:-KEPT]:
            with _writing(old):
                old.unlink()

    def restore(self, template: State, n_clients: int) -> tuple[State | None, list[str]]:
        """The newest whole checkpoint (None if there is none) and the names of damaged ones, which were passed over."""
        damaged: list[str] = []
        for path in reversed(self._checkpoints):
            arrays = _read_checkpoint(path)
            if arrays is not None:
                return unpack(arrays, template, n_clients), damaged
            damaged.append(path.name)
        return None, damaged

    def rewind(self, last: int, wanted: Callable[[int, str, str], bool] = lambda t, model, data: True) -> None:
        """Drop what lies beyond round ``last``: checkpoints, and rows of the tables; of these also a line not written
        whole and what is not ``wanted``(round, model, data).
        """
        states = self.path / "checkpoints"
        with _writing(states):
            for path in [*states.glob("*.tmp"), *self._checkpoints]:
                if path.suffix == ".tmp" or int(path.stem.split("-")[1]) > last:
                    path.unlink()
        self._prune()

        def stays(table: str, line: str) -> bool:
            t, model, data, *_ = line.split(",")
            return t.isdecimal() and int(t) <= last and (table == "times.csv" or wanted(int(t), model, data))

        for table, columns in TABLES.items():
            head, text = ",".join(columns) + "\n", self._text(table)
            lines = [line for line in _lines(text)[1:] if line.count(",") == head.count(",") and stays(table, line)]
            kept = "".join([head, *lines])
            if kept != text:
                replace_file(self.path / table, lambda p, kept=kept: p.write_text(kept))

    def _text(self, table: str) -> str:
        path = self.path / table
        try:
            return path.read_text(errors="replace") if path.exists() else ""
        except OSError as error:
            raise FedpriorError(f"cannot read {path}: {error.strerror}") from error

    def rows(self, table: str) -> list[dict[str, str]]:
        """All rows of one of the tables."""
        return list(csv.DictReader(_lines(self._text(table))))


def find_runs(folder: Path) -> list[RunFolder]:
    """Every run at or below a folder, in order."""
    found = [path.parent for path in sorted(folder.rglob("config.json"))]
    return [RunFolder(path) for path in found if (path / "metrics.csv").exists()]

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
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator
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


def _moment(where: str) -> None:
    """Called at named moments of a checkpoint write, so that tests can kill the process there. Does nothing."""


# -- states as bytes ---------------------------------------------------------------------------------------------------


def _named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def pack(state: State, n_clients: int) -> dict[str, np.ndarray]:
    """A state as named arrays, without the idle places that fill up the devices."""
    real = state._replace(**{part: jax.tree.map(lambda x: x[:n_clients], getattr(state, part)) for part in ("clients", "cursor")})
    return {
        name: np.array(jax.device_get(jax.random.key_data(leaf) if _is_key(leaf) else leaf))
        for name, leaf in _named(real).items()
    }


def unpack(arrays: dict[str, np.ndarray], template: State, n_clients: int) -> State:
    """The state that was packed, laid out like ``template`` (a state of the same run, on any number of devices)."""
    wanted = _named(template)
    if set(wanted) != set(arrays):
        odd = sorted(set(wanted) ^ set(arrays))[0]
        raise FedpriorError(f"the checkpoint does not fit this run (differs at {odd}); was it written by another method?")
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
    return jax.tree.unflatten(jax.tree.structure(template), leaves)  # type: ignore[no-any-return]


def to_bytes(state: State, n_clients: int) -> bytes:
    """A state as bytes (safetensors)."""
    return safetensors.numpy.save(pack(state, n_clients))  # type: ignore[no-any-return]


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
        raise FedpriorError(f"cannot write {path}: {reason}; free some space or choose another folder with --out") from error


def replace_file(path: Path, write: Any) -> None:
    """Write a file so that it is either the old one or the whole new one: ``write(temporary path)``, sync, rename."""
    temporary = path.with_name(path.name + ".tmp")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        _moment("written")
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _moment("renamed")
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


def _differences(old: Any, new: Any, where: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [d for k in sorted({*old, *new}) for d in _differences(old.get(k), new.get(k), f"{where}.{k}" if where else k)]
    return [] if old == new else [f"{where}: {old!r} then, {new!r} now"]


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
        return read_json(self.path / "config.json")

    @property
    def status(self) -> dict[str, Any]:
        """Running, stopped, diverged or finished."""
        path = self.path / "status.json"
        return read_json(path) if path.exists() else {"status": "running", "round": 0}

    def begin(self, config: dict[str, Any]) -> None:
        """Start a new run here, in place of whatever run was here."""
        with _writing(self.path):
            if self.exists:
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            for name, columns in TABLES.items():
                (self.path / name).write_text(",".join(columns) + "\n")
        write_json(self.path / "config.json", config)
        self.set_status("running", 0)

    def check_same(self, config: dict[str, Any]) -> list[str]:
        """Refuse to resume a run of other settings; return what else differs (versions, machine) as warnings."""
        old = self.config
        apart = _differences({**old["run"], "rounds": 0}, {**config["run"], "rounds": 0})
        if apart:
            raise FedpriorError(f"{self.path} holds a run of other settings ({'; '.join(apart[:3])}); use another --out")
        return _differences(old["environment"], config["environment"])

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
        replace_file(path, lambda p: safetensors.numpy.save_file(pack(state, n_clients), p))
        for old in self._checkpoints[:-KEPT]:
            with _writing(old):
                old.unlink()

    def restore(self, template: State, n_clients: int) -> State | None:
        """The newest readable checkpoint (None if there is none yet), with the tables cut back to its round."""
        state = None
        for path in reversed(self._checkpoints):
            try:
                arrays = safetensors.numpy.load_file(path)
            except (safetensors.SafetensorError, OSError):  # a damaged file: the one before it will do
                continue
            state = unpack(arrays, template, n_clients)
            break
        last = 0 if state is None else int(state.round)
        for newer in self._checkpoints:
            if int(newer.stem.split("-")[1]) > last:
                newer.unlink()
        for table in TABLES:
            self._cut(table, last)
        return state

    def _cut(self, table: str, last: int) -> None:
        """Drop rows after round ``last`` and a last line that was not written whole."""
        path = self.path / table
        text = path.read_text() if path.exists() else ",".join(TABLES[table]) + "\n"
        head, *lines = text[: text.rfind("\n") + 1].splitlines(keepends=True)
        kept = [line for line in lines if int(line.split(",", 1)[0]) <= last]
        replace_file(path, lambda p: p.write_text("".join([head, *kept])))

    def rows(self, table: str) -> list[dict[str, str]]:
        """All rows of one of the tables."""
        try:
            with open(self.path / table, newline="") as file:
                return list(csv.DictReader(file))
        except OSError as error:
            raise FedpriorError(f"cannot read {self.path / table}: {error.strerror}") from error


def find_runs(folder: Path) -> list[RunFolder]:
    """Every run at or below a folder, in order."""
    return [RunFolder(path.parent) for path in sorted(folder.rglob("config.json"))]

"""A run's folder, file by file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedprior import records
from fedprior.engine import State
from fedprior.errors import FedpriorError
from fedprior.records import (
    RunFolder,
    find_runs,
    from_bytes,
    pack,
    read_json,
    replace_file,
    to_bytes,
    unpack,
    write_json,
)

N = 3
CONFIG: dict[str, Any] = {
    "run": {"name": "toy", "rounds": 5, "seed": 0, "settings": {"lam": 1.0}},
    "environment": {"jax": "1"},
}


def state(t: int = 0, n: int = N, value: float = 1.0) -> State:
    return State(
        round=jnp.asarray(t, jnp.int32),
        seed=jax.random.key_data(jax.random.key(7)),
        server={"w": jnp.full((2, 2), value + t), "key": jax.random.key(3)},
        clients={"theta": jnp.arange(n * 2, dtype=jnp.float32).reshape(n, 2)},
        cursor=jnp.arange(n, dtype=jnp.int32),
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path / "run")
    found.begin(CONFIG)
    return found


def test_a_state_survives_its_bytes_and_idle_places_do_not() -> None:
    data = to_bytes(state(n=4), N)
    assert data == to_bytes(state(n=N), N)  # the fourth place only fills up the devices
    back = from_bytes(data, state(n=4, value=9.0), N)
    assert back.clients["theta"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 0]]
    assert jnp.array_equal(back.server["w"], state().server["w"])
    assert jax.random.key_data(back.server["key"]).tolist() == jax.random.key_data(jax.random.key(3)).tolist()
    assert {array.dtype.name for array in pack(state(), N).values()} == {"int32", "uint32", "float32"}


def test_a_state_of_another_kind_does_not_fit() -> None:
    arrays = pack(state(), N)
    other = state()._replace(server={"v": jnp.zeros(2)})
    with pytest.raises(FedpriorError, match=r"does not fit this run \(differs at .*written by another method"):
        unpack(arrays, other, N)
    wider = state()._replace(cursor=jnp.zeros((N,), jnp.float32))
    with pytest.raises(FedpriorError, match=r"\.cursor is int32\[3\], but float32\[3\] is needed"):
        unpack(arrays, wider, N)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    replace_file(path, lambda p: p.write_text("old"))

    def fail(p: Path) -> None:
        p.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(
        FedpriorError, match=f"cannot write {path}: No space left on device; free some space or choose another"
    ):
        replace_file(path, fail)
    assert [(p.name, p.read_text()) for p in path.parent.iterdir()] == [("file", "old")]


def test_json_files_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text, message in (("{", "cannot read .*x.json"), ("[1]", "x.json does not hold a JSON object")):
        path.write_text(text)
        with pytest.raises(FedpriorError, match=message):
            read_json(path)
    with pytest.raises(FedpriorError, match="cannot read"):
        read_json(tmp_path / "none.json")
    write_json(path, {"b": 1, "a": [2]})
    assert read_json(path) == {"a": [2], "b": 1}


def test_a_run_begins(folder: RunFolder) -> None:
    assert folder.exists
    assert folder.config == CONFIG
    assert folder.status == {"status": "running", "round": 0}
    assert all(folder.rows(table) == [] for table in records.TABLES)
    assert find_runs(folder.path.parent) == [folder]
    (folder.path / "config.json").write_text('{"run": 3}')
    with pytest.raises(FedpriorError, match="does not describe a run"):
        folder.config  # noqa: B018


def test_numbers_are_read_with_the_bits_they_were_written_with(folder: RunFolder) -> None:
    values = np.random.default_rng(0).random(100).tolist()
    folder.append("metrics.csv", [(1, "personal", "own", "mean", value, value / 3) for value in values])
    rows = folder.rows("metrics.csv")
    assert [float(row["accuracy"]) for row in rows] == values
    assert [float(row["loss"]) for row in rows] == [value / 3 for value in values]


def test_the_newest_two_checkpoints_are_kept(folder: RunFolder) -> None:
    assert folder.restore(state(), N) == (None, [])
    for t in range(1, 5):
        folder.save(state(t), N)
    assert [p.name for p in folder._checkpoints] == ["round-00000003.safetensors", "round-00000004.safetensors"]
    found, damaged = folder.restore(state(), N)
    assert found is not None
    assert (int(found.round), damaged) == (4, [])
    assert to_bytes(found, N) == to_bytes(state(4), N)


def test_a_checkpoint_that_is_not_what_was_written_is_passed_over(folder: RunFolder) -> None:
    for t in (1, 2):
        folder.save(state(t), N)
    newest = folder._checkpoints[-1]
    data = newest.read_bytes()
    for hurt in (
        data[:-3],
        data[:-1] + bytes([data[-1] ^ 128]),
        data[:40],
        b"",
        b"\0" * len(data),
        to_bytes(state(2), N),
    ):
        newest.write_bytes(hurt)
        found, damaged = folder.restore(state(), N)
        assert found is not None
        assert (int(found.round), damaged) == (1, [newest.name])


def test_rewind_drops_what_lies_beyond(folder: RunFolder) -> None:
    for t in (1, 2, 3):
        folder.append("metrics.csv", [(t, "personal", data, "mean", 50.0, 1.0) for data in ("own", "pooled")])
        folder.append("clients.csv", [(t, "personal", "own", 0, 50.0, 1.0, 4)])
        folder.append("times.csv", [(t, 0.1, 0.2)])
        folder.save(state(t), N)
    (folder.path / "checkpoints" / "round-00000004.safetensors.tmp").write_bytes(b"half")
    (folder.path / "clients.csv").write_text("")  # its head is gone as well
    folder.rewind(2, lambda t, model, data: (t, data) != (1, "pooled"))
    assert [(row["round"], row["data"]) for row in folder.rows("metrics.csv")] == [
        ("1", "own"),
        ("2", "own"),
        ("2", "pooled"),
    ]
    assert [row["round"] for row in folder.rows("times.csv")] == ["1", "2"]
    assert (folder.path / "clients.csv").read_text() == ",".join(records.PER_CLIENT) + "\n"
    assert [p.name for p in (folder.path / "checkpoints").iterdir()] == ["round-00000002.safetensors"]


def test_only_the_same_settings_resume(folder: RunFolder) -> None:
    assert folder.check_same(CONFIG) == []
    assert folder.check_same({**CONFIG, "run": {**CONFIG["run"], "rounds": 9}}) == []
    assert folder.check_same({**CONFIG, "environment": {"jax": "2"}}) == ["jax: '1' then, '2' now"]
    with pytest.raises(FedpriorError, match=r"settings.lam: 1.0 then, 2.0 now.*use another --out"):
        folder.check_same({**CONFIG, "run": {**CONFIG["run"], "settings": {"lam": 2.0}}})
    with pytest.raises(FedpriorError, match="beta: None then, 2 now"):
        folder.check_same({**CONFIG, "run": {**CONFIG["run"], "beta": 2}})
    folder.extend(9)
    assert folder.config == {**CONFIG, "run": {**CONFIG["run"], "rounds": 9}}


def test_tuples_are_the_lists_that_json_makes_of_them(tmp_path: Path) -> None:
    config = {"run": {"rounds": 1, "widths": (3, 4)}, "environment": {}}
    folder = RunFolder(tmp_path)
    folder.begin(config)
    assert folder.check_same(config) == []
    assert json.loads((tmp_path / "config.json").read_text())["run"]["widths"] == [3, 4]

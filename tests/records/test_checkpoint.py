"""Trees of arrays as files: exact, checked, and by names that older formats spelled otherwise."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from fedprior.errors import FedpriorError
from fedprior.files import arrays_digest
from fedprior.records import checkpoint
from fedprior.records.checkpoint import named, pack, to_bytes, unpack
from records.states import N, state


def test_a_state_survives_its_bytes() -> None:
    back = unpack(safetensors.numpy.load(to_bytes(state(2))), jax.eval_shape(lambda: state(value=9.0)))
    assert to_bytes(back) == to_bytes(state(2))
    assert isinstance(back.clients["theta"], np.ndarray)  # on the host
    assert jax.random.key_data(back.server["key"]).tolist() == jax.random.key_data(jax.random.key(3)).tolist()
    assert {name: array.dtype.name for name, array in pack(state()).items()} == {
        "round": "int32",
        "seed": "uint32",
        "server.key": "uint32",
        "server.w": "float32",
        "clients.theta": "float32",
        "cursor": "int32",
    }


def test_names_are_paths() -> None:
    assert list(named(state())) == ["round", "seed", "server.key", "server.w", "clients.theta", "cursor"]


def test_a_state_of_another_kind_does_not_fit() -> None:
    arrays = pack(state())
    other = state()._replace(server={"v": jnp.zeros(2)})
    with pytest.raises(FedpriorError, match=r"does not fit this run \(differs at .*written by another method"):
        unpack(arrays, other)
    wider = state()._replace(cursor=jnp.zeros((N,), jnp.float32))
    with pytest.raises(FedpriorError, match=r"cursor is int32\[3\], but float32\[3\] is needed"):
        unpack(arrays, wider)


def test_a_file_that_is_not_what_was_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.safetensors"
    checkpoint.write(path, state(1))
    whole, arrays = path.read_bytes(), checkpoint.read(path)
    assert arrays is not None
    assert to_bytes(unpack(arrays, state())) == to_bytes(state(1))
    flipped = whole[:-1] + bytes([whole[-1] ^ 128])
    for hurt in (
        whole[:-3],
        flipped,
        whole[:40],
        b"",
        b"\0" * len(whole),
        to_bytes(state(2)),
    ):  # the last has no checksum
        path.write_bytes(hurt)
        assert checkpoint.read(path) is None
    assert checkpoint.read(tmp_path / "none") is None


def test_old_names_are_checked_as_they_were_written_and_read_as_they_are_called_now(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {
        ".round": np.array([3], np.int32),
        ".clients['theta'].tree.head.weight": np.ones(2, np.float32),
    }
    path = tmp_path / "old.safetensors"
    safetensors.numpy.save_file(arrays, path, metadata={"sha256": arrays_digest(arrays)})
    read = checkpoint.read(path)
    assert read is not None
    assert list(read) == ["clients.theta.tree.head.weight", "round"]
    assert read["round"].tolist() == [3]


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(FedpriorError, match=r"cannot write .*x.safetensors: .*No space left.*; free some space or"):
        checkpoint.write(tmp_path / "x.safetensors", state())
    assert list(tmp_path.iterdir()) == []

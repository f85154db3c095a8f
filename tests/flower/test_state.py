"""A site's states on its disk: what is not what the server accepted is lost, and said to be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedprior.errors import FedpriorError
from fedprior.flower.state import StateLost, Store, keeping

LIKE = {"w": np.zeros(3, np.float32)}
NAME = "00000002-a1"


def store(root: Path, client: str = "b") -> Store:
    return Store(root, "toy-1", client)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")


def rename(path: Path) -> None:
    """Another of the client's own states, in the place of this one."""
    store(path.parents[2]).write("00000001-00", {"w": np.ones(3, np.float32)})
    os.replace(path.with_name("00000001-00.safetensors"), path)


def foreign(path: Path) -> None:
    """Another client's state of the same name."""
    other = store(path.parents[2], "c")
    other.write(NAME, {"w": np.ones(3, np.float32)})
    shutil.copy(other.path(NAME), path)


def other_model(path: Path) -> None:
    store(path.parents[2]).write(NAME, {"w": np.ones(4, np.float32)})


@pytest.mark.parametrize("harm", [Path.unlink, cut, change, rename, foreign, other_model])
def test_what_is_not_the_accepted_state_is_lost(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    mine = store(tmp_path)
    mine.write(NAME, {"w": np.arange(3, dtype=np.float32)})
    assert mine.read(NAME, LIKE)["w"].tolist() == [0, 1, 2]
    harm(mine.path(NAME))
    with pytest.raises(StateLost, match=r"the state of client 'b' that the server asks for, .* bring the file back"):
        mine.read(NAME, LIKE)


def test_states_are_their_owners_alone(tmp_path: Path) -> None:
    mine = store(tmp_path / "new")
    mine.write(NAME, LIKE)
    assert mine.path(NAME).stat().st_mode & 0o777 == 0o600
    assert mine.folder.stat().st_mode & 0o777 == 0o700


def test_older_states_than_may_be_asked_for_go(tmp_path: Path) -> None:
    mine = store(tmp_path)
    for name in ("00000001-a1", "00000002-a1", "00000002-b2", "00000003-a1"):
        mine.write(name, LIKE)
    (mine.folder / "00000001-a1.safetensors.tmp").touch()
    (mine.folder / "notes.txt").touch()
    mine.sweep("")
    assert len(list(mine.folder.iterdir())) == 6
    mine.sweep("00000002-b2")
    left = sorted(path.name for path in mine.folder.iterdir())
    assert left == ["00000002-a1.safetensors", "00000002-b2.safetensors", "00000003-a1.safetensors", "notes.txt"]


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    for bad in ("../x", "", "a/b", "x" * 101, "a\0b"):
        for use in (
            lambda bad=bad: Store(tmp_path, "toy-1", "b").path(bad),
            lambda bad=bad: Store(tmp_path, bad, "b").folder,
            lambda bad=bad: Store(tmp_path, bad, "b").model,
        ):
            with pytest.raises(FedpriorError, match="which is no valid name"):
                use()
    for client in ("..", "../../x", "a/b", ".", "a\0b", "%2F"):
        folder = Store(tmp_path, "toy-1", client).folder
        assert folder.parent == tmp_path / "toy-1"
        assert folder.name not in ("..", ".", "")
        assert "\0" not in folder.name


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "toy-1").write_text("a file where a folder is to be")
    with pytest.raises(
        FedpriorError, match=r"cannot write .*; free some space, or start the node with another state-dir"
    ):
        store(tmp_path).write(NAME, LIKE)
    with pytest.raises(FedpriorError, match="cannot write there: some reason"), keeping(Path("there")):
        raise FedpriorError("some reason")

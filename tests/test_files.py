"""Files that are replaced whole or not at all, and digests."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedprior.errors import FedpriorError
from fedprior.files import (
    array_digest,
    arrays_digest,
    cache_dir,
    cannot_write,
    read_json,
    replace_file,
    write_json,
    write_text,
)


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
    write_text(path, "new")
    assert [(p.name, p.read_text()) for p in path.parent.iterdir()] == [("file", "new")]


def test_writers_and_readers_of_one_file_keep_out_of_each_others_way(tmp_path: Path) -> None:
    """Such as two runs of a study, both of which write its summary."""
    path, texts = tmp_path / "summary.json", {letter * 200_000 for letter in "ab"}
    inside = threading.Barrier(2)

    def write(text: str) -> None:
        for _ in range(5):

            def together(temporary: Path, text: str = text) -> None:
                inside.wait(10)  # both have begun, and neither is done
                temporary.write_text(text)
                inside.wait(10)

            replace_file(path, together)
            assert path.read_text() in texts

    with ThreadPoolExecutor(2) as both:
        list(both.map(write, texts))
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def test_where_nobody_may_write_space_is_of_no_use(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedpriorError, match=r"cannot write .*; choose a folder that can be written$"):
        write_text(tmp_path / "file" / "x.json", "")
    for number in (errno.ENOSPC, errno.EDQUOT):
        told = str(cannot_write(tmp_path, OSError(number, "full")))
        assert told.endswith(": full; free some space or choose another folder")


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


def test_digests_see_types_shapes_names_and_content() -> None:
    zeros = np.zeros((2, 3), np.float32)
    others: list[np.ndarray] = [zeros.T, zeros.astype(np.float64), zeros.view(np.int32), zeros + 1]
    assert len({array_digest(array) for array in (zeros, *others)}) == 5
    assert array_digest(zeros) == array_digest(np.asfortranarray(zeros))
    assert arrays_digest({"a": zeros, "b": zeros + 1}) == arrays_digest({"b": zeros + 1, "a": zeros})
    assert arrays_digest({"a": zeros}) != arrays_digest({"b": zeros})


def test_the_user_says_where_things_are_cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("FEDPRIOR_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "fedprior"

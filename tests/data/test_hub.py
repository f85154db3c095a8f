"""Data in the hub's layout: finding the files, reading them, and the cache of decoded arrays."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.small_hub import LABELS, PIXELS, TWEETS, cache_entries, png, write
from fedprior.data import hub as reading
from fedprior.data.hub import Spec
from fedprior.data.sources import load
from fedprior.errors import FedpriorError


@pytest.mark.usefixtures("hub")
def test_splits_are_pooled_in_order() -> None:
    mnist = load("mnist", normalize="unit")
    np.testing.assert_allclose(mnist.x, PIXELS.reshape(16, 784) / np.float32(255), rtol=1e-6)
    assert mnist.y.tolist() == LABELS.tolist()
    assert mnist.is_test is not None
    assert mnist.is_test.tolist() == [False] * 12 + [True] * 4
    assert mnist.group is None


def test_root_stands_for_the_variable(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load("mnist")
    monkeypatch.delenv("FEDPRIOR_DATA")
    assert load("mnist", root=hub).fingerprint == before.fingerprint


def test_writers_are_numbered_by_first_appearance(hub: Path) -> None:
    femnist = load("femnist")
    assert femnist.group is not None
    assert femnist.group.tolist() == [0, 0, 1, 1] * 4
    assert femnist.n_classes == 62
    (hub / "femnist" / "test-00000-of-00001.parquet").unlink()
    assert load("femnist").is_test is None


def test_the_hub_s_moods_are_those_of_leaf(hub: Path) -> None:
    write(hub / "sent140", "train", {"text": TWEETS, "user": list("abca"), "sentiment": [4, 0, 4, 0]})
    assert load("sent140").y.tolist() == [1, 0, 1, 0]


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["mnist", "femnist", "sent140"])
def test_second_load_reads_the_cache_only(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the cache was not used")

    first = load(name)
    monkeypatch.setattr(reading, "_tables", refuse)
    again = load(name)
    for field in ("x", "y", "group", "is_test", "vectors"):
        a, b = getattr(first, field), getattr(again, field)
        assert (a is None) == (b is None)
        assert a is None or (np.array_equal(a, b) and a.dtype == b.dtype)
    assert first.fingerprint == again.fingerprint


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "garble", "no digests"])
def test_a_harmed_cache_entry_is_rebuilt_silently(hub: Path, harm: str) -> None:
    first = load("mnist")
    (entry,) = cache_entries(hub)
    image = entry / "x.npy"
    content = bytearray(image.read_bytes())
    if harm == "truncate":
        image.write_bytes(content[: len(content) // 2])
    elif harm == "flip":
        content[-1] ^= 1
        image.write_bytes(content)
    elif harm == "remove":
        image.unlink()
    elif harm == "garble":
        (entry / "digests.json").write_text("{")
    else:
        (entry / "digests.json").unlink()
    again = load("mnist")
    assert np.array_equal(first.x, again.x)
    assert cache_entries(hub) == [entry]
    assert np.load(image).shape == (16, 28, 28)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["FEDPRIOR_CACHE"] + "/sprung",)


def test_a_cache_entry_cannot_run_code(hub: Path) -> None:
    load("mnist")
    (entry,) = cache_entries(hub)
    np.save(entry / "x.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    load("mnist")
    assert cache_entries(hub) == [entry]


def test_an_interrupted_write_leaves_no_entry(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Path] = []

    def stop(path: Path, array: np.ndarray, **_: object) -> None:
        saved.append(path)
        if len(saved) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            load("mnist")
    assert cache_entries(hub) == []
    load("mnist")
    assert len(cache_entries(hub)) == 1


def test_an_entry_is_of_one_way_to_read_the_files(hub: Path) -> None:
    """The same files hold other arrays for whoever names other columns, labels or splits."""
    fine = Spec("tweets by user", "owner/tweets", 5, content="text", label="fine", splits=("train",))
    write(hub / "tweets", "train", {"text": TWEETS, "fine": [0, 1, 2, 3], "coarse": [0, 0, 1, 1], "who": list("abab")})
    write(hub / "tweets", "test", {"text": TWEETS, "fine": [4] * 4, "coarse": [1] * 4, "who": list("abab")})

    def read(**changes: Any) -> dict[str, np.ndarray]:
        return reading.read("tweets", dataclasses.replace(fine, **changes), None)[0]

    for _ in range(2):
        assert read()["y"].tolist() == [0, 1, 2, 3]
        assert read(label="coarse")["y"].tolist() == [0, 0, 1, 1]
        assert read(relabel={3: 0})["y"].tolist() == [0, 1, 2, 0]
        assert len(read(splits=("train", "test"))["y"]) == 8
        assert "group" in read(group="who")
    assert len(cache_entries(hub)) == 5


def test_labels_may_change_places(hub: Path) -> None:
    spec = Spec("tweets", "owner/tweets", 3, content="text", label="mood", splits=("train",))
    write(hub / "tweets", "train", {"text": TWEETS, "mood": [0, 1, 2, 0]})
    for relabel in ({0: 1, 1: 0}, {1: 0, 0: 1}):
        arrays, _ = reading.read("tweets", dataclasses.replace(spec, relabel=relabel), None)
        assert arrays["y"].tolist() == [1, 0, 2, 1]
        assert arrays["y"].dtype == np.int32


def test_an_entry_is_of_files_in_their_folders(hub: Path) -> None:
    """Where the folders say which samples are for testing, the files' own names may be alike."""
    first, second = hub / "mnist" / "train", hub / "mnist" / "test"
    for folder in (first, second):
        folder.mkdir()
        (hub / "mnist" / f"{folder.name}-00000-of-00001.parquet").rename(folder / "0.parquet")
    for expected in (LABELS.tolist(), [*LABELS[12:].tolist(), *LABELS[:12].tolist()]):
        assert load("mnist").y.tolist() == expected
        first.rename(hub / "mnist" / "aside")
        second.rename(first)
        (hub / "mnist" / "aside").rename(second)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["cat", "dog", "cat", "dog"], "column 'label' of .*mnist must be an array of numbers"),
        ([0.5, 1.0, 2.0, 3.0], "column 'label' of .*mnist must hold whole numbers of at most 32 bits; got 0.5"),
    ],
)
def test_labels_that_are_no_whole_numbers_are_told(hub: Path, labels: list[Any], message: str) -> None:
    (hub / "mnist" / "train-00000-of-00001.parquet").unlink()
    write(hub / "mnist", "test", {"image": [png(p) for p in PIXELS[12:]], "label": labels}, "image")
    with pytest.raises(FedpriorError, match=message):
        load("mnist")


@pytest.mark.usefixtures("hub")
def test_an_unwritable_cache_warns_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="FEDPRIOR_CACHE") as caught:
        assert len(load("mnist").x) == 16
    assert caught[0].filename == __file__  # the warning points at who called load


# --- what can be wrong with the data ----------------------------------------------------------------------------------


def test_truncated_parquet_is_named(hub: Path) -> None:
    path = hub / "mnist" / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FedpriorError, match=r"cannot read .*mnist/test-00000-of-00001\.parquet.*fetch it again") as e:
        load("mnist")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": [10, 0, 0, 0]}, "label 10 of sample 12 is out of range; valid: 0 to 9"),
        ({"label": [None, 0, 0, 0]}, "column 'label' of .* has 1 empty entries"),
        ({"image": [png(p[:20]) for p in PIXELS[12:]]}, r"picture 0 of .* is \(20, 28\) of uint8; expected \(28, 28\)"),
    ],
)
def test_wrong_content_is_told(hub: Path, change: dict[str, Any], message: str) -> None:
    columns = {"image": [png(p) for p in PIXELS[12:]], "label": LABELS[12:].tolist()} | change
    write(hub / "mnist", "test", columns, "image")
    with pytest.raises(FedpriorError, match=message):
        load("mnist")


def test_missing_column_and_empty_data_are_told(hub: Path) -> None:
    for split in ("train", "test"):
        write(hub / "mnist", split, {"image": [], "label": np.array([], int)}, "image")
    with pytest.raises(FedpriorError, match="has no rows"):
        load("mnist")
    for file in (hub / "femnist").iterdir():
        file.unlink()
    write(hub / "femnist", "validation", {"image": [png(PIXELS[0])], "character": [1], "writer_id": ["a"]}, "image")
    with pytest.raises(FedpriorError, match=r"no sample in the splits of .*; wanted: train or test; found: validation"):
        load("femnist")
    write(hub / "sent140", "train", {"text": TWEETS, "sentiment": [0, 1, 0, 1]})
    with pytest.raises(FedpriorError, match=r"no column 'user' in .*; found: text, sentiment"):
        load("sent140")


def test_missing_folders_are_told(hub: Path, tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match=r"no folder 'cifar10' in .*there: femnist, glove, mnist, sent140"):
        load("cifar10")
    (hub / "cifar10").mkdir()
    with pytest.raises(FedpriorError, match=r"no parquet file in .*cifar10 \(there: nothing\)"):
        load("cifar10")
    with pytest.raises(FedpriorError, match="no such folder"):
        load("mnist", root=tmp_path / "nowhere")


@pytest.mark.usefixtures("hub")
def test_without_the_extra_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FedpriorError, match=r"pip install 'fedprior\[hub\]'"):
        load("mnist")


def test_the_hub_is_asked_by_name_and_its_answer_kept(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: list[tuple[str, str | None]] = []
    real = datasets.load_dataset

    def answer(name: str, revision: str | None = None) -> Any:
        asked.append((name, revision))
        return real(str(hub / "mnist"), cache_dir=str(hub.parent / "scratch"))

    local = load("mnist").fingerprint
    monkeypatch.delenv("FEDPRIOR_DATA")
    monkeypatch.setattr(datasets, "load_dataset", answer)
    assert load("mnist").fingerprint == load("mnist").fingerprint == local
    assert asked == [("ylecun/mnist", None)]


@pytest.mark.usefixtures("hub")
def test_an_unreachable_hub_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.delenv("FEDPRIOR_DATA")
    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(FedpriorError, match=r"cannot get ylecun/mnist from the hub \(ConnectionError: no route\)"):
        load("mnist")

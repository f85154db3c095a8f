"""Sources: a small copy of the hub's layout stands for the real data; those who have the real data test that too."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedprior.data import sources
from fedprior.data.sources import from_arrays, load
from fedprior.errors import FedpriorError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (16, 28, 28)).astype(np.uint8)
LABELS = np.arange(16) % 10
WRITERS = ["w9", "w9", "w2", "w2"] * 4
TWEETS = ["Good day , good!", "bad DAY", "zzzunknown good", " ".join(["good"] * 40)]


def png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write(folder: Path, split: str, columns: dict, pictures: str | None = None) -> Path:
    """A parquet file as the hub has it: picture columns hold PNG bytes and say so in the metadata."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    if pictures:
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        columns = columns | {pictures: pa.array([{"bytes": b, "path": None} for b in columns[pictures]], kind)}
    table = pa.table(columns)
    features = {name: {"dtype": str(table.schema.field(name).type), "_type": "Value"} for name in columns}
    if pictures:
        features[pictures] = {"_type": "Image"}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{split}-00000-of-00001.parquet"
    pq.write_table(table, path)
    return path


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """Small mnist, femnist and sent140 in a folder named by FEDPRIOR_DATA, with a cache of their own."""
    pytest.importorskip("datasets", reason="the hub extra is not installed")
    root = tmp_path / "data"
    for name, label in (("mnist", "label"), ("femnist", "character")):
        for split, rows in (("train", slice(0, 12)), ("test", slice(12, 16))):
            columns = {"image": [png(p) for p in PIXELS[rows]], label: LABELS[rows], "writer_id": WRITERS[rows]}
            write(root / name, split, columns, "image")
    write(root / "sent140", "train", {"text": TWEETS, "user": ["b", "a", "b", "c"], "sentiment": [1, 0, 1, 1]})
    (root / "glove").mkdir()
    glove = "good 1 2\nday 3 4\n, 5 6\nbad 7 8\nnever 9 9\n"
    (root / "glove" / "glove.6B.2d.txt.gz").write_bytes(gzip.compress(glove.encode()))
    monkeypatch.setenv("FEDPRIOR_DATA", str(root))
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path / "cache"))
    return root


def refuse(*_: object) -> None:
    raise AssertionError("the cache was not used")


def entries(root: Path) -> list[Path]:
    return sorted((root.parent / "cache").iterdir())


# --- reading ----------------------------------------------------------------------------------------------------------


def test_digits_are_embedded():
    digits = load("digits")
    assert digits.x.shape == (1797, 64)
    assert digits.x.dtype == np.float32
    assert (digits.x.min(), digits.x.max()) == (0, 1)
    assert np.bincount(digits.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert load("digits").fingerprint == digits.fingerprint
    assert load("digits", normalize="pixel").fingerprint != digits.fingerprint


def test_splits_are_pooled_in_order(hub):
    mnist = load("mnist", normalize="unit")
    np.testing.assert_allclose(mnist.x, PIXELS.reshape(16, 784) / np.float32(255), rtol=1e-6)
    assert mnist.y.tolist() == LABELS.tolist()
    assert mnist.is_test.tolist() == [False] * 12 + [True] * 4
    assert mnist.group is None


def test_root_stands_for_the_variable(hub, monkeypatch):
    before = load("mnist")
    monkeypatch.delenv("FEDPRIOR_DATA")
    assert load("mnist", root=hub).fingerprint == before.fingerprint


def test_writers_are_numbered_by_first_appearance(hub):
    femnist = load("femnist")
    assert femnist.group.tolist() == [0, 0, 1, 1] * 4
    assert femnist.n_classes == 62
    (hub / "femnist" / "test-00000-of-00001.parquet").unlink()
    assert load("femnist").is_test is None


def test_tweets_become_ranked_tokens(hub):
    sent140 = load("sent140")
    # "good" occurs 43 times, "day" twice, "," and "bad" once: the comma sorts first
    assert sent140.x[:3, :6].tolist() == [[2, 3, 4, 2, 1, 0], [5, 3, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0]]
    assert sent140.x.shape == (4, 25)
    assert sent140.x[3].tolist() == [2] * 25
    assert sent140.vectors.tolist() == [[0, 0], [0, 0], [1, 2], [3, 4], [5, 6], [7, 8]]
    assert sent140.y.tolist() == [1, 0, 1, 1]
    assert sent140.group.tolist() == [0, 1, 0, 2]


def test_the_hub_s_moods_are_those_of_leaf(hub):
    write(hub / "sent140", "train", {"text": TWEETS, "user": list("abca"), "sentiment": [4, 0, 4, 0]})
    assert load("sent140").y.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("name", ["pixel", "scalar", "half", "unit"])
def test_normalizations_are_their_formulas(hub, name):
    raw = PIXELS.reshape(16, 784).astype(np.float64)
    expected = {
        "pixel": (raw - raw.mean(0)) / (raw.std(0) + 0.001),
        "scalar": (raw - raw.mean()) / (raw.std() + 0.001),
        "half": (raw / 255 - 0.5) / 0.5,
        "unit": raw / 255,
    }[name]
    np.testing.assert_allclose(load("mnist", normalize=name).x, expected, rtol=1e-5, atol=1e-5)


def test_fingerprint_follows_content_and_settings(hub):
    first = load("mnist").fingerprint
    assert len(first) == 64
    assert load("mnist").fingerprint == first == load("mnist", normalize="pixel").fingerprint
    assert load("mnist", normalize="half").fingerprint != first
    path = hub / "mnist" / "test-00000-of-00001.parquet"
    changed = PIXELS[12:].copy()
    changed[0, 0, 0] ^= 1
    write(path.parent, "test", {"image": [png(p) for p in changed], "label": LABELS[12:]}, "image")
    assert load("mnist").fingerprint != first


# --- the cache --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "femnist", "sent140"])
def test_second_load_reads_the_cache_only(hub, monkeypatch, name):
    first = load(name)
    monkeypatch.setattr(sources, "_tables", refuse)
    again = load(name)
    for field in ("x", "y", "group", "is_test", "vectors"):
        a, b = getattr(first, field), getattr(again, field)
        assert (a is None) == (b is None)
        assert a is None or (np.array_equal(a, b) and a.dtype == b.dtype)
    assert first.fingerprint == again.fingerprint


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "garble", "no digests"])
def test_a_harmed_cache_entry_is_rebuilt_silently(hub, harm):
    first = load("mnist")
    (entry,) = entries(hub)
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
    assert entries(hub) == [entry]
    assert np.load(image).shape == (16, 28, 28)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (os.environ["FEDPRIOR_CACHE"] + "/sprung",)


def test_a_cache_entry_cannot_run_code(hub):
    load("mnist")
    (entry,) = entries(hub)
    np.save(entry / "x.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    load("mnist")
    assert entries(hub) == [entry]


def test_an_interrupted_write_leaves_no_entry(hub, monkeypatch):
    saved = []

    def stop(path, array, **_):
        saved.append(path)
        if len(saved) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            load("mnist")
    assert entries(hub) == []
    load("mnist")
    assert len(entries(hub)) == 1


def test_an_unwritable_cache_warns_and_goes_on(hub, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="FEDPRIOR_CACHE"):
        assert len(load("mnist").x) == 16


# --- what can be wrong with the data ----------------------------------------------------------------------------------


def test_truncated_parquet_is_named(hub):
    path = hub / "mnist" / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(FedpriorError, match=r"cannot read .*mnist/test-00000-of-00001\.parquet.*fetch it again") as e:
        load("mnist")
    assert "\n" not in str(e.value)


def test_broken_picture_is_named(hub):
    broken = [png(p) for p in PIXELS[12:]]
    broken[2] = broken[2][:60]
    write(hub / "mnist", "test", {"image": broken, "label": LABELS[12:]}, "image")
    with pytest.raises(FedpriorError, match=r"cannot read picture 1 or the next of .*mnist"):
        load("mnist")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": [10, 0, 0, 0]}, "label 10 of sample 12 is out of range; valid: 0 to 9"),
        ({"label": [None, 0, 0, 0]}, "column 'label' of .* has 1 empty entries"),
        ({"image": [png(p[:20]) for p in PIXELS[12:]]}, r"picture 0 of .* is \(20, 28\) of uint8; expected \(28, 28\)"),
    ],
)
def test_wrong_content_is_told(hub, change, message):
    columns = {"image": [png(p) for p in PIXELS[12:]], "label": LABELS[12:].tolist()} | change
    write(hub / "mnist", "test", columns, "image")
    with pytest.raises(FedpriorError, match=message):
        load("mnist")


def test_missing_column_and_empty_data_are_told(hub):
    for split in ("train", "test"):
        write(hub / "mnist", split, {"image": [], "label": np.array([], int)}, "image")
    with pytest.raises(FedpriorError, match="has no rows"):
        load("mnist")
    for file in (hub / "femnist").iterdir():
        file.unlink()
    write(hub / "femnist", "validation", {"image": [png(PIXELS[0])], "character": [1], "writer_id": ["a"]}, "image")
    with pytest.raises(FedpriorError, match=r"no sample in the train and test splits of .*; found: validation"):
        load("femnist")
    write(hub / "sent140", "train", {"text": TWEETS, "sentiment": [0, 1, 0, 1]})
    with pytest.raises(FedpriorError, match=r"no column 'user' in .*; found: text, sentiment"):
        load("sent140")


def test_missing_folders_are_told(hub, tmp_path, monkeypatch):
    with pytest.raises(FedpriorError, match=r"no folder 'cifar10' in .*there: femnist, glove, mnist, sent140"):
        load("cifar10")
    (hub / "cifar10").mkdir()
    with pytest.raises(FedpriorError, match=r"no parquet file in .*cifar10 \(there: nothing\)"):
        load("cifar10")
    with pytest.raises(FedpriorError, match="no such folder"):
        load("mnist", root=tmp_path / "nowhere")


def test_glove_must_be_one_whole_file(hub):
    (path,) = (hub / "glove").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-12])
    with pytest.raises(FedpriorError, match=r"cannot read line .*fetch it again"):
        load("sent140")
    path.write_bytes(gzip.compress(b"good 1 2\nday 3\n"))
    with pytest.raises(FedpriorError, match="equally many finite numbers"):
        load("sent140")
    (hub / "glove" / "other.txt").write_text("good 1\n")
    with pytest.raises(FedpriorError, match="exactly one file of GloVe vectors"):
        load("sent140")
    path.unlink()
    assert load("sent140").vectors.shape == (3, 1)


def test_names_and_settings_are_checked(hub):
    with pytest.raises(FedpriorError, match="did you mean 'mnist'"):
        load("minst")
    with pytest.raises(FedpriorError, match="unknown normalization 'pixels'"):
        load("mnist", normalize="pixels")
    with pytest.raises(FedpriorError, match="tokens and no pixels"):
        load("sent140", normalize="unit")


def test_without_the_extra_the_fix_is_named(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(FedpriorError, match=r"pip install 'fedprior\[hub\]'"):
        load("mnist")


def test_the_hub_is_asked_by_name_and_its_answer_kept(hub, monkeypatch):
    import datasets

    asked, real = [], datasets.load_dataset

    def answer(name, revision=None):
        asked.append((name, revision))
        return real(str(hub / "mnist"), cache_dir=str(hub.parent / "scratch"))

    local = load("mnist").fingerprint
    monkeypatch.delenv("FEDPRIOR_DATA")
    monkeypatch.setattr(datasets, "load_dataset", answer)
    assert load("mnist").fingerprint == load("mnist").fingerprint == local
    assert asked == [("ylecun/mnist", None)]


def test_an_unreachable_hub_is_told(hub, monkeypatch):
    import datasets

    def fail(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.delenv("FEDPRIOR_DATA")
    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(FedpriorError, match=r"cannot get ylecun/mnist from the hub \(ConnectionError: no route\)"):
        load("mnist")


# --- arrays of one's own ----------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 3)), elements=st.floats(-9, 9, width=32)),
    st.data(),
)
def test_arrays_are_kept_and_bad_values_named(x, data):
    y = np.arange(len(x)) % 3
    source = from_arrays(x, y)
    assert np.array_equal(source.x, x)
    assert source.n_classes == y.max() + 1
    assert source.fingerprint == from_arrays(x.copy(), y.copy()).fingerprint
    i, j = data.draw(st.integers(0, len(x) - 1)), data.draw(st.integers(0, x.shape[1] - 1))
    bad = x.copy()
    bad[i, j] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    with pytest.raises(FedpriorError, match=f"sample {i} of arrays has a value that is not finite"):
        from_arrays(bad, y)


def test_arrays_may_hold_tokens_clients_and_a_split():
    source = from_arrays(
        [[1, 0], [2, 2]], [1, 0], client_id=["z", "a"], is_test=[0, 1], vectors=np.zeros((3, 4)), name="mine"
    )
    assert source.x.dtype == np.int32
    assert source.vectors.dtype == np.float32
    assert (source.name, source.group.tolist(), source.is_test.tolist()) == ("mine", [0, 1], [False, True])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": []}, "x is empty"),
        ({"x": 1.0}, "x must be an array of numbers"),
        ({"x": [["a"], ["b"]]}, "x must be an array of numbers"),
        ({"x": [[1.0], [1.0, 2.0]]}, "all rows of one length"),
        ({"x": [[1e300], [0.0]]}, "sample 0 of arrays has a value that is not finite"),
        ({"y": [0]}, r"labels of shape \(1,\) for 2 samples"),
        ({"y": [0, 0.5]}, "y must hold whole numbers of at most 32 bits; got 0.5"),
        ({"y": [0, float("nan")]}, "y must hold whole numbers of at most 32 bits; got nan"),
        ({"y": [0, 2**40]}, "at most 32 bits; got 1099511627776"),
        ({"y": ["cat", "dog"]}, "y must be an array of numbers"),
        ({"y": [0, -1]}, "label -1 of sample 1 is out of range; valid: 0 to 0"),
        ({"y": [0, 7], "n_classes": 5}, "label 7 of sample 1 is out of range; valid: 0 to 4"),
        ({"client_id": [1]}, r"client_id has shape \(1,\) for 2 samples"),
        ({"client_id": [1.0, float("nan")]}, "client_id of sample 1 is not a number"),
        ({"is_test": [True, False, True]}, r"is_test has shape \(3,\) for 2 samples"),
        ({"x": [[0], [3]], "vectors": np.zeros((3, 2))}, "ids 0 to 3 with word vectors of shape"),
        ({"x": [[0], [1]], "vectors": [[0.0], [np.inf]]}, "sample 1 of the word vectors"),
    ],
)
def test_wrong_arrays_are_told_in_one_line(arguments, message):
    with pytest.raises(FedpriorError, match=message) as error:
        from_arrays(**({"x": [[0.0], [1.0]], "y": [0, 1]} | arguments))
    assert "\n" not in str(error.value)


# --- the real data ----------------------------------------------------------------------------------------------------


@pytest.fixture
def real(request) -> str:
    root, name = os.environ.get("FEDPRIOR_DATA"), request.param
    if not root:
        pytest.skip("FEDPRIOR_DATA names no folder with real data")
    if not (Path(root) / name).is_dir():
        pytest.skip(f"no folder '{name}' in FEDPRIOR_DATA")
    return name


@pytest.mark.data
@pytest.mark.parametrize(
    ("real", "shape", "tests"),
    [
        ("mnist", (70_000, 784), 10_000),
        pytest.param("fashion_mnist", (70_000, 784), 10_000, marks=pytest.mark.slow),
        ("cifar10", (60_000, 32, 32, 3), 10_000),
        ("femnist", (16_393, 784), 1_685),
        ("sent140", (105_471, 25), None),
    ],
    indirect=["real"],
)
def test_real_data_is_what_it_is_said_to_be(real, shape, tests):
    source = load(real)
    assert source.x.shape == shape
    assert source.is_test is None if tests is None else source.is_test.sum() == tests
    if real == "mnist":
        assert np.bincount(source.y).tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
        assert source.x.max() == pytest.approx(70_000**0.5, rel=2e-3)  # the pixel lit in one picture only
    if real == "cifar10":
        assert np.bincount(source.y).tolist() == [6000] * 10
        assert (source.x.min(), source.x.max()) == (-1, 1)
    if real == "femnist":
        assert source.group.max() + 1 == 105
        assert source.x[:, 0].mean() > 0.9  # white background
    if real == "sent140":
        assert source.vectors.shape[1] == 100
        assert source.x.max() == len(source.vectors) - 1
        assert source.group.max() + 1 == 85_335


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("real", ["mnist"], indirect=True)
def test_a_kept_source_is_there_in_two_seconds(real):
    load(real)
    code = f"""
import sys, time
from fedprior.data.sources import load
start = time.perf_counter()
load({real!r})
taken = time.perf_counter() - start
assert "datasets" not in sys.modules
assert taken < 2, taken
"""
    subprocess.run([sys.executable, "-c", code], check=True)

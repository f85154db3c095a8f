"""Sources: names, normalisation, fingerprints, arrays of one's own, and names of one's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from data.small_hub import LABELS, PIXELS, png, write
from fedprior.data.federation import federate
from fedprior.data.partitions import split_source
from fedprior.data.sources import SOURCES, Source, Spec, from_arrays, load
from fedprior.errors import FedpriorError

KNOWN = {  # fingerprints that are written in the records of runs: a source must keep its own
    "digits": "f258fffac97eda9c9f4211731577c315da8e8d5aa36906a73b741f464490b054",
    "mnist": "8102cc4c20a9b6ec8a0f48fc0e944b8160fade5065d61210abf5fda948e5062a",
    "femnist": "ce0e52d074137d95ae5044945bafa0095f72bff4914f29a4d14c9349fd95d0b4",
    "sent140": "73c51bf08a24492a31bfc0b388cec6d98046c3e40adeb6f5c8aebe01f39a636b",
}


def test_digits_are_embedded() -> None:
    digits = load("digits")
    assert digits.x.shape == (1797, 64)
    assert digits.x.dtype == np.float32
    assert (digits.x.min(), digits.x.max()) == (0, 1)
    assert np.bincount(digits.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert load("digits").fingerprint == digits.fingerprint == KNOWN["digits"]
    assert load("digits", normalize="pixel").fingerprint != digits.fingerprint


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["pixel", "scalar", "half", "unit"])
def test_normalizations_are_their_formulas(name: str) -> None:
    raw = PIXELS.reshape(16, 784).astype(np.float64)
    expected = {
        "pixel": (raw - raw.mean(0)) / (raw.std(0) + 0.001),
        "scalar": (raw - raw.mean()) / (raw.std() + 0.001),
        "half": (raw / 255 - 0.5) / 0.5,
        "unit": raw / 255,
    }[name]
    np.testing.assert_allclose(load("mnist", normalize=name).x, expected, rtol=1e-5, atol=1e-5)


def test_fingerprint_follows_content_and_settings(hub: Path) -> None:
    first = load("mnist").fingerprint
    assert len(first) == 64
    assert load("mnist").fingerprint == first == load("mnist", normalize="pixel").fingerprint
    assert load("mnist", normalize="half").fingerprint != first
    path = hub / "mnist" / "test-00000-of-00001.parquet"
    changed = PIXELS[12:].copy()
    changed[0, 0, 0] ^= 1
    write(path.parent, "test", {"image": [png(p) for p in changed], "label": LABELS[12:]}, "image")
    assert load("mnist").fingerprint != first


@pytest.mark.usefixtures("hub")
def test_names_and_settings_are_checked() -> None:
    with pytest.raises(FedpriorError, match="did you mean 'mnist'"):
        load("minst")
    with pytest.raises(FedpriorError, match="unknown normalization 'pixels'"):
        load("mnist", normalize="pixels")
    with pytest.raises(FedpriorError, match="tokens and no pixels"):
        load("sent140", normalize="unit")
    with pytest.raises(FedpriorError, match="unknown normalization 'pixels'"):
        load("digits", normalize="pixels")


def test_data_are_read_without_loading_heavy_packages() -> None:
    """Sources and partitions are looked at by programs that have no use for JAX, pictures or settings."""
    code = """
import sys
import fedprior.data.partitions, fedprior.data.sources, fedprior.data.federation
heavy = {"jax", "matplotlib", "pydantic", "scipy", "sklearn", "datasets", "pyarrow"} & set(sys.modules)
assert not heavy, heavy
fedprior.data.sources.load("digits")
heavy = {"jax", "matplotlib", "pydantic", "datasets"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- names of one's own -----------------------------------------------------------------------------------------------


def four_samples() -> Source:
    return from_arrays([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], client_id=["u", "u", "v", "v"])


@pytest.mark.usefixtures("own_names")
def test_a_registered_function_is_a_source_by_name() -> None:
    SOURCES.register("mine", four_samples)
    mine = load("mine")
    assert (mine.name, mine.fingerprint) == ("mine", four_samples().fingerprint)
    split = split_source(mine, {"kind": "natural", "test_fraction": 0.5})
    assert federate(mine, split).n_clients == 2
    with pytest.raises(FedpriorError, match="normalize='half' for mine, whose function has no such argument"):
        load("mine", normalize="half")
    with pytest.raises(FedpriorError, match="there is a data source 'mnist' already"):
        SOURCES.register("mnist", four_samples)
    with pytest.raises(FedpriorError, match=r"unknown data source 'mien' \(did you mean 'mine'\?\)"):
        load("mien")


@pytest.mark.usefixtures("own_names")
def test_a_registered_function_may_take_the_normalization() -> None:
    def scaled(normalize: str = "tenth") -> Source:
        return from_arrays([[10.0 if normalize == "tenth" else 100.0]], [0])

    SOURCES.register("scaled", scaled)
    assert (load("scaled").x.item(), load("scaled", normalize="none").x.item()) == (10.0, 100.0)


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize(
    ("result", "message"),
    [
        (([[0.0]], [0]), r"data source 'mine' gave a tuple; let it return from_arrays\(x, y\)"),
        (Source("m", np.zeros((1, 1)), np.array([3], np.int32), 2, ""), "label 3 of sample 0 is out of range"),
    ],
)
def test_what_a_registered_function_gives_is_checked(result: Any, message: str) -> None:
    SOURCES.register("mine", lambda: result)
    with pytest.raises(FedpriorError, match=message):
        load("mine")


@pytest.mark.usefixtures("own_names")
def test_a_registered_spec_reads_pictures_in_the_hub_s_layout(hub: Path) -> None:
    spec = Spec(
        "small pictures with two marks", "owner/marks", 2, "unit", content="picture", label="mark", relabel={7: 0, 9: 1}
    )
    SOURCES.register("marks", spec)
    columns = {"picture": [png(p) for p in PIXELS[:3]], "mark": [9, 7, 9]}
    write(hub / "marks", "train", columns, "picture")
    marks = load("marks")
    assert (marks.x.shape, marks.y.tolist(), marks.is_test) == ((3, 784), [1, 0, 1], None)
    np.testing.assert_allclose(marks.x, PIXELS[:3].reshape(3, 784) / np.float32(255), rtol=1e-6)


# --- arrays of one's own ----------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 3)), elements=st.floats(-9, 9, width=32)),
    st.data(),
)
def test_arrays_are_kept_and_bad_values_named(x: np.ndarray, data: st.DataObject) -> None:
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


def test_arrays_may_hold_tokens_clients_and_a_split() -> None:
    source = from_arrays(
        [[1, 0], [2, 2]], [1, 0], client_id=["z", "a"], is_test=[0, 1], vectors=np.zeros((3, 4)), name="mine"
    )
    assert source.x.dtype == np.int32
    assert source.vectors is not None
    assert source.group is not None
    assert source.is_test is not None
    assert source.vectors.dtype == np.float32
    assert (source.name, source.group.tolist(), source.is_test.tolist()) == ("mine", [0, 1], [False, True])
    assert source.group_names == ("z", "a")
    assert from_arrays([[0.0]], [0]).group_names is None


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_samples_make_a_source(n: int) -> None:
    source = from_arrays(np.ones((n, 3)), np.arange(n), client_id=np.arange(n)[::-1])
    assert source.group is not None
    assert (source.group.tolist(), source.n_classes) == (list(range(n)), n)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": []}, "x is empty"),
        ({"x": np.zeros((4, 0))}, r"x is empty \(of shape \(4, 0\)\)"),
        ({"x": 1.0}, "x must be an array of numbers"),
        ({"x": [["a"], ["b"]]}, "x must be an array of numbers"),
        ({"x": [[1.0], [1.0, 2.0]]}, "all rows of one length"),
        ({"x": [[1e300], [0.0]]}, "sample 0 of arrays has a value that is not finite"),
        ({"y": [0]}, r"labels of shape \(1,\) for 2 samples"),
        ({"y": [0, 0.5]}, "y must hold whole numbers of at most 32 bits; got 0.5"),
        ({"y": [0, float("nan")]}, "y must hold whole numbers of at most 32 bits; got nan"),
        ({"y": [0, 2**40]}, "at most 32 bits; got 1099511627776"),
        ({"y": np.array(["cat", 3.5], object)}, "y must be an array of numbers"),
        ({"y": [0, -1], "n_classes": 2}, "label -1 of sample 1 is out of range; valid: 0 to 1"),
        ({"y": [0, 7], "n_classes": 5}, "label 7 of sample 1 is out of range; valid: 0 to 4"),
        ({"client_id": [1]}, r"client_id has shape \(1,\) for 2 samples"),
        ({"client_id": [1.0, float("nan")]}, "client_id of sample 1 is nan; say who holds"),
        ({"client_id": [["a"], ["a", "b"]]}, "client_id must have one entry for each sample"),
        ({"client_id": "a"}, "client_id is 'a'; give one entry for each sample"),
        ({"is_test": ["train", "test"]}, "is_test of sample 0 is 'train'; valid: True and False, or 1 and 0"),
        ({"is_test": [1, 2]}, "is_test of sample 1 is 2; valid"),
        ({"is_test": [0, float("nan")]}, "is_test of sample 1 is nan; valid"),
        ({"is_test": [[0, 1], [0, 2]]}, r"is_test of sample 1 is \[0, 2\]"),
        ({"n_classes": 0}, "n_classes=0; valid: a whole number from 1, or leave it out"),
        ({"n_classes": 2.5}, "n_classes=2.5; valid"),
        ({"n_classes": True}, "n_classes=True; valid"),
        ({"is_test": [True, False, True]}, r"is_test has shape \(3,\) for 2 samples"),
        ({"x": [[0], [3]], "vectors": np.zeros((3, 2))}, "ids 0 to 3 with word vectors of shape"),
        ({"x": [[0], [1]], "vectors": [[0.0], [np.inf]]}, "sample 1 of the word vectors"),
    ],
)
def test_wrong_arrays_are_told_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message) as error:
        from_arrays(**{"x": [[0.0], [1.0]], "y": [0, 1], **arguments})
    assert "\n" not in str(error.value)


# --- the real data ----------------------------------------------------------------------------------------------------


@pytest.fixture
def real(request: pytest.FixtureRequest) -> str:
    root, name = os.environ.get("FEDPRIOR_DATA"), str(request.param)
    if not root:
        pytest.skip("FEDPRIOR_DATA names no folder with real data")
    if not (Path(root) / name).is_dir():
        pytest.skip(f"no folder '{name}' in FEDPRIOR_DATA")
    return name


@pytest.mark.slow
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
def test_real_data_is_what_it_is_said_to_be(real: str, shape: tuple[int, ...], tests: int | None) -> None:
    source = load(real)
    assert source.x.shape == shape
    assert source.fingerprint == KNOWN.get(real, source.fingerprint)
    assert (None if source.is_test is None else source.is_test.sum()) == tests
    if real == "mnist":
        assert np.bincount(source.y).tolist() == [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
        assert source.x.max() == pytest.approx(70_000**0.5, rel=2e-3)  # the pixel lit in one picture only
    if real == "cifar10":
        assert np.bincount(source.y).tolist() == [6000] * 10
        assert (source.x.min(), source.x.max()) == (-1, 1)
    if real == "femnist":
        assert source.group is not None
        assert source.group.max() + 1 == 105
        assert source.x[:, 0].mean() > 0.9  # white background
    if real == "sent140":
        assert source.vectors is not None
        assert source.group is not None
        assert source.vectors.shape[1] == 100
        assert source.x.max() == len(source.vectors) - 1
        assert source.group.max() + 1 == 85_335


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("real", ["mnist"], indirect=True)
def test_a_kept_source_is_there_in_two_seconds(real: str) -> None:
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

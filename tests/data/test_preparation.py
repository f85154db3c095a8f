"""What a model reads can be made of what an owner has, to the bit, without the training data."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from data.small_hub import PIXELS, TWEETS
from fedprior.data.federation import federate
from fedprior.data.partitions import split_source
from fedprior.data.preparation import Preparation
from fedprior.data.sources import NORMALIZATIONS, SOURCES, from_arrays, load
from fedprior.errors import FedpriorError


def restored(preparation: Preparation) -> Preparation:
    """As it comes back from a file."""
    return Preparation.of(json.loads(json.dumps(preparation.plain())), preparation.arrays())


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("how", list(NORMALIZATIONS))
def test_the_digits_pictures_become_the_training_samples(how: str) -> None:
    from sklearn.datasets import load_digits

    pictures, source = load_digits().images, load("digits", normalize=how)
    before = pictures.copy()
    for given in (pictures, pictures.astype(np.uint8), pictures.reshape(-1, 64)):
        assert same(restored(source.preparation)(given), source.x)
    assert np.array_equal(pictures, before)  # nothing is done to what was given
    federation = federate(source, split_source(source, {"kind": "iid", "clients": 3}))
    assert federation.preparation is source.preparation


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("how", list(NORMALIZATIONS))
@pytest.mark.parametrize("name", ["mnist", "femnist"])
def test_pictures_of_the_hub_become_the_training_samples(name: str, how: str) -> None:
    source = load(name, normalize=how)
    assert same(restored(source.preparation)(PIXELS), source.x)
    with pytest.raises(FedpriorError, match=r"samples of shape \(27, 28\) where the model reads .*\(n, 28, 28\)"):
        source.preparation(PIXELS[:, 1:])


@pytest.mark.usefixtures("hub")
def test_texts_become_the_training_samples() -> None:
    for source in (load("sent140"), load("sent140")):  # decoded, and from the cache
        preparation = restored(source.preparation)
        assert preparation.words == ("good", "day", ",", "bad")
        assert same(preparation(TWEETS), source.x)
        assert same(preparation(source.x), source.x)
        with pytest.raises(FedpriorError, match="word ids 0 to 6 are given; valid: 0 to 5"):
            preparation(np.full((1, 25), 6) * np.eye(25, dtype=int)[:1])
        with pytest.raises(FedpriorError, match=r"x must hold whole numbers of at most 32 bits; got 1.5"):
            preparation(np.full((1, 25), 1.5))
        with pytest.raises(FedpriorError, match="the model reads texts"):
            preparation(np.array([None]))


@pytest.mark.usefixtures("hub")
def test_the_words_have_no_part_in_the_fingerprint() -> None:
    """Older versions kept no words, and their runs go on."""
    assert load("sent140").fingerprint.startswith("506e3f4b5bd9")


@pytest.mark.usefixtures("own_names")
def test_arrays_of_one_s_own_are_read_as_they_are() -> None:
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    SOURCES.register("mine", lambda: from_arrays(x, [0, 1, 0, 1]))
    source = load("mine")
    assert same(restored(source.preparation)(x), source.x)
    words = from_arrays([[0, 2], [1, 1]], [0, 1], vectors=np.zeros((3, 2)))
    assert same(restored(words.preparation)([[0, 2], [1, 1]]), words.x)
    assert same(restored(words.preparation)([[0.0, 2.0], [1.0, 1.0]]), words.x)
    with pytest.raises(FedpriorError, match="was saved without its vocabulary; give ids"):
        words.preparation(["good"])
    assert Preparation()(x).shape == x.shape


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1.0, np.nan]], "sample 0 has a value that is not finite"),
        ([["a", "b"]], "x must be an array of numbers"),
        ([1.0, 2.0], r"an array of shape \(2,\) where the model reads samples of shape \(2,\); give .*\(n, 2\)"),
        (3.0, "x must be an array of numbers"),
        (np.zeros((2, 1, 1, 2)), r"samples of shape \(1, 1, 2\)"),
    ],
)
def test_what_cannot_be_read_is_told(given: Any, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        Preparation(shape=(2,))(given)


class Frame:
    """What pandas and polars have in common."""

    def __init__(self, **columns: Any):
        self.content, self.columns = columns, list(columns)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(self.content[name])


def test_columns_of_a_data_frame_are_found_by_their_names() -> None:
    preparation = Preparation(columns=("age", "dose"), shape=(2,))
    assert preparation(Frame(dose=[1.0], age=[30.0])).tolist() == [[30, 1]]  # type: ignore[arg-type]
    assert preparation(Frame(dose=[1.0, 2.0], who=[7.0, 7.0], age=[30.0, 40.0])).tolist() == [[30, 1], [40, 2]]  # type: ignore[arg-type]
    with pytest.raises(FedpriorError, match="the table has no column 'dose'; the model reads age, dose"):
        preparation(Frame(age=[30.0]))  # type: ignore[arg-type]


def test_columns_of_several_kinds_are_numbers_as_they_are_to_training() -> None:
    """A frame of pandas with such columns becomes an array of objects as a whole."""
    preparation = Preparation(columns=("ok", "age", "dose"), shape=(3,))
    nullable = np.array([True, False], object)
    frame = Frame(ok=nullable, age=np.array([30, 2**24 + 1]), dose=[Decimal("0.5"), 2.5])
    assert preparation(frame).tolist() == [[1, 30, 0.5], [0, 2**24, 2.5]]  # type: ignore[arg-type]
    for dose, message in {
        (None, 1.0): "sample 0 has a value that is not finite",
        ("1.5", 1.0): "column 'dose' of the table must be an array of numbers; got shape .2,., type object",
        ((1.0, 2.0), (3.0, 4.0)): r"column 'dose' of the table must be one column; got shape \(2, 2\)",
    }.items():
        column = np.array(dose, None if isinstance(dose[0], tuple) else object)
        with pytest.raises(FedpriorError, match=message):
            preparation(Frame(ok=[True, False], age=[1, 2], dose=column))  # type: ignore[arg-type]


def test_a_frame_of_pandas() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [30.0, 40.0], "ok": [True, False], "dose": pd.array([0.5, 1.5], dtype="Float64")})
    assert Preparation(columns=("ok", "dose"), shape=(2,))(frame).tolist() == [[1, 0.5], [0, 1.5]]

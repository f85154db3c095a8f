"""Decoding: pictures to pixels, texts to tokens, and files of word vectors."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from data.small_hub import LABELS, PIXELS, png, write
from fedprior.data.decode import TOKENS, numbered, pixels, read_glove, tokens, words
from fedprior.data.sources import load
from fedprior.errors import FedpriorError


@pytest.mark.usefixtures("hub")
def test_tweets_become_ranked_tokens() -> None:
    sent140 = load("sent140")
    # "good" occurs 43 times, "day" twice, "," and "bad" once: the comma sorts first
    assert sent140.x[:3, :6].tolist() == [[2, 3, 4, 2, 1, 0], [5, 3, 0, 0, 0, 0], [1, 2, 0, 0, 0, 0]]
    assert sent140.x.shape == (4, 25)
    assert sent140.x[3].tolist() == [2] * 25
    assert sent140.vectors is not None
    assert sent140.group is not None
    assert sent140.vectors.tolist() == [[0, 0], [0, 0], [1, 2], [3, 4], [5, 6], [7, 8]]
    assert sent140.y.tolist() == [1, 0, 1, 1]
    assert sent140.group.tolist() == [0, 1, 0, 2]


def test_broken_picture_is_named(hub: Path) -> None:
    broken = [png(p) for p in PIXELS[12:]]
    broken[2] = broken[2][:60]
    write(hub / "mnist", "test", {"image": broken, "label": LABELS[12:]}, "image")
    with pytest.raises(FedpriorError, match=r"cannot read picture 1 or the next of .*mnist"):
        load("mnist")


def test_glove_must_be_one_whole_file(hub: Path) -> None:
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
    vectors = load("sent140").vectors
    assert vectors is not None
    assert vectors.shape == (3, 1)


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_texts_become_tokens(tmp_path: Path, n: int) -> None:
    (tmp_path / "glove.txt").write_text("good 1 2\nday 3 4\n")
    x, vectors, _ = tokens(["day", ""][:n], tmp_path / "glove.txt")
    assert x.tolist() == [[2] + [0] * (TOKENS - 1), [0] * TOKENS][:n]
    assert vectors.tolist() == [[0, 0], [0, 0], [3, 4]]


def test_words_are_leaf_s() -> None:
    assert words("Isn't it?? 3.5 @you") == ["isn't", "it", "?", "?", "3", ".", "5", "you"]


def test_word_vectors_are_read_plain_or_compressed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("good 1 2\nday 3 4\n")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"good 1 2\nday 3 4\n"))
    for name in ("a.txt", "a.txt.gz"):
        vectors = read_glove(tmp_path / name)
        assert {word: vector.tolist() for word, vector in vectors.items()} == {"good": [1, 2], "day": [3, 4]}


def test_word_vectors_whose_packing_is_broken_are_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"the 0.1 0.2\n" * 2000))
    packed[20:40] = bytes(byte ^ 0xFF for byte in packed[20:40])
    (tmp_path / "a.txt.gz").write_bytes(packed)
    with pytest.raises(FedpriorError, match=r"cannot read line 1 or the next of .*fetch it again"):
        read_glove(tmp_path / "a.txt.gz")


def test_words_may_hold_spaces_as_those_of_840b_do(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("good 1 2\n. . . 3 4\nat name@domain.com 5 6\n")
    vectors = {word: vector.tolist() for word, vector in read_glove(file).items()}
    assert vectors == {"good": [1, 2], ". . .": [3, 4], "at name@domain.com": [5, 6]}
    for third in ("day 3", "day 3 4 5", "a day 3 nan", "day", "day 3 x"):
        file.write_text(f"good 1 2\n. . . 3 4\n{third}\n")
        with pytest.raises(FedpriorError, match=r"equally many finite numbers each: see line 3|cannot read line 3"):
            read_glove(file)
    file.write_text("")
    with pytest.raises(FedpriorError, match="equally many finite numbers"):
        read_glove(file)


def test_names_are_numbered_by_first_appearance() -> None:
    numbers, names = numbered(["b", 3, "b", "a"])
    assert (numbers.tolist(), names) == ([0, 1, 0, 2], ("b", 3, "a"))


@pytest.mark.parametrize("n", [1, 2])
def test_pictures_must_be_of_one_shape_and_type(n: int) -> None:
    assert np.array_equal(pixels(list(PIXELS[:n]), n, (28, 28), "here"), PIXELS[:n])
    with pytest.raises(FedpriorError, match=rf"picture {n - 1} of here is \(28, 28\) of float64; expected \(28, 28\)"):
        pixels([*PIXELS[: n - 1], PIXELS[0] / 2], n, (28, 28), "here")

"""From what a file holds to arrays: pictures to pixels, texts to tokens with word vectors, names to numbers."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.errors import FedpriorError, first_line

TOKENS = 25  # tokens kept of a text [LEAF's Sent140, Caldas et al. 2018, arXiv:1812.01097]


def numbered(names: Iterable[Hashable]) -> tuple[npt.NDArray[np.int32], tuple[Any, ...]]:
    """Number names from 0 in the order in which they first appear; returns the numbers and the distinct names.

    >>> numbered(["b", "a", "b"])
    (array([0, 1, 0], dtype=int32), ('b', 'a'))
    """
    number_of: dict[Hashable, int] = {}
    numbers = np.array([number_of.setdefault(name, len(number_of)) for name in names], np.int32)
    return numbers, tuple(number_of)


def pixels(pictures: Iterable[Any], count: int, shape: tuple[int, ...], where: str) -> npt.NDArray[np.uint8]:
    """The pixels [count, *shape] of pictures that are decoded as they are read; ``where`` names them in errors."""
    out = np.empty((count, *shape), np.uint8)
    i = 0
    try:
        for i, picture in enumerate(map(np.asarray, pictures)):
            if picture.shape != shape or picture.dtype != np.uint8:
                kind = f"{picture.shape} of {picture.dtype}"
                raise FedpriorError(f"picture {i} of {where} is {kind}; expected {shape} of uint8")
            out[i] = picture
    except (OSError, SyntaxError) as error:  # PIL's ways to say that a picture is broken
        raise FedpriorError(
            f"cannot read picture {i} or the next of {where} ({first_line(error)}); fetch it again"
        ) from error
    return out


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text, as LEAF takes them apart, in lower case.

    >>> words("Awww, that's GREAT!")
    ['awww', ',', "that's", 'great', '!']
    """
    return re.findall(r"[\w']+|[.,!?;]", text.lower())


def tokens(
    texts: Sequence[str], glove: Path
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[np.str_]]:
    """Turn texts into ids [n, TOKENS], and the vectors [V, d] and the names of their words, from a file of GloVe vectors.

    Ids start at 2 with the most frequent word; 0 fills a short text up and 1 stands for a word without a vector.
    """
    vectors = read_glove(glove)
    words_of = [words(text) for text in texts]
    counts = Counter(word for text in words_of for word in text if word in vectors)
    known = sorted(counts, key=lambda word: (-counts[word], word))
    x = token_ids(texts, {word: i for i, word in enumerate(known, start=2)})
    width = len(next(iter(vectors.values())))
    table = np.stack([np.zeros(width, np.float32)] * 2 + [vectors[word] for word in known])
    return x, table, np.array(known, np.str_)


def token_ids(texts: Sequence[str], ids: Mapping[str, int]) -> npt.NDArray[np.int32]:
    """The ids [n, TOKENS] of the words of texts: 0 fills a short text up, and 1 stands for a word that has none.

    >>> token_ids(["Good day", "good grief!"], {"good": 2, "day": 3})[:, :4]
    array([[2, 3, 0, 0],
           [2, 1, 1, 0]], dtype=int32)
    """
    x = np.zeros((len(texts), TOKENS), np.int32)
    for row, text in zip(x, map(words, texts), strict=True):
        row[: len(text)] = [ids.get(word, 1) for word in text[:TOKENS]]
    return x


def read_glove(file: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The vector of each word in a text file, compressed or not, of lines such as ``the 0.418 0.24968``.

    All lines have as many numbers as the first one, since words may hold spaces: glove.840B has ``. . .`` among its own.
    """
    opener = gzip.open if file.suffix == ".gz" else open
    vectors: dict[str, npt.NDArray[np.float32]] = {}
    width, n = -1, 1
    try:
        with opener(file, "rt", encoding="utf-8") as lines:
            for n, line in enumerate(lines, start=1):
                word, *numbers = line.rstrip().rsplit(" ", width)
                vectors[word] = vector = np.array(numbers, np.float32)
                width = len(numbers) if width < 0 else width
                if len(numbers) != width or not np.isfinite(vector).all() or _ends_in_a_number(word):
                    raise _no_vectors(file, n)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, FedpriorError):
            raise
        raise FedpriorError(
            f"cannot read line {n} or the next of {file} ({first_line(error)}); fetch it again"
        ) from error
    if not vectors:
        raise _no_vectors(file, 1)
    return vectors


def _ends_in_a_number(word: str) -> bool:
    """Whether a word of several parts took a number with it, as it does where a line has one too many."""
    return " " in word and re.fullmatch(r"[-+]?[\d.]*\d[\d.]*(e[-+]?\d+)?", word.rsplit(" ", 1)[1]) is not None


def _no_vectors(file: Path, line: int) -> FedpriorError:
    return FedpriorError(
        f"{file} is not a list of words with equally many finite numbers each: see line {line}; fetch it again"
    )

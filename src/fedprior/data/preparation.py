"""How a sample as its owner has it becomes what a model reads: kept with a saved model, so that it predicts elsewhere."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.data.decode import token_ids
from fedprior.data.given import as_numbers, require_finite
from fedprior.errors import FedpriorError

Stage = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Preparation:
    """Numbers are shifted and divided, stage by stage, with the very operations that made the training samples; texts are
    looked up word by word.
    """

    stages: tuple[Stage, ...] = ()  # (shift, scale), each of the shape of a sample or a single number
    flatten: bool = False  # whether a sample becomes one row of numbers at the end
    columns: tuple[str, ...] | None = None  # of a table, in the order in which a sample has them
    words: tuple[str, ...] | None = None  # the words that have a vector; the first of them has id 2
    shape: tuple[int, ...] | None = None  # of a sample as it is given; None: any
    vectors: int | None = None  # how many word vectors there are; None: samples are not word ids

    def __call__(self, given: npt.ArrayLike | Sequence[str]) -> npt.NDArray[Any]:
        """Prepare samples [n, ...].

        >>> half = Preparation(stages=((np.float32([0]), np.float32([255])), (np.float32([0.5]), np.float32([0.5]))))
        >>> half(np.array([[0, 255]]))
        array([[-1.,  1.]], dtype=float32)
        """
        if self.columns is not None and hasattr(given, "columns"):
            given = self._chosen(given)
        if self.vectors is not None or self.words is not None:
            return self._looked_up(given)
        x = self._shaped(as_numbers(given, "x", np.float32))  # a copy, whatever is given
        require_finite(x)
        for shift, scale in self.stages:
            x -= shift
            x /= scale
        return x.reshape(len(x), math.prod(x.shape[1:])) if self.flatten else x

    def _chosen(self, table: Any) -> Any:
        """The columns of a data frame that the model reads, in its order."""
        assert self.columns is not None
        if lacking := [name for name in self.columns if name not in list(table.columns)]:
            raise FedpriorError(f"the table has no column {lacking[0]!r}; the model reads {', '.join(self.columns)}")
        # Each by itself: of columns of several kinds, a data frame makes an array of objects.
        return np.stack([_numbers(table[name], f"column {name!r} of the table") for name in self.columns], axis=1)

    def _shaped(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Samples of the expected shape; a grey picture and its row of pixels stand for each other."""
        if self.shape is None or x.shape[1:] == self.shape:
            return x
        if {len(self.shape), x.ndim - 1} == {1, 2} and math.prod(x.shape[1:]) == math.prod(self.shape):
            return x.reshape(len(x), *self.shape)
        given = f"samples of shape {x.shape[1:]}" if x.ndim > 1 else f"an array of shape {x.shape}"
        raise FedpriorError(
            f"{given} where the model reads samples of shape {self.shape}; give an array of shape (n, "
            f"{', '.join(map(str, self.shape))})"
        )

    def _looked_up(self, given: Any) -> npt.NDArray[np.int32]:
        array = np.asarray(given)
        if array.dtype.kind not in "biuf":
            texts = array.tolist()
            if self.words is None:
                raise FedpriorError("the model reads word ids and was saved without its vocabulary; give ids")
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise FedpriorError("the model reads texts; give a list of them")
            return token_ids(texts, {word: k for k, word in enumerate(self.words, start=2)})
        ids = self._shaped(as_numbers(array, "x", np.int32))
        if self.vectors is not None and ids.size and not 0 <= ids.min() <= ids.max() < self.vectors:
            span = f"{ids.min()} to {ids.max()}"
            raise FedpriorError(f"word ids {span} are given; valid: 0 to {self.vectors - 1}")
        return ids

    def plain(self) -> dict[str, Any]:
        """All but the arrays, as JSON holds it."""
        return {
            "flatten": self.flatten,
            "columns": None if self.columns is None else list(self.columns),
            "shape": None if self.shape is None else list(self.shape),
            "vectors": self.vectors,
        }

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The numbers and the words, by names of their own."""
        named = {
            f"{k}.{part}": np.asarray(array)
            for k, stage in enumerate(self.stages)
            for part, array in zip(("shift", "scale"), stage, strict=True)
        }
        if self.words is not None:
            named["words"] = np.frombuffer("\n".join(self.words).encode(), np.uint8)
        return named

    @staticmethod
    def of(plain: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Preparation:
        """What `plain` and `arrays` were taken from.

        >>> half = Preparation(stages=((np.float32(0.5), np.float32(0.5)),), shape=(2,))
        >>> Preparation.of(half.plain(), half.arrays()) == half
        True
        """
        count = sum(name.endswith(".shift") for name in arrays)
        words = None
        if "words" in arrays:
            text = arrays["words"].tobytes().decode()
            words = tuple(text.split("\n")) if text else ()
        return Preparation(
            stages=tuple((arrays[f"{k}.shift"], arrays[f"{k}.scale"]) for k in range(count)),
            flatten=plain["flatten"],
            columns=None if plain["columns"] is None else tuple(plain["columns"]),
            words=words,
            shape=None if plain["shape"] is None else tuple(plain["shape"]),
            vectors=plain["vectors"],
        )


def _numbers(column: Any, what: str) -> npt.NDArray[np.float32]:
    """The numbers of a data frame's column; a text among them is refused, also one that looks like a number."""
    values = np.asarray(column)
    if values.ndim != 1:
        raise FedpriorError(f"{what} must be one column; got shape {values.shape}. Rename those of the same name")
    if values.dtype.kind == "O" and not any(isinstance(value, str | bytes) for value in values):
        with contextlib.suppress(TypeError, ValueError):  # as the nullable and the decimal columns of pandas come
            values = values.astype(np.float64)
    numbers: npt.NDArray[np.float32] = as_numbers(values, what, np.float32)
    return numbers

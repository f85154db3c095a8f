"""How a sample as its owner has it becomes what a model reads: kept with a saved model, so that it predicts elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprior.data.decode import token_ids
from fedprior.data.given import as_numbers
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
    words: tuple[str, ...] | None = None  # with a vector, the first of which has id 2
    shape: tuple[int, ...] | None = None  # of a sample as it is given; None: any

    def __call__(self, given: npt.ArrayLike | Sequence[str]) -> npt.NDArray[Any]:
        """Prepare samples [n, ...].

        >>> half = Preparation(stages=((np.float32([0]), np.float32([255])), (np.float32([0.5]), np.float32([0.5]))))
        >>> half(np.array([[0, 255]]))
        array([[-1.,  1.]], dtype=float32)
        """
        if self.words is not None:
            return self._looked_up(given)
        x = as_numbers(given, "x", np.float32)
        if self.shape is not None and x.shape[1:] != self.shape:
            raise FedpriorError(f"samples of shape {x.shape[1:]} are given where the model was trained on {self.shape}")
        if not np.isfinite(x).all():
            bad = int(np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))[0])
            raise FedpriorError(f"sample {bad} has a value that is not finite; remove or repair it")
        for shift, scale in self.stages:
            x = x - shift
            x /= scale
        return x.reshape(len(x), -1) if self.flatten else x

    def _looked_up(self, given: Any) -> npt.NDArray[np.int32]:
        assert self.words is not None
        array = np.asarray(given)
        if array.dtype.kind in "iu":  # token ids already
            return as_numbers(array, "x", np.int32)
        texts = array.tolist()
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise FedpriorError("the model reads texts; give a list of them")
        return token_ids(texts, {word: k for k, word in enumerate(self.words, start=2)})

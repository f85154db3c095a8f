"""Scaling that is learnt from the samples that a model is trained on, and from no others."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from fedprior.data.federation import Federation, Samples
from fedprior.data.preparation import Preparation, Stage
from fedprior.errors import FedpriorError
from fedprior.files import digest

_ROWS_AT_ONCE = 4096
_NAMED = 5  # constant columns that are named


def standardize(
    federation: Federation, newcomers: Federation | None = None
) -> tuple[Federation, Federation | None, tuple[str, ...]]:
    """Shift and scale every number of a sample to mean 0 and deviation 1 over the training samples of the federation.

    The very same is done to the samples for validation and test and to those of newcomers, and is kept as the
    federation's preparation. The third result tells of numbers that are the same in all training samples; they become 0.
    """
    if federation.vectors is not None:
        raise FedpriorError('normalize="standard" for token ids, which are no quantities; leave it out')
    stage, constant = _learn(np.asarray(federation.train.x))
    whole = dataclasses.replace(federation.preparation, stages=(*federation.preparation.stages, stage))
    scale = Preparation(stages=(stage,))

    def scaled(samples: Samples) -> Samples:
        return samples._replace(x=scale(np.asarray(samples.x)))

    def of(one: Federation) -> Federation:
        return dataclasses.replace(
            one,
            train=scaled(one.train),
            test=scaled(one.test),
            validation=None if one.validation is None else scaled(one.validation),
            fingerprint=digest(one.fingerprint, "standard"),
            preparation=whole,
        )

    remarks = _remarks(constant, whole.columns)
    return of(federation), None if newcomers is None else of(newcomers), remarks


def _learn(x: npt.NDArray[np.float32]) -> tuple[Stage, npt.NDArray[np.bool_]]:
    """Mean and deviation of samples, and which of their numbers do not vary; those are only shifted."""
    mean = x.mean(0, dtype=np.float64)
    pieces = (x[k : k + _ROWS_AT_ONCE] for k in range(0, len(x), _ROWS_AT_ONCE))  # not all of them in double precision
    square = sum((np.square(piece - mean).sum(0) for piece in pieces), np.zeros_like(mean))
    constant = x.min(0) == x.max(0)
    deviation = np.sqrt(square / len(x)).astype(np.float32)
    return (mean.astype(np.float32), np.where(constant | (deviation == 0), np.float32(1), deviation)), constant


def _remarks(constant: npt.NDArray[np.bool_], columns: tuple[str, ...] | None) -> tuple[str, ...]:
    count = int(constant.sum())
    if not count:
        return ()
    if columns is None or constant.shape != (len(columns),):
        return (f"{count:,} of the {constant.size:,} numbers of a sample are the same in all training samples",)
    names = [repr(name) for name, same in zip(columns, constant, strict=True) if same]
    listed = ", ".join(names[:_NAMED]) + (f" and {count - _NAMED} more" if count > _NAMED else "")
    return (
        f"column{'s' * (count > 1)} {listed} {'are' if count > 1 else 'is'} the same in all training samples, from which "
        "nothing can be learnt",
    )

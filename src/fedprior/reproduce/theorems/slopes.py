"""The slope of a power law, with an interval that knows how far the seeds scatter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Slope(NamedTuple):
    """A slope and its 95 % interval over seeds."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def slope_of(x: np.ndarray, errors: np.ndarray, resamples: int = 2000, seed: int = 0) -> Slope:
    """Slope of log E error against log x; ``errors`` [seeds, points].

    The expectation is the mean over seeds, the fit is by least squares. The interval is a bootstrap over seeds, which are
    drawn whole, so that it holds as well if the points of a seed depend on each other. It says nothing about a curve that
    is no power law; a single seed, as where nothing is random, has no interval.
    """
    lx = np.log(np.asarray(x, float))
    lx -= lx.mean()

    def fit(means: np.ndarray) -> np.ndarray:
        return np.asarray(np.log(means) @ lx / (lx @ lx))

    value = float(fit(errors.mean(0)))
    if len(errors) == 1:
        return Slope(value, value, value)
    picks = np.random.default_rng(seed).integers(len(errors), size=(resamples, len(errors)))
    low, high = np.quantile(fit(errors[picks].mean(1)), (0.025, 0.975))
    return Slope(value, float(low), float(high))

"""Whether variants can be told apart over the seeds that both have, when several are looked at together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

K = TypeVar("K", bound=Hashable)
LEVEL = 0.05
EQUAL = 1e-9  # the rounding of a mean over seeds, far below what one sample of the largest client changes


def p_value(differences: Sequence[float]) -> float | None:
    """The two-sided p-value of Student's t test that paired differences are 0 on average.

    A single difference has none, and neither have differences that agree to the last digit: accuracy is counted in whole
    samples, so that a few seeds may agree by chance, and then say nothing of what another seed would change.

    >>> round(p_value([1.0, 2.0, 3.0]), 4), p_value([1.0]), p_value([0.0, 0.0]), p_value([1.0, 1.0])
    (0.0742, None, 1.0, None)
    """
    x = np.asarray(differences, float)
    if len(x) < 2 or not np.isfinite(x).all():
        return None
    mean, error = float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x)))
    if error <= EQUAL:  # no t to speak of
        return 1.0 if abs(mean) <= EQUAL else None
    from scipy import stats

    return float(2 * stats.t.sf(abs(mean / error), len(x) - 1))


def holm(p_values: Mapping[K, float]) -> dict[K, float]:
    """Holm's adjustment: the chance that any of several true null hypotheses is rejected stays at the level.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    ordered = sorted(p_values, key=lambda key: p_values[key])
    above, adjusted = 0.0, dict[K, float]()
    for k, key in enumerate(ordered):
        above = max(above, min(1.0, (len(ordered) - k) * p_values[key]))
        adjusted[key] = above
    return {key: adjusted[key] for key in p_values}

"""What can be told of a reply that has the right form: is it far from the others', and can it be true?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedprior.engine.evaluate import Sums
from fedprior.engine.metrics import METRICS
from fedprior.engine.score import Score


def norm_of(up: Any) -> float:
    """The length of an upload, all its numbers taken together."""
    return float(np.sqrt(sum(np.sum(np.square(np.asarray(x, float))) for x in jax.tree.leaves(up))))


def far_from_the_others(ups: Mapping[str, Any], times: float, least: int = 5) -> list[str]:
    """The clients whose upload has a norm more than so many times the cohort's median; none if there are few replies."""
    if len(ups) < least:
        return []
    norms = {name: norm_of(up) for name, up in ups.items()}
    middle = float(np.median(list(norms.values())))
    return [name for name, norm in norms.items() if norm > times * middle]


def score_of(sums: Mapping[str, Any], count: np.ndarray, classes: tuple[str, ...] = ()) -> Score:
    """The score behind clients' sums [N, ...]: whole numbers as they are, and others in double precision."""
    return Score(jax.tree.map(_exact, dict(sums)), count, classes)


def scores_of(
    given: Mapping[str, Sums], samples: Mapping[str, int], like: Any, classes: tuple[str, ...]
) -> dict[tuple[str, str], Score]:
    """The scores of a round, from the sums that clients gave; a client that gave none counts as one without samples."""
    if not given:
        return {}
    nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
    stacked = jax.tree.map(lambda *x: np.stack(x), *(given.get(name, nothing) for name in samples))
    count = np.array([number if name in given else 0 for name, number in samples.items()])
    return {(model, "own"): score_of(sums, count, classes) for model, sums in stacked.items()}


def impossible(sums: Sums, samples: int) -> str:
    """What a client says of its test that cannot be, with so many samples; "": nothing."""
    for model, of in sums.items():
        score = score_of(jax.tree.map(lambda x: np.asarray(x)[None], of), np.array([samples]))
        for name in of:
            if METRICS.find(name).info.unit == "%":
                with np.errstate(all="ignore"):
                    values = score.values(name)
                # not a number: of a class that it has no sample of
                odd = values[(values < -0.001) | (values > 100.001)]
                if odd.size:
                    return f"the {name} of its {model} model would be {odd[0]:g} %"
    return ""


def _exact(sums: np.ndarray) -> np.ndarray:
    return sums if np.issubdtype(sums.dtype, np.integer) else sums.astype(np.float64)

"""What each method tries when it is tuned: its step size, and one setting more where it has one that matters as much.

`fedprior reproduce table1 --tuned` gives every row the same number of trials (`trials`); experiments/tables.py moves a
window along the same ladders until the best is not at its end.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

THIRDS = tuple(float(f"{x}e{e}") for e in range(-4, 3) for x in (1, 3))  # 0.0001, 0.0003, 0.001, ..., 300
HALVES = tuple(float(f"{x}e{e}") for e in range(-4, 1) for x in (1, 2, 5))
COUNTS = (1, 2, 4, 8, 16, 32, 64)
TRIALS, STEPS = 8, 4  # of each row; step sizes where there is a second axis


@dataclass(frozen=True)
class Axis:
    """Values in ascending order, of which a window is tried; the named keys all take the value."""

    keys: tuple[str, ...]
    ladder: tuple[Any, ...]
    first: Any  # the least value of the first window
    width: int = 3
    pair: tuple[Any, Any] | None = None  # of a second axis: the published value and another, if trials are few

    def window(self, shift: int = 0, width: int | None = None) -> list[Any]:
        """Values next to each other, from the first one on and moved by so many."""
        start = min(range(len(self.ladder)), key=lambda k: abs(self.ladder[k] - self.first)) + shift
        return list(self.ladder[max(start, 0) : start + (width or self.width)])


def step(first: float = 0.01, *keys: str) -> Axis:
    """A step size."""
    return Axis(keys or ("alpha",), THIRDS, first)


def second(key: str, first: float, pair: tuple[Any, Any], ladder: tuple[Any, ...] = THIRDS) -> Axis:
    """What is tried besides the step size."""
    return Axis((key,), ladder, first, pair=pair)


BOTH = ("alpha", "alpha_m")
ALONE = (Axis(("alpha",), HALVES, 0.005, width=9),)
# pFedMe and pFedBreD: both steps are equal, as in the paper
PULLED = (step(0.01, *BOTH), second("lam", 1.0, (15.0, 1.5)))
AXES: Mapping[str, tuple[Axis, ...]] = {
    "local": ALONE,
    "fedavg": ALONE,
    "fedprox": (step(), second("mu", 0.01, (0.01, 0.1))),
    "scaffold": ALONE,
    "reptile": (step(0.03), second("eps", 0.1, (1.0, 0.1), (0.1, 0.3, 1.0))),
    "perfedavg": (step(), second("alpha_m", 0.01, (0.01, 0.1))),
    "perfedavg-hf": (step(), second("alpha_m", 0.01, (0.01, 0.1))),
    "ditto": (step(), second("lam", 0.03, (1.0, 0.1))),
    "fedamp": (step(), second("lam", 0.1, (1.0, 0.1))),
    "heurfedamp": (step(), second("lam", 0.3, (1.0, 0.1))),
    "fedfomo": (step(), second("M", 4, (8, 16), COUNTS)),
    "fedem": ALONE,
    "pfedbayes": (step(0.001, *BOTH), second("zeta", 0.1, (10.0, 0.1))),
    "fedpac": (step(), second("alpha_head", 0.03, (0.1, 0.01))),
    "pfedhn": (step(), second("alpha_m", 0.03, (0.01, 0.1))),
    "fedu": (step(), second("eta", 0.03, (0.01, 0.1))),
    **dict.fromkeys(
        ("pfedme", "pfedme-released", "lg", "meg", "mh", "lg-released", "meg-released", "mh-released"), PULLED
    ),
}


def trials(method: str) -> list[dict[str, Any]]:
    """The settings of each trial: eight step sizes, or four with two values of the second setting each.

    >>> [setting["alpha"] for setting in trials("fedavg")]
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
    >>> trials("mh")[:2]
    [{'alpha': 0.01, 'alpha_m': 0.01, 'lam': 15.0}, {'alpha': 0.01, 'alpha_m': 0.01, 'lam': 1.5}]
    """
    steps, *more = AXES[method]
    values = [steps.window(width=STEPS if more else TRIALS), *(axis.pair or () for axis in more)]
    return [
        {key: value for axis, value in zip(AXES[method], cell, strict=True) for key in axis.keys}
        for cell in itertools.product(*values)
    ]

"""A hyper-parameter is one line: its default, where that comes from, what it means, what a sweep tries, what is valid.

lam: float = hyper(15.0, "PRIOR's released scripts", sweep=(15.0, 30.0, 60.0), least=0, inert=0, meaning="the pull to w")
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import equinox as eqx

from fedprior.core.kinds import admits, in_words

# What most methods have.
STEPS = "local steps of a client in a round, each on a batch"
STEP_SIZE = "size of the local steps"


@dataclass(frozen=True)
class Hyper:
    """What is known of a hyper-parameter besides its name, type and default."""

    source: str = ""  # where the default comes from
    sweep: tuple[Any, ...] = ()  # what a sweep tries
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: Iterable[Any] | None = None  # the valid names (or numbers, or None)
    objects: type | None = None  # what may be given in place of a name
    inert: float | None = None  # the value at which it switches its part off
    needs: tuple[str, Callable[[Any], bool]] | None = None  # what it has no effect without, and a test for that
    meaning: str = ""  # what it does, in words

    def wrong(self, value: Any, kind: Any = Any) -> str | None:
        """What is wrong with a value in a field of that type, and what would be right; None where nothing is.

        Of an array, which may be traced, and of None, which leaves it to the method, the bounds are not checked.
        """
        if self.choices is not None and not (self.objects is not None and isinstance(value, self.objects)):
            names = list(self.choices)
            if not isinstance(value, str | numbers.Real | None) or value not in names:
                listed = ", ".join(str(name) for name in names if name is not None)
                return f"is not valid; valid: {listed}" + (f", or a {self.objects.__name__}" if self.objects else "")
        if not admits(kind, value):
            return f"has the wrong type ({type(value).__name__}); it must be {in_words(kind)}"
        if self.choices is not None or isinstance(value, bool) or not isinstance(value, numbers.Real):
            return None
        bounds = (
            (self.least, "at least", lambda bound: value >= bound),
            (self.above, "above", lambda bound: value > bound),
            (self.most, "at most", lambda bound: value <= bound),
            (self.below, "below", lambda bound: value < bound),
        )
        given = [(word, bound, holds(bound)) for bound, word, holds in bounds if bound is not None]
        if math.isfinite(value) and all(holds for *_, holds in given):
            return None
        sort = "a finite number" if admits(kind, 0.5) else "a whole number"
        limits = " and ".join(f"{word} {bound:g}" for word, bound, _ in given)
        if limits:
            sort += f" {limits}" if self.least is None else f" of {limits}"
        return f"is not valid; it must be {sort}"

    def lacks(self, method: Any) -> str | None:
        """What this hyper-parameter needs and the method, as set, lacks; None if nothing."""
        return None if self.needs is None or self.needs[1](method) else self.needs[0]


def hyper(
    default: Any,
    source: str = "",
    *,
    sweep: Iterable[Any] = (),
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Iterable[Any] | None = None,
    objects: type | None = None,
    inert: float | None = None,
    needs: tuple[str, Callable[[Any], bool]] | None = None,
    meaning: str = "",
) -> Any:
    """Declare a field of a :class:`~fedprior.core.method.Method`; see :class:`Hyper` for what each argument says.

    Numbers must be finite. ``inert`` is allowed, since reductions between methods need it, and the command line warns
    about it; a setting without what it ``needs`` is warned about too, and no sweep goes over it.

    >>> from fedprior.core.method import Method
    >>> class Pulled(Method):
    ...     mu: float = hyper(0.1, "a paper, section 5", least=0, inert=0)
    >>> Pulled(mu=-1.0)
    Traceback (most recent call last):
    fedprior.errors.FedpriorError: Pulled: mu = -1.0 is not valid; it must be a finite number of at least 0
    """
    about = Hyper(source, tuple(sweep), least, above, most, below, choices, objects, inert, needs, meaning)
    return eqx.field(default=default, metadata={"hyper": about})


def hypers(method: Any) -> dict[str, Hyper]:
    """What is known of each field of a method (or of its class), by name; fields with a plain default say nothing."""
    return {field.name: field.metadata.get("hyper", Hyper()) for field in dataclasses.fields(method)}


def without_effect(method: Any) -> dict[str, str]:
    """The settings of a method that do nothing as they are: name -> why.

    >>> from fedprior.methods import make
    >>> list(without_effect(make("lg", lam=0.0)).values())
    ['lam = 0 switches its part off', 'eta needs a mean with memory', 'eta_inner needs an inner step']
    """
    reasons: dict[str, str] = {}
    for name, about in hypers(method).items():
        if (missing := about.lacks(method)) is not None:
            reasons[name] = f"{name} needs {missing}"
        elif about.inert is not None and getattr(method, name) == about.inert:
            reasons[name] = f"{name} = {about.inert:g} switches its part off"
    return reasons

"""How things look on a page: which method has which colour, where axes have their marks, and text and markup kept apart."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

from fedprior.errors import printable
from fedprior.report.page.gather import TaskNumbers

NONE = "\N{EN DASH}"  # what stands where there is no number
COLOURS = 8  # of the style sheet; methods beyond that are grey until they are pointed at


def text(given: Any) -> str:
    """Text from anywhere as it can stand in markup, in an attribute too.

    >>> text('<script>"x"')
    '&lt;script&gt;&quot;x&quot;'
    """
    return html.escape(printable(str(given)), quote=True)


def element(name: str, content: str = "", **attributes: Any) -> str:
    """An element around markup; an attribute that is None is left out, and ``class_`` and ``aria_label`` are what they mean.

    >>> element("p", text("a < b"), class_="note", id=None)
    '<p class="note">a &lt; b</p>'
    """
    given = {key.strip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    inside = "".join(f' {"viewBox" if key == "viewbox" else key}="{text(value)}"' for key, value in given.items())
    return f"<{name}{inside}>{content}</{name}>"


def colours(task: TaskNumbers) -> dict[str, int | None]:
    """A colour for each method; where there are too many, the reference and those that are best have one."""
    variants, choice = list(task.methods), task.usual
    if len(variants) > COLOURS:
        shown = task.view(choice)
        sign = 1 if shown.info.higher_is_better else -1
        means: Mapping[str, float] = {
            line.variant: sign * line.number["mean"] for line in shown.lines if line.number is not None
        }
        first = sorted(means, key=lambda v: (v != choice.against, -means[v] if math.isfinite(means[v]) else math.inf))
        variants = [variant for variant in variants if variant in first[:COLOURS]]
    places = {variant: place for place, variant in enumerate(variants)}
    return {variant: places.get(variant) for variant in task.methods}


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two others.

    >>> ticks(88.3, 97.1), ticks(0, 1, 3)
    ([90.0, 92.0, 94.0, 96.0], [0.0, 0.5, 1.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten between two positive numbers.

    >>> log_ticks(300, 6000)
    [500.0, 1000.0, 2000.0, 5000.0]
    """
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    every = [m * 10.0**k for k in powers for m in (1, 2, 5)]
    return [tick for tick in every if low <= tick * (1 + 1e-9) and tick <= high * (1 + 1e-9)]

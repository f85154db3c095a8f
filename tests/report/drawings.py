"""What the tests of pictures ask of matplotlib's objects."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text


def panels_of(figure: Figure) -> list[Any]:
    """The figure's visible axes; of matplotlib's own types only some are told."""
    return [axes for axes in figure.axes if axes.get_visible()]


def texts_of(figure: Figure) -> list[str]:
    """Everything that is written in a figure, as it is drawn."""
    figure.draw_without_rendering()
    shown = []
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        drawn, math = text._preprocess_math(text.get_text())  # type: ignore[attr-defined]
        assert not math, f"{drawn} is read as mathematics"
        shown.append(drawn)
    return [text for text in shown if text]


def overlapping(texts: list[Any]) -> int:
    """How many pairs of drawn texts overlap by more than a pixel."""
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i]]
    return sum(min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1 for a, b in pairs)


def inside_page(figure: Figure) -> bool:
    """Whether nothing that is drawn is cut off at the edge."""
    figure.draw_without_rendering()
    drawn, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    return bool(min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) >= -0.01)

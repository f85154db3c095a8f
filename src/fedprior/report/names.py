"""Names in pictures: they may come from records of elsewhere, and are shown as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from fedprior.errors import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def literally(figure: Figure) -> Figure:
    """The figure with its texts as they are: dollar signs in names are no mathematics, which may not even be valid."""
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if isinstance(names := axis.get_major_formatter(), FuncFormatter):  # which named ticks have
            names.func = partial(_printed, names.func)
            axis.get_ticklabels()  # which makes the texts
    for text in figure.findobj(Text):
        if isinstance(text, Text) and "mathdefault" not in text.get_text():  # as numbers on logarithmic axes are
            text.set_parse_math(False)
            text.set_text(printable(text.get_text(), keep="\n"))
    return figure


def _printed(name: Callable[[float, int | None], str], x: float, k: int | None) -> str:
    return printable(name(x, k), keep="\n")

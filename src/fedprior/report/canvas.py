"""What all pictures have in common: the sheet, its colours, text that is drawn as it is written, and how it is saved."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedprior.errors import printable, unknown
from fedprior.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Paul Tol's "bright" without its grey, and two more that differ from them in lightness; grey and black are for references.
COLORS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#994F00", "#332288")
MARKERS = "os^DvP*X"  # for print without colours
INK, FAINT = "#333333", "#DDDDDD"
DPI = 150
PAGE = (8.27, 11.69)  # A4 in inches, upright


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that needs no display, and that a notebook shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = _figure_class()(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


@functools.cache
def _figure_class() -> type[Figure]:
    """Matplotlib's figure, with what a notebook asks for: it would show one by itself only after pyplot was imported."""
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=DPI)
            return buffer.getvalue()

    return Shown


def literal(text: object, most: int = 40) -> str:
    r"""Text from elsewhere as matplotlib draws it literally: on one line, of a bounded length, and without mathematics.

    >>> literal("$x^2$"), literal("two\nlines"), literal("a name that is long", most=9)
    ('\\$x^2\\$', 'two\\nlines', 'a na…long')
    """
    shown = printable(str(text))
    if len(shown) > most:
        half = (most - 1) // 2
        shown = f"{shown[: most - 1 - half]}…{shown[-half:]}"
    return shown.replace("$", r"\$")


def few(names: Sequence[object], most: int = 4) -> str:
    """Names in a row, of which only the first are told if there are many.

    >>> few(["a", "b"]), few("abcdef")
    ('a, b', 'a, b, c, d and 2 more')
    """
    shown = ", ".join(literal(name, 28) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def pushed_apart(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> np.ndarray:
    """Where to centre labels of given sizes so that they do not overlap and stay as near as possible to where they belong.

    Positions run upwards from ``low`` to ``high``, within which the labels are kept if there is room for all of them.

    >>> pushed_apart([5.0, 5.0, 1.0], [2.0, 2.0, 2.0], 0.0, 10.0).tolist()
    [4.0, 6.0, 1.0]
    """
    from scipy.optimize import isotonic_regression

    if not len(wanted):  # for which SciPy writes beyond the end of an array
        return np.empty(0)
    order = np.argsort(wanted, kind="stable")
    size = np.asarray(sizes, float)[order]
    offset = np.cumsum(size) - size / 2  # of the centres, if the labels stood on each other
    least = isotonic_regression(np.asarray(wanted, float)[order] - offset).x
    placed = np.empty(len(order))
    placed[order] = np.clip(least, low, max(low, high - size.sum())) + offset
    return placed


def save(figure: Figure, path: Path | None) -> Figure:
    """Write a figure whole or not at all, unless there is no path; the ending names the format."""
    if path is None:
        return figure
    kind = path.suffix.lstrip(".") or "png"
    if kind not in (valid := figure.canvas.get_supported_filetypes()):
        raise unknown(f"kind of picture ({path.name})", kind, valid)
    replace_file(path, lambda p: figure.savefig(p, format=kind, dpi=DPI))
    return figure

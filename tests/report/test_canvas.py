"""What all pictures have in common."""

from __future__ import annotations

import io

from matplotlib import image

from fedprior.report.canvas import DPI, new_figure


def test_a_notebook_shows_a_figure_without_pyplot() -> None:
    """A notebook asks for ``_repr_png_``; matplotlib's own figures answer only after pyplot was imported."""
    shown = new_figure(3, 2)._repr_png_()  # type: ignore[attr-defined]
    assert image.imread(io.BytesIO(shown), format="png").shape[:2] == (2 * DPI, 3 * DPI)

"""What all pictures have in common."""

from __future__ import annotations

import io

import pytest
from matplotlib import image

from fedprior.report.canvas import DPI, new_figure, pushed_apart


def test_a_notebook_shows_a_figure_without_pyplot() -> None:
    """A notebook asks for ``_repr_png_``; matplotlib's own figures answer only after pyplot was imported."""
    shown = new_figure(3, 2)._repr_png_()  # type: ignore[attr-defined]
    assert image.imread(io.BytesIO(shown), format="png").shape[:2] == (2 * DPI, 3 * DPI)


def test_where_there_is_no_label_scipy_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no numbers, SciPy's isotonic regression reads and writes beyond the end of its arrays."""
    monkeypatch.setattr("scipy.optimize.isotonic_regression", None)
    assert pushed_apart([], [], 0.0, 10.0).tolist() == []

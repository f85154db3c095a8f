"""Pictures of series."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fedprior.analysis import figures
from fedprior.analysis.tables import Series
from fedprior.errors import FedpriorError


def series(personal: float, common: float | None) -> Series:
    found: Series = {("personal", "own", "weighted"): {1: personal, 2: personal + 1}}
    if common is not None:
        found["global", "own", "weighted"] = {1: common, 2: common + 1}
    return found


RUNS = {
    "local": {0: series(50, None), 1: series(52, None)},
    "fedavg": {0: series(30, 30), 1: series(31, 31)},
    "mh": {0: series(60, 35), 1: series(61, 30)},
}


def test_a_curve_for_every_model_and_none_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    figures.learning_curves("task", RUNS, tmp_path / "curves.png")
    (axes,) = drawn[0].axes
    lines = {line.get_label(): line for line in axes.lines}
    # FedAvg's personal model is its global one; Local has no global one
    assert list(lines) == ["local, personal", "fedavg, global", "mh, global", "mh, personal"]
    assert lines["local, personal"].get_ydata().tolist() == [51, 52]
    assert lines["mh, personal"].get_color() == lines["mh, global"].get_color() != lines["local, personal"].get_color()
    assert lines["mh, personal"].get_linestyle() != lines["mh, global"].get_linestyle()
    assert "2 seeds" in axes.get_title(loc="left")
    assert "own test" in axes.get_ylabel()


def test_more_methods_than_colours_get_a_panel_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    many = {f"m{k}": {0: series(60 + k, 40 if k % 2 else None)} for k in range(len(figures.COLORS) + 1)}
    figures.learning_curves("task", many, tmp_path / "curves.png")
    panels = [axes for axes in drawn[0].axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in panels] == list(many)
    for k, axes in enumerate(panels):
        own = {line.get_label(): line for line in axes.lines if line.get_label() in ("personal", "global")}
        assert list(own) == (["global", "personal"] if k % 2 else ["personal"])
        assert own["personal"].get_ydata().tolist() == [60 + k, 61 + k]
        assert len(axes.lines) == len(many) + len(own)  # the others in grey
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["personal", "global"]
    drawn[0].canvas.draw()  # a warning that the panels do not fit would be an error


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_ending_names_the_format(tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / "new" / f"curves.{ending}"
    figures.learning_curves("task", {"mh": {0: RUNS["mh"][0]}}, path)
    assert path.read_bytes().startswith(start)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedpriorError, match="cannot write"):
        figures.learning_curves("task", RUNS, tmp_path / "file" / "curves.png")
    with pytest.raises(FedpriorError, match=r"unknown kind of picture \(curves.xyz\) 'xyz'; valid: .*png"):
        figures.learning_curves("task", RUNS, tmp_path / "curves.xyz")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_seeds_of_unequal_length_share_their_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    short: Series = {("personal", "own", "weighted"): {1: 10.0}}
    figures.learning_curves("task", {"mh": {0: RUNS["mh"][0], 1: short}}, tmp_path / "x.png")
    assert drawn[0].axes[0].lines[0].get_xdata().tolist() == [1]

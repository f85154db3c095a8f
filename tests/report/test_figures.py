"""Pictures of records whose values are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis.handmade import evaluated, record, rows
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedprior.analysis.compare import Comparison, compare
from fedprior.errors import FedpriorError
from fedprior.records.schema import ACCURACY, NLL, MetricInfo, RunRecord
from fedprior.report import figures


def run(variant: str, seed: int, personal: float, common: float | None = None, metric: str = "accuracy") -> RunRecord:
    made = rows({1: personal, 2: personal + 1}, metric=metric, which=("weighted",))
    if common is not None:
        made += rows({1: common, 2: common + 1}, "global", metric=metric, which=("weighted",))
    return record(variant, seed, made)


RUNS = {
    "local": {0: run("local", 0, 50), 1: run("local", 1, 52)},
    "fedavg": {0: run("fedavg", 0, 30, 30), 1: run("fedavg", 1, 31, 31)},
    "mh": {0: run("mh", 0, 60, 35), 1: run("mh", 1, 61, 30)},
}


def panels_of(figure: Figure) -> list[Any]:
    """The figure's axes; of matplotlib's own types only some are told."""
    return list(figure.axes)


# -- learning curves ---------------------------------------------------------------------------------------------------


def test_a_curve_for_every_model_and_none_twice() -> None:
    (axes,) = panels_of(figures.learning_curves("task", RUNS))
    lines = {line.get_label(): line for line in axes.lines}
    # FedAvg's personal model is its global one; Local has no global one
    assert list(lines) == ["local, personal", "fedavg, global", "mh, global", "mh, personal"]
    assert lines["local, personal"].get_ydata().tolist() == [51, 52]
    assert lines["mh, personal"].get_color() == lines["mh, global"].get_color() != lines["local, personal"].get_color()
    assert lines["mh, personal"].get_linestyle() != lines["mh, global"].get_linestyle()
    assert "2 seeds" in axes.get_title(loc="left")
    assert axes.get_ylabel() == "accuracy on own test samples, weighted (%)"


def test_curves_of_another_metric() -> None:
    (axes,) = panels_of(figures.learning_curves("task", {"mh": {0: run("mh", 0, 0.5, metric="nll")}}, metric="nll"))
    assert axes.lines[0].get_ydata().tolist() == [0.5, 1.5]
    assert axes.get_ylabel() == "nll on own test samples, weighted"
    with pytest.raises(FedpriorError, match="unknown metric 'f1'; valid: accuracy, nll"):
        figures.learning_curves("task", RUNS, metric="f1")


@pytest.mark.parametrize("metric", ["accuracy", "nll"])
def test_more_variants_than_colours_get_a_panel_each(metric: str) -> None:
    count = len(figures.COLORS) + 1
    many = {f"m{k}": {0: run(f"m{k}", 0, 60 + k, 40 if k % 2 else None, metric)} for k in range(count)}
    figure = figures.learning_curves("task", many, metric=metric)
    panels = [axes for axes in panels_of(figure) if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in panels] == list(many)
    for k, axes in enumerate(panels):
        own = {line.get_label(): line for line in axes.lines if line.get_label() in ("personal", "global")}
        assert list(own) == (["global", "personal"] if k % 2 else ["personal"])
        assert own["personal"].get_ydata().tolist() == [60 + k, 61 + k]
        assert len(axes.lines) == len(many) + len(own)  # the others in grey
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["personal", "global"]
    figure.canvas.draw()  # a warning that the panels do not fit would be an error


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_ending_names_the_format(tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / "new" / f"curves.{ending}"
    assert isinstance(figures.learning_curves("task", {"mh": {0: RUNS["mh"][0]}}, path), Figure)
    assert path.read_bytes().startswith(start)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedpriorError, match="cannot write"):
        figures.learning_curves("task", RUNS, tmp_path / "file" / "curves.png")
    with pytest.raises(FedpriorError, match=r"unknown kind of picture \(curves.xyz\) 'xyz'; valid: .*png"):
        figures.learning_curves("task", RUNS, tmp_path / "curves.xyz")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_seeds_of_unequal_length_share_their_rounds() -> None:
    short = record("mh", 1, rows({1: 10.0}, which=("weighted",)))
    (axes,) = panels_of(figures.learning_curves("task", {"mh": {0: RUNS["mh"][0], 1: short}}))
    assert axes.lines[0].get_xdata().tolist() == [1]


# -- differences of clients --------------------------------------------------------------------------------------------

SAMPLES = (10, 20, 40, 10)
BY_SEED = {
    "local": ((50, 60, 70, 80), (60, 60, 80, 80), (40, 60, 75, 90)),
    "fedavg": ((60, 60, 60, 80), (70, 60, 65, 70), (50, 60, 70, 90)),
    "mh": ((70, 60, 70, 90), (70, 60, 70, 90), (50, 60, 85, 60)),
}


def compared(info: MetricInfo) -> Comparison:
    return compare(
        [
            record(variant, seed, *evaluated([{info.name: values}], SAMPLES, metrics=(info,)))
            for variant, by_seed in BY_SEED.items()
            for seed, values in enumerate(by_seed)
        ],
        metric=info.name,
    )


def test_the_picture_has_a_dot_for_every_client() -> None:
    comparison = compared(ACCURACY)
    (axes,) = panels_of(figures.client_differences(comparison))
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "fedavg (personal)\n1 better, 1 equal,\n2 worse; 3 seeds",
        "mh (personal)\n1 better, 2 equal,\n1 worse; 3 seeds",
    ]
    for dots, variant in zip([c for c in axes.collections if len(c.get_offsets()) == 4], ("fedavg", "mh"), strict=True):
        d = comparison.variants[variant].difference
        assert d is not None
        assert np.asarray(dots.get_offsets())[:, 0] == pytest.approx(d.per_client)
        places = {tuple(place) for place in np.asarray(dots.get_offsets()).round(6).tolist()}
        assert len(places) == 4  # none is hidden behind another
    assert "difference in accuracy on own test samples from local (personal), in points" in axes.get_xlabel()
    assert "last round" in axes.get_title(loc="left")


def test_better_is_blue_whichever_way_it_lies() -> None:
    def colors(info: MetricInfo) -> list[str]:
        (axes,) = panels_of(figures.client_differences(compared(info)))
        first = next(c for c in axes.collections if len(c.get_offsets()) == 4)
        return [to_hex(color) for color in first.get_facecolors()]

    blue, red, grey = figures.COLORS[0].lower(), figures.COLORS[1].lower(), "#888888"
    assert colors(ACCURACY) == [blue, grey, red, red]  # fedavg: +10, 0, -10 and -3.3
    assert colors(NLL) == [red, grey, blue, blue]
    (axes,) = panels_of(figures.client_differences(compared(NLL)))
    assert "difference in nll on own test samples from local (personal)\n" in axes.get_xlabel()


# -- sweeps ------------------------------------------------------------------------------------------------------------

SETTINGS = [{"lam": lam, "start": start} for lam in (100.0, 0.001) for start in ("w", "theta")]


def sweep(chosen: int) -> dict[str, Any]:
    numbers = [{"mean": m, "std": None, "seeds": [0]} for m in (80.0, 90.5, 70.0)]
    cells = [{"setting": s, "validation": n} for s, n in zip(SETTINGS, [*numbers, None], strict=True)]
    return {
        "pfedme": {"cells": cells, "chosen": SETTINGS[chosen]},
        "fedavg": {"cells": [{"setting": {}}], "chosen": {}},
    }


def test_every_setting_of_a_sweep_is_a_line() -> None:
    (axes,) = panels_of(
        figures.parallel_coordinates("task", sweep(1), "accuracy")
    )  # one without a swept key shows nothing
    assert [label.get_text() for label in axes.get_xticklabels()] == ["lam", "start", "validation accuracy (%)"]
    places = {text.get_text(): text.xy for text in axes.texts}
    assert places["0.001"][1] < places["100"][1]  # numbers in their order, whatever that of the grid
    red = [line for line in axes.lines if to_hex(line.get_color()) == figures.COLORS[1].lower()]
    assert np.concatenate([line.get_ydata() for line in red])[-1] == 1.0  # it ends at the top
    assert "90.50" in places
    ends = sorted(float(line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1)
    assert ends[1:] == pytest.approx([0.0, 10 / 20.5, 1.0])
    assert ends[0] < 0  # what diverged
    assert "diverged" in [label.get_text() for label in axes.get_yticklabels()]


def test_the_best_setting_is_on_top_where_lower_is_better() -> None:
    (axes,) = panels_of(figures.parallel_coordinates("task", sweep(2), "nll", info=NLL))
    assert axes.get_xticklabels()[-1].get_text() == "validation nll"
    red = [line for line in axes.lines if to_hex(line.get_color()) == figures.COLORS[1].lower()]
    assert np.concatenate([line.get_ydata() for line in red])[-1] == 1.0
    assert "70.000" in {text.get_text() for text in axes.texts}
    heights = {label.get_text(): y for label, y in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)}
    assert heights["75"] > heights["85"] > heights["diverged"]


def test_pictures_are_drawn_only_where_they_are_asked_for() -> None:
    code = "import sys, fedprior.report.figures; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("name", ["a$x^$", "b\x1b[2J", "$a$", "c_d {e}"])
def test_a_name_is_a_name_and_no_mathematics(name: str, tmp_path: Path) -> None:
    """What is no valid mathematics would end in an error, and a control character in a warning that holds it."""
    values = [evaluated([{"accuracy": [10.0 * t + k, 20.0]} for t in (1, 2)], [3, 3]) for k in (0, 1)]
    one, other = (record(n, 0, *v, method=n, task=name) for n, v in zip((name, "local"), values, strict=True))
    curves = figures.learning_curves(name, {name: {0: one}, "local": {0: other}}, tmp_path / "curves.png")
    assert not any("\x1b" in text.get_text() or text.get_parse_math() for text in curves.axes[0].texts)
    figures.client_differences(compare([one, other]), tmp_path / "clients.png")

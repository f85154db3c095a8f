"""Learning curves of records whose values are known."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import CLASS_ACCURACY, COST, record, rows
from matplotlib.figure import Figure

from fedprior.errors import FedpriorError
from fedprior.records.schema import RunRecord
from fedprior.report import figures
from fedprior.report.canvas import COLORS, INK
from report.drawings import inside_page, overlapping, panels_of, texts_of


def run(
    variant: str, seed: int, personal: float, common: float | None = None, metric: str = "accuracy", **more: Any
) -> RunRecord:
    made = rows({1: personal, 2: personal + 1}, metric=metric, which=("weighted",))
    if common is not None:
        made += rows({1: common, 2: common + 1}, "global", metric=metric, which=("weighted",))
    return record(variant, seed, made, **more)


RUNS = {
    "local": {0: run("local", 0, 50), 1: run("local", 1, 52)},
    "fedavg": {0: run("fedavg", 0, 30, 30), 1: run("fedavg", 1, 31, 31)},
    "mh": {0: run("mh", 0, 60, 35), 1: run("mh", 1, 61, 30)},
}


def ends(figure: Figure) -> dict[str, Any]:
    """The names at the ends of curves."""
    (axes,) = panels_of(figure)
    return {text.get_text(): text for text in axes.texts}


def curve(values: dict[int, float], variant: str = "mh", seed: int = 0, **more: Any) -> RunRecord:
    return record(variant, seed, rows(values, which=("weighted",)), **more)


def test_a_curve_for_every_model_and_none_twice() -> None:
    figure = figures.learning_curves("task", RUNS)
    (axes,) = panels_of(figure)
    lines = {line.get_label(): line for line in axes.lines}
    # FedAvg's personal model is its global one; Local has no global one
    assert list(lines) == ["local", "fedavg, global", "mh, global", "mh"]
    assert lines["local"].get_ydata().tolist() == [51, 52]
    assert lines["mh"].get_color() == lines["mh, global"].get_color() != lines["fedavg, global"].get_color()
    assert lines["mh"].get_linestyle() != lines["mh, global"].get_linestyle()
    assert axes.get_title(loc="left") == "task: accuracy, mean and one standard deviation over 2 seeds"
    assert axes.get_ylabel() == "accuracy (%) on own test samples,\nweighted by samples"
    assert axes.get_xlabel() == "round"
    explained = [text.get_text() for text in figure.legends[0].get_texts()]
    assert explained == [
        "personal models",
        "global model (of fedavg: also the personal one)",
        "Local, the reference",
    ]


def test_local_is_set_apart_as_the_reference() -> None:
    (axes,) = panels_of(figures.learning_curves("task", RUNS))
    local, *others = axes.lines
    assert local.get_color() == INK
    assert INK not in COLORS
    assert all(line.get_zorder() > local.get_zorder() for line in others)
    assert all(line.get_marker() != "None" for line in others)  # they are told apart in grey as well
    assert len({line.get_marker() for line in others}) == 2


def test_curves_are_named_at_their_ends_and_names_do_not_overlap() -> None:
    close = {f"m{k}": {0: curve({1: 10.0, 2: 90 + k / 10}, f"m{k}")} for k in range(8)}
    figure = figures.learning_curves("task", close)
    named = ends(figure)
    assert list(named) == list(close)
    assert overlapping(list(named.values())) == 0
    assert inside_page(figure)
    heights = [text.xyann[1] for text in named.values()]
    assert heights == sorted(heights)  # the better the higher
    for name, text in named.items():
        assert text.xy == (2, close[name][0].rows[1].values["accuracy"])


def test_the_axis_shows_where_curves_end() -> None:
    late = {"a": {0: curve({1: 5.0, 2: 89.0, 3: 90.0})}, "b": {0: curve({1: 8.0, 2: 94.5, 3: 95.0})}}
    (axes,) = panels_of(figures.learning_curves("task", late))
    low, high = axes.get_ylim()
    assert 80 < low < 90
    assert 95 < high < 97


@pytest.mark.parametrize("sign", [1, -1])
def test_one_that_fails_is_named_off_the_axis(sign: int) -> None:
    metric, better = ("accuracy", 90.0) if sign == 1 else ("nll", 1.0)
    runs = {
        f"m{k}": {0: record(f"m{k}", 0, rows({1: 0.0, 2: better + sign * k}, metric=metric, which=("weighted",)))}
        for k in range(4)
    }
    runs["bad"] = {0: record("bad", 0, rows({1: 0.0, 2: better - sign * 50}, metric=metric, which=("weighted",)))}
    figure = figures.learning_curves("task", runs, metric=metric)
    (axes,) = panels_of(figure)
    low, high = axes.get_ylim()
    assert all(low <= better + sign * k <= high for k in range(4))
    assert not low <= better - sign * 50 <= high
    assert high - low < 1.6 * 3  # the one that fails does not squeeze the others
    assert f"bad\n{'40.00' if sign == 1 else '51.000'}, off the axis" in ends(figure)
    more = {f"n{k}": runs["m0"] for k in range(8)} | runs
    panels = panels_of(figures.learning_curves("task", more, metric=metric))
    assert [axes.get_title(loc="left") for axes in panels if axes.texts] == ["bad"]  # whose panel would be empty


def test_methods_that_coincide_stay_visible() -> None:
    same = {1: 50.0, 2: 90.0}
    near = {1: 50.01, 2: 90.01}
    runs = {
        "local": {0: curve({1: 60.0, 2: 80.0}, "local")},
        "mh": {0: curve(same)},
        "pfedme": {0: curve(same, "pfedme")},
        "ditto": {0: curve({1: 40.0, 2: 85.0}, "ditto")},
    }
    figure = figures.learning_curves("task", runs)
    assert list(ends(figure)) == ["local", "mh = pfedme", "ditto"]
    (axes,) = panels_of(figure)
    lines = {line.get_label(): line for line in axes.lines}
    assert (lines["mh"].get_linestyle(), lines["pfedme"].get_linestyle()) == (
        "-",
        "--",
    )  # seen through the gaps of the other
    assert lines["mh"].get_zorder() < lines["pfedme"].get_zorder()
    assert lines["mh"].get_color() != lines["pfedme"].get_color()
    useless = figures.learning_curves("task", {"local": {0: curve(same, "local")}, "fedu": {0: curve(same, "fedu")}})
    assert list(ends(useless)) == ["fedu = local"]
    fedu, local = panels_of(useless)[0].lines
    assert (local.get_label(), fedu.get_zorder() < local.get_zorder()) == ("local", True)  # not hidden
    nearly = figures.learning_curves("task", {**runs, "pfedme": {0: curve(near, "pfedme")}})
    assert list(ends(nearly)) == ["local", "mh ≈ pfedme", "ditto"]
    once = {**dict.fromkeys(range(1, 9), 50.0), 9: 90.0}
    for t, name in ((4, "mh ≈ pfedme"), (9, "mh")):  # apart for a moment, and where it matters
        other = {0: curve({**once, t: once[t] + 5}, "pfedme")}
        pair = figures.learning_curves("task", {**runs, "mh": {0: curve(once)}, "pfedme": other})
        assert name in ends(pair)


def test_one_seed_has_no_band() -> None:
    (axes,) = panels_of(figures.learning_curves("task", {name: {0: seeds[0]} for name, seeds in RUNS.items()}))
    assert not axes.collections
    assert axes.get_title(loc="left") == "task: accuracy, 1 seed"
    (axes,) = panels_of(figures.learning_curves("task", RUNS))
    assert len(axes.collections) == 4
    uneven = figures.learning_curves("task", {"mh": RUNS["mh"], "local": {0: RUNS["local"][0]}})
    assert "over 1 to 2 seeds" in panels_of(uneven)[0].get_title(loc="left")


@pytest.mark.parametrize(
    ("kind", "mh", "fedavg", "words"),
    [
        ("gradients", 140, 20, "gradients of a client that trains in every round"),
        ("total_gradients", 560, 80, "gradients in the whole federation"),
        ("megabytes", 0.022, 0.022, "megabytes sent"),  # 4 (1000 (1 * 4 + 0.5 * 3)) bytes
    ],
)
def test_a_budget_is_the_axis(kind: str, mh: float, fedavg: float, words: str) -> None:
    given: dict[str, Any] = {"protocol": {"budget": {kind: 1000}}}
    runs = {
        "local": {0: run("local", 0, 50, cost={**COST, "down": 0.0, "up": 0.0}, **given)},
        "mh": {0: run("mh", 0, 60, **given)},
        "fedavg": {0: run("fedavg", 0, 70, cost={**COST, "gradients": 20}, **given)},
    }
    (axes,) = panels_of(figures.learning_curves("task", runs))
    lines = {line.get_label(): line for line in axes.lines}
    assert axes.get_xlabel() == words
    assert lines["mh"].get_xdata() == pytest.approx([mh, 2 * mh])
    assert lines["fedavg"].get_xdata() == pytest.approx([fedavg, 2 * fedavg])
    if kind == "megabytes":  # Local sends nothing: a level line at its end
        assert lines["local"].get_xdata() == pytest.approx([0, 2 * mh])
        assert lines["local"].get_ydata().tolist() == [51, 51]
    mixed = {**runs, "ditto": {0: run("ditto", 0, 55)}}  # of which nobody knows what it spent
    (axes,) = panels_of(figures.learning_curves("task", mixed))
    assert axes.get_xlabel() == "round"


def test_what_spends_nothing_of_its_budget_is_drawn_along_the_rounds() -> None:
    given: dict[str, Any] = {"protocol": {"budget": {"megabytes": 1000}}}
    local = run("local", 0, 50, cost={**COST, "down": 0.0, "up": 0.0}, **given)
    (axes,) = panels_of(figures.learning_curves("task", {"local": {0: local}}))
    assert axes.get_xlabel() == "round"
    assert axes.lines[0].get_xdata().tolist() == [1, 2]


def test_curves_of_another_metric() -> None:
    (axes,) = panels_of(figures.learning_curves("task", {"mh": {0: run("mh", 0, 0.5, metric="nll")}}, metric="nll"))
    assert axes.lines[0].get_ydata().tolist() == [0.5, 1.5]
    assert axes.get_ylabel() == "nll on own test samples,\nweighted by samples; lower is better"
    with pytest.raises(FedpriorError, match="unknown metric 'f1'; valid: accuracy, nll"):
        figures.learning_curves("task", RUNS, metric="f1")


@pytest.mark.parametrize("metric", ["accuracy", "nll"])
def test_more_variants_than_colours_get_a_panel_each(metric: str) -> None:
    count = len(COLORS) + 1
    many = {f"m{k}": {0: run(f"m{k}", 0, 60 + k, 40 if k % 2 else None, metric)} for k in range(count)}
    many["local"] = {0: run("local", 0, 50, None, metric)}
    figure = figures.learning_curves("task", many, metric=metric)
    panels = panels_of(figure)
    assert [axes.get_title(loc="left") for axes in panels] == list(many)
    for k, axes in enumerate(panels[:-1]):
        own = {line.get_label(): line for line in axes.lines if line.get_label() in ("personal", "global")}
        assert list(own) == (["global", "personal"] if k % 2 else ["personal"])
        assert own["personal"].get_ydata().tolist() == [60 + k, 61 + k]
        assert axes.get_title(loc="right") == f"{61 + k:.{2 if metric == 'accuracy' else 3}f}"
        assert sum(line.get_label() == "local" for line in axes.lines) == 1
        assert len(axes.lines) == len(many) + len(own)  # the others in grey, and Local
    explained = [text.get_text() for text in figure.legends[0].get_texts()]
    assert explained == ["personal models", "global model", "Local, the reference"]
    figure.canvas.draw()  # a warning that the panels do not fit would be an error


def test_odd_names_are_drawn_as_they_are() -> None:
    odd = ("$x^2$ & <b>", "_a_b", r"\alpha^{", "two\nlines")
    shown = ("$x^2$ & <b>", "_a_b", r"\alpha^{", r"two\nlines")
    runs = {name: {0: curve({1: 10.0 * k, 2: 20.0 + 10 * k}, name)} for k, name in enumerate(odd)}
    texts = texts_of(figures.learning_curves("$task$_1", runs, diverged=["$b$"]))
    assert set(shown) <= set(texts)
    assert any(text.startswith("$task$_1: accuracy") and text.endswith("diverged: $b$") for text in texts)
    column = "class_accuracy[$a_b$]"
    of_class = record("mh", 0, rows({1: 1.0}, metric=column), metrics=(CLASS_ACCURACY,), class_names=["$a_b$"])
    texts = texts_of(figures.learning_curves("task", {"mh": {0: of_class}}, metric=column))
    assert "task: class accuracy[$a b$], 1 seed" in texts
    many = {f"{name}{k}": seeds for name, seeds in runs.items() for k in range(3)}
    assert {f"{name}0" for name in shown} <= set(texts_of(figures.learning_curves("$task$_1", many)))


def test_few_rounds_and_values_that_are_missing() -> None:
    one = {name: {s: curve({1: 10.0 + s}, name, s) for s in range(2)} for name in ("local", "mh", "pfedme")}
    figure = figures.learning_curves("task", one)
    (axes,) = panels_of(figure)
    mh, pfedme = (line for line in axes.lines if line.get_label() in ("mh", "pfedme"))
    assert mh.get_markersize() > pfedme.get_markersize()  # the one behind is still seen
    assert axes.get_xlim() == (0, 1)
    gap = {"mh": {0: curve({1: 10.0, 2: math.nan, 3: 30.0})}, "none": {0: curve({1: math.nan}, "none")}}
    (axes,) = panels_of(figures.learning_curves("task", gap))
    assert [line.get_xdata().tolist() for line in axes.lines] == [[1, 3]]
    nothing = figures.learning_curves("task", {"none": gap["none"]})
    assert "no value was measured" in texts_of(nothing)
    infinite = figures.learning_curves("task", {"mh": {0: curve({1: 1.0, 2: math.inf})}})
    infinite.canvas.draw()


def test_seeds_of_unequal_length_share_their_rounds() -> None:
    short = record("mh", 1, rows({1: 10.0}, which=("weighted",)))
    (axes,) = panels_of(figures.learning_curves("task", {"mh": {0: RUNS["mh"][0], 1: short}}))
    assert axes.lines[0].get_xdata().tolist() == [1]


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
    with pytest.raises(FedpriorError, match=r"unknown kind 'xyz' of picture \(curves.xyz\); valid: .*png"):
        figures.learning_curves("task", RUNS, tmp_path / "curves.xyz")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_pictures_are_drawn_only_where_they_are_asked_for() -> None:
    code = "import sys, fedprior.report.figures; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]

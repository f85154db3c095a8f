"""Sweeps: one program for many settings, choosing on validation samples, and never computing a cell twice."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from program import contents, fedprior, refused
from toys import rounds

import fedprior as fp
from fedprior import methods
from fedprior.analysis import figures
from fedprior.method import Method
from fedprior.methods.fedavg import FedAvg
from fedprior.methods.pfedme import PFedMe
from fedprior.records import RunFolder
from fedprior.run import Trial
from fedprior.sweep import Cell, Program, choose, on_validation, plan, programs, try_all


def small(**settings: Any) -> fp.Task:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 150)
    x = (2 * np.eye(3)[y] + rng.normal(size=(150, 3))).astype(np.float32)
    options = {"rounds": 4, "aggregated": 3, "batch": 8, "validation": 0.3, **settings}
    return fp.task_from_arrays(x, y, np.arange(150) % 6, lambda key: eqx.nn.Linear(3, 3, key=key), **options)


def cells_of(task: fp.Task, name: str, grid: dict[str, list[Any]], **own: Any) -> list[Cell]:
    return plan(task.experiment, [name], {"R": 3, "K": 2, **own}, grid)[name]


def host(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


# -- one program for many cells ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shrunk(PFedMe):
    """Clients begin with a part of w: what a client starts with depends on a swept number."""

    part: float = 1.0

    def client(self, w0: Any, key: Any) -> Any:
        return self.part * w0


@pytest.mark.parametrize(
    ("name", "grid", "own", "settings"),
    [
        ("pfedme", {"lam": [0.5, 4], "alpha": [0.03, 0.1]}, {}, {"beta": 2.0, "fine_tune": 2}),
        pytest.param(
            *("mh", {"eta": [0.01, 0.2], "eta_alpha": [0.01, 0.3]}, {"alpha": 0.05}, {}), marks=pytest.mark.slow
        ),
        pytest.param(*("local", {"alpha": [0.02, 0.2]}, {"optimizer": "adam"}, {}), marks=pytest.mark.slow),
        pytest.param(*("shrunk", {"part": [1.0, 0.0]}, {}, {"participation": "sampled"}), marks=pytest.mark.slow),
    ],
)
def test_cells_share_a_program_and_agree_with_plain_runs(
    name: str,
    grid: dict[str, list[Any]],
    own: dict[str, Any],
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(methods.METHODS, "shrunk", (Shrunk, {}))
    task = small(**settings)
    cells = cells_of(task, name, grid, **own)
    [(program, alike)] = programs(task, cells)
    assert alike == cells
    other, swept = (program.at(cell.method).run(1) for cell in (cells[0], cells[-1]))
    plain = Trial(task, cells[-1].method, name)
    state = rounds(plain.engine, task.experiment.rounds, seed=1)
    mine, its = (swept.state.clients, swept.state.server["server"]), (state.clients, state.server)
    for a, b in zip(host(mine), host(its), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert plain.validator is not None
    expected, found = plain.validator.own(state)["personal"], swept.scores[4, "personal", "validation"]
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-4)
    assert swept.accuracy("personal", "validation") == pytest.approx(
        100 * expected.correct.sum() / expected.count.sum(), abs=0.5
    )
    assert np.abs(found.loss - other.scores[4, "personal", "validation"].loss).max() > 1e-3
    train = program.engine._all if program.engine.participation == "all" else program.engine._sampled
    assert program.validator is not None
    compiled = (train, program.engine._merge, program.validator._own)
    assert [f._cache_size() for f in compiled] == [1, 1, 1]  # type: ignore[attr-defined]
    assert program.evaluator._own._cache_size() == 0  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Branching(FedAvg):
    """Python code asks for the value of mu, and perhaps for that of cut."""

    mu: float = 0.0
    cut: float = 1.0

    def local(self, *arguments: Any) -> Any:
        client, up, info = super().local(*arguments)
        return client, up if self.mu == 0 or np.float32(self.cut) < 0 else 0.5 * up, info


def test_a_number_that_python_asks_for_gets_programs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.METHODS, "branching", (Branching, {}))
    task = small()
    grid = {"alpha": [0.1, 0.2], "mu": [0.0, 0.3]}
    cells = plan(task.experiment, ["branching"], {}, grid)["branching"]
    found = list(programs(task, cells))
    assert [program.swept for program, _ in found] == [("alpha", "cut"), ("alpha",)]  # none asks for cut where mu is 0
    for (_, alike), mu in zip(found, (0.0, 0.3), strict=True):
        assert [cell.setting for cell in alike] == [{"alpha": alpha, "mu": mu} for alpha in (0.1, 0.2)]
    program, alike = found[1]
    swept, plain = program.at(alike[1].method), Trial(task, alike[1].method)
    state, expected = swept.start(0), plain.start(0)
    for _ in range(2):
        (state, _), (expected, _) = swept.engine.step(state), plain.engine.step(expected)
    for a, b in zip(host(state.server["server"]), host(expected.server), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_methods_of_the_paper_need_one_program() -> None:
    task = small()
    for name, fixed in (("pfedme", ()), ("mh", ("tol",)), ("fedavg", ()), ("local", ())):
        method: Method = methods.make(name)
        numbers = [key for key, value in vars(method).items() if isinstance(value, float) and key not in fixed]
        [(program, _)] = programs(task, [Cell(name, {}, method)])
        assert list(program.swept) == numbers


# -- running, reusing, choosing ----------------------------------------------------------------------------------------


def test_a_stopped_sweep_goes_on_and_a_larger_one_computes_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = small()
    ran: list[str] = []
    run = Program.run

    def counted(self: Program, seed: int, *arguments: Any, **options: Any) -> fp.Result:
        ran.append(f"lam={self.settings['lam']:g} alpha={self.settings['alpha']:g} seed={seed}")
        return run(self, seed, *arguments, **options)

    monkeypatch.setattr(Program, "run", counted)
    whole = cells_of(task, "pfedme", {"lam": [1, 4]}, alpha=0.1)
    assert try_all(task, whole, 2, tmp_path / "whole")
    assert len(ran) == 4
    asked = iter(
        [False, False, False, False, False, True]
    )  # before the first seed's run, in its rounds, and then in the second's
    stopped = cells_of(task, "pfedme", {"lam": [1, 4]}, alpha=0.1)
    assert not try_all(task, stopped, 2, tmp_path / "parts", should_stop=lambda: next(asked))
    states = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.safetensors")}
    assert len(states) == 1  # where it goes on; the finished runs need none

    ran.clear()
    larger = cells_of(task, "pfedme", {"alpha": [0.1, 0.3], "lam": [1, 4, 4.0]})
    assert [cell.setting for cell in larger] == [{"alpha": a, "lam": lam} for a in (0.1, 0.3) for lam in (1, 4)]
    assert try_all(task, larger, 2, tmp_path / "parts")
    assert ran == [
        "lam=1 alpha=0.1 seed=1",
        *(f"lam=4 alpha=0.1 seed={seed}" for seed in (0, 1)),
        *(f"lam={lam} alpha=0.3 seed={seed}" for lam in (1, 4) for seed in (0, 1)),
    ]
    for once, again in zip(whole, larger[:2], strict=True):
        assert once.accuracy == again.accuracy
        for seed in (0, 1):  # bit for bit as if it had not been stopped
            first, second = (RunFolder(cell.folder / str(seed)) for cell in (once, again) if cell.folder)
            assert first.config == second.config
            assert first.rows("clients.csv") == second.rows("clients.csv")
            assert {row["data"] for row in first.rows("metrics.csv")} == {"validation"}  # the test was not looked at

    ran.clear()
    before = contents(tmp_path)
    assert try_all(task, larger, 2, tmp_path / "parts")
    assert ran == []
    assert contents(tmp_path) == before


def test_the_best_on_validation_is_chosen_and_the_first_of_equals() -> None:
    def cell(*accuracy: float, diverged: str | None = None) -> Cell:
        return Cell("m", {}, methods.make("local"), accuracy=dict(enumerate(accuracy)), diverged=diverged)

    cells = [cell(80, 90), cell(90, 81), cell(81, 90), cell(99, diverged="in round 2 with seed 1")]
    assert choose(cells) is cells[1]
    assert choose(cells[3:]) is None


def test_the_experiment_of_a_sweep_holds_samples_out() -> None:
    plain, given = small(validation=0.0).experiment, small(validation=0.1, eval_every=2).experiment
    assert (on_validation(plain, {}).validation, on_validation(plain, {}).eval_every) == (0.2, 4)
    assert (on_validation(given, {"eval_every": 2}).validation, on_validation(given, {"eval_every": 2}).eval_every) == (
        0.1,
        2,
    )


# -- the program -------------------------------------------------------------------------------------------------------

QUICK = ("--rounds", "2", "--set", "R=2", "--set", "K=2")


def test_the_command_chooses_and_tells_how_to_use_the_choice(tmp_path: Path) -> None:
    command = ("sweep", "digits-mclr", "-m", "pfedme", "-m", "fedavg", *QUICK, "--set", "alpha_m=0.1", "--seeds", "2")
    grid = ("--grid", "lambda=0.5,1e30,15", "--grid", "start=w,theta")
    first = fedprior(*command, *grid, "--out", tmp_path, "--json", "--parallel", tmp_path / "mine.svg")
    assert first.code == 0, first.err
    found = json.loads(first.out)
    assert first.out == (tmp_path / "digits-mclr" / "sweep" / "summary.json").read_text()
    assert (tmp_path / "mine.svg").read_bytes().startswith(b"<?xml")
    assert "test was not looked at" in found["chosen_by"]
    assert found["validation"] == 0.2
    cells = found["methods"]["pfedme"]["cells"]
    assert [c["setting"] for c in cells] == [{"lam": v, "start": s} for v in (0.5, 1e30, 15.0) for s in ("w", "theta")]
    assert [c["validation"] is None for c in cells] == [False, False, True, True, False, False]
    assert cells[2]["diverged"].startswith("in round ")
    best = max((c for c in cells if c["validation"]), key=lambda c: c["validation"]["mean"])
    assert found["methods"]["pfedme"]["chosen"] == best["setting"]
    assert [c["setting"] for c in found["methods"]["fedavg"]["cells"]] == [{}]  # it has neither key
    tables = [RunFolder(Path(best["folder"]) / seed).rows("metrics.csv") for seed in ("0", "1")]
    values = [
        float(row["accuracy"])
        for rows in tables
        for row in rows
        if (row["model"], row["average"]) == ("personal", "weighted")
    ]
    assert best["validation"]["mean"] == pytest.approx(np.mean(values))
    assert len(values) == 2

    chosen = shlex.split(found["methods"]["pfedme"]["command"])
    assert chosen[:3] == ["fedprior", "run", "digits-mclr"]
    assert fedprior(*chosen[1:], "--out", tmp_path / "runs").code == 0
    used = RunFolder(tmp_path / "runs" / "digits-mclr" / "pfedme" / "1").config["run"]
    assert {key: used["settings"][key] for key in best["setting"]} == best["setting"]
    assert (used["validation"], used["rounds"], used["settings"]["R"], used["settings"]["alpha_m"]) == (0, 2, 2, 0.1)
    assert "alpha_m" not in found["methods"]["fedavg"]["command"]

    shown = fedprior(*command, *grid, "--out", tmp_path)  # all of it is reused
    assert shown.code == 0
    assert (tmp_path / "digits-mclr" / "sweep" / "parallel.png").read_bytes().startswith(b"\x89PNG")
    assert found["methods"]["pfedme"]["command"] in shown.out
    assert "the test was not looked at" in " ".join(shown.out.split())
    line = next(line for line in shown.out.splitlines() if line.rstrip().endswith("chosen"))
    assert f"{best['validation']['mean']:.2f}±{best['validation']['std']:.2f}" in line
    assert sum("diverged" in line for line in shown.out.splitlines()) == 2
    assert "6/6" in shown.err


def test_every_setting_diverged(tmp_path: Path) -> None:
    outcome = fedprior(
        "sweep", "digits-mclr", "-m", "pfedme", "--grid", "lam=1e30,1e31", *QUICK, "--out", tmp_path, "--json"
    )
    assert outcome.code == 1
    assert json.loads(outcome.out)["methods"]["pfedme"]["chosen"] is None
    assert "every setting of pfedme diverged" in outcome.err


def test_grids_that_make_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sweep(*more: str) -> Any:
        return fedprior("sweep", "digits-mclr", "-m", "fedavg", "-m", "local", "--out", tmp_path / "out", *more)

    refused(
        sweep("--grid", "alhpa=0.1,0.2"), "unknown key in --grid 'alhpa' (did you mean 'alpha'?)", "valid: R, alpha"
    )
    refused(sweep("--grid", "batch=10,20"), "'batch' is the task's", "--set batch=")
    refused(sweep("--grid", "alpha=0.1", "--set", "alpha=0.2"), "'alpha' is in --grid and in --set")
    refused(sweep("--grid", "alpha=0.1", "--grid", "alpha=0.2"), "'alpha' twice")
    refused(sweep("--grid", "alpha=0.1,,0.2"), "'alpha=0.1,,0.2' is not of the form key=value,value,...")
    refused(sweep("--grid", "alpha"), "'alpha' is not of the form")
    refused(sweep("--grid", "alpha=0.1,-1"), "alpha = -1")
    refused(sweep("--grid", "R=1,1.5"), "R = 1.5 has the wrong type")
    refused(sweep("--set", "alpha=0.2"), "fedavg declares nothing more to sweep", "--grid")
    refused(fedprior("sweep", "digits-mclr"), "--method")
    refused(fedprior("sweep", "digits-mclr", "-m", "fedavgg"), "did you mean 'fedavg'?")
    refused(sweep("--grid", "alpha=0.1", "--set", "validation=0.001"), "validation = 0.001 leaves no client")
    assert not (tmp_path / "out").exists()


def test_without_a_grid_the_declared_ranges_are_tried() -> None:
    experiment = small().experiment
    cells = plan(experiment, ["local", "mh"], {}, {})
    assert [cell.setting for cell in cells["local"]] == [{"alpha": a} for a in (0.01, 0.03, 0.1)]
    assert [cell.setting for cell in cells["mh"]] == [{"lam": lam} for lam in (15.0, 30.0, 60.0)]


def test_ranges_are_of_valid_values() -> None:
    for name, (cls, _) in methods.METHODS.items():
        for key, values in cls.ranges.items():
            assert [getattr(methods.make(name, **{key: value}), key) for value in values] == list(values)


def test_the_picture_has_a_line_per_setting_and_the_chosen_one_in_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    settings = [{"lam": lam, "start": start} for lam in (100.0, 0.001) for start in ("w", "theta")]
    numbers = [{"mean": m, "std": None, "seeds": [0]} for m in (80.0, 90.5, 70.0)]
    cells = [{"setting": s, "validation": n} for s, n in zip(settings, [*numbers, None], strict=True)]
    found = {"pfedme": {"cells": cells, "chosen": settings[1]}, "fedavg": {"cells": [{"setting": {}}], "chosen": {}}}
    figures.parallel_coordinates("task", found, "accuracy", tmp_path / "x.png")
    (axes,) = drawn[0].axes  # a method without a swept key has nothing to show
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

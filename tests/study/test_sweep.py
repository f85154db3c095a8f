"""Sweeps: one program for many settings, choosing on validation samples, and never computing a cell twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from program import contents
from toys import rounds

import fedprior as fp
from fedprior import methods
from fedprior.analysis.choice import choose
from fedprior.core.hyper import hyper
from fedprior.core.method import Method
from fedprior.methods.fedavg import FedAvg
from fedprior.methods.pfedme import PFedMe
from fedprior.study import study as study_module
from fedprior.study.program import Program
from fedprior.study.recorder import run_trial
from fedprior.study.rehearsal import traceable
from fedprior.study.sweep import Sweep, open_sweep
from fedprior.study.trial import Trial
from study.small import small_task

FORMAT1 = Path(__file__).parent.parent / "fixtures" / "format1"


def small(**settings: Any) -> fp.Task:
    return small_task(**{"rounds": 4, "aggregated": 3, "validation": 0.3, **settings})


def sweep_of(name: str, grid: dict[str, list[Any]], task: fp.Task | None = None, seeds: int = 1, **own: Any) -> Sweep:
    return Sweep(task or small(), [name], grid, seeds=seeds, **{"R": 3, "K": 2, **own})


def host(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods of the tests' own."""
    monkeypatch.setattr(methods.METHODS, "_entries", dict(methods.METHODS._entries))
    methods.register("shrunk", Shrunk)
    methods.register("branching", Branching)


# -- one program for many cells ----------------------------------------------------------------------------------------


class Shrunk(PFedMe):
    """Clients begin with a part of w: what a client starts with depends on a swept number."""

    part: float = hyper(1.0)

    def client(self, w0: Any, key: Any) -> Any:
        return self.part * w0


def losses(result: fp.Result) -> np.ndarray:
    """Every client's loss on its validation samples after the last round."""
    rows = [row for row in result.record.clients if row[:3] == (4, "personal", "validation")]
    return np.array([row.values["nll"] for row in rows])


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("name", "grid", "own", "settings"),
    [
        ("pfedme", {"lam": [0.5, 4], "alpha": [0.03, 0.1]}, {"beta": 2.0, "fine_tune": 2}, {}),
        pytest.param(
            *("mh", {"eta": [0.01, 0.2], "eta_alpha": [0.01, 0.3]}, {"alpha": 0.05}, {}), marks=pytest.mark.slow
        ),
        pytest.param(*("local", {"alpha": [0.02, 0.2]}, {"optimizer": "adam"}, {}), marks=pytest.mark.slow),
        pytest.param(*("shrunk", {"part": [1.0, 0.0]}, {}, {"participation": "sampled"}), marks=pytest.mark.slow),
    ],
)
def test_cells_share_a_program_and_agree_with_plain_runs(
    name: str, grid: dict[str, list[Any]], own: dict[str, Any], settings: dict[str, Any]
) -> None:
    task = small(**settings)
    sweep = Sweep(task, [name], grid, R=3, **own) if name == "local" else sweep_of(name, grid, task, **own)
    (program,) = sweep.programs
    trials = list(sweep.trials())
    assert all(trial.program is program for trial in trials)
    names = [trial.variant.name for trial in trials]  # type: ignore[attr-defined]
    assert names == [variant.name for variant in sweep.candidates[name]]
    other, swept = (run_trial(Trial(program, 1, trial.method)) for trial in (trials[0], trials[-1]))
    last = sweep.candidates[name][-1]
    around = {key: value for key, value in own.items() if key in ("beta", "fine_tune")}
    plain = Program(task, fp.Variant.of(name, {**last.settings, **around}))
    assert program.variant.wrappers == plain.variant.wrappers == around
    state = rounds(plain.engine, task.protocol.rounds, seed=1)
    mine, its = (swept.state.clients, swept.state.server), (state.clients, state.server)
    for a, b in zip(host(mine), host(its), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert plain.validator is not None
    expected, found = plain.validator.own(state)["personal"], losses(swept)
    np.testing.assert_allclose(found, expected.values("nll"), rtol=1e-4)
    assert swept.accuracy("personal", "validation") == pytest.approx(
        100 * expected.sums["accuracy"].sum() / expected.count.sum(), abs=0.5
    )
    assert np.abs(found - losses(other)).max() > 1e-4
    train: Any = program.engine._all if program.engine.at_home else program.engine._sampled
    assert program.validator is not None
    compiled: tuple[Any, ...] = (train, program.engine._merge, program.validator._own)
    assert [f._cache_size() for f in compiled] == [1, 1, 1]
    assert "_own" not in vars(program.evaluator)  # the test was not looked at
    config = trials[-1].config()["run"]
    assert config["numbers_as_data"] == list(program.data)
    assert {key: config["variant"]["settings"][key] for key in grid} == sweep.setting(last)


class Branching(FedAvg):
    """Python code asks for the value of mu, and perhaps for that of cut."""

    mu: float = hyper(0.0)
    cut: float = hyper(1.0)

    def local(self, *arguments: Any) -> Any:
        client, up, info = super().local(*arguments)
        return client, up if self.mu == 0 or np.float32(self.cut) < 0 else 0.5 * up, info


@pytest.mark.usefixtures("registered")
def test_a_number_that_python_asks_for_gets_programs_of_its_own() -> None:
    sweep = Sweep(small(), ["branching"], {"alpha": [0.1, 0.2], "mu": [0.0, 0.3]})
    first, second = sweep.programs
    assert [first.data, second.data] == [("alpha", "cut"), ("alpha",)]  # none asks for cut where mu is 0
    trials = list(sweep.trials())
    for program, mu in ((first, 0.0), (second, 0.3)):
        alike = [trial for trial in trials if trial.program is program]
        settings = [sweep.setting(trial.variant) for trial in alike]  # type: ignore[attr-defined]
        assert settings == [{"alpha": alpha, "mu": mu} for alpha in (0.1, 0.2)]
    swept = next(trial for trial in trials[::-1] if trial.program is second)
    plain = Trial(Program(small(), fp.Variant.of("branching", alpha=0.2, mu=0.3)), 0)
    state, expected = swept.init(), plain.init()
    for _ in range(2):
        state, expected = (t.program.engine.step(s)[0] for t, s in ((swept, state), (plain, expected)))
    for a, b in zip(host(state.server), host(expected.server), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_the_methods_of_the_paper_need_one_program() -> None:
    for name, fixed in (("pfedme", ()), ("mh", ("tol",)), ("fedavg", ()), ("local", ())):
        method: Method = methods.make(name)
        numbers = [key for key, value in vars(method).items() if isinstance(value, float) and key not in fixed]
        assert list(traceable(small(), fp.Variant.of(name))) == numbers


# -- which cells -------------------------------------------------------------------------------------------------------


def test_without_a_grid_the_declared_values_are_tried() -> None:
    sweep = Sweep(small(), ["local", "mh"])
    assert [sweep.setting(v) for v in sweep.candidates["local"]] == [{"alpha": a} for a in (0.01, 0.03, 0.1)]
    assert [sweep.setting(v) for v in sweep.candidates["mh"]] == [{"lam": lam} for lam in (15.0, 30.0, 60.0)]
    assert [v.name for v in sweep.candidates["mh"]] == ["mh lam=15", "mh lam=30", "mh lam=60"]


def test_a_key_is_left_out_for_the_method_that_does_not_use_it() -> None:
    sweep = Sweep(small(), ["lg", "meg", "mh", "fedavg"], {"eta": [0.1, 0.2], "eta_alpha": [0.3, 0.4]})
    assert sweep.swept == {"lg": ["eta_alpha"], "meg": ["eta"], "mh": ["eta", "eta_alpha"], "fedavg": []}
    assert [len(cells) for cells in sweep.candidates.values()] == [2, 2, 4, 1]
    mixed = Sweep(small(), ["mh"], {"mean": ["mh", "lg"], "eta": [0.1, 0.2]})
    assert [mixed.setting(v) for v in mixed.candidates["mh"]] == [
        {"mean": "mh", "eta": 0.1},
        {"mean": "mh", "eta": 0.2},
        {"mean": "lg", "eta": 0.1},  # 0.2 would be the same cell
    ]


def test_a_sweep_holds_samples_out() -> None:
    plain = open_sweep("digits-mclr", ["local"], ["alpha=0.1"], 1, {"rounds": 7})
    (task,) = plain.tasks
    assert (task.settings.validation, task.protocol.eval_every) == (0.2, 7)
    given = open_sweep("digits-mclr", ["local"], ["alpha=0.1"], 1, {"validation": 0.1, "eval_every": 2})
    assert (given.tasks[0].settings.validation, given.tasks[0].protocol.eval_every) == (0.1, 2)


def test_relaxation_is_refused_where_there_is_no_global_model() -> None:
    sweep = Sweep(small(), ["fedavg"], {"alpha": [0.1]}, beta=2)
    assert [(p.variant.name, p.variant.wrappers) for p in sweep.programs] == [("fedavg", {"beta": 2.0})]
    with pytest.raises(fp.FedpriorError, match="beta acts on a global model, and Local has none"):
        Sweep(small(), ["local", "fedavg"], {"alpha": [0.1]}, beta=2).programs  # noqa: B018


# -- running, reusing, choosing ----------------------------------------------------------------------------------------


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run, cell by cell."""
    cells: list[str] = []

    def counted(trial: Trial, *arguments: Any, **options: Any) -> fp.Result:
        cells.append(f"{trial.variant.name} seed={trial.seed}")  # type: ignore[attr-defined]
        return run_trial(trial, *arguments, **options)

    monkeypatch.setattr(study_module, "run_trial", counted)
    return cells


def test_a_stopped_sweep_goes_on_and_a_larger_one_computes_what_is_new(tmp_path: Path, ran: list[str]) -> None:
    whole = sweep_of("pfedme", {"lam": [1, 4]}, seeds=2, alpha=0.1)
    assert whole.try_all(tmp_path / "whole")
    assert len(ran) == 4
    # Before the first seed's run, in its rounds, before the second's, and then in that.
    asked = iter([False, False, False, False, False, True])
    stopped = sweep_of("pfedme", {"lam": [1, 4]}, seeds=2, alpha=0.1)
    stopped._shared = whole._shared
    assert not stopped.try_all(tmp_path / "parts", should_stop=lambda: next(asked))
    states = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.safetensors")}
    assert {Path(state).name[:5] for state in states} == {"round", "best-"}
    assert len(states) == 2  # where it goes on, and its best round; the finished runs need none

    ran.clear()
    told: list[tuple[str, int]] = []
    larger = sweep_of("pfedme", {"alpha": [0.1, 0.3], "lam": [1, 4, 4.0]}, seeds=2)
    cells = larger.candidates["pfedme"]
    assert [larger.setting(cell) for cell in cells] == [
        {"alpha": a, "lam": lam} for a in (0.1, 0.3) for lam in (1.0, 4.0)
    ]
    assert larger.try_all(tmp_path / "parts", done=lambda *what: told.append(what))
    assert ran == [
        "pfedme alpha=0.1 lam=1 seed=1",
        *(f"pfedme alpha=0.1 lam=4 seed={seed}" for seed in (0, 1)),
        *(f"pfedme alpha=0.3 lam={lam} seed={seed}" for lam in (1, 4) for seed in (0, 1)),
    ]
    assert told == [("pfedme", n) for n in (0, 1, 1, 2, 2, 3, 3, 4)]
    for once, again in zip(whole.outcomes("pfedme"), larger.outcomes("pfedme")[:2], strict=True):
        assert once.score() == again.score()
        for first, second in zip(once.records, again.records, strict=True):  # bit for bit as if it had not been stopped
            assert (first.config, first.rows) == (second.config, second.rows)
            assert list(first.clients) == list(second.clients)
            assert {row.data for row in first.rows} == {"validation"}  # the test was not looked at
    assert choose(larger.outcomes("pfedme")) is not None

    ran.clear()
    before = contents(tmp_path)
    assert larger.try_all(tmp_path / "parts")
    assert ran == []
    assert contents(tmp_path) == before


def test_old_cells_start_anew_and_this_is_said(tmp_path: Path, ran: list[str]) -> None:
    sweep = sweep_of("pfedme", {"lam": [1, 4]}, alpha=0.1)
    old = tmp_path / "arrays" / "sweep" / "pfedme" / "0123456789ab" / "0"
    shutil.copytree(FORMAT1 / "digits-mclr" / "mh" / "0", old)
    before, told = contents(old), list[str]()
    assert sweep.try_all(tmp_path, warn=told.append)
    place = tmp_path / "arrays" / "sweep"
    assert told == [f"{place} holds runs of an older version (1), which are not reused: their cells start anew"]
    assert ran == ["pfedme lam=1 seed=0", "pfedme lam=4 seed=0"]
    assert contents(old) == before


def test_settings_of_the_protocol_reach_every_cell() -> None:
    sweep = sweep_of("pfedme", {"lam": [1.0, 2.0]}, rounds=2, batch=5)
    assert {(trial.program.rounds, trial.program.protocol.batch) for trial in sweep.trials()} == {(2, 5)}
    with pytest.raises(fp.FedpriorError, match=r"'partition\.clients' belongs to the task, which is open already"):
        Sweep(small(), ["pfedme"], {"lam": [1.0]}, **{"partition.clients": 3}).programs  # noqa: B018

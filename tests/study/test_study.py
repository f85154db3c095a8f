"""A study: variants x tasks x seeds, from Python, a file and the command line, resumed and extended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import pytest
from program import contents, fedprior, kept

import fedprior as fp
from fedprior.engine.cost import Cost
from fedprior.methods import keys, make
from fedprior.methods.fedavg import FedAvg
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status
from fedprior.report.tables import render
from fedprior.study.cells import Cell
from fedprior.study.program import Program
from fedprior.study.results import Lost, Results
from fedprior.study.trial import Diverged, Progress
from study.example import FILE, ROWS, SETTINGS, example
from study.small import share, small_task

pytestmark = pytest.mark.xdist_group("study")  # its fixture runs: once is enough


class Done(NamedTuple):
    study: fp.Study
    out: Path
    results: Results


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    study, out = example(), tmp_path_factory.mktemp("study")
    return Done(study, out, study.run(out))


def copy_of(done: Done, tmp_path: Path) -> Path:
    for name, content in contents(done.out).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


class Rounds:
    """A watcher that notes which cells were run, and from where."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, int], list[int]] = {}
        self.failed: list[tuple[str, int]] = []

    def __call__(self, cell: Cell, progress: Progress | None) -> None:
        if progress is None:
            self.failed.append((cell.variant, cell.seed))
        else:
            self.seen.setdefault((cell.variant, cell.seed), []).append(progress.round)

    @property
    def new(self) -> list[tuple[str, int]]:
        """Cells in which a round was run."""
        return [cell for cell, rounds in self.seen.items() if len(rounds) > 1]


# -- the example -------------------------------------------------------------------------------------------------------


def test_rows_of_one_method_stand_in_one_table(done: Done) -> None:
    _, out, results = done
    assert len(results) == 8  # with the Local-only row, which nobody asked for
    names = ["local", *ROWS]
    (task,) = results.groups(pytest.fail)  # nothing to warn about
    assert list(results.groups()[task]) == names
    assert sorted(p.name for p in (out / "digits-mclr").iterdir()) == sorted(names)
    accuracy = {name: [result.accuracy() for result in results[name]] for name in names}
    assert len({tuple(numbers) for numbers in accuracy.values()}) == 4
    text = render(results.table(), "markdown")
    for name, numbers in accuracy.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| {name} ") and "| personal |" in line)
        assert f"| {np.mean(numbers):.2f} ± {np.std(numbers, ddof=1):.2f} |" in line
    assert "<table" in results._repr_html_()
    assert [result.seed for result in results["mh"]] == [0, 1]
    run = results["mh S=3"][0].record.config["run"]
    assert (run["protocol"]["aggregated"], run["variant"]["protocol"]) == (3, {"aggregated": 3})
    assert results["mh+AM"][0].record.config["run"]["variant"]["wrappers"] == {"beta": 2.0}


def test_python_and_command_line_give_the_same_numbers_from_the_same_records(done: Done, tmp_path: Path) -> None:
    numbers = json.loads(json.dumps(done.results.summary()["digits-mclr"]))
    (tmp_path / "rows.toml").write_text(FILE)
    before = kept(done.out)
    said = fedprior("study", tmp_path / "rows.toml", "--out", copy_of(done, tmp_path / "out"), "--resume", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["results"] == numbers
    after = kept(tmp_path / "out")
    assert {name: after[name] for name in before} == before  # nothing was run again
    assert {*after} - {*before} == {"digits-mclr/curves.png", "digits-mclr/summary.json"}
    read = Results.read(done.out)
    assert read.summary()["digits-mclr"] == done.results.summary()["digits-mclr"]
    table = fedprior("table", done.out, "--format", "markdown").out
    assert sorted(table.splitlines()) == sorted(render(done.results.table(), "markdown").splitlines())


@pytest.mark.slow
def test_a_study_file_and_the_command_line_write_the_same_records(done: Done, tmp_path: Path) -> None:
    (tmp_path / "rows.toml").write_text(FILE)
    assert fedprior("study", tmp_path / "rows.toml", "--out", tmp_path / "file").code == 0
    records = {name: c for name, c in kept(tmp_path / "file").items() if not name.endswith((".png", "summary.json"))}
    assert records == kept(done.out)
    given = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    assert fedprior("run", "digits-mclr", "-m", "mh:beta=2", *given, "--out", tmp_path / "line").code == 0
    tables = [
        p / "0" / "clients.csv" for p in (tmp_path / "line/digits-mclr/mh beta=2", done.out / "digits-mclr/mh+AM")
    ]
    assert tables[0].read_bytes() == tables[1].read_bytes()


# -- resumed, extended, refused ----------------------------------------------------------------------------------------


def test_a_study_that_was_stopped_goes_on(done: Done, tmp_path: Path) -> None:
    watch = Rounds()
    stopped = share(example(), done.study).run(
        tmp_path, watch=watch, should_stop=lambda: len(watch.seen) == 4, checkpoint_seconds=0
    )
    assert len(stopped) == 4
    assert stopped.records[-1].status == Status.STOPPED
    assert [result.finished for result in stopped] == [True, True, True, False]
    plan = share(example(), done.study).plan(tmp_path)
    assert [(cell.status, cell.done) for cell in plan.cells] == [
        *([("finished", 2)] * 3),
        ("stopped", 1),
        *([("to do", 0)] * 4),
    ]
    again = Rounds()
    results = share(example(), done.study).run(tmp_path, resume=True, watch=again)
    assert again.new == [("mh", 1), *((name, seed) for name in ("mh+AM", "mh S=3") for seed in (0, 1))]
    assert again.seen["mh", 1] == [1, 2]
    assert kept(tmp_path).keys() >= kept(done.out).keys()
    assert [record.rows for record in results.records] == [record.rows for record in done.results.records]
    records = {name: content for name, content in kept(tmp_path).items() if "round-00000001" not in name}
    assert records == {name: content for name, content in kept(done.out).items() if "round-00000001" not in name}


def test_more_seeds_and_rows_run_only_what_is_new(done: Done, tmp_path: Path) -> None:
    before, out = kept(done.out), copy_of(done, tmp_path)
    with pytest.raises(fp.FedpriorError, match="already holds a run; --resume goes on with it"):
        share(example(seeds=3), done.study).run(out)
    watch = Rounds()
    results = share(example(seeds=3), done.study).run(out, resume=True, watch=watch)
    assert watch.new == [(name, 2) for name in ("local", *ROWS)]
    assert len(results) == 12
    assert {name: content for name, content in kept(out).items() if name in before} == before

    watch = Rounds()
    wider = share(example({**ROWS, "fedavg": {}}), done.study).run(out, resume=True, watch=watch)
    assert watch.new == [("fedavg", 0), ("fedavg", 1)]
    assert list(wider.groups()["digits-mclr"]) == ["local", *ROWS, "fedavg"]
    assert {name: content for name, content in kept(out).items() if name in before} == before


def test_all_cells_are_checked_before_the_first_one_runs(done: Done, tmp_path: Path) -> None:
    out = copy_of(done, tmp_path)
    shutil.rmtree(out / "digits-mclr" / "local" / "0")
    before, watch = contents(out), Rounds()
    other = example({**ROWS, "mh S=3": {"method": "mh", "aggregated": 4}})
    with pytest.raises(fp.FedpriorError, match=r"a run of other settings .*aggregated: 3 then, 4 now"):
        share(other, done.study).run(out, resume=True, watch=watch)
    with pytest.raises(fp.FedpriorError, match="--resume goes on with a run and --overwrite replaces it; choose one"):
        share(example(), done.study).run(out, resume=True, overwrite=True)
    assert (contents(out), watch.seen) == (before, {})


# -- rows and settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (["mh", "mh"], {}, "two rows are called 'mh'; give one of them another name"),
        ({"mh": {}, "MH": {"method": "mh"}}, {}, "two rows are called 'MH'"),
        ({"Local": {"method": "mh"}}, {}, "two rows are called 'Local'"),  # beside the Local-only row
        ({"a/b": {"method": "mh"}}, {}, "'a/b' cannot name a row"),
        ({"mine": {}}, {}, "unknown method 'mine'"),
        ({"mine": 3}, {}, "row 'mine': give a dictionary of what it changes"),
        ({"mh": {"lamda": 3}}, {}, "unknown key 'lamda' of mh"),
        ({"mh": {"chunk": 3}}, {}, "'chunk' is now called 'clients_per_vmap'"),
        (["mh"], {"chunk": 3}, "'chunk' is now called 'clients_per_vmap'"),
        (["mh"], {"seeds": 0}, "seeds = 0; give a number of at least 1, or different seeds"),
        (["mh"], {"seeds": [1, 1]}, r"seeds = \[1, 1\]; give"),
    ],
)
def test_rows_that_make_no_sense(rows: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(fp.FedpriorError, match=message):
        fp.Study("digits-mclr", rows, **settings)


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (["mh"], {"lamda": 3}, r"unknown key 'lamda' \(did you mean 'lam"),
        (["fedavg"], {"lam": 3}, "unknown key 'lam'"),
        (["mh"], {"aggregated": 6}, "aggregated = 6 clients per round, but there are 5; valid: 1 to 5"),
        (["mh:aggregated=6"], {}, "aggregated = 6 clients per round, but there are 5; valid: 1 to 5"),
        (["mh:weights=size"], {}, "'mh weights=size': weights: input should be 'samples' or 'uniform'"),
        (["mh:metrics=['acuracy']"], {}, r"unknown metric 'acuracy' \(did you mean 'accuracy'\?\)"),
        (["local:beta=2"], {}, "beta acts on a global model, and Local has none; leave beta out"),
        (["scaffold:participation=all"], {}, "participation 'all' makes no sense for Scaffold; valid: sampled"),
        (
            ["local"],
            {"beta": 2},
            "beta acts on a global model, and Local has none; leave beta out, or give it to the rows",
        ),
        (["fedavg", "fedem"], {"beta": 2}, "beta acts on a global model, and FedEM has none"),
        (["mh"], {"validation": 0.2}, "'validation' belongs to the task, which is open already; set it where it is"),
        (["mh:R=2.5"], {}, "R = 2.5 has the wrong type"),
    ],
)
def test_settings_that_make_no_sense(rows: Any, settings: dict[str, Any], message: str) -> None:
    study = fp.Study(small_task(), rows, local=False, **settings)
    with pytest.raises(fp.FedpriorError, match=message):
        study.rows and study.programs  # noqa: B018


def test_settings_reach_all_rows_and_a_row_s_own_go_before() -> None:
    settings: dict[str, Any] = {"rounds": 4, "beta": 2, "fine_tune": 1, "lambda": 7}
    study = fp.Study(small_task(), ["mh", "mh:lam=2,beta=3,rounds=5"], **settings)
    local, mh, own = study.programs
    assert [program.protocol.rounds for program in study.programs] == [4, 4, 5]
    assert [getattr(program.method, "lam", None) for program in study.programs] == [None, 7.0, 2.0]
    assert local.variant.wrappers == {"fine_tune": 1}  # nobody named it, and it has no global model, on which beta acts
    assert study.remarks() == ["local has no global model and runs without beta"]
    assert mh.variant.wrappers == {"beta": 2.0, "fine_tune": 1}
    assert own.variant.wrappers == {"beta": 3.0, "fine_tune": 1}


def test_what_is_set_must_reach_a_row_that_was_asked_for() -> None:
    """Local is there of itself: a setting that only Local has would change the reference alone."""
    with pytest.raises(fp.FedpriorError, match=r"'optimizer' is no setting of mh, and would change local only"):
        fp.Study("digits-mclr", ["mh"], optimizer="adam").rows  # noqa: B018
    named = fp.Study("digits-mclr", ["mh", "local"], optimizer="adam")
    assert [row.settings for row in named.rows] == [{}, {"optimizer": "adam"}]
    some = fp.Study(small_task(), ["mh", "fedavg"], K=2)
    assert [program.changed for program in some.programs] == [{}, {"K": 2}, {}]  # which its table says


def test_a_method_and_its_name_are_the_same_or_are_told_apart() -> None:
    task = fp.task("digits-mclr", rounds=1, R=2, pooled="never", metrics=[])
    message = "the given PFedBreD has alpha = 0.01, its default, where task 'digits-mclr' has 0.05; give the method by"
    with pytest.raises(fp.FedpriorError, match=f"{message} its name, 'mh'"):
        fp.run(task, fp.make("mh", R=2))
    (by_name,), (given,) = fp.run(task, "mh"), fp.run(task, fp.make("mh", R=2, alpha=0.05, alpha_m=0.05))
    assert (given.name, given.accuracy()) == (by_name.name, by_name.accuracy()) == ("mh", by_name.accuracy())
    assert given.record.config["run"]["variant"] == by_name.record.config["run"]["variant"]


@pytest.mark.parametrize(("name", "default"), [("mh", None), ("pfedme", "theta")])
def test_defaults_that_are_no_numbers_are_told(name: str, default: str | None) -> None:
    task = fp.task("digits-mclr", start="w")
    given = fp.make(
        name, **{key: value for key, value in task.defaults.items() if key in keys(name) and key != "start"}
    )
    with pytest.raises(
        fp.FedpriorError, match=f"has start = {default!r}, its default, .* has 'w'; .*start={default!r}"
    ):
        fp.run(task, given)


def test_a_step_of_fine_tuning_without_fine_tuning_is_told() -> None:
    study = fp.Study(small_task(), ["fedavg:fine_tune_step=0.1"], local=False)
    assert study.remarks() == ["fedavg fine_tune_step=0.1: fine_tune_step does nothing without fine_tune"]
    (trial,) = fp.Study(small_task(), ["pfedbayes:fine_tune=1"], local=False).trials()
    trial.program.__dict__["cost"] = Cost(0, 0, 0, 0, 0)  # counting takes time
    recorded = trial.config()["run"]["variant"]
    assert recorded["wrappers"] == {"fine_tune": 1, "fine_tune_step": 0.01}
    assert recorded["revisions"] == {"pfedbayes": 1, "fine_tune": 1, "fine_tune_step": 1}


def test_weights_where_nobody_is_weighed_are_told() -> None:
    study = fp.Study(small_task(), ["fedavg:weights=uniform", "reptile:weights=uniform", "reptile"], local=False)
    told = "reptile weights=uniform: weights = uniform does nothing, since its server does not weigh clients"
    assert study.remarks() == [told]


def test_rows_are_given_in_any_way() -> None:
    def names(rows: Any, **options: Any) -> list[str]:
        return [variant.name for variant in fp.Study("digits-mclr", rows, **options).variants]

    assert names("mh") == ["local", "mh"]
    assert names(["mh", "local:R=2"]) == ["mh", "local R=2"]
    assert names(["mh"], local=False) == ["mh"]
    assert names({"base": {"method": "local"}, "mh": {}}) == ["base", "mh"]
    assert names([fp.Variant.of("mh", beta=2), make("lg"), "fedavg:R=2"], local=False) == [
        "mh beta=2",
        "lg",
        "fedavg R=2",
    ]


def test_a_row_is_left_out_where_the_model_does_not_allow_it() -> None:
    study = fp.Study(small_task(), ["fedpac", "fedavg"], local=False, optional=["fedpac"])
    assert [program.variant.name for program in study.programs] == ["fedavg"]
    (remark,) = study.remarks()
    assert remark.startswith("fedpac is left out: ")
    with pytest.raises(fp.FedpriorError):
        fp.Study(small_task(), ["fedpac", "fedavg"], local=False).programs  # noqa: B018


def test_what_does_nothing_is_told_where_the_user_set_it() -> None:
    def remarks(*rows: str, **settings: Any) -> list[str]:
        return fp.Study(small_task(), list(rows), local=False, **settings).remarks()

    assert remarks("lg", "meg", "mh") == []
    assert remarks("lg:eta=0.1") == ["lg eta=0.1: eta needs a mean with memory, so that here it does nothing"]
    assert remarks("meg:eta_alpha=0.1") == [
        "meg eta_alpha=0.1: eta_alpha needs a mean with a loss gradient, so that here it does nothing"
    ]
    assert remarks("lg", "meg", "mh", eta=0.1) == ["lg: eta needs a mean with memory, so that here it does nothing"]
    assert remarks("mh:lam=0") == ["mh lam=0: lam = 0 is valid, but switches off what lam controls"]


# -- several tasks -----------------------------------------------------------------------------------------------------


def test_several_tasks_make_a_table_with_average_and_deviation(tmp_path: Path) -> None:
    tasks = [small_task(draw, name=name, rounds=2, metrics=()) for draw, name in ((0, "first"), (1, "second"))]
    results = fp.Study(tasks, ["fedavg:R=1"], local=False).run(tmp_path)
    assert [record.task for record in results.records] == ["first", "second"]
    accuracy = [result.accuracy() for result in results]
    line = next(line for line in render(results.table(), "markdown").splitlines() if "both" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    wanted = [*accuracy, np.mean(accuracy), np.std(accuracy, ddof=1)]
    assert cells[:2] == ["fedavg R=1", "both"]  # the personal models are the global one
    assert cells[2:6] == [f"{value:.2f}" for value in wanted]
    assert "Avg" in (text := render(results.task_table(), "markdown"))
    assert "Std" in text
    table = fedprior("table", tmp_path, "--tasks", "--format", "markdown").out
    assert line in table
    assert sorted(p.name for p in tmp_path.iterdir()) == ["first", "second"]
    with pytest.raises(fp.FedpriorError, match="two tasks have one name"):
        fp.Study([small_task(), small_task(rounds=3)], ["mh"]).programs  # noqa: B018


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_row_that_diverges_loses_no_other(tmp_path: Path) -> None:
    watch, task = Rounds(), small_task(rounds=2, metrics=())
    rows = {"wild": {"method": "fedavg", "alpha": 1e38, "R": 1}, "fedavg": {"R": 1}}
    study = fp.Study(task, rows, local=False, seeds=2)
    results = study.run(tmp_path, watch=watch)
    assert watch.failed == [("wild", 0), ("wild", 1)]
    assert [(record.variant, record.seed) for record in results.records] == [("fedavg", 0), ("fedavg", 1)]
    assert [text.split(" diverged in round ")[0] for text in results.diverged] == ["wild", "wild"]
    assert results.diverged[1].endswith(f"(seed 1; records kept in {tmp_path / 'arrays' / 'wild' / '1'})")
    assert RunFolder(tmp_path / "arrays" / "wild" / "0").status[0] == Status.DIVERGED
    plan = study.plan(tmp_path)
    assert [cell.status for cell in plan.cells] == ["diverged", "diverged", "finished", "finished"]
    assert plan.seconds_left == 0
    assert list(results.groups()["arrays"]) == ["fedavg"]
    in_memory = share(fp.Study(task, rows, local=False), study).run()
    assert in_memory.diverged[0].endswith("(seed 0)")


def test_one_method_is_run_by_a_single_call(tmp_path: Path) -> None:
    task = small_task(rounds=2, metrics=())
    first, second = fp.run(task, make("fedavg", R=1), seeds=2, out=tmp_path)
    assert (first.name, first.seed, second.seed) == ("fedavg", 0, 1)
    assert (tmp_path / "arrays" / "fedavg" / "1" / "config.json").exists()
    (again,) = fp.run(task, "fedavg", R=1)  # by name and by object alike
    assert again.record.rows == first.record.rows
    with pytest.raises(Diverged, match=r"fedavg diverged in round \d.*\(seed 0\)") as error:
        fp.run(task, make("fedavg", R=1, alpha=1e38))
    assert f"diverged in round {error.value.round}:" in str(error.value)


def test_programs_share_the_samples_of_a_task() -> None:
    programs = fp.Study(small_task(), ["fedavg", "mh"], local=False).programs
    assert all(isinstance(program, Program) for program in programs)
    assert programs[0].task.federation is programs[1].task.federation


def test_a_wrapper_is_asked_about_only_where_the_method_fits() -> None:
    """Whether there is a global model is known of a method that works on the task; where it does not, that is told."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    task = fp.task_from_arrays(
        x, y, np.arange(60) % 3, lambda key: eqx.nn.MLP(3, 2, 4, 1, key=key), rounds=1, aggregated=2
    )
    told = {}
    for settings in ({}, {"beta": 2.0}):
        with pytest.raises(fp.FedpriorError) as error:
            fp.Study(task, ["fedpac"], local=False, **settings).programs  # type: ignore[arg-type]  # noqa: B018
        told[len(settings)] = str(error.value)
    assert told[0] == told[1]
    study = fp.Study(task, ["fedpac", "fedfomo:M=8", "fedavg"], local=False, optional=["fedpac", "fedfomo M=8"], beta=2)
    assert [program.variant.name for program in study.programs] == ["fedavg"]
    assert study.left_out["arrays", "fedpac"] == told[0]
    assert study.left_out["arrays", "fedfomo M=8"].startswith("FedFomo: M = 8 models to choose from")
    assert not study.without


def test_a_row_that_is_an_object_keeps_its_settings_and_that_is_told() -> None:
    rows: dict[str, Any] = {
        "named": {"method": "mh"},
        "own": {"method": make("mh")},
        "same": {"method": make("mh", lam=3.0)},
    }
    study = fp.Study(small_task(), rows, local=False, lam=3, beta=2.0)
    assert [program.method.lam for program in study.programs] == [3.0, 15.0, 3.0]  # type: ignore[attr-defined]
    assert study.remarks() == [
        "own keeps its lam = 15.0 where other rows have lam = 3: it is given as an object; give its name to change it"
    ]


@pytest.mark.parametrize("given", [["fedavg"], {"fedavg": {}}, FedAvg, None, 5])
def test_what_is_no_method_is_told(given: Any) -> None:
    for start in (lambda: fp.run(small_task(), given), lambda: fp.Study(small_task(), {"x": {"method": given}})):
        with pytest.raises(fp.FedpriorError, match=r"is no method; give the name of one, such as 'mh'") as error:
            start()
        assert "\n" not in str(error.value)
    with pytest.raises(fp.FedpriorError, match="is no method"):
        fp.Study(small_task(), 5)  # type: ignore[arg-type]


def test_rows_that_are_left_out_are_not_told_of() -> None:
    results = fp.Study(small_task(rounds=1), ["fedavg:R=1"], local=False).run()
    results.lost += [Lost("arrays", "fedavg R=1", "diverged", "mine"), Lost("arrays", "mh", "diverged", "another's")]
    assert results.only(["fedavg R=1"]).diverged == ["mine"]

"""fedprior reproduce."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from program import contents, fedprior, refused

from fedprior.cli.progress import Lines
from fedprior.cli.reproduce import Making, Watcher
from fedprior.reproduce.paper.artefact import ARTEFACTS
from fedprior.reproduce.paper.tuned import Tuned
from fedprior.study.cells import Cell, Plan, PlannedCell

ONE = ("reproduce", "aggregation", "--quick", "--tasks", "digits-mclr", "--seeds", "1", "--rounds", "2")
TRAINED = ("table1", "ablation", "aggregation", "heterogeneity", "robustness")


def test_without_a_name_all_are_listed() -> None:
    listed = fedprior("reproduce", columns=200)
    assert listed.code == 0
    assert all(name in listed.out for name in ARTEFACTS)
    assert "fedprior reproduce NAME" in listed.out
    lines = fedprior("reproduce").out.splitlines()  # one table on a usual terminal, every text below its heading
    assert max(map(len, lines)) <= 80
    head = next(line for line in lines if line.split()[0] == "name")
    rows = [next(line for line in lines if line.split()[:1] == [name]) for name in ARTEFACTS]
    for place in (head.index("what it is"), head.index("in the paper")):
        assert all(row[place - 2 : place] == "  " != row[place : place + 2] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("tabel1",), ["unknown artefact 'tabel1'", "did you mean 'table1'"]),
        (("table1", "--tasks", "mnist"), ["unknown task 'mnist'", "mnist-mclr-released"]),
        (
            ("heterogeneity", "--tasks", "mnist-mclr"),
            ["unknown task 'mnist-mclr' of this artefact", "fmnist-dnn-dirichlet-0.01"],
        ),
        (("table1", "--methods", "fedavgg"), ["unknown method 'fedavgg'", "did you mean 'fedavg'"]),
        (("table1", "--rounds", "0"), ["rounds = 0", "at least 1"]),
        (("table1", "--seeds", "0"), ["seeds = 0", "at least 1"]),
        (("table1", "--tasks", ","), ["--tasks names nothing"]),
        (("table1", "--quick", "--tasks", "mnist-mclr"), ["--quick runs on the digits"]),
    ],
)
def test_bad_input_is_one_clear_line(arguments: tuple[str, ...], parts: list[str], tmp_path: Path) -> None:
    refused(fedprior("reproduce", *arguments, "--out", tmp_path / "out"), *parts)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_version_or_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "reproduction.json").write_text(json.dumps({"layout": 99}))
    refused(fedprior(*ONE, "--out", tmp_path), "another version of fedprior", "layout 99", "use another --out")
    (tmp_path / "quick" / "reproduction.json").rename(tmp_path / "quick" / "thesis.txt")
    refused(fedprior(*ONE, "--out", tmp_path), "is no folder of `fedprior reproduce`")
    (tmp_path / "quick" / "thesis.txt").rename(tmp_path / "thesis.txt")
    refused(fedprior(*ONE, "--out", tmp_path), "is no folder of `fedprior reproduce`")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduction")
    outcome = fedprior(*ONE, "--out", out)
    assert outcome.code == 0, outcome.err
    return out / "quick"


def test_an_artefact_is_written_in_all_formats(made: Path) -> None:
    folder = made / "aggregation"
    assert {path.name for path in folder.iterdir()} == {
        *(f"aggregation.{e}" for e in ("csv", "md", "tex")),
        "cells.csv",
    }
    assert "last round" in (folder / "aggregation.md").read_text()
    assert "best round on test" in (folder / "aggregation.md").read_text()
    lines = (folder / "cells.csv").read_text().splitlines()
    assert len(lines) == 1 + 4 * 2  # four S, at the last round and at the best


def test_nothing_is_trained_twice_and_the_tables_are_the_same(made: Path) -> None:
    before, runs = contents(made / "aggregation"), contents(made / "cells")
    again = fedprior(*ONE, "--out", made.parent)
    assert again.code == 0, again.err
    assert contents(made / "aggregation") == before
    assert contents(made / "cells") == runs  # not even opened for writing


def test_the_records_alone_are_enough_elsewhere(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "records", tmp_path / "quick" / "records")
    elsewhere = fedprior(*ONE, "--out", tmp_path)
    assert elsewhere.code == 0, elsewhere.err
    assert contents(tmp_path / "quick" / "aggregation") == contents(made / "aggregation")
    assert not (tmp_path / "quick" / "cells").exists()


@pytest.mark.parametrize("status", ["diverged", "running"])
def test_a_cell_that_is_lost_is_called_what_it_is(status: str, tmp_path: Path) -> None:
    shown: list[str] = []
    bars = SimpleNamespace(add_task=lambda *_, **__: 0, update=lambda *_, remark, **__: shown.append(remark))
    (tmp_path / "status.json").write_text(json.dumps({"status": status, "round": 1}))
    trial: Any = SimpleNamespace(program=SimpleNamespace(rounds=2))
    Watcher(cast("Any", bars), "table1", Plan(())).watch(Cell("digits", "mh", 0, trial, tmp_path), None)
    assert shown[0].startswith(f"digits, mh, seed 0: {'diverged' if status == 'diverged' else 'failed'}, ")


def test_what_takes_long_to_make_has_one_bar_from_its_first_step_on() -> None:
    lines = Lines(lambda text: None)
    making = Making(lines, "complexity")
    assert lines.line() is None
    making.step(1, 3, "FedEM")
    making.step(2, 3, "mh")
    assert str(lines.line()).endswith("complexity: 2 of 3, mh")


def test_where_nothing_is_trained_no_progress_is_told(tmp_path: Path) -> None:
    outcome = fedprior("reproduce", "distribution", "--tasks", "digits-mclr", "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    assert "distribution.csv" in outcome.out
    assert "0 of 0" not in outcome.err


@pytest.mark.parametrize("status", ["running", "finished"])
def test_a_plan_of_the_tuned_table_goes_on_with_no_trial(
    status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial that was killed just before its end has no time left, and yet is not done."""
    trial = PlannedCell("digits-mclr", "local alpha=0.1", 0, 2, 2, status, 0.0)
    monkeypatch.setattr(Tuned, "plan", lambda *_: Plan((trial,)))
    asked: list[object] = []

    def stopped(*_: object, **__: object) -> bool:
        asked.append(_)
        return False

    monkeypatch.setattr(Tuned, "prepare", stopped)
    planned = fedprior("reproduce", "table1", "--tuned", "--quick", "--plan", "--out", tmp_path / "out", columns=200)
    assert (planned.code, len(asked)) == ((0, 0) if status == "running" else (130, 1))
    assert ("every row is trained at what did best" in planned.err) == (status == "running")


def test_a_finished_cell_keeps_one_state(made: Path) -> None:
    assert all(len(list(folder.iterdir())) == 1 for folder in (made / "cells").rglob("checkpoints"))


def test_a_plan_lists_the_cells_and_trains_nothing(made: Path) -> None:
    before = contents(made)
    planned = fedprior(*ONE[:-2], "--rounds", "3", "--plan", "--out", made.parent, columns=200)
    assert planned.code == 0, planned.err
    assert "mh-released S=2" in planned.out
    assert "2 of 3" in planned.out
    assert contents(made) == before


def test_a_row_that_a_task_does_not_allow_is_told_of(tmp_path: Path) -> None:
    asked = ("reproduce", "table1", "--quick", "--plan", "--tasks", "digits-mclr", "--out", tmp_path, "--methods")
    assert "digits-mclr: fedpac is left out: " in " ".join(fedprior(*asked, "fedpac", columns=200).err.split())
    assert "left out" not in fedprior(*asked, "fedavg", columns=200).err


def test_after_a_quick_look_the_real_one_is_still_possible(made: Path) -> None:
    real = ("reproduce", "distribution", "--tasks", "digits-mclr", "--plan", "--out", made.parent)
    assert fedprior(*real).code == 0
    mark = made.parent / "reproduction.json"  # which earlier versions did not leave
    content = mark.read_bytes()
    mark.unlink()
    assert fedprior(*real).code == 0
    mark.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_every_artefact_is_made_of_the_digits(name: str, tmp_path: Path) -> None:
    outcome = fedprior("reproduce", name, "--quick", "--seeds", "1", "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "quick" / name
    assert {f"{name}.csv", f"{name}.md", f"{name}.tex", "cells.csv"} <= {path.name for path in folder.iterdir()}
    if name == "table1":
        assert {"curves-digits-mclr.png", "curves-digits-mclr.pdf"} <= {path.name for path in folder.iterdir()}

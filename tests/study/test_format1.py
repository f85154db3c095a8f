"""Runs that were stopped by the code before records had a format number: restored, resumed, tabulated, reused."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from program import Outcome, contents, fedprior

import fedprior as fp
from fedprior.engine.cost import Cost
from fedprior.records import checkpoint, tables
from fedprior.records.formats import current_name
from fedprior.records.runs import RunFolder
from fedprior.records.schema import ClientRow, Row, Status
from fedprior.study.environment import environment
from fedprior.study.results import Results

OLD = Path(__file__).parent.parent / "fixtures" / "format1"
METHODS = sorted(path.name for path in (OLD / "digits-mclr").iterdir())
CHANGED = [name for name in METHODS if fp.make(name).revision > 1]  # their update is another one since
SAME = [name for name in METHODS if name not in CHANGED]
METRICS = ["accuracy", "nll", "balanced_accuracy", "macro_f1", "brier", "ece"]


def old_config(method: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((OLD / "digits-mclr" / method / "0" / "config.json").read_text())
    return content


def settings_of(method: str) -> dict[str, Any]:
    """What the old runs were given, as the fixtures' README says."""
    has = old_config(method)["run"]["settings"]
    more = {"mh": {"validation": 0.2, "new_clients": 0.3}, "fedavg": {"beta": 2.0, "fine_tune": 1}}.get(method, {})
    return {"partition.clients": 6, "aggregated": 3, "rounds": 4, **{key: 2 for key in "RKM" if key in has}, **more}


def fedprior_run(method: str, out: Path, *more: str) -> Outcome:
    settings = settings_of(method)
    if "--rounds" in more:
        del settings["rounds"]
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return fedprior("run", "digits-mclr", "-m", method, "--no-local", *given, *more, "--out", out)


def test_there_is_a_fixture_for_each_kind_of_state() -> None:
    assert {"mh", "scaffold", "fedamp", "fedfomo", "pfedhn", "fedem"} <= {*METHODS}
    assert {"mh", "scaffold", "local"} <= {*SAME}


@pytest.mark.parametrize("method", CHANGED)
def test_a_run_of_another_update_is_not_gone_on_with(method: str, tmp_path: Path) -> None:
    shutil.copytree(OLD / "digits-mclr" / method, tmp_path / "digits-mclr" / method)
    before = contents(tmp_path)
    outcome = fedprior_run(method, tmp_path, "--resume")
    assert outcome.code == 2
    now = fp.make(method).revision
    assert f"an update that has changed since ({method}: revision 1 then, {now} now)" in " ".join(outcome.err.split())
    assert "--overwrite" in outcome.err
    assert contents(tmp_path) == before


@pytest.mark.parametrize("method", SAME)
def test_a_state_is_restored_bit_for_bit(method: str) -> None:
    study = fp.Study("digits-mclr", [method], local=False, **settings_of(method))
    (program,) = study.programs
    folder = RunFolder(OLD / "digits-mclr" / method / "0")
    state, damaged = folder.restore(program.engine.host_template())
    assert state is not None
    assert (int(state.round), damaged) == (2, [])
    with safetensors.safe_open(folder.checkpoints[-1], "np") as file:
        written = {current_name(name): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    restored = checkpoint.pack(state)
    assert restored.keys() == written.keys()
    assert all(restored[name].dtype == array.dtype for name, array in written.items())
    assert {name: array.tobytes() for name, array in restored.items()} == {
        name: array.tobytes() for name, array in written.items()
    }
    (trial,) = study.trials()
    program.__dict__["cost"] = Cost(0, 0, 0, 0, 0)  # it is no part of what is compared, and counting takes time
    told = folder.check_same(trial.config())  # the settings are the same
    unknown = [text for text in told if text.startswith("an older version began this run: its ")]
    assert len(unknown) == 2  # how samples were split and how the model started was not recorded
    versions = {text.removeprefix("resuming with another ").split(":")[0] for text in told if text not in unknown}
    assert versions <= {"fedprior", "jax", "jaxlib", "numpy", "python", "machine"}


@pytest.mark.slow  # and only so: these bits are those of the compiler's full optimization
@pytest.mark.parametrize("method", SAME)
def test_a_resumed_run_ends_where_the_old_code_took_it(method: str, tmp_path: Path) -> None:
    shutil.copytree(OLD / "digits-mclr" / method, tmp_path / "digits-mclr" / method)
    outcome = fedprior_run(method, tmp_path, "--resume")
    assert outcome.code == 0, outcome.err
    folder = RunFolder(tmp_path / "digits-mclr" / method / "0")
    same = old_config(method)["environment"] == environment()
    assert ("resuming with another" in outcome.err) == (not same)
    assert (folder.status, folder.written_format) == ((Status.FINISHED, 4), 2)
    assert folder.config["environment"] == old_config(method)["environment"]  # where the run began
    assert [info["name"] for info in folder.config["metrics"]] == METRICS

    ends = OLD / "ends" / method
    for table in ("metrics.csv", "clients.csv"):
        rows, old_rows = folder.rows(table), tables.scan(table, (ends / table).read_text()).rows
        assert [row[:-1] for row in rows] == [row[:-1] for row in old_rows]  # the same cells in the same order
        for row, old in zip(rows, old_rows, strict=True):
            assert isinstance(old, Row | ClientRow)
            if row.round <= 2:  # recorded then: new metrics are empty
                assert row.values == old.values
            else:
                assert list(row.values) == METRICS
                both = {name: row.values[name] for name in old.values}
                assert both == old.values if same else both == pytest.approx(old.values, rel=0.2, abs=5)
    arrays = checkpoint.read(folder.checkpoints[-1])
    assert arrays is not None
    wanted = {current_name(name): sha for name, sha in json.loads((ends / "state.json").read_text()).items()}
    assert arrays.keys() == wanted.keys()
    if same:
        assert {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()} == wanted
    assert all(np.isfinite(array).all() for array in arrays.values())

    before = contents(folder.path)
    again = fedprior_run(method, tmp_path, "--resume", "--json")
    assert again.code == 0
    assert contents(folder.path) == before
    number = json.loads(again.out)["results"][method]["metrics"]["brier"]["personal"]["own"]["weighted"]
    assert number["last"] is not None


def test_old_runs_stand_in_a_table_untouched(tmp_path: Path) -> None:
    before = contents(OLD)
    table = fedprior("table", OLD / "digits-mclr", "--format", "markdown")
    assert table.code == 0, table.err
    read = {record.variant: record for record in Results.read(OLD / "digits-mclr").records}
    for method in METHODS:
        wanted = next(
            row.values["accuracy"] for row in read[method].rows if row[:4] == (2, "personal", "own", "weighted")
        )
        line = next(
            line for line in table.out.splitlines() if re.match(rf"\| {method} ([^|]*)\| (personal|both)", line)
        )
        assert f"{wanted:.2f}" in line
    assert fedprior("table", OLD / "digits-mclr", "--metric", "nll", "--format", "csv").code == 0
    assert contents(OLD) == before


def test_a_finished_old_run_is_reused_untouched(tmp_path: Path) -> None:
    """The fixture's run of two rounds, ended as the old code would have ended it."""
    folder = tmp_path / "digits-mclr" / "local" / "0"
    shutil.copytree(OLD / "digits-mclr" / "local" / "0", folder)
    config = old_config("local")
    config["run"]["rounds"] = 2
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "status.json").write_text('{"status": "finished", "round": 2}')
    before = contents(folder)
    outcome = fedprior_run("local", tmp_path, "--resume", "--rounds", "2", "--json")
    assert outcome.code == 0, outcome.err
    assert contents(folder) == before
    results = json.loads(outcome.out)["results"]["local"]
    assert list(results["metrics"]) == ["accuracy", "nll"]
    assert RunFolder(folder).written_format == 1


def test_other_settings_are_still_told_apart(tmp_path: Path) -> None:
    shutil.copytree(OLD / "digits-mclr" / "mh", tmp_path / "digits-mclr" / "mh")
    before = contents(tmp_path)
    outcome = fedprior_run("mh", tmp_path, "--resume", "--set", "lam=3")
    assert outcome.code == 2
    assert "other settings (variant.settings.lam: 15.0 then, 3.0 now)" in outcome.err
    assert contents(tmp_path) == before

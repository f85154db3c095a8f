"""fedprior study: the same study from a file, the command line and Python; workers; stopping and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from program import Outcome, contents, fedprior, refused, timeless

import fedprior as fp
from fedprior.records.runs import RunFolder, find_runs
from fedprior.records.schema import RunRecord, Status

pytestmark = pytest.mark.xdist_group("cli-study")  # one worker runs the study that all of them look at

FILE = """
about = "FedAvg, with momentum, with more clients and with smaller steps"
tasks = ["digits-mclr", "iid.toml"]
seeds = 2
local = false

[variants]
fedavg = {}
"fedavg+AM" = {method = "fedavg", beta = 2}
"fedavg S=3" = {method = "fedavg", aggregated = 3, alpha = 0.02}

[settings]
rounds = 2
R = 2
pooled = "never"
partition.seed = 4
"""
IID = """
aggregated = 2
data = {source = "digits"}
partition = {kind = "iid", clients = 4}
model = {name = "mclr"}
"""
VARIANTS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedavg+AM": {"method": "fedavg", "beta": 2},
    "fedavg S=3": {"method": "fedavg", "aggregated": 3, "alpha": 0.02},
}


@pytest.fixture(scope="module")
def conducted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """The study of a file, run, and what it printed with --json."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "mine.toml").write_text(FILE)
    (folder / "iid.toml").write_text(IID)
    outcome = fedprior("study", folder / "mine.toml", "--json", "--out", folder / "runs")
    assert outcome.code == 0, outcome.err
    return folder, outcome


def numbers(record: RunRecord) -> tuple[Any, ...]:
    return record.task, record.seed, record.status, tuple(record.rows), tuple(record.clients)


@pytest.mark.slow
def test_a_file_is_variants_x_tasks_x_seeds(conducted: tuple[Path, Outcome]) -> None:
    folder, outcome = conducted
    summaries = json.loads(outcome.out)
    assert list(summaries) == ["digits-mclr", "iid"]  # a task file beside the study's
    for task, summary in summaries.items():
        assert list(summary["results"]) == list(VARIANTS)
        assert json.loads((folder / "runs" / task / "summary.json").read_text()) == summary
        assert (folder / "runs" / task / "curves.png").read_bytes()[:4] == b"\x89PNG"
        assert {p.name for p in (folder / "runs" / task).iterdir() if p.is_dir()} == set(VARIANTS)
    assert len(find_runs(folder / "runs")) == 2 * 3 * 2
    run = RunFolder(folder / "runs" / "iid" / "fedavg S=3" / "1").config["run"]
    assert (run["seed"], run["protocol"]["aggregated"], run["protocol"]["rounds"]) == (1, 3, 2)
    assert run["task"]["partition"] == {"kind": "iid", "clients": 4, "seed": 4}
    again = fedprior("study", folder / "mine.toml", "--resume", "--out", folder / "runs")
    assert again.code == 0
    lines = again.out.splitlines()
    assert [line for line in lines if line.startswith(("digits-mclr: test accuracy", "iid: test accuracy"))]
    assert any(line.split() == ["method", "model", "digits-mclr", "iid", "Avg", "Std"] for line in lines)
    average = [summaries[t]["results"]["fedavg"]["metrics"]["accuracy"] for t in summaries]
    means = [of["personal"]["own"]["weighted"]["last"]["mean"] for of in average]
    assert any(f" {sum(means) / 2:.2f} " in line for line in lines if line.startswith("fedavg "))


@pytest.mark.slow
def test_python_gives_the_same_numbers(conducted: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, _ = conducted
    settings: dict[str, Any] = {"rounds": 2, "R": 2, "pooled": "never", "partition.seed": 4}
    study = fp.Study("digits-mclr", VARIANTS, seeds=2, local=False, **settings)
    inside = study.run()  # in memory
    kept = [
        RunFolder(folder / "runs" / "digits-mclr" / row / str(seed)).record() for row in VARIANTS for seed in (0, 1)
    ]
    assert [numbers(record) for record in inside.records] == [numbers(record) for record in kept]
    assert [record.config["run"] for record in inside.records] == [record.config["run"] for record in kept]
    assert study.plan(folder / "runs").seconds_left == 0
    read = fp.Results.read(folder / "runs" / "digits-mclr")
    mine, theirs = (timeless(each.summary())["digits-mclr"]["fedavg"] for each in (read, inside))
    assert mine == theirs


@pytest.mark.slow
def test_the_command_line_gives_the_same_numbers(conducted: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, _ = conducted
    done = fedprior(
        *("run", "digits-mclr", "-m", "fedavg:beta=2", "-m", "fedavg:aggregated=3,alpha=0.02", "--no-local"),
        *("--rounds", "2", "--seeds", "2", "--set", "R=2", "--set", "pooled=never", "--set", "partition.seed=4"),
        *("--out", tmp_path),
    )
    assert done.code == 0, done.err
    names = {"fedavg beta=2": "fedavg+AM", "fedavg aggregated=3 alpha=0.02": "fedavg S=3"}
    for mine, other in names.items():
        for seed in ("0", "1"):
            ours = RunFolder(tmp_path / "digits-mclr" / mine / seed).record()
            theirs = RunFolder(folder / "runs" / "digits-mclr" / other / seed).record()
            assert numbers(ours) == numbers(theirs)


@pytest.mark.slow
def test_a_study_is_extended_and_planned(conducted: tuple[Path, Outcome]) -> None:
    folder, _ = conducted
    before = contents(folder)
    plan = fedprior("study", folder / "mine.toml", "--seeds", "3", "--plan", "--out", folder / "runs")
    assert (plan.code, plan.err) == (0, "")
    words = " ".join(plan.out.split())
    assert words.count("finished 2 of 2 0:00:00") == 12
    assert words.count("to do 0 of 2 0:00:0") == 6  # as long as those of the same row
    assert "12 of 18 runs are done" in words
    longer = fedprior("study", folder / "mine.toml", "--rounds", "3", "--plan", "--out", folder / "runs").out
    assert longer.count("2 of 3") == 12
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("seeds = 2", "seed = 2"), ["unknown key 'seed' in study 'mine'", "did you mean 'seeds'?"]),
        (("seeds = 2", "seeds = 0"), ["seeds = 0", "at least 1"]),
        (("seeds = 2", "seeds ="), ["mine.toml is not valid TOML", "line 4"]),
        (('"iid.toml"', '"ii.toml"'), ["cannot read task file ii.toml"]),
        (('"iid.toml"', '"digits-mclr"'), ["two tasks have one name"]),
        (("fedavg = {}", "fedavgg = {}"), ["unknown method 'fedavgg'", "did you mean 'fedavg'?"]),
        (("fedavg = {}", "fedavg = 3"), ["study 'mine': variants.fedavg", "valid dictionary"]),
        (('"fedavg+AM"', '"fedavg: AM"'), ["'fedavg: AM' cannot name a row"]),
        (('"fedavg+AM"', '"FedAvg"'), ["two rows are called 'FedAvg'"]),
        (("beta = 2", "beta = 0"), ["beta = 0.0 is not valid"]),
        (("beta = 2", "betta = 2"), ["unknown key 'betta' of fedavg", "did you mean 'beta'?"]),
        (("R = 2", "chunk = 2"), ["'chunk' is now called 'clients_per_vmap'"]),
        (("R = 2", "Q = 2"), ["unknown key 'Q'"]),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_a_study_file_is_checked(tmp_path: Path, change: tuple[str, str], parts: list[str]) -> None:
    text = FILE.replace(*change)
    assert text != FILE
    (tmp_path / "mine.toml").write_text(text)
    (tmp_path / "iid.toml").write_text(IID)
    refused(fedprior("study", tmp_path / "mine.toml", "--out", tmp_path / "out"), *parts)
    assert not (tmp_path / "out").exists()
    refused(fedprior("study", tmp_path / "none.toml"), "cannot read study file", "No such file")


# -- other processes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_give_the_same_tables(conducted: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, outcome = conducted
    command = ("study", folder / "mine.toml", "--workers", "2", "--out", tmp_path)
    done = fedprior(*command, "--json")
    assert done.code == 0, done.err
    assert timeless(json.loads(done.out)) == timeless(json.loads(outcome.out))
    for run in find_runs(folder / "runs"):
        other = RunFolder(tmp_path / run.path.relative_to(folder / "runs")).record()
        assert numbers(other) == numbers(run.record())
    assert "12 of 12 done" in done.err


@pytest.mark.slow
def test_ctrl_c_with_workers_stops_all_and_resume_goes_on(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from fedprior.cli import main; main()", "run", "digits-mclr", "-m", "fedavg"]
    long = [*program, "--rounds", "400", "--seeds", "2", "--set", "pooled=never", "--set", "eval_every=20"]
    environment = {**os.environ, "COLUMNS": "200"}
    with subprocess.Popen(
        [*long, "--workers", "2", "--out", tmp_path / "parts"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            begun = time.monotonic()
            while not any(run.rows("times.csv") for run in find_runs(tmp_path / "parts")):  # rounds are being run
                assert process.poll() is None
                assert time.monotonic() - begun < 300
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, out) == (130, ""), err
    assert "the same command with --resume goes on from here" in err.splitlines()[-1]
    stopped = [run.status for run in find_runs(tmp_path / "parts")]
    assert any(status is Status.STOPPED and 0 < at < 400 for status, at in stopped)
    assert not any(status is Status.RUNNING for status, _ in stopped)
    done = subprocess.run(
        [*long, "--workers", "2", "--resume", "--json", "--out", tmp_path / "parts"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    whole = fedprior(*long[3:], "--json", "--out", tmp_path / "whole")
    assert whole.code == 0
    assert timeless(json.loads(done.stdout)) == timeless(json.loads(whole.out))

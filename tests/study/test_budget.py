"""Comparing methods at equal cost, of one kind or another, instead of an equal number of rounds."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from program import contents, fedprior, refused

import fedprior as fp
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status
from fedprior.study.program import Program

QUICK = ("--set", "pooled=never", "--set", "metrics=[]")
BUDGET = ("run", "digits-mclr", "-m", "fedavg", "-m", "mh-released", "--no-local", *QUICK)


@pytest.mark.slow
def test_a_budget_gives_each_method_its_own_rounds(tmp_path: Path) -> None:
    outcome = fedprior(*BUDGET, "--budget", "gradients=280", "--json", "--out", tmp_path)
    assert outcome.code == 0, outcome.err
    summary = json.loads(outcome.out)
    fedavg, mh = (summary["results"][name] for name in ("fedavg", "mh-released"))
    assert summary["budget"] == {"gradients": 280}
    assert (mh["cost"]["gradients"], mh["rounds"]) == (140, 2)
    assert (fedavg["cost"]["gradients"], fedavg["rounds"]) == (20, 14)  # seven times as many
    assert fedavg["cost"] == {
        **{"gradients": 20, "hvps": 0, "forward": 0, "down": 1.0, "up": 1.0, "state": 0.0},
        **{"parameters": 650, "trained_clients_per_round": 4},
    }
    for name, rounds in (("fedavg", 14), ("mh-released", 2)):
        run = RunFolder(tmp_path / "digits-mclr" / name / "0")
        protocol = run.config["run"]["protocol"]
        assert (protocol["rounds"], protocol["budget"]) == (rounds, {"gradients": 280})
        assert run.config["cost"] == summary["results"][name]["cost"]
        assert run.status == (Status.FINISHED, rounds)

    table = fedprior("table", tmp_path)
    assert "not of one experiment" not in table.err  # their rounds differ, and are meant to
    head = " ".join(table.out.split("method")[0].split())
    assert head.endswith("last round, at 280 gradients of a client that trains in every round")
    assert max(map(len, table.out.splitlines())) <= 80
    lines = [line.split() for line in table.out.splitlines()]
    assert next(line for line in lines if "method" in line)[-3:] == ["grads", "rounds", "n"]
    rows = [line[-3:] for line in lines if line[1:2] in (["both"], ["personal"])]
    assert rows == [["1.12k", "14", "1"], ["5.6k", "2", "1"]]
    markdown = fedprior("table", tmp_path, "--format", "markdown").out.splitlines()
    assert "gradients in the run | numbers sent in the run | rounds | seeds |" in markdown[2]
    assert any(
        line.endswith("| 20 | 2.8k | 5.6k | 31.2k | 2 | 1 |") for line in markdown
    )  # 650 (20 + 4) numbers in each of 2 rounds
    flat = list(csv.DictReader(io.StringIO(fedprior("table", tmp_path, "--format", "csv").out)))
    assert {(r["method"], r["gradients"], r["rounds"]) for r in flat} == {
        ("fedavg", "20", "14"),
        ("mh-released", "140", "2"),
    }

    again = fedprior(*BUDGET, "--budget", "gradients=280", "--json", "--resume", "--out", tmp_path)
    assert again.out == outcome.out
    before = contents(tmp_path)
    refused(fedprior(*BUDGET, "--budget", "megabytes=1", "--resume", "--out", tmp_path), "other settings", "budget")
    assert contents(tmp_path) == before
    # A run of as many rounds for all is not of the same experiment.
    shutil.copytree(tmp_path / "digits-mclr" / "fedavg", tmp_path / "digits-mclr" / "plain")
    config = RunFolder(tmp_path / "digits-mclr" / "plain" / "0").config
    config["run"]["protocol"]["budget"], config["run"]["variant"]["name"] = None, "plain"
    (tmp_path / "digits-mclr" / "plain" / "0" / "config.json").write_text(json.dumps(config))
    assert "in every round" not in fedprior("table", tmp_path / "digits-mclr" / "plain").out
    assert "not of one experiment (budget: " in fedprior("table", tmp_path).err


def test_a_row_may_have_a_budget_of_its_own() -> None:
    task = fp.task("digits-mclr", rounds=9)
    rows = {text: Program(task, fp.Variant.parse(text)) for text in ("fedavg", "fedavg:budget.gradients=100")}
    assert [program.rounds for program in rows.values()] == [9, 5]
    within = fp.task("digits-mclr", budget={"gradients": 100})
    assert Program(within, fp.Variant.parse("fedavg:R=2")).rounds == 50
    with pytest.raises(fp.FedpriorError, match="rounds and budget both say how long"):
        Program(within, fp.Variant.parse("fedavg:rounds=3")).rounds  # noqa: B018


def test_who_trains_counts_where_a_budget_is_of_the_whole_federation() -> None:
    """mh trains 20 clients in a round and FedAvg 4; 650 numbers of 4 bytes each: 24 messages of mh are .0624 MB."""
    rounds = {}
    for kind, most in (("gradients", 2400), ("total_gradients", 48_000), ("megabytes", 0.624)):
        task = fp.task("digits-mclr", budget={kind: most})
        rounds[kind] = [Program(task, fp.Variant.parse(name)).rounds for name in ("mh", "fedavg", "local")]
    assert rounds == {"gradients": [20, 120, 120], "total_gradients": [20, 600, 120], "megabytes": [10, 30, 100]}
    study = fp.Study(fp.task("digits-mclr", budget={"megabytes": 1}), ["fedavg"])
    assert study.remarks() == ["local uses none of the megabytes budget, so it runs the protocol's 100 rounds"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["--budget", "280"],
            ["--budget '280' is not of the form KIND=N; kinds: gradients, total_gradients, megabytes"],
        ),
        (["--budget", "floats=280"], ["unknown budget 'floats'", "valid: gradients"]),
        (["--budget", "gradient=280"], ["unknown budget 'gradient'", "did you mean 'gradients'?"]),
        (["--budget", "gradients=many"], ["budget.gradients: input should be a valid integer", "'many'"]),
        (["--budget", "gradients=0"], ["budget.gradients: input should be greater than or equal to 1"]),
        (["--budget", "gradients="], ["budget.gradients: input should be a valid integer"]),
        (
            ["--budget", "gradients=119"],
            [
                "119 gradients of a client that trains in every round is less than one round of mh, which takes 120",
                "give at",
            ],
        ),
        (["--budget", "gradients=500", "--rounds", "3"], ["rounds and budget both say how long", "choose one"]),
        (["--budget", "gradients=500", "--set", "rounds=3"], ["rounds and budget both say how long"]),
        (["--set", "budget.gradients=500", "--rounds", "3"], ["rounds and budget both say how long"]),
        (["--set", "budget.floats=5"], ["unknown key", "'budget.floats'", "valid: budget.gradients"]),
        (["--budget", "megabytes=-1"], ["budget.megabytes: input should be greater than 0"]),
        (["--budget", "megabytes=1e-6"], ["1e-06 megabytes sent is less than one round of mh"]),
        (
            ["--budget", "gradients=500", "--set", "budget.megabytes=5"],
            ["--budget and --set budget.megabytes=... both say what may be spent; leave one of them out"],
        ),
        (["--set", "budget.gradients=5", "--set", "budget.floats=5"], ["'budget.floats'", "valid: budget.gradients"]),
    ],
    ids=lambda value: " ".join(value) if value[0].startswith("--") else "",
)
def test_nonsense_is_refused(tmp_path: Path, arguments: list[str], parts: list[str]) -> None:
    refused(fedprior("run", "digits-mclr", "-m", "mh", *arguments, "--out", tmp_path / "out"), *parts)
    assert not list(tmp_path.iterdir())

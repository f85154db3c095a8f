"""The program as a user meets it: results on stdout, everything else on stderr, bad input told in one line."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program import Outcome, contents, fedprior, refused

import fedprior as fp
from fedprior import methods, records
from fedprior.evaluate import AVERAGES
from fedprior.experiment import task_names
from fedprior.methods import METHODS
from fedprior.records import RunFolder

QUICK = ("--set", "R=2", "--set", "K=2")
METHODS_USED = ("local", "fedavg", "mh")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A comparison of three methods over two seeds, and what it printed with --json."""
    out = tmp_path_factory.mktemp("compared")
    outcome = fedprior(
        *("run", "digits-mclr", "-m", "fedavg", "-m", "mh", "--rounds", 12, "--seeds", 2, *QUICK),
        *("--set", "validation=0.2", "--json", "--out", out),
    )
    assert outcome.code == 0, outcome.err
    return out / "digits-mclr", outcome


# -- what it prints ----------------------------------------------------------------------------------------------------


def test_json_is_one_object_and_agrees_with_the_clients_own_values(compared: tuple[Path, Outcome]) -> None:
    folder, outcome = compared
    summary = json.loads(outcome.out)
    assert (folder / "summary.json").read_text() == outcome.out
    assert tuple(summary["results"]) == METHODS_USED  # Local is there without being asked for
    assert summary["task"] == "digits-mclr"
    for method, by_model in summary["results"].items():
        series = [by_round(folder / method / str(seed)) for seed in (0, 1)]
        for model in ("personal", "global"):
            for data in ("own", "pooled"):
                for average in AVERAGES:
                    found = by_model[model][data][average]
                    values = [s.get((model, data, average), {}) for s in series]
                    for choice, number in found.items():
                        wanted = [chosen(v, choice, s, model) for v, s in zip(values, series, strict=True)]
                        if None in wanted:
                            assert number is None, (method, model, data, average, choice)
                            continue
                        assert number["mean"] == pytest.approx(np.mean(wanted), rel=1e-12)
                        assert number["std"] == pytest.approx(np.std(wanted, ddof=1), rel=1e-9, abs=1e-12)
                        assert number["seeds"] == [0, 1]
    results = summary["results"]
    assert results["local"]["global"]["own"]["mean"]["last"] is None  # it has no global model
    assert results["mh"]["personal"]["pooled"]["mean"]["best"] is None  # seen at the last round only
    assert results["mh"]["personal"]["pooled"]["mean"]["last"] is not None
    assert 30 < results["mh"]["personal"]["own"]["weighted"]["last"]["mean"] < 100  # percent, not parts


def by_round(run: Path) -> dict[tuple[str, str, str], dict[int, float]]:
    """The three averages at every round, from clients.csv and numpy alone."""
    rows: dict[tuple[int, str, str], list[tuple[float, int]]] = {}
    with open(run / "clients.csv", newline="") as file:
        for r in csv.DictReader(file):
            correct = float(r["accuracy"]) * int(r["samples"]) / 100
            rows.setdefault((int(r["round"]), r["model"], r["data"]), []).append((correct, int(r["samples"])))
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for (t, model, data), pairs in rows.items():
        correct, samples = np.array(pairs).T
        assert np.allclose(correct, np.round(correct))
        each = np.sort(100 * correct / samples)
        weighted = 100 * correct.sum() / samples.sum()
        worst = each[: max(1, len(each) // 10)].mean()
        for average, value in zip(AVERAGES, (weighted, each.mean(), worst), strict=True):
            found.setdefault((model, data, average), {})[t] = value
            if (model, data) == ("global", "own"):  # one model on the union of all samples
                found.setdefault((model, "pooled", average), {})[t] = weighted
    with open(run / "metrics.csv", newline="") as file:  # what is summarized is what is recorded
        recorded = {
            (r["model"], r["data"], r["average"], int(r["round"])): float(r["accuracy"]) for r in csv.DictReader(file)
        }
    assert recorded == pytest.approx({(*key, t): value for key, values in found.items() for t, value in values.items()})
    return found


def chosen(values: dict[int, float], choice: str, series: dict[Any, dict[int, float]], model: str) -> float | None:
    if not values or (len(values) == 1 and choice != "last"):
        return None
    validation = series[model, "validation", "weighted"]
    return {
        "last": values[12],
        "last10": float(np.mean([values[t] for t in range(3, 13)])) if len(values) > 1 else None,
        "best": max(values.values()),
        "validation": values[min(validation, key=lambda t: (-validation[t], t))] if len(values) > 1 else None,
    }[choice]


def test_the_table_of_records_is_the_table_of_the_run(compared: tuple[Path, Outcome]) -> None:
    folder, _ = compared
    again = fedprior(
        *("run", "digits-mclr", "-m", "fedavg", "-m", "mh", "--rounds", 12, "--seeds", 2, *QUICK),
        *("--set", "validation=0.2", "--resume", "--out", folder.parent),
    )
    assert again.code == 0
    table = fedprior("table", folder)
    assert (table.code, table.err) == (0, "")
    *printed, last = again.out.splitlines()
    assert table.out.splitlines() == printed
    assert last.startswith("curves: ")
    assert (folder / "curves.png").read_bytes()[:4] == b"\x89PNG"
    words = table.out.split()
    assert all(word in words for word in METHODS_USED)


def test_table_in_other_formats_and_rounds(compared: tuple[Path, Outcome]) -> None:
    folder, outcome = compared
    results = json.loads(outcome.out)["results"]
    flat = list(csv.DictReader(io.StringIO(fedprior("table", folder, "--format", "csv").out)))
    one = next(r for r in flat if (r["method"], r["model"], r["data"], r["average"], r["round"]) == (
        "mh", "personal", "own", "mean", "last10"))  # fmt: skip
    assert float(one["mean"]) == results["mh"]["personal"]["own"]["mean"]["last10"]["mean"]
    for choice, words in (("best", "the test chose it"), ("validation", "chosen on validation")):
        table = fedprior("table", folder, "--format", "markdown", "--round", choice)
        assert words in table.out
        assert f"{results['mh']['personal']['own']['weighted'][choice]['mean']:.2f} ±" in table.out
    assert "optimistic" not in fedprior("table", folder).out  # best-on-test is shown only when asked for
    refused(fedprior("table", folder, "--format", "mardown"), "did you mean 'markdown'")
    refused(fedprior("table", folder, "--round", "first"), "valid: best, last, last10, validation")
    alone = fedprior("table", folder / "mh")
    assert alone.code == 0
    assert "has no Local-only runs" in alone.err


def test_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(name in fedprior("tasks").out for name in task_names())
    few = {name: METHODS[name] for name in ("fedavg", "fedfomo", "pfedme-released", "mh-released")}
    with monkeypatch.context() as patched:
        patched.setattr("fedprior.methods.METHODS", few)  # counting all of them takes long
        shown = fedprior("methods")
    assert all(name in shown.out for name in few)  # none is cut short at 80 columns
    assert max(map(len, shown.out.splitlines())) <= 80
    one = fedprior("methods", "mh-released").out
    assert "released" in one
    assert "True" in one  # the value of overwrite in force, not its None
    batch = next(line for line in fedprior("tasks", "digits-mclr").out.splitlines() if "batch" in line)
    assert "section 5" in batch  # shown although 20 is the default of all tasks
    refused(fedprior("methods", "mhh"), "did you mean 'mh'")
    refused(fedprior("tasks", "digits-mlcr"), "did you mean 'digits-mclr'")
    assert fedprior("--version").out.strip() == fp.__version__
    assert "Start with" in fedprior().out


def test_partition(tmp_path: Path) -> None:
    picture = tmp_path / "new" / "parts.png"
    shown = fedprior("partition", "digits-mclr", "--plot", picture)
    assert (shown.code, shown.err) == (0, "")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    found = json.loads(fedprior("partition", "digits-mclr", "--set", "partition.clients=7", "--json").out)
    assert found["clients"] == 7
    assert found["train"] + found["test"] == 1797
    refused(fedprior("partition", "digits-mclr", "--set", "partition.alpha=0", "--json"), "alpha")


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["digits-mlcr"], ["unknown task 'digits-mlcr'", "did you mean 'digits-mclr'?", "valid:"]),
        (["digits-mclr", "-m", "fedavgg"], ["unknown method 'fedavgg'", "did you mean 'fedavg'?"]),
        (["digits-mclr", "--set", "lamda=3"], ["unknown key 'lamda'", "did you mean 'lam'?"]),
        (["digits-mclr", "--set", "method.lam=3"], ["unknown key 'method.lam'"]),
        (["digits-mclr", "--set", "rounds"], ["'rounds' is not of the form key=value"]),
        (["digits-mclr", "--set", "rounds=abc"], ["rounds: input should be a valid integer", "'abc'"]),
        (["digits-mclr", "--set", "lam=high"], ["lam = 'high' has the wrong type", "float"]),
        (["digits-mclr", "--set", "lam=nan"], ["lam = nan is not valid", "finite"]),
        (["digits-mclr", "--set", "K=2.5"], ["K = 2.5 has the wrong type", "int"]),
        (["digits-mclr", "--set", "beta=0"], ["beta: input should be greater than 0"]),
        (["digits-mclr", "--set", "K=0"], ["K = 0 is not valid", "at least 1"]),
        (["digits-mclr", "--set", "lambda=-1"], ["lam = -1.0 is not valid", "at least 0"]),
        (["digits-mclr", "--set", "lam=-1"], ["lam = -1.0 is not valid", "at least 0"]),
        (["digits-mclr", "--set", "aggregated=21"], ["aggregated = 21", "there are 20", "valid: 1 to 20"]),
        (["digits-mclr", "--set", "validation=1.5"], ["validation: input should be less than 1"]),
        (["digits-mclr", "--set", "participation=some"], ["participation", "'all' or 'sampled'"]),
        (["digits-mclr", "--set", "partition.labels=released"], ["unknown key", "'labels'"]),
        (["digits-mclr", "--set", "partition.kind=dirichle"], ["did you mean 'dirichlet'"]),
        (["digits-mclr", "--set", "partition.kind=[1]"], ["unknown partition kind"]),
        (["digits-mclr", "--set", "data.normalise=unit"], ["'data.normalise'", "did you mean 'data.normalize'"]),
        (["digits-mclr", "--set", "data.source=digit"], ["did you mean 'digits'"]),
        (["digits-mclr", "--set", "model.name=mlcr"], ["did you mean 'mclr'"]),
        (["digits-mclr", "--set", "batch.size=3"], ["'batch' is a single value and has no parts"]),
        (["digits-mclr", "--set", "name=../elsewhere"], ["name: string should match"]),
        (["digits-mclr", "-m", "local", "--set", "beta=2"], ["beta = 2 acts on a global model"]),
        (["digits-mclr", "--rounds", "0"], ["rounds: input should be greater than or equal to 1"]),
        (["digits-mclr", "--rounds", "many"], ["'--rounds'", "'many'"]),
        (["digits-mclr", "--seeds", "0"], ["'--seeds'"]),
        (["digits-mclr", "--resume", "--overwrite"], ["choose one"]),
        (["no-such-file.toml"], ["cannot read task file no-such-file.toml: No such file"]),
        ([], ["Missing argument 'TASK'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and len(value) != 1 else None,
)
def test_bad_input_is_told_in_one_line_and_writes_nothing(
    tmp_path: Path, arguments: list[str], parts: list[str]
) -> None:
    refused(fedprior("run", *arguments, "--out", tmp_path / "out"), *parts)
    assert not list(tmp_path.iterdir())


TASK = """
rounds = 3
[data]
source = "digits"
[partition]
kind = "iid"
clients = 3
[model]
name = "mclr"
"""


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("rounds = 3", "round = 3"), ["unknown key in task 'mine' 'round'", "did you mean 'rounds'?"]),
        (("rounds = 3", 'rounds = "3"'), ["rounds: input should be a valid integer (given: '3')"]),
        (("rounds = 3", "rounds ="), ["mine.toml is not valid TOML", "line 2"]),
        (('[data]\nsource = "digits"', ""), ["task 'mine': 'data' is missing"]),
        (('source = "digits"', ""), ["task 'mine': 'data.source' is missing"]),
        (('kind = "iid"', ""), ["'partition.kind' is missing", "dirichlet"]),
        (("clients = 3", "clients = 3\nclient = 3"), ["unknown key in partition 'iid' 'client'", "'clients'"]),
        (("clients = 3", ""), ["partition 'iid': 'clients' is missing"]),
        (('name = "mclr"', ""), ["model.name is missing", "mclr"]),
        (('name = "mclr"', 'name = "mclr"\n[method]\nlamm = 1.0'), ["unknown key in [method] of task 'mine' 'lamm'"]),
        (('name = "mclr"', 'name = "mclr"\n[method]\nK = 0'), ["K = 0 is not valid"]),
    ],
    ids=lambda value: value[1].replace("\n", " ") if isinstance(value, tuple) else "",
)
def test_a_task_of_ones_own_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], parts: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = TASK.replace(*change)
    assert text != TASK
    Path("mine.toml").write_text(text)
    refused(fedprior("run", "mine.toml"), *parts)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.toml"]


def test_a_task_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"\xff\xfe\x00")
    refused(fedprior("run", tmp_path / "mine.toml"), "cannot read task file")
    (tmp_path / "folder.toml").mkdir()
    refused(fedprior("run", tmp_path / "folder.toml"), "cannot read task file")


def test_bad_arrays_are_refused() -> None:
    x, y, who = np.zeros((8, 2), np.float32), np.arange(8) % 2, np.arange(8) // 4
    model: Any = None
    with pytest.raises(fp.FedpriorError, match="label 7 of sample 3 is out of range; valid: 0 to 1"):
        fp.task_from_arrays(x, np.where(np.arange(8) == 3, 7, y), who, model, n_classes=2)
    with pytest.raises(fp.FedpriorError, match="sample 5 of arrays has a value that is not finite"):
        fp.task_from_arrays(np.where(np.arange(8)[:, None] == 5, np.nan, x), y, who, model)
    with pytest.raises(fp.FedpriorError, match="unknown key in task 'arrays' 'round'"):
        fp.task_from_arrays(x, y, who, model, round=3)


def test_a_truncated_parquet_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets", reason="the hub extra is not installed")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "data" / "mnist" / "train-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table({"image": [b"0" * 500] * 20, "label": [k % 10 for k in range(20)]}), file)
    os.truncate(file, file.stat().st_size // 2)
    monkeypatch.setenv("FEDPRIOR_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path / "cache"))
    refused(fedprior("run", "mnist-mclr", "--out", tmp_path / "out"), f"cannot read {file}", "fetch it again")
    assert not (tmp_path / "out").exists()


# -- output folders that cannot be written, runs that are there --------------------------------------------------------

ONE = ("run", "digits-mclr", "-m", "fedavg", "--no-local", "--rounds", "2", "--set", "R=2")


def test_an_output_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(fedprior(*ONE, "--out", tmp_path / "file"), f"cannot write {tmp_path / 'file'}", "--out")
    refused(fedprior(*ONE, "--out", "/proc/nowhere"), "cannot write /proc/nowhere", "--out")
    assert contents(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_a_read_only_or_full_output_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    line = refused(fedprior(*ONE, "--out", tmp_path / "out"), f"cannot write {tmp_path / 'out'}", "another folder")
    assert os.strerror(number) in line
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary is the last file of all: when it cannot be written the runs are there, and can be had with --resume."""
    real = os.replace

    def replace(old: Any, new: Any) -> None:
        if Path(new).name == "summary.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        full = fedprior(*ONE, "--out", tmp_path, "--json")
    assert (full.code, full.out) == (2, "")
    assert full.err.splitlines()[-1].startswith(
        f"error: cannot write {tmp_path / 'digits-mclr' / 'summary.json'}: No space"
    )
    assert not list(tmp_path.rglob("*.tmp"))
    assert fedprior(*ONE, "--out", tmp_path, "--json", "--resume").code == 0


def test_runs_that_are_there(tmp_path: Path) -> None:
    assert fedprior(*ONE, "--out", tmp_path).code == 0
    before = contents(tmp_path)
    refused(fedprior(*ONE, "--out", tmp_path), "already holds a run", "--resume", "--overwrite")
    other = refused(fedprior(*ONE, "--set", "alpha=0.3", "--out", tmp_path, "--resume"), "run of other settings")
    assert "settings.alpha: 0.05 then, 0.3 now" in other
    # A run of other settings is found before any other method has begun.
    refused(
        fedprior(*ONE, "-m", "pfedme", "--set", "partition.seed=3", "--out", tmp_path, "--resume"), "partition.seed"
    )
    refused(fedprior(*ONE[:4], "--set", "batch=7", "--out", tmp_path, "--resume"))
    refused(fedprior(*ONE[:4], "--out", tmp_path), "already holds a run")
    refused(fedprior(*ONE, "--rounds", "1", "--out", tmp_path, "--resume"), "at round 2 of 2 already")
    assert contents(tmp_path) == before
    (tmp_path / "digits-mclr" / "fedavg" / "0" / "config.json").write_text("{}")
    refused(fedprior(*ONE, "--out", tmp_path, "--resume"), "config.json does not describe a run")
    refused(fedprior("table", tmp_path), "config.json does not describe a run")
    (tmp_path / "digits-mclr" / "fedavg" / "0" / "config.json").write_text("{")
    refused(fedprior(*ONE, "--out", tmp_path, "--resume"), "cannot read", "config.json")
    assert fedprior(*ONE, "--out", tmp_path, "--overwrite").code == 0


def test_the_second_ctrl_c_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even within the write of a checkpoint; the run then goes on from the one before."""

    def moment(where: str, path: Path) -> None:
        if where == "written" and path.name == "round-00000002.safetensors":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(records, "_moment", moment)
        stopped = fedprior(*ONE, "--rounds", "3", "--checkpoint-seconds", "0", "--out", tmp_path)
    assert (stopped.code, stopped.out) == (130, "")
    assert "--resume" in stopped.err.splitlines()[-1]
    run = RunFolder(tmp_path / "digits-mclr" / "fedavg" / "0")
    assert [p.name for p in run._checkpoints] == ["round-00000001.safetensors"]
    assert fedprior(*ONE, "--rounds", "3", "--out", tmp_path, "--resume").code == 0
    assert run.status == {"status": "finished", "round": 3}


# -- settings that do nothing, and too much ----------------------------------------------------------------------------


def test_a_setting_that_does_nothing_is_warned_about(tmp_path: Path) -> None:
    idle = fedprior(
        "run", "digits-mclr", "-m", "meg", "--no-local", "--rounds", "1", *QUICK, "--set", "eta=0", "--out", tmp_path
    )
    assert idle.code == 0
    assert "warning: meg: eta = 0 is valid but switches that part off" in idle.err.splitlines()
    assert "meg" in idle.out


@pytest.mark.slow
def test_a_diverging_run_stops_and_the_others_go_on(tmp_path: Path) -> None:
    command = ("run", "digits-mclr", "-m", "pfedme", "-m", "fedavg", "--rounds", "3", *QUICK, "--set", "alpha=1e9")
    outcome = fedprior(*command, "--json", "--out", tmp_path, "--checkpoint-seconds", "0")
    assert outcome.code == 1
    summary = json.loads(outcome.out)
    assert list(summary["results"]) == ["local", "fedavg"]
    line = next(line for line in outcome.err.splitlines() if line.startswith("diverged: "))
    assert line == f"diverged: {summary['diverged'][0]}"
    assert "pfedme diverged in round " in line
    assert "alpha * lam = 1.5e+10 is above 1" in line
    assert "try a smaller alpha or alpha_m or lam" in line
    run = RunFolder(tmp_path / "digits-mclr" / "pfedme" / "0")
    assert str(run.path) in line
    assert run.status["status"] == "diverged"
    assert run.config["run"]["settings"]["alpha"] == 1e9
    table = fedprior("table", tmp_path)
    assert "pfedme" not in table.out
    assert f"{run.path} diverged in round {run.status['round']} and is left out" in table.err

    alone = fedprior(*command[:4], "--no-local", *command[6:], "--json", "--out", tmp_path / "alone")
    assert alone.code == 1
    assert json.loads(alone.out)["results"] == {}


def test_all_stands_for_every_method_that_the_model_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "METHODS", {name: METHODS[name] for name in ("local", "mh", "fedpac")})
    short = ("--rounds", 1, *QUICK, "--set", "pooled=never", "--json", "--out", tmp_path)
    done = fedprior("run", "digits-mclr", "-m", "all", *short)
    assert done.code == 0, done.err
    assert list(json.loads(done.out)["results"]) == ["local", "mh"]
    assert "warning: fedpac is left out: FedPAC" in " ".join(done.err.split())
    refused(fedprior("run", "digits-mclr", "-m", "all", "-m", "fedpac", *short), "FedPAC")  # asked for by its name
    again = fedprior("run", "digits-mclr", "-m", "all", "--no-local", *short, "--resume")
    assert list(json.loads(again.out)["results"]) == ["mh"]

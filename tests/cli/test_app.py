"""The program as a whole: results on stdout, everything else on stderr, bad input told in one line, nothing loaded early."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program import fedprior, refused

import fedprior as fp
from cli.commands import IID


def test_version_and_help() -> None:
    assert fedprior("--version").out.strip() == fp.__version__
    assert "Start with" in fedprior().out
    shown = fedprior("study", "--help").out
    assert "[variants]" in shown  # brackets are no markup
    assert "[settings]" in shown


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("run",), "A task (see `fedprior tasks`)"),
        (("table",), "Folders with runs."),
        (("reproduce",), "without a name, all are listed"),
        (("flower", "init"), "its name is the project's"),
    ],
)
def test_the_help_says_what_arguments_are(command: tuple[str, ...], text: str) -> None:
    assert text in fedprior(*command, "--help", columns=200).out


def test_the_package_is_a_program_too() -> None:
    told = subprocess.run([sys.executable, "-m", "fedprior", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == fp.__version__


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["digits-mlcr"], ["unknown task 'digits-mlcr'", "did you mean 'digits-mclr'?", "valid:"]),
        (["digits-mclr", "-m", "fedavgg"], ["unknown method 'fedavgg'", "did you mean 'fedavg'?"]),
        (["digits-mclr", "-m", "mh:"], ["'mh:' is not of the form METHOD:key=value,..."]),
        (["digits-mclr", "-m", "mh:beta"], ["'beta' is not of the form key=value"]),
        (["digits-mclr", "-m", "mh:lamda=3"], ["unknown key 'lamda' of mh", "did you mean 'lam'?"]),
        (["digits-mclr", "-m", "mh:lam=3,lam=4"], ["'mh:lam=3,lam=4' sets 'lam' twice"]),
        (["digits-mclr", "-m", "mh:partition.clients=3"], ["unknown key 'partition.clients' of mh"]),
        (["digits-mclr", "-m", "mh:aggregated=21"], ["aggregated = 21", "there are 20", "valid: 1 to 20"]),
        (["digits-mclr", "-m", "mh:chunk=2"], ["'chunk' is now called 'clients_per_vmap'"]),
        (["digits-mclr", "-m", "mh", "-m", "mh"], ["two rows are called 'mh'"]),
        (["digits-mclr", "-m", "local:beta=2"], ["beta acts on a global model, and Local has none"]),
        (["digits-mclr", "--set", "chunk=2"], ["'chunk' is now called 'clients_per_vmap'"]),
        (["digits-mclr", "--set", "lamda=3"], ["unknown key 'lamda'", "did you mean 'lam'?"]),
        (["digits-mclr", "--set", "method.lam=3"], ["unknown key 'method.lam'"]),
        (["digits-mclr", "--set", "rounds"], ["'rounds' is not of the form key=value"]),
        (["digits-mclr", "--set", "rounds=abc"], ["rounds: input should be a valid integer", "'abc'"]),
        (["digits-mclr", "--set", "lam=high"], ["lam = 'high' has the wrong type", "float"]),
        (["digits-mclr", "--set", "lam=nan"], ["lam = nan is not valid", "finite"]),
        (["digits-mclr", "--set", "K=2.5"], ["K = 2.5 has the wrong type", "int"]),
        (["digits-mclr", "--set", "beta=0"], ["beta = 0.0 is not valid", "above 0"]),
        (["digits-mclr", "--set", "beta=high"], ["beta = 'high' has the wrong type", "float"]),
        (["digits-mclr", "--set", "K=0"], ["K = 0 is not valid", "at least 1"]),
        (["digits-mclr", "--set", "lambda=-1"], ["lam = -1.0 is not valid", "at least 0"]),
        (["digits-mclr", "--set", "lam=-1"], ["lam = -1.0 is not valid", "at least 0"]),
        (["digits-mclr", "--set", "aggregated=21"], ["aggregated = 21", "there are 20", "valid: 1 to 20"]),
        (["digits-mclr", "--set", "validation=1.5"], ["validation: input should be less than 1"]),
        (["digits-mclr", "--set", "participation=some"], ["participation", "'all' or 'sampled'"]),
        (["digits-mclr", "--set", "metrics=accuracy"], ["metrics: input should be a valid list"]),
        (["digits-mclr", "--set", 'metrics=["f1"]'], ["unknown metric 'f1'", "macro_f1"]),
        (["digits-mclr", "--set", "partition.labels=released"], ["unknown key", "'labels'"]),
        (["digits-mclr", "--set", "partition.kind=dirichle"], ["did you mean 'dirichlet'"]),
        (["digits-mclr", "--set", "partition.kind=[1]"], ["unknown partition kind"]),
        (["digits-mclr", "--set", "data.normalise=unit"], ["'data.normalise'", "did you mean 'data.normalize'"]),
        (["digits-mclr", "--set", "data.source=digit"], ["did you mean 'digits'"]),
        (["digits-mclr", "--set", "model.name=mlcr"], ["did you mean 'mclr'"]),
        (["digits-mclr", "--set", "model.hidden=3"], ["model 'mclr' has no options; given: hidden"]),
        (["digits-mclr", "--set", "batch.size=3"], ["'batch' is a single value and has no parts"]),
        (["digits-mclr", "--set", "name=../elsewhere"], ["name: string should match"]),
        (["digits-mclr", "-m", "local", "--set", "beta=2"], ["beta acts on a global model, and Local has none"]),
        (["digits-mclr", "-m", "fedavg", "-m", "fedem", "--set", "beta=2"], ["global model, and FedEM has none"]),
        (["digits-mclr", "--metric", "macro_f2"], ["unknown metric 'macro_f2'", "did you mean 'macro_f1'?"]),
        (["digits-mclr", "--rounds", "0"], ["rounds: input should be greater than or equal to 1"]),
        (["digits-mclr", "--rounds", "many"], ["'--rounds'", "'many'"]),
        (["digits-mclr", "--seeds", "0"], ["'--seeds'"]),
        (["digits-mclr", "--workers", "0"], ["'--workers'"]),
        (["digits-mclr", "--resume", "--overwrite"], ["choose one"]),
        (["digits-mclr", "--set", "lam=1", "--set", "lambda=2"], ["--set gives 'lam' twice"]),
        (["digits-mclr", "--rounds", "5", "--set", "rounds=9"], ["--rounds and --set rounds=... both say the same"]),
        (
            ["digits-mclr", "--new-clients", "0.2", "--set", "new_clients=0.3"],
            ["--new-clients and --set new_clients=... both"],
        ),
        (
            ["digits-mclr", "--budget", "gradients=5", "--set", "budget.megabytes=1"],
            ["--budget and --set budget.megabytes"],
        ),
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


TASK = f"\nrounds = 3{IID}"


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("rounds = 3", "round = 3"), ["unknown key 'round' in task 'mine'", "did you mean 'rounds'?"]),
        (("rounds = 3", "chunk = 3"), ["task 'mine': 'chunk' is now called 'clients_per_vmap'"]),
        (("rounds = 3", 'rounds = "3"'), ["rounds: input should be a valid integer (given: '3')"]),
        (("rounds = 3", "rounds ="), ["mine.toml is not valid TOML", "line 2"]),
        (("rounds = 3", "beta = 2.0"), ["unknown key 'beta' in task 'mine'"]),
        (('[data]\nsource = "digits"', ""), ["task 'mine': 'data' is missing"]),
        (('source = "digits"', ""), ["task 'mine': 'data.source' is missing"]),
        (('kind = "iid"', ""), ["'partition.kind' is missing", "dirichlet"]),
        (("clients = 3", "clients = 3\nclient = 3"), ["unknown key 'client' in partition 'iid'", "'clients'"]),
        (("clients = 3", ""), ["partition 'iid': 'clients' is missing"]),
        (('name = "mclr"', ""), ["model.name is missing", "mclr"]),
        (('name = "mclr"', 'name = "dnn"\nhiden = 3'), ["unknown option 'hiden' of model 'dnn'", "'hidden'"]),
        (('name = "mclr"', 'name = "mclr"\n[method]\nlamm = 1.0'), ["unknown key 'lamm' in [method] of task 'mine'"]),
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
    with pytest.raises(fp.FedpriorError, match="unknown key 'round' in task 'arrays'"):
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


# -- names and imports -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [("open_task", "fedprior.task(name, **settings)"), ("Engine", "fedprior.engine.engine.Engine")],
)
def test_old_names_tell_the_new_ones(old: str, new: str) -> None:
    with pytest.raises(AttributeError, match=rf"fedprior\.{old} has a new name") as told:
        getattr(fp, old)
    assert new in str(told.value)
    with pytest.raises(AttributeError, match="has no attribute 'Enginee'"):
        _ = fp.Enginee


def test_every_public_name_is_there() -> None:
    assert [name for name in fp.__all__ if not hasattr(fp, name)] == []
    assert set(fp.__all__) <= set(dir(fp))


HEAVY = ("jax", "jaxlib", "matplotlib", "scipy", "pandas", "sklearn", "equinox", "optax", "pyarrow", "datasets")
LOOK = f"""
import json, os, sys, warnings
warnings.simplefilter("ignore")
import {{module}}
heavy = [name for name in {HEAVY} if name in sys.modules]
print(json.dumps({{{{"heavy": heavy, "devices": os.environ.get("JAX_NUM_CPU_DEVICES")}}}}))
"""


def imported(module: str, code: str = "", **variables: str) -> dict[str, Any]:
    """What a new process has after importing a module (and running some code): heavy packages, and JAX's devices."""
    names = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "JAX_COMPILATION_CACHE_DIR", "FEDPRIOR_CONFIGURE_JAX")
    environment = {key: value for key, value in os.environ.items() if key not in names} | variables
    script = LOOK.format(module=module) + code
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return {key: value for line in done.stdout.splitlines() for key, value in json.loads(line).items()}


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    seen = imported("fedprior.cli")
    assert seen["heavy"] == []


def test_commands_that_only_look_load_nothing_heavy() -> None:
    """Not even the table of runs that are there, whose rows stand in the order of the methods."""
    runs = Path(__file__).parent.parent / "fixtures" / "format1"
    code = f"""
import contextlib, io
from fedprior.cli import app
for command in (["--help"], ["tasks"], ["table", {str(runs)!r}]):
    with contextlib.redirect_stdout(io.StringIO()):
        app(command, standalone_mode=False)
print(json.dumps({{"after": [name for name in {HEAVY} if name in sys.modules]}}))
"""
    assert imported("fedprior.cli", code)["after"] == []


def test_importing_the_package_prepares_jax_without_loading_it() -> None:
    cores = len(os.sched_getaffinity(0))
    counted = 'import jax; print(json.dumps({"found": jax.device_count()}))'
    assert imported("fedprior", counted) == {"heavy": [], "devices": str(cores), "found": cores}
    assert imported("fedprior", FEDPRIOR_CONFIGURE_JAX="0") == {"heavy": [], "devices": None}
    assert imported("fedprior", JAX_NUM_CPU_DEVICES="3") == {"heavy": [], "devices": "3"}
    flags = "--xla_force_host_platform_device_count=4"
    assert imported("fedprior", counted, XLA_FLAGS=flags) == {"heavy": [], "devices": None, "found": 4}

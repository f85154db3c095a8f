"""fedprior export: a model out of a run's folder is the one that was scored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program import Outcome, contents, fedprior, refused
from sklearn.datasets import load_digits
from study.small import run as run_small

import fedprior as fp
from fedprior.analysis.series import chosen_rounds, series_of
from fedprior.records.runs import RunFolder
from fedprior.study.export import file_name, open_run

Compared = tuple[Path, Outcome]


def own_test(folder: Path, client: int) -> tuple[np.ndarray, np.ndarray]:
    """A client's test samples as their owner has them: pictures, and what they show."""
    task = fp.task(RunFolder(folder).config["run"]["task"])
    at = task.partition.test[client]
    return load_digits().images[at], load_digits().target[at]


def recorded(folder: Path, t: int, model: str, client: int) -> float:
    (row,) = [row for row in RunFolder(folder).rows("clients.csv") if row[:4] == (t, model, "own", client)]
    return float(row.values["accuracy"])


@pytest.mark.bits
@pytest.mark.parametrize("row", ["mh", "local"])
def test_a_client_s_model_is_the_one_that_was_scored(compared: Compared, tmp_path: Path, row: str) -> None:
    folder, target = compared[0] / row / "1", tmp_path / "model"
    before = contents(folder)
    outcome = fedprior("export", folder, "--client", "3", "-o", target)
    assert (outcome.code, outcome.err) == (0, "")
    pictures, digits = own_test(folder, 3)
    accuracy = recorded(folder, 12, "personal", 3)
    model = fp.load(target)
    assert 100 * np.sum(model.predict(pictures) == digits) / len(digits) == accuracy
    assert (model.client, model.about["row"], model.about["seed"], model.about["round"]) == (3, row, 1, 12)
    told = f"the model of client 3 ({row}, seed 1, round 12: {accuracy:.2f} % of {len(digits)} test samples): "
    assert outcome.out.startswith(told)
    assert contents(folder) == before


@pytest.mark.bits
def test_the_best_round_on_validation_was_kept(compared: Compared, tmp_path: Path) -> None:
    """The round that `table --round validation` reports, with the numbers of that round."""
    early = 0
    for row, seed in (("fedavg", 0), ("fedavg", 1), ("mh", 0)):
        folder, target = compared[0] / row / str(seed), tmp_path / f"{row} {seed}"
        series = series_of(RunFolder(folder).record())
        (t,) = chosen_rounds(series, "personal", "own", "weighted")["validation"]
        outcome = fedprior("export", folder, "--client", 0, "--round", "best-on-validation", "-o", target)
        assert outcome.code == 0, outcome.err
        model, (pictures, digits) = fp.load(target), own_test(folder, 0)
        assert (model.about["round"], model.about["chosen"]) == (t, "best-on-validation")
        assert 100 * np.sum(model.predict(pictures) == digits) / len(digits) == recorded(folder, t, "personal", 0)
        early += t < 12
        kept = [path.name for path in (folder / "checkpoints").glob("best-*")]
        assert kept == [f"best-{t:08d}.safetensors"]
    assert early  # or the last state would do


def test_all_models_and_their_index(compared: Compared, tmp_path: Path) -> None:
    outcome = fedprior("export", compared[0] / "fedavg" / "0", "--all", "-o", tmp_path / "models")
    assert (outcome.code, outcome.err) == (0, "")
    index = json.loads((tmp_path / "models" / "index.json").read_text())["models"]
    assert [entry["client"] for entry in index] == [*range(20), None]
    assert {entry["file"] for entry in index} | {"index.json"} == {p.name for p in (tmp_path / "models").iterdir()}
    for entry in (index[7], index[-1]):
        model = fp.load(tmp_path / "models" / entry["file"])
        assert (model.client, model.about["of"]) == (entry["client"], entry["of"])
    refused(
        fedprior("export", compared[0] / "fedavg" / "0", "--all", "-o", tmp_path / "models"),
        "is there already; --overwr",
    )


def test_file_names_are_harmless_and_differ() -> None:
    ids: list[Any] = [
        "../../etc/passwd",
        "..",
        ".",
        "",
        "a/b",
        "a-b",
        "A-B",
        "two\nlines",
        "con",
        "é" * 300,
        "x" * 300,
        -1,
        7,
    ]
    names = [file_name(k, one) for k, one in enumerate(ids)]
    assert len({name.lower() for name in names}) == len(ids)
    for name in names:
        assert Path(name).name == name
        assert name.isascii()
        assert name.isprintable()
        assert len(name) < 70
        assert name[0].isdigit()


def test_what_cannot_be_exported_is_told(compared: Compared, tmp_path: Path) -> None:
    folder, target = compared[0] / "local" / "0", tmp_path / "model"
    refused(fedprior("export", folder, "-o", target), "local has no global model; name the client")
    refused(fedprior("export", folder, "--client", "99", "-o", target), "client '99' does not exist; valid: 0, 1, ")
    refused(fedprior("export", folder, "--client", "3", "--all"), "--all saves the models of all clients")
    refused(fedprior("export", folder, "--client", "3", "--round", "best", "-o", target), "unknown round 'best'")
    refused(
        fedprior("export", compared[0], "-o", target), "holds no run; name the folder of one: OUT/<task>/<row>/<seed>"
    )
    run_small(tmp_path / "arrays")
    refused(
        fedprior("export", tmp_path / "arrays", "-o", target),
        "a run of arrays, which only your program has",
        "result.save",
    )
    assert not target.exists()
    target.write_text("mine")
    refused(fedprior("export", folder, "--client", "3", "-o", target), "is there already; --overwrite replaces it")
    assert target.read_text() == "mine"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("fingerprint", "0" * 64, "fingerprint: "),
        ("split", "0" * 64, "split: "),
        ("method", "mine", "a run with the method 'mine', which only your program has; save its models in Python"),
        ("mean", "a given Mean", "a run with an object for mean, which only your program has"),
        ("source", "elsewhere", "unknown data source 'elsewhere'"),
    ],
)
def test_a_run_of_other_things_is_refused(
    compared: Compared, tmp_path: Path, key: str, value: str, message: str
) -> None:
    shutil.copytree(compared[0] / "mh" / "0", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    run = config["run"]
    {"method": run["variant"], "mean": run["variant"]["settings"], "source": run["task"]["data"]}.get(key, run)[key] = (
        value
    )
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    refused(fedprior("export", tmp_path / "run", "-o", tmp_path / "model"), message)


def test_damaged_states_are_passed_over_or_told(compared: Compared, tmp_path: Path) -> None:
    early = [path for path in compared[0].rglob("best-*") if path.stem != "best-00000012"]
    shutil.copytree(early[0].parent.parent, tmp_path / "run")
    states = tmp_path / "run" / "checkpoints"
    (best,) = states.glob("best-*")
    best.write_bytes(b"")
    words = ("export", tmp_path / "run", "--client", "0", "-o", tmp_path / "model")
    refused(
        fedprior(*words, "--round", "best-on-validation"), "keeps no state of round", "run it again with --overwrite"
    )
    for path in states.glob("round-*"):
        path.write_bytes(b"")
    refused(fedprior(*words), "keeps no state to take a model from (all 1 are damaged)")


def test_a_run_opened_again_is_the_one_that_was_made(compared: Compared) -> None:
    result = open_run(compared[0] / "mh" / "0")
    assert result.trial.config()["run"] == RunFolder(compared[0] / "mh" / "0").config["run"]
    assert result.warnings == []
    assert repr(result) == "Result('mh', seed 0: finished, round 12)"

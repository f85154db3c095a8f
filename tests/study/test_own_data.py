"""Eight hospitals' arrays: whose model it is, on which data it was tested, and what may be gone on with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from program import contents

import fedprior as fp
from fedprior.records.runs import RunFolder

SITES = ["St. C", "a,b", 'say "hi"', "two\nlines", "=SUM(A1)", "12", "ä", "z"]  # the last is the smallest
OPTIONS: dict[str, Any] = {"rounds": 3, "batch": 8, "pooled": "never", "metrics": []}
ROW = "local:R=5,alpha=0.5"


def hospitals(sites: list[Any], **changes: Any) -> fp.Task:
    """Each site has a class of its own, so that its model cannot be taken for another's."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(8), 12)[::-1]  # the last site comes first
    x = rng.normal(size=(96, 3)).astype(np.float32)
    given = {
        "x": x,
        "y": who,
        "client_id": np.array(sites, object)[who],
        "model": lambda key: eqx.nn.Linear(3, 8, key=key),
        "is_test": np.arange(96) % 3 == 0,
        **changes,
    }
    return fp.task_from_arrays(**given, **OPTIONS)


def favourite(model: Any) -> int:
    """The class that a model prefers where nothing is known: by its bias."""
    return int(np.argmax(model.bias))


@pytest.mark.parametrize("sites", [list(range(1, 9)), SITES], ids=["numbers", "names"])
def test_a_client_is_called_what_its_owner_calls_it(sites: list[Any], tmp_path: Path) -> None:
    task = hospitals(sites)
    (result,) = fp.run(task, ROW, out=tmp_path)
    for number, site in enumerate(sites):
        _, (model,) = result.personal_model(site)
        assert favourite(model) == number
    folder = RunFolder(tmp_path / "arrays" / "local R=5 alpha=0.5" / "0")
    assert [row.client for row in folder.rows("clients.csv") if row.round == 3] == sites[::-1]  # as they first appear
    before = contents(folder.path)
    (again,) = fp.run(task, ROW, out=tmp_path, resume=True)
    assert contents(folder.path) == before
    assert favourite(again.personal_model(sites[5])[1][0]) == 5
    with pytest.raises(fp.FedpriorError, match="client 'nobody' does not exist; valid: "):
        result.personal_model("nobody")


def test_names_survive_a_stop_and_a_resume(tmp_path: Path) -> None:
    task = hospitals(SITES)
    (whole,) = fp.run(task, ROW, out=tmp_path / "whole")
    fp.run(task.with_protocol(rounds=2), ROW, out=tmp_path / "parts")
    (resumed,) = fp.run(task, ROW, out=tmp_path / "parts", resume=True)
    assert list(resumed.record.clients) == list(whole.record.clients)
    comparison = fp.Results([whole.record, dataclasses.replace(resumed.record, config=renamed(resumed))]).compare()
    assert set(comparison.clients) == set(SITES)


def renamed(result: fp.Result) -> dict[str, Any]:
    run = result.record.config["run"]
    return {**result.record.config, "run": {**run, "variant": {**run["variant"], "name": "again"}}}


def test_an_error_names_the_client() -> None:
    nothing_to_train = (np.arange(96) % 3 == 0) | (np.repeat(np.arange(8), 12)[::-1] == 3)
    with pytest.raises(fp.FedpriorError, match=r"client 'two\\nlines' has no train sample \(0 train, 12 test\)"):
        hospitals(SITES, is_test=nothing_to_train)


def test_names_change_no_number() -> None:
    """Randomness depends on a client's place alone."""
    runs = [fp.run(hospitals(sites), ROW)[0] for sites in (list(range(8)), SITES)]
    values = [[row.values for row in run.record.clients] for run in runs]
    assert values[0] == values[1]


# -- what may be gone on with ------------------------------------------------------------------------------------------


class Bent(eqx.Module):
    """A linear model with a bend, which has the arrays of one without."""

    weight: jax.Array
    bias: jax.Array
    slope: float = eqx.field(static=True)

    def __init__(self, key: jax.Array, slope: float = 1.0, shift: float = 0.0):
        self.weight, self.bias, self.slope = jax.random.normal(key, (8, 3)), jax.numpy.full(8, shift), slope

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.leaky_relu(self.weight @ x, self.slope) + self.bias


def swapped(labels: np.ndarray) -> np.ndarray:
    other = labels.copy()
    other[[0, 40]] = other[[40, 0]]
    return other


WHO = np.repeat(np.arange(8), 12)[::-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_test": np.arange(96) % 3 == 1}, "split: "),
        ({"y": swapped(WHO)}, "fingerprint: "),
        ({"x": np.zeros((96, 3), np.float32)}, "fingerprint: "),
        ({"client_id": np.array(SITES, object)[swapped(WHO)]}, "fingerprint: "),
        ({"client_id": np.array([*SITES[:7], "other"], object)[WHO]}, "client_ids"),
        ({"model": lambda key: Bent(key, slope=0.5)}, "the model or its start: another activation"),
        ({"model": lambda key: Bent(key, shift=0.1)}, "the model or its start: another activation"),
        ({"model": lambda key: eqx.nn.Linear(3, 9, key=key)}, r"model.bias: \[8\] then, \[9\] now"),
    ],
)
def test_what_the_numbers_depend_on_must_be_the_same(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    fp.run(hospitals(SITES, model=Bent).with_protocol(rounds=1), ROW, out=tmp_path)
    before = contents(tmp_path)
    with pytest.raises(fp.FedpriorError, match=f"other settings .*{message}"):
        fp.run(hospitals(SITES, **{"model": Bent, **changes}), ROW, out=tmp_path, resume=True)
    assert contents(tmp_path) == before


# -- models and labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": lambda key: eqx.nn.Linear(3, 5, key=key)},
            r"the model gives 5 scores, and there are 8 classes \(0, 1,",
        ),
        ({"model": lambda key: eqx.nn.Linear(4, 8, key=key)}, r"the model cannot read samples of shape \(3,\)"),
        ({"model": lambda key: eqx.nn.Linear(3, "scalar", key=key)}, r"gives an array of shape \(\) for a sample"),
        ({"model": "mclr"}, "the model is a builtins.str; give an Equinox module"),
        ({"client_id": None}, "client_id"),
    ],
)
def test_what_does_not_fit_is_told_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(fp.FedpriorError, match=message) as error:
        hospitals(SITES, **changes)
    assert "\n" not in str(error.value)


def test_labels_from_one_are_learnt_under_their_names() -> None:
    task = hospitals(SITES, y=WHO + 1)
    assert task.federation.classes == (1, 2, 3, 4, 5, 6, 7, 8)
    (result,) = fp.run(task, ROW)
    (zero,) = fp.run(hospitals(SITES), ROW)
    assert result.accuracy() == zero.accuracy()
    classes = np.char.replace(SITES, "\n", " ")  # they head columns
    (named,) = fp.run(hospitals(SITES, y=classes[WHO]).with_protocol(metrics=["class_accuracy"]), ROW)
    columns = {column for row in named.record.rows for column in row.values}
    assert "class_accuracy[St. C]" in columns

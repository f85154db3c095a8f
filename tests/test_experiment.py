"""Settings: where each goes, what is refused, and the tasks that ship with fedprior."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

import pytest

from fedprior import methods
from fedprior.errors import FedpriorError
from fedprior.experiment import Experiment, configure, method_for, parse, parse_assignment, read_task, task_names
from fedprior.methods import METHODS

MINE: dict[str, Any] = {
    "name": "mine",
    "data": {"source": "digits"},
    "partition": {"kind": "iid", "clients": 3},
    "model": {"name": "mclr"},
}


@pytest.mark.parametrize("name", task_names())
def test_a_shipped_task_is_whole_and_says_where_its_values_come_from(name: str) -> None:
    content = tomllib.loads((resources.files("fedprior.tasks") / f"{name}.toml").read_text())
    experiment, built = configure(name, METHODS)
    assert (experiment.name, experiment.rounds) == (name, content["rounds"])
    assert experiment.about
    given = {*content, *content["method"]} - {"why", "method", "about"}
    assert set(experiment.why) <= given, "a reason for a key that is not there"
    needed = {*content["method"], *given} - {"data", "model"}
    assert needed <= set(experiment.why), "a value without a reason"
    assert all(reason.strip() for reason in experiment.why.values())
    for key, value in content["method"].items():
        has = [m for m in METHODS if key in methods.keys(m) and key not in METHODS[m][1]]  # else the name's own
        assert has
        assert all(getattr(built[m], key) == value for m in has)


def test_the_paper_eight_tasks_and_the_embedded_ones_are_there() -> None:
    assert set(task_names()) >= {
        *(f"{data}-{model}" for data in ("mnist", "fmnist", "femnist", "digits") for model in ("mclr", "dnn")),
        "cifar10-cnn",
        "sent140-lstm",
    }


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("lam=15", "lam", 15),
        ("lambda=15.5", "lam", 15.5),
        ("order=released", "order", "released"),
        ('order="released"', "order", "released"),
        ("overwrite=true", "overwrite", True),
        (" rounds = 3", "rounds", 3),
        ("alpha=1e6", "alpha", 1e6),
        ("data.source=", "data.source", ""),
        ("x=a=b", "x", "a=b"),
    ],
)
def test_assignments(text: str, key: str, value: Any) -> None:
    assert parse_assignment(text) == (key, value)


@pytest.mark.parametrize("text", ["lam", "=3", ""])
def test_assignments_that_are_none(text: str) -> None:
    with pytest.raises(FedpriorError, match="is not of the form key=value"):
        parse_assignment(text)


def test_a_key_goes_to_every_method_that_has_it() -> None:
    experiment, built = configure("digits-mclr", ["local", "fedavg", "pfedme", "mh"], {"lam": 30, "R": 7, "rounds": 9})
    assert experiment.rounds == 9
    assert [m.R for m in built.values()] == [7, 7, 7, 7]  # type: ignore[attr-defined]
    assert [getattr(m, "lam", None) for m in built.values()] == [None, None, 30.0, 30.0]
    with pytest.raises(FedpriorError, match="unknown key 'lam'"):  # an error only if none has it
        configure("digits-mclr", ["local", "fedavg"], {"lam": 30})


def test_assignments_reach_into_parts_and_leave_the_task_alone() -> None:
    experiment, _ = configure("digits-mclr", [], {"partition.alpha": 5.0, "data.normalize": "half"})
    assert (experiment.partition["alpha"], experiment.data.normalize) == (5.0, "half")
    assert configure("digits-mclr", [])[0].partition["alpha"] == 0.3
    content = {**MINE}
    configure(content, [], {"partition.clients": 9})
    assert content["partition"]["clients"] == 3


def test_what_a_name_stands_for_is_not_for_the_task_to_change() -> None:
    experiment = parse({**MINE, "method": {"mean": "lg", "lambda": 2.0}}, "mine")
    assert method_for(experiment, "mh").mean == "mh"  # type: ignore[attr-defined]
    assert method_for(experiment, "mh").lam == 2.0  # type: ignore[attr-defined]
    assert method_for(experiment, "mh", {"mean": "meg"}).mean == "meg"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": 0}, "beta: input should be greater than 0"),
        ({"beta": float("nan")}, "beta: input should be"),
        ({"rounds": 2.0}, "rounds: input should be a valid integer"),
        ({"rounds": True}, "rounds: input should be a valid integer"),
        ({"aggregated": 0}, "aggregated: input should be greater than or equal to 1"),
        ({"validation": 1.0}, "validation: input should be less than 1"),
        ({"weights": "size"}, "weights: input should be 'samples' or 'uniform'"),
        ({"pooled": "always"}, "pooled: input should be 'last', 'every' or 'never'"),
        ({"name": "a/b"}, "name: string should match"),
        ({"data": {}}, "'data.source' is missing"),
        ({"data": {"source": "digits", "sauce": 1}}, "unknown key in task 'mine' 'data.sauce' .*valid: data.normalize"),
        ({"partition": {"kind": "iid", "clients": "3"}}, "partition 'iid': clients: input should be a valid integer"),
        ({"seed": 1}, "unknown key in task 'mine' 'seed'"),
    ],
)
def test_wrong_values(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message) as caught:
        parse({**MINE, **change}, "task 'mine'")
    assert len(str(caught.value).splitlines()) == 1


def test_experiments_are_immutable() -> None:
    experiment = parse(MINE, "mine")
    with pytest.raises(ValueError, match="frozen"):
        experiment.rounds = 3  # type: ignore[misc]
    assert Experiment.model_validate(MINE) == experiment
    assert read_task("digits-mclr")["name"] == "digits-mclr"

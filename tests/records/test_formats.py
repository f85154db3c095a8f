"""How records of older formats are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from analysis.handmade import config

from fedprior.errors import FedpriorError
from fedprior.records.formats import current_name, upgrade
from fedprior.records.schema import ACCURACY, FORMAT, NLL

OLD = Path(__file__).parent.parent / "fixtures" / "format1" / "digits-mclr"


def old_config(method: str = "mh") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((OLD / method / "0" / "config.json").read_text())
    return content


def test_a_configuration_of_the_current_format_is_taken_as_it_is() -> None:
    current = config()
    assert current["format"] == FORMAT == 2
    assert upgrade(current, "here") is current


def test_what_was_written_before_there_were_revisions_is_of_the_first() -> None:
    before = config("mh")
    del before["run"]["variant"]["revisions"]
    assert upgrade(before, "here") == config("mh")
    assert "revisions" not in before["run"]["variant"]  # a copy was changed


def test_the_first_format_is_sorted_into_task_protocol_and_variant() -> None:
    old = old_config("fedavg")
    new = upgrade(old, "here")
    assert new["format"] == FORMAT
    run, was = new["run"], old["run"]
    assert run["variant"] == {
        "name": "fedavg",
        "method": "fedavg",
        "settings": was["settings"],
        "wrappers": {"beta": 2.0, "fine_tune": 1},
        "protocol": {},
        "revisions": {"fedavg": 1, "beta": 1, "fine_tune": 1},
    }
    assert (run["protocol"]["rounds"], run["protocol"]["aggregated"], run["protocol"]["budget"]) == (4, 3, None)
    assert (run["task"]["name"], run["task"]["partition"]) == ("digits-mclr", was["partition"])
    assert (run["seed"], run["clients"], run["fingerprint"]) == (0, 6, was["fingerprint"])
    assert new["metrics"] == [vars(ACCURACY), vars(NLL)]
    assert (new["environment"], new["cost"]) == (old["environment"], old["cost"])
    assert old == old_config("fedavg")  # a copy was changed


def test_what_older_runs_did_not_say_has_the_value_that_it_had() -> None:
    old = old_config()
    for key in ("new_clients", "newcomers", "budget"):
        old["run"].pop(key, None)
    run = upgrade(old, "here")["run"]
    assert (run["task"]["new_clients"], run["protocol"]["budget"]) == (0.0, None)
    assert "newcomers" not in run
    assert run["variant"]["wrappers"] == {}
    assert upgrade(old_config(), "here")["run"]["newcomers"] == [2, 3]
    old["run"]["swept"] = ["lam"]
    assert upgrade(old, "here")["run"]["numbers_as_data"] == ["lam"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"run": 3}, "here does not describe a run of fedprior; use another folder"),
        ({"run": {}, "environment": {}}, "here does not describe a run of fedprior: 'name' is missing"),
        (
            {"format": 3, "run": {}, "environment": {}},
            "here is of format 3, which a newer fedprior wrote; this one reads 1 to 2",
        ),
        (
            {"format": "2", "run": {}, "environment": {}},
            "describe a run of fedprior: its format is '2'; valid: 1 to 2",
        ),
        ({"format": 0, "run": {}, "environment": {}}, "its format is 0; valid: 1 to 2"),
    ],
)
def test_what_is_no_run_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        upgrade(content, "here")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".round", "round"),
        (".clients", "clients"),
        (".clients['theta'].tree.head.weight", "clients.theta.tree.head.weight"),
        (".clients[<flat index 0>]", "clients.0"),
        (".server['net']['phi']['hidden'][0][1]", "server.net.phi.hidden.0.1"),
        ("clients.theta.tree.head.weight", "clients.theta.tree.head.weight"),
        ("server.0.1", "server.0.1"),
    ],
)
def test_names_of_arrays(old: str, new: str) -> None:
    assert current_name(old) == new

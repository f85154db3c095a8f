"""fedprior tasks and fedprior methods: what there is, and where each value comes from."""

from __future__ import annotations

import json

import pytest
from program import fedprior, refused

from fedprior import methods
from fedprior.cli.run import DEFAULT_METHODS
from fedprior.core.hyper import hypers
from fedprior.registry import Registry
from fedprior.study.settings import task_names
from fedprior.wrappers import WRAPPERS


def test_tasks() -> None:
    listed = fedprior("tasks").out
    assert all(name in listed for name in task_names())
    assert max(map(len, listed.splitlines())) <= 80
    batch = next(line for line in fedprior("tasks", "digits-mclr").out.splitlines() if "batch" in line)
    assert "section 6" in batch  # shown although 20 is the default of all tasks
    refused(fedprior("tasks", "digits-mlcr"), "did you mean 'digits-mclr'")
    every = json.loads(fedprior("tasks", "--json").out)
    assert list(every) == list(task_names())
    assert every["digits-mclr"]["why"]["batch"].startswith("paper, section 6")
    assert json.loads(fedprior("tasks", "digits-mclr", "--json").out) == every["digits-mclr"]


def test_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: methods.METHODS.find(name) for name in ("fedavg", "fedfomo", "pfedme-released", "mh-released")}
    with monkeypatch.context() as patched:
        patched.setattr(methods, "METHODS", Registry("method", few))  # counting all of them takes long
        shown = fedprior("methods")
        costs = json.loads(fedprior("methods", "--json").out)
    assert all(name in shown.out for name in few)  # none is cut short at 80 columns
    assert max(map(len, shown.out.splitlines())) <= 80
    assert list(costs) == list(few)
    assert costs["fedavg"]["cost"]["gradients"] == 20
    about = json.loads(fedprior("methods", "mh-released", "--json").out)
    assert about["participation"][0] == "all"
    mean = about["settings"]["mean"]
    assert (mean["default"], mean["source"]) == ("mh", "the method's name")
    assert "prior" in mean["meaning"]
    assert about["wrappers"]["beta"]["default"] == 1.0
    narrow = fedprior("methods", "mh-released", columns=40).out
    assert max(map(len, narrow.splitlines()[:-1])) <= 40
    one = fedprior("methods", "mh-released").out
    assert "released" in one
    assert "True" in one  # the value of overwrite in force, not its None
    refused(fedprior("methods", "mhh"), "did you mean 'mh'")


def test_a_method_says_what_its_settings_mean() -> None:
    shown = " ".join(fedprior("methods", "fedprox").out.split())
    assert "what it means" in shown
    assert "mu" in shown
    assert "beta" in shown  # what goes around any method
    assert max(map(len, fedprior("methods", "mh").out.splitlines())) <= 80


def test_no_setting_is_without_a_meaning() -> None:
    about = {(name, key): about for name in methods.METHODS for key, about in hypers(methods.make(name)).items()}
    about |= {("wrapper", key): wrapper.about for key, wrapper in WRAPPERS.items()}
    assert [where for where, each in about.items() if len(each.meaning.split()) < 3] == []
    assert len(about) > 100


def test_the_help_names_the_default_methods() -> None:
    shown = " ".join(fedprior("run", "--help").out.replace("│", " ").split())
    assert f"Default: {', '.join(DEFAULT_METHODS)}, and local beside them" in shown


def test_a_method_says_how_to_cite_it() -> None:
    shown = fedprior("methods", "perfedavg-hf", "--bibtex").out
    assert shown.startswith("@inproceedings{fallah2020perfedavg,")
    assert shown.count("@") == 1
    every = fedprior("methods", "--bibtex").out
    assert shown in every
    assert (
        every.count("@")
        == every.count("\n}")
        == len({methods.METHODS.find(name).cls.cites for name in methods.METHODS}) - 1
    )
    about = json.loads(fedprior("methods", "ditto", "--json").out)
    assert about["bibtex"].startswith("@inproceedings{li2021ditto,")
    assert r"\min_{v_i}" in about["objective"]
    assert "server:" in about["pseudocode"]
    refused(fedprior("methods", "local", "--bibtex"), "local cites no paper")
    refused(fedprior("methods", "ditto", "--bibtex", "--json"), "choose --json or --bibtex")

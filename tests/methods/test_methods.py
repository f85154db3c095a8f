"""The table of methods: names, settings and their types, and methods of one's own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedprior.core.hyper import hypers
from fedprior.core.method import Method
from fedprior.errors import FedpriorError
from fedprior.methods import METHODS, Entry, all_keys, keys, make, register
from fedprior.methods.fedavg import FedAvg
from fedprior.registry import Registry


def test_every_name_makes_a_method_with_what_the_name_stands_for() -> None:
    for name, entry in METHODS.items():
        method = make(name)
        assert type(method) is entry.cls
        assert {key: getattr(method, key) for key in entry.preset} == dict(entry.preset)
        assert set(keys(name)) == set(hypers(method))
    assert make("mh-released").order == "released"  # type: ignore[attr-defined]
    assert make("mh", mean="lg").mean == "lg"  # type: ignore[attr-defined]  # a setting goes before what the name says


@pytest.mark.parametrize("name", METHODS)
def test_every_field_says_where_its_default_comes_from_and_what_a_sweep_tries_is_valid(name: str) -> None:
    for key, about in hypers(make(name)).items():
        assert about.source or key == "optimizer"
        for value in about.sweep:
            assert getattr(make(name, **{key: value}), key) == value


def test_wrong_names_and_types_are_refused() -> None:
    for given, message in (
        (lambda: make("fedavgg"), r"unknown method 'fedavgg' \(did you mean 'fedavg'\?\); valid: ditto, "),
        (lambda: keys("nobody"), "unknown method 'nobody'"),
        (lambda: make("mh", lamb=1.0), r"unknown setting 'lamb' of method mh \(did you mean 'lam'\?\)"),
        (lambda: make("mh", lam="15"), r"PFedBreD: lam = '15' has the wrong type \(str\); it must be float"),
        (lambda: make("mh", lam=True), r"lam = True has the wrong type \(bool\); it must be float"),
        (lambda: make("mh", R=2.0), r"R = 2.0 has the wrong type \(float\); it must be int"),
        (lambda: make("mh", eta_alpha="x"), "it must be float or none"),
        (lambda: make("perfedavg", adapt=True), r"PerFedAvg: adapt = True has the wrong type \(bool\); it must be int"),
        (lambda: make("pfedbayes", keep=1), r"keep = 1 has the wrong type \(int\); it must be bool"),
    ):
        with pytest.raises(FedpriorError, match=message):
            given()


def test_a_whole_number_stands_for_a_float_and_arrays_may_be_of_numpy() -> None:
    lam = make("mh", lam=30).lam  # type: ignore[attr-defined]
    assert isinstance(lam, float)
    assert make("mh", eta_alpha=None).eta_alpha is None  # type: ignore[attr-defined]
    for graph in (np.zeros((2, 2)), jnp.zeros((2, 2))):
        assert make("fedu", graph=graph).graph is graph  # type: ignore[attr-defined]


def test_a_method_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    mine: Registry[Entry] = Registry("method", dict(METHODS.items()))
    monkeypatch.setattr("fedprior.methods.METHODS", mine)

    class Slow(FedAvg):
        wait: int = 3

    register("slow", Slow, alpha=1)
    made = make("slow", wait=4)
    assert isinstance(made, Slow)
    assert (made.alpha, made.wait, made.R) == (1.0, 4, 20)
    assert isinstance(made.alpha, float)
    assert {"wait"} == all_keys() - {key for name in METHODS for key in keys(name)}
    with pytest.raises(FedpriorError, match="there is a method 'slow' already; choose another name"):
        register("slow", FedAvg)
    register("slow", FedAvg, replace=True)
    assert type(make("slow")) is FedAvg
    register("halves", FedAvg, R=2.5)
    with pytest.raises(FedpriorError, match=r"FedAvg: R = 2\.5 has the wrong type \(float\); it must be int"):
        make("halves")
    made_already: Any = FedAvg(alpha=0.1)
    with pytest.raises(FedpriorError, match=r"method 'built': give a subclass of .*Method, .*; given: FedAvg\("):
        register("built", made_already)
    register("vague", FedAvg, steps=2)
    with pytest.raises(FedpriorError, match="unknown setting 'steps' of method vague"):
        make("vague")
    assert "slow" not in METHODS
    assert issubclass(Slow, Method)

"""Rows of a table: how they are written, what they change, and what they are called."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fedprior as fp
from fedprior import registry
from fedprior.errors import FedpriorError
from fedprior.methods import METHODS, make
from fedprior.methods.fedavg import FedAvg
from fedprior.methods.fedu import FedU
from fedprior.priors.means import find_mean
from fedprior.study.settings import LONGEST
from fedprior.study.variant import Variant, check_name, check_names, name_of


@pytest.mark.parametrize(
    ("text", "name", "parts"),
    [
        ("mh", "mh", {}),
        (" mh ", "mh", {}),
        ("mh:beta=2", "mh beta=2", {"wrappers": {"beta": 2.0}}),
        ("mh:lambda=30", "mh lam=30", {"settings": {"lam": 30}}),
        (
            "mh:aggregated=50,lam=30",
            "mh aggregated=50 lam=30",
            {"settings": {"lam": 30}, "protocol": {"aggregated": 50}},
        ),
        ("mh: lam = 30 , eta=0.5", "mh lam=30 eta=0.5", {"settings": {"lam": 30, "eta": 0.5}}),
        ("mh:start=w", "mh start=w", {"settings": {"start": "w"}}),
        ('mh:start="w",lam=1', "mh start=w lam=1", {"settings": {"start": "w", "lam": 1}}),
        ("mh:alpha=1e-3", "mh alpha=0.001", {"settings": {"alpha": 1e-3}}),
        ("mh:inner=true", "mh inner=true", {"settings": {"inner": True}}),
        (
            "mh:metrics=['brier','ece'],lam=2",
            "mh metrics=['brier', 'ece'] lam=2",
            {"settings": {"lam": 2}, "protocol": {"metrics": ["brier", "ece"]}},
        ),
        ('mh:metrics=["brier", "ece"]', "mh metrics=['brier', 'ece']", {"protocol": {"metrics": ["brier", "ece"]}}),
        ("mh:metrics=[]", "mh metrics=[]", {"protocol": {"metrics": []}}),
        ("mh:budget.gradients=80", "mh budget.gradients=80", {"protocol": {"budget": {"gradients": 80}}}),
        ("fedavg:fine_tune=1,beta=2", "fedavg fine_tune=1 beta=2", {"wrappers": {"fine_tune": 1, "beta": 2.0}}),
    ],
)
def test_spellings(text: str, name: str, parts: dict[str, Any]) -> None:
    variant = Variant.parse(text)
    assert variant.name == name
    nothing: dict[str, Any] = {"settings": {}, "wrappers": {}, "protocol": {}}
    assert variant.plain() == {"name": name, "method": text.partition(":")[0].strip(), **nothing, **parts}
    assert Variant(**json.loads(json.dumps(variant.plain()))) == variant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mh:", "'mh:' is not of the form METHOD:key=value,..."),
        ("mh:beta", "'beta' is not of the form key=value"),
        ("mh:lam=1,lambda=2", "sets 'lam' twice"),
        (
            "mh:lamb=1",
            r"unknown key 'lamb' of mh \(did you mean 'lambda'|unknown key 'lamb' of mh \(did you mean 'lam'",
        ),
        ("fedavg:lam=1", "unknown key 'lam' of fedavg"),
        ("mhh:lam=1", r"unknown method 'mhh' \(did you mean 'mh'\?\)"),
        ("mh:beta=two", r"beta = 'two' has the wrong type \(str\); it must be float"),
        ("mh:fine_tune=1.5", r"fine_tune = 1.5 has the wrong type \(float\); it must be int"),
        ("mh:partition.clients=3", "unknown key 'partition.clients' of mh"),  # the task's, and not a row's
    ],
)
def test_spellings_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        Variant.parse(text)


def test_a_row_is_named_by_what_it_changes_or_by_its_user() -> None:
    assert Variant.of("mh", {"lam": 2.0}, beta=2).name == "mh lam=2 beta=2"
    assert Variant.of("mh", {"beta": 2}, name="mh+AM").name == "mh+AM"
    own = Variant.of(make("lg", R=2))
    assert (own.name, own.method_name) == ("lg", "lg")
    assert repr(own) == "Variant('lg')"
    assert Variant.of("mh", {"mean": find_mean("lg")}).name == "mh mean=Mean"
    with pytest.raises(FedpriorError, match="unknown key 'lam' of lg"):  # it has its settings already
        Variant.of(make("lg"), lam=2)


UNSAFE = r'. .. a/b a\b a:b a* a? a"b <a a> a|b .a a. sweep Sweep summary.json curves.png CON nul'


@pytest.mark.parametrize(
    "name", [*UNSAFE.split(), "", " ", " a", "a ", "a\n", "a\0", "x" * (LONGEST + 1), "\u6570" * (LONGEST // 3 + 1)]
)
def test_unsafe_names_are_refused(name: str) -> None:
    with pytest.raises(
        FedpriorError, match="cannot name a row, since it also names a folder: use 1 to 120 characters,"
    ):
        check_name(name)
    with pytest.raises(FedpriorError, match="cannot name a row"):
        Variant.of("mh", name=name)


@pytest.mark.parametrize(
    "name", ["mh+AM", "mh S=50", "pFedBreD (mh), λ = 15", "a.b", "x" * LONGEST, "\u6570" * (LONGEST // 3)]
)
def test_safe_names(name: str) -> None:
    assert check_name(name) == name


def test_two_rows_of_one_name_are_refused() -> None:
    for names in (("mh", "mh"), ("mh", "MH"), ("Straße", "STRASSE")):
        with pytest.raises(FedpriorError, match=f"two rows are called '{names[1]}'; give one of them another name"):
            check_names(Variant.of("mh", name=name) for name in names)
    assert [v.name for v in check_names([Variant.of("mh"), Variant.of("mh", beta=2)])] == ["mh", "mh beta=2"]


def test_settings_of_the_whole_study_come_after_a_row_s_own() -> None:
    row = Variant.of("mh", lam=2, beta=2).changed({"lam": 9, "eta": 0.1}, {"beta": 3.0, "fine_tune": 1})
    assert (row.settings, row.wrappers) == ({"lam": 2, "eta": 0.1}, {"beta": 2.0, "fine_tune": 1})
    assert row.name == "mh lam=2 beta=2"


def test_objects_stay_in_this_process() -> None:
    with pytest.raises(FedpriorError, match="holds a method object, which no other process can build"):
        Variant.of(make("mh")).plain()
    with pytest.raises(FedpriorError, match=r"holds a setting that no other process can build .*use names"):
        Variant.of("mh", {"mean": find_mean("lg")}).plain()


def test_a_class_that_is_called_like_a_method_is_not_taken_for_it() -> None:
    class FedProx(FedAvg):
        mu: float = 0.1

    class Ditto(FedAvg):  # without the lam that tasks set
        pass

    class Mine(FedAvg):
        pass

    for cls in (FedProx, Ditto):
        row = Variant.of(cls())
        assert row.method_name == row.name == f"{__name__}.{cls.__name__}"
    assert name_of(Mine()) == "mine"
    assert name_of(type(make("ditto"))(lam=7.0)) == "ditto"  # the shipped class, whatever its settings
    task = fp.task("digits-mclr", rounds=1, lam=3.0, **{"partition.clients": 5})
    (program,) = fp.Study(task, [Ditto()], local=False).programs
    assert program.variant.method_name == f"{__name__}.Ditto"


def test_presets_that_are_arrays_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ADDED", set())
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS._entries))
    chain: Any = np.eye(5, k=1) + np.eye(5, k=-1)
    ring: Any = np.ones((5, 5)) - np.eye(5)
    fp.register("chain", FedU, graph=chain)
    assert (name_of(FedU(graph=ring)), name_of(FedU(graph=chain.copy())), name_of(FedU())) == ("fedu", "chain", "fedu")

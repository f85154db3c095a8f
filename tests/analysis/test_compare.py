"""Variants compared client by client, on records whose answers are known."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from analysis.handmade import CLASS_ACCURACY, MACRO_F1, evaluated, record, rows
from fedprior.analysis.compare import Comparison, Difference, Interval, compare
from fedprior.analysis.grouping import group
from fedprior.analysis.summary import summarize
from fedprior.engine.coherence import GCE
from fedprior.errors import FedpriorError
from fedprior.records.schema import ACCURACY, NLL, ClientRow, RunRecord, Status

SAMPLES = (10, 20, 40, 10)
LOCAL = ((50, 60, 70, 80), (60, 60, 80, 80), (40, 60, 75, 90))  # [seed][client], at the last round
FEDAVG = ((60, 60, 60, 80), (70, 60, 65, 70), (50, 60, 70, 90))
MH = ((70, 60, 70, 90), (70, 60, 70, 90), (50, 60, 85, 60))
ORDER = ("local", "fedavg", "pfedme", "mh")


def run(
    variant: str,
    seed: int,
    *by_round: Sequence[float],
    samples: Sequence[int] = SAMPLES,
    validation: Sequence[float] = (),
    common: Sequence[float] | None = None,
    **more: Any,
) -> RunRecord:
    """A run with each client's accuracy at rounds 1, 2, ... and perhaps that of the global model at the last one."""
    averaged, clients = evaluated([{"accuracy": values} for values in by_round], samples)
    if common is not None:
        every = evaluated([{"accuracy": common}] * len(by_round), samples, "global")
        averaged, clients = averaged + every[0], clients + every[1]
    averaged += rows(dict(enumerate(validation, 1)), data="validation", which=("weighted",))
    return record(variant, seed, averaged, clients, **more)


@pytest.fixture
def three() -> list[RunRecord]:
    """Three methods with three seeds."""
    return [
        run(variant, seed, (0, 0, 0, 0), values)
        for variant, by_seed in (("mh", MH), ("local", LOCAL), ("fedavg", FEDAVG))
        for seed, values in enumerate(by_seed)
    ]


def difference(comparison: Comparison, variant: str) -> Difference:
    of = comparison.variants[variant].difference
    assert of is not None
    return of


def test_paired_differences_are_those_of_a_paired_t_test(three: list[RunRecord]) -> None:
    comparison = compare(three, order=ORDER)
    assert (comparison.task, comparison.round, comparison.against, comparison.data) == ("toy", "last", "local", "own")
    assert (comparison.clients, comparison.samples) == ([0, 1, 2, 3], [10, 20, 40, 10])
    assert list(comparison.variants) == ["local", "fedavg", "mh"]
    assert comparison.variants["local"].difference is None
    for variant, by_seed in (("fedavg", FEDAVG), ("mh", MH)):
        d = difference(comparison, variant)
        assert d.seeds == [0, 1, 2]
        for got, weights in ((d.weighted, SAMPLES), (d.mean, None)):
            ours, theirs = (np.average(values, axis=1, weights=weights) for values in (by_seed, LOCAL))
            wanted = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
            assert got.mean == pytest.approx(np.mean(ours - theirs))
            assert (got.low, got.high) == pytest.approx((wanted.low, wanted.high))
        assert d.per_client == pytest.approx(np.mean(by_seed, 0) - np.mean(LOCAL, 0))
    fedavg = difference(comparison, "fedavg")
    # by hand: +10, 0, -10, 0 in seed 0; +10, 0, -15, -10 in seed 1; +10, 0, -5, 0 in seed 2
    assert fedavg.mean.mean == pytest.approx((0 - 15 / 4 + 5 / 4) / 3)
    assert fedavg.weighted.mean == pytest.approx((-300 - 600 - 100) / 80 / 3)
    assert json.loads(json.dumps(dataclasses.asdict(comparison)))["variants"]["mh"]["difference"]["seeds"] == [0, 1, 2]


def test_differences_and_fairness_are_those_of_the_tables(three: list[RunRecord]) -> None:
    comparison = compare(three)
    results = summarize(group(three)["toy"])
    own = {variant: about["metrics"]["accuracy"]["personal"]["own"] for variant, about in results.items()}
    for average in ("weighted", "mean"):
        apart = own["fedavg"][average]["last"]["mean"] - own["local"][average]["last"]["mean"]
        assert getattr(difference(comparison, "fedavg"), average).mean == pytest.approx(apart)
    assert comparison.variants["fedavg"].fairness["worst_decile"] == own["fedavg"]["worst_decile"]["last"]


def test_who_wins_and_who_is_best(three: list[RunRecord]) -> None:
    variants = compare(three).variants
    counts = {m: (d.wins, d.ties, d.losses) for m, e in variants.items() if (d := e.difference)}
    # over seeds: local 50, 60, 75, 83.3; fedavg 60, 60, 65, 80; mh 63.3, 60, 75, 80 (client 2: 70+80+75 = 70+70+85)
    assert counts == {"fedavg": (1, 1, 2), "mh": (1, 2, 1)}
    best = {variant: (e.best.alone, e.best.shared) for variant, e in variants.items() if e.best}
    assert best == {"local": (1, 2), "fedavg": (0, 1), "mh": (1, 2)}  # client 1 is shared by all, client 2 by two


def test_equal_up_to_the_rounding_of_a_mean_is_a_tie() -> None:
    """The same accuracies in another order of the seeds: their sums differ in the last bit."""
    ours, theirs = (100 / 21, 200 / 21, 400 / 21), (400 / 21, 100 / 21, 200 / 21)
    assert np.mean(ours) != np.mean(theirs)
    assert np.mean(np.subtract(ours, theirs)) != 0
    runs = [run(v, s, (a,), samples=(21,)) for v, of in (("local", ours), ("mh", theirs)) for s, a in enumerate(of)]
    mh = compare(runs).variants["mh"]
    assert mh.difference is not None
    assert (mh.difference.wins, mh.difference.ties, mh.difference.losses) == (0, 1, 0)
    assert mh.best is not None
    assert (mh.best.alone, mh.best.shared) == (0, 1)


def test_fairness(three: list[RunRecord]) -> None:
    fairness = compare(three).variants["mh"].fairness
    for key, of in (("mean", np.mean), ("std_over_clients", np.std), ("worst_decile", np.min)):
        each = of(MH, axis=1)
        assert fairness[key] == {
            "mean": pytest.approx(each.mean()),
            "std": pytest.approx(each.std(ddof=1)),
            "seeds": [0, 1, 2],
        }


def test_one_seed_has_no_interval() -> None:
    d = difference(compare([run("local", 0, LOCAL[0]), run("mh", 0, MH[0])]), "mh")
    assert d.mean == Interval(7.5, None, None)
    assert d.mean.half is None


@pytest.mark.parametrize(
    ("choice", "rounds"), [("last", [4]), ("last10", [1, 2, 3, 4]), ("validation", [1]), ("best", [3])]
)
def test_rounds_are_chosen_as_in_the_tables(choice: str, rounds: list[int]) -> None:
    values = [(50.0, 60, 70, 80), (55.0, 40, 90, 60), (90.0, 90, 90, 80), (10.0, 20, 80, 60)]
    runs = [
        run(variant, seed, *(tuple(v + plus for v in at) for at in values), validation=(70, 60, 50, 40))
        for seed in (0, 1)
        for variant, plus in (("local", 0), ("mh", 5 + seed))
    ]
    mh = compare(runs, choice=choice).variants["mh"]
    assert mh.rounds == {0: rounds, 1: rounds}
    assert mh.difference is not None
    assert mh.difference.per_client == pytest.approx([5.5] * 4)
    own = summarize(group(runs)["toy"])["mh"]["metrics"]["accuracy"]["personal"]["own"]
    for average in ("mean", "worst_decile"):
        if choice != "best":  # there each average has a best round of its own, here the weighted one's
            assert mh.fairness[average]["seeds"] == own[average][choice]["seeds"]
            for key in ("mean", "std"):
                assert mh.fairness[average][key] == pytest.approx(own[average][choice][key])


def test_only_seeds_of_both_are_paired() -> None:
    runs = [run(v, s, of[s]) for v, of in (("local", LOCAL), ("fedavg", FEDAVG)) for s in range(3)]
    runs += [run("mh", seed, MH[1]) for seed in (1, 7)]
    told: list[str] = []
    comparison = compare(runs, warn=told.append)
    fedavg, mh = (difference(comparison, variant) for variant in ("fedavg", "mh"))
    assert (fedavg.seeds, mh.seeds, comparison.best_seeds) == ([0, 1, 2], [1], [1])
    assert mh.per_client == [10, 0, -10, 10]
    assert comparison.variants["mh"].fairness["mean"]["seeds"] == [1, 7]
    assert told == [
        "seeds 7 of mh are left out where local has no such seed",
        "seeds 0, 2 of local are left out where mh has no such seed",
        "'best for' is counted over seed 1, which all methods have",
    ]
    with pytest.raises(FedpriorError, match=r"pfedme \(seeds 9\) and local \(seeds 0, 1, 2\) have no seed in common"):
        compare([*runs, run("pfedme", 9, MH[0])])


def test_the_reference(three: list[RunRecord]) -> None:
    comparison = compare(three, against="mh")
    d = difference(comparison, "local")
    assert (d.wins, d.ties, d.losses) == (1, 2, 1)
    assert comparison.variants["mh"].difference is None
    told: list[str] = []
    without = compare([r for r in three if r.variant != "local"], order=ORDER, warn=told.append)
    assert without.against == "fedavg"  # the first in the registry's order
    assert "toy has no Local-only runs; the reference is fedavg" in told[0]
    told.clear()
    renamed = [run("alone", 0, LOCAL[0], method="local"), run("mh", 0, MH[0])]
    assert compare(renamed[::-1], warn=told.append).against == "alone"
    assert told == []


def test_global_models(three: list[RunRecord]) -> None:
    runs = [r for r in three if r.variant == "local"]
    runs += [run(v, s, (0,) * 4, MH[s], common=LOCAL[0]) for v in ("fedavg", "mh") for s in range(3)]
    told: list[str] = []
    comparison = compare(runs, model="global", warn=told.append)
    assert {m: e.model for m, e in comparison.variants.items()} == {
        "local": "personal",
        "fedavg": "global",
        "mh": "global",
    }
    assert told == ["local has no global model; its personal models are compared"]
    assert difference(comparison, "mh").per_client == pytest.approx(np.array(LOCAL[0]) - np.mean(LOCAL, 0))
    assert comparison.reference == "local (personal)"


def test_settings_of_one_method_are_compared() -> None:
    runs = [run("mh", 0, MH[0]), run("local", 0, LOCAL[0]), run("mh aggregated=2", 0, FEDAVG[0], own={"aggregated": 2})]
    told: list[str] = []
    comparison = compare(runs, against="mh", warn=told.append)
    assert {v: e.method for v, e in comparison.variants.items()} == {
        "mh": "mh",
        "local": "local",
        "mh aggregated=2": "mh",
    }
    assert difference(comparison, "mh aggregated=2").per_client == [-10, 0, -10, -10]
    assert told == []


# -- other metrics -----------------------------------------------------------------------------------------------------


def measured(variant: str, **values: Sequence[float]) -> RunRecord:
    infos = (ACCURACY, NLL, MACRO_F1)
    averaged, clients = evaluated([values], SAMPLES, metrics=infos, names=("ann", "bob", "cy", 7))
    return record(variant, 0, averaged, clients, metrics=infos)


def test_where_lower_is_better_the_lower_client_wins() -> None:
    local = measured("local", accuracy=(50, 50, 50, 50), nll=(1.0, 2.0, 3.0, 4.0), macro_f1=(0.1, 0.2, 0.3, 0.4))
    mh = measured("mh", accuracy=(60, 60, 60, 60), nll=(0.5, 1.0, 3.0, 5.0), macro_f1=(0.3, 0.3, 0.3, 0.3))
    comparison = compare([local, mh], metric="nll")
    assert comparison.metric == NLL
    d = difference(comparison, "mh")
    assert (d.wins, d.ties, d.losses) == (2, 1, 1)
    assert d.per_client == [1.0, -0.5, -1.0, 0.0]  # of client 7, then of ann, bob and cy
    assert comparison.clients == [7, "ann", "bob", "cy"]
    assert d.weighted.mean == pytest.approx((-0.5 * 10 - 1.0 * 20 + 0 * 40 + 1.0 * 10) / 80)
    best = {variant: (e.best.alone, e.best.shared) for variant, e in comparison.variants.items() if e.best}
    assert best == {"local": (1, 1), "mh": (2, 1)}
    assert comparison.variants["mh"].fairness["worst_decile"]["mean"] == 5.0  # the worst is the highest
    f1 = difference(compare([local, mh], metric="macro_f1"), "mh")
    assert (f1.wins, f1.ties, f1.losses) == (2, 1, 1)
    assert f1.per_client == pytest.approx([-0.1, 0.2, 0.1, 0.0])
    with pytest.raises(FedpriorError, match="unknown metric 'f1'; valid: accuracy, macro_f1, nll"):
        compare([local, mh], metric="f1")


def test_one_class_is_compared_where_clients_have_it() -> None:
    def classes(variant: str, plus: float) -> RunRecord:
        names = ("class_accuracy[0]", "class_accuracy[1]")
        clients = [
            ClientRow(1, "personal", "own", i, m, {name: 50.0 + plus + k for k, name in enumerate(names) if i != k + 1})
            for i, m in enumerate(SAMPLES)
        ]
        averaged = [row for name in names for row in rows({1: 50.0 + plus}, metric=name)]
        return record(variant, 0, averaged, clients, metrics=(CLASS_ACCURACY,), class_names=("0", "1"))

    runs = [classes("local", 0), classes("mh", 5)]
    comparison = compare(runs, metric="class_accuracy[1]")
    assert (comparison.clients, comparison.samples) == ([0, 1, 3], [10, 20, 10])  # client 2 has no sample of class 1
    assert difference(comparison, "mh").per_client == [5, 5, 5]
    with pytest.raises(FedpriorError, match=r"choose one of class_accuracy\[0\], class_accuracy\[1\]"):
        compare(runs, metric="class_accuracy")


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_paired_is_refused() -> None:
    local, mh = run("local", 0, LOCAL[0]), run("mh", 0, MH[0])

    def refuses(runs: list[RunRecord], *parts: str, **options: Any) -> None:
        with pytest.raises(FedpriorError) as error:
            compare(runs, **options)
        assert all(part in str(error.value) for part in parts), error.value

    refuses([local], "a comparison needs two methods and there are only runs of local")
    refuses([local, mh], "unknown row 'mhh' (did you mean 'mh'?); valid: local, mh", against="mhh")
    refuses([local, mh], "unknown round 'lats' (did you mean 'last'", choice="lats")
    refuses([local, mh], "unknown model 'both'", model="both")
    without = ("no accuracy of its personal models on validation samples", "--set validation=0.2")
    refuses([local, mh], *without, choice="validation")
    for odd, parts in (
        ({"fingerprint": "g"}, ["not of one experiment (fingerprint: f in runs/local/0, g in runs/pfedme/0)"]),
        ({"partition": {"seed": 2}}, ["not of one experiment (partition.seed: 1 in runs/local/0, 2 in "]),
        ({"task": "other"}, ["runs of several tasks (toy, other) have no clients in common"]),
        ({"samples": (10, 20, 40, 11)}, ["do not have the same clients", "runs/local/0"]),
    ):
        refuses([local, mh, run("pfedme", 0, MH[0], **odd)], *parts)
    for clients, parts in (
        ((), ["runs/mh/0 has no client's accuracy of the personal models", "at round 1", "--resume"]),
        (
            [row._replace(values={"nll": 1.0}) for row in mh.clients],
            ["runs/mh/0 has no client's accuracy of the personal models"],
        ),
        (mh.clients[:3], ["do not have the same clients"]),
    ):
        refuses([local, dataclasses.replace(mh, clients=tuple(clients))], *parts)
    whole = [record(name, 0, rows({1: 0.5}, metric="gce"), local.clients, metrics=(GCE,)) for name in ("local", "mh")]
    refuses(whole, "gce is of the whole federation", "choose another --metric", metric="gce")
    two = run("mh", 0, MH[0], MH[1])
    lost = dataclasses.replace(two, clients=two.clients[:-1])
    refuses([run("local", 0, *LOCAL[:2]), lost], "does not hold the same clients at rounds 1, 2", choice="last10")
    diverged = [dataclasses.replace(r, status=Status.DIVERGED) for r in (local, mh)]
    refuses(diverged, "nothing to compare: no run has been evaluated")

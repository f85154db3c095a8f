"""How much stands behind a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from analysis.handmade import evaluated, record, written_below
from fedprior.analysis.compare import compare
from fedprior.analysis.evidence import evidence, wilson
from fedprior.analysis.grouping import group, read
from fedprior.records.schema import ACCURACY, NLL, RunRecord

SAMPLES = (4, 30, 10, 50, 8, 60, 20, 19, 40, 70, 80, 90, 100, 30, 30, 30, 30, 30, 30, 30)
GOOD = [90.0 - k for k in range(20)]  # the worst two are the last: 60 samples


@pytest.mark.parametrize(("right", "samples"), [(0, 5), (5, 5), (18, 20), (1, 3), (499, 1000)])
def test_wilsons_interval_is_scipys(right: int, samples: int) -> None:
    wanted = stats.binomtest(right, samples).proportion_ci(method="wilson")
    assert wilson(100 * right / samples, samples) == pytest.approx((100 * wanted.low, 100 * wanted.high), abs=1e-9)


def run(variant: str, values: list[float], seed: int = 0, metric: str = "accuracy", **more: Any) -> RunRecord:
    infos = (NLL,) if metric == "nll" else (ACCURACY,)
    averaged, clients = evaluated([{metric: [1.0] * 20}, {metric: values}], SAMPLES, metrics=infos)
    return record(variant, seed, averaged, clients, **more)


def test_the_samples_behind_the_worst_tenth_are_those_of_its_clients() -> None:
    small = [0.0, 1.0, *GOOD[2:]]  # the worst two have 4 and 30 samples
    support = evidence({"mh": {0: run("mh", GOOD), 1: run("mh", small, 1)}}, "accuracy", "last").support
    assert support is not None
    assert (support.worst, support.worst_samples, support.samples) == (2, (34, 60), list(SAMPLES))
    assert support.one_sample == pytest.approx(100 / (2 * 4))  # one sample of the client that has four
    assert support.few == 4  # 4, 10, 8, 19
    first = evidence({"mh": {0: run("mh", small)}}, "accuracy", "last").support
    assert first is not None
    assert first.worst_samples == (34, 34)
    loss = evidence({"mh": {0: run("mh", small, metric="nll")}}, "nll", "last").support
    assert loss is not None
    assert loss.one_sample is None  # it is no share of samples
    assert loss.worst_samples == (60, 60)  # the highest losses, which are those of clients 2 and 3


def test_rows_that_are_the_same_for_every_client_are_told() -> None:
    swapped = [GOOD[1], GOOD[0], *GOOD[2:]]  # the mean over clients is the same
    runs = [run("local", swapped), run("pfedme", GOOD), run("mh", GOOD), run("lg", GOOD, 1)]
    runs += [run("meg", GOOD, 0), run("meg", swapped, 1)]
    found = evidence(group(runs)["toy"], "accuracy", "last")
    assert found.equal == [["pfedme", "mh"]]
    assert compare([r for r in runs if r.variant in ("local", "pfedme", "mh")]).equal == [["pfedme", "mh"]]


def test_a_comparison_has_every_client_with_its_interval() -> None:
    comparison = compare([run("local", GOOD), run("local", [80.0] * 20, 1), run("mh", GOOD), run("mh", GOOD, 1)])
    local = comparison.variants["local"]
    assert local.per_client[:2] == [85.0, 84.5]
    assert local.wilson is not None
    assert local.wilson[1] == wilson(84.5, 30)
    assert comparison.support is not None
    assert comparison.support.samples == comparison.samples
    losses = compare([run("local", GOOD, metric="nll"), run("mh", GOOD, metric="nll")], metric="nll")
    assert losses.variants["mh"].wilson is None


def test_only_the_rounds_that_count_are_read_from_a_folder(tmp_path: Path) -> None:
    for k, name in enumerate(("plain", 'a "quoted" one')):  # in quotes, a name may take several lines
        averaged, clients = evaluated([{"accuracy": [1.0] * 20}, {"accuracy": GOOD}], SAMPLES)
        named = [row._replace(client=f"{name} {row.client}") for row in clients]
        ids = [row.client for row in named[:20]]
        written_below(tmp_path / str(k), record("mh", 0, averaged, named, client_ids=ids))
        (kept,) = read([tmp_path / str(k)])
        whole = [row for row in kept.clients if row.round == 2]
        assert kept.clients.of_rounds({2}) == whole  # type: ignore[attr-defined]
        found = evidence({"mh": {0: kept}}, "accuracy", "last").support
        assert found is not None
        assert found.worst_samples == (60, 60)


def test_what_was_not_recorded_is_not_told() -> None:
    bare = run("mh", GOOD)
    none = RunRecord(bare.config, bare.status, bare.round, bare.rows, ())
    assert evidence({"mh": {0: none}}, "accuracy", "last").support is None
    assert evidence({"mh": {0: bare}}, "accuracy", "validation").support is None
    half = {"local": {0: none}, "mh": {0: bare}, "lg": {0: run("lg", GOOD)}}
    assert evidence(half, "accuracy", "last").equal == [["mh", "lg"]]


def test_rows_that_differ_in_how_many_evaluations_they_average_are_told() -> None:
    short = [RunRecord(r.config, r.status, 2, r.rows[3:], r.clients[20:], r.where) for r in (run("mh", GOOD),)]
    by_variant = group([run("local", GOOD), run("lg", GOOD), *short])["toy"]
    told = "evaluations in the mean: local 2, lg 2, mh 1"
    assert evidence(by_variant, "accuracy", "last10").lacks == [told]
    assert compare([run("local", GOOD), run("lg", GOOD), *short], choice="last10").lacks == [told]
    for choice in ("last", "best"):
        assert evidence(by_variant, "accuracy", choice).lacks == []
    assert evidence(group([run("local", GOOD), run("lg", GOOD)])["toy"], "accuracy", "last10").lacks == []

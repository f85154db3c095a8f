"""The tables of comparisons whose numbers are known."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from analysis.handmade import evaluated, record

from fedprior.analysis.compare import Comparison, compare
from fedprior.analysis.evidence import wilson
from fedprior.records.schema import NLL
from fedprior.report.comparison import comparison_tables
from fedprior.report.tables import render

SAMPLES = (10, 20, 40, 10)
BY_SEED = {
    "local": ((50, 60, 70, 80), (60, 60, 80, 80), (40, 60, 75, 90)),
    "fedavg": ((60, 60, 60, 80), (70, 60, 65, 70), (50, 60, 70, 90)),
    "mh": ((70, 60, 70, 90), (70, 60, 70, 90), (50, 60, 85, 60)),
}


def compared(seeds: int = 3) -> Comparison:
    return compare(
        record(variant, seed, *evaluated([{"accuracy": of[seed]}], SAMPLES))
        for variant, of in BY_SEED.items()
        for seed in range(seeds)
    )


def test_the_two_tables_of_a_comparison() -> None:
    differences, spread = comparison_tables(compared(1))
    what = "toy: accuracy of the personal models on own test samples"
    assert differences.title == f"{what} minus that of local, in points, last round"
    assert spread.title == f"{what} over clients, in percent, last round"
    assert differences.body[0] == ("local", "personal", "reference", *["-"] * 4, "1")
    assert differences.body[2] == ("mh", "personal", "+3.75", "+7.50", "2", "2", "0", "1")
    assert spread.body[0] == ("local", "personal", "65.00", "11.18", "50.00", "0 + 2", "1")
    assert "for how many of 4 clients" in differences.note
    assert "one seed: no confidence interval" in differences.note
    assert "±" not in render([differences, spread], "markdown")


def test_an_interval_is_one_and_a_deviation_is_another() -> None:
    differences, spread = comparison_tables(compared())
    d = compared().variants["mh"].difference
    assert d is not None
    assert differences.body[2][2] == f"{d.weighted.mean:+.2f} [{d.weighted.low:+.2f}, {d.weighted.high:+.2f}]"
    assert "±" not in render(differences, "markdown")
    assert "[ ] 95 % confidence interval: Student's t over n paired seeds" in differences.note
    assert spread.body[2][2].count("±") == 1
    assert "± standard deviation over n seeds" in spread.note


def test_the_tables_of_another_metric_say_which() -> None:
    runs = [
        record(v, 0, *evaluated([{"nll": nll}], SAMPLES, metrics=(NLL,)))
        for v, nll in (("local", (1.0, 2.0, 3.0, 4.0)), ("mh", (0.5, 1.0, 3.0, 5.0)))
    ]
    differences, spread = comparison_tables(compare(runs, metric="nll"))
    what = "toy: nll of the personal models on own test samples"
    assert differences.title == f"{what} minus that of local, last round"
    assert spread.title == f"{what} over clients, last round"
    assert differences.body[1] == ("mh", "personal", "-0.188", "-0.125", "2", "1", "1", "1")
    assert differences.note.endswith("nll: lower is better")
    assert spread.note.endswith("worst 10%: 1 of 4 clients, 10 test samples")  # a loss has no points
    flat = csv.DictReader(io.StringIO(render([differences, spread], "csv")))
    assert {(row["low"], row["high"]) for row in flat if row["quantity"] == "client"} == {("", "")}


def test_the_tables_of_a_comparison_fit_80_columns() -> None:
    rng = np.random.default_rng(0)
    comparison = compare(
        record(variant, seed, *evaluated([{"accuracy": (100 * rng.random(200)).tolist()}], (50,) * 200))
        for variant in ("local", "fedavg", "pfedme-released", "mh-released")
        for seed in range(3)
    )
    for table in comparison_tables(comparison):
        text = render(table, "text")
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text
        shown = table.brief().body
        assert all(cell.replace(" ± ", "±") in text for line in shown for cell in line)


def test_csv_holds_every_number_of_a_comparison() -> None:
    comparison = compared()
    text = render(comparison_tables(comparison), "csv")
    assert text.count("quantity") == 1
    every = list(csv.DictReader(io.StringIO(text)))
    flat = {(row["variant"], row["quantity"]): row for row in every}
    d = comparison.variants["mh"].difference
    assert d is not None
    weighted = flat["mh", "difference_weighted"]
    assert [float(weighted[k]) for k in ("value", "low", "high")] == [d.weighted.mean, d.weighted.low, d.weighted.high]
    about = ("task", "method", "metric", "model", "against", "against_model", "data", "round", "seeds")
    assert [weighted[k] for k in about] == [
        *("toy", "mh", "accuracy", "personal", "local", "personal", "own", "last", "0 1 2")
    ]
    counts = ("wins", "ties", "losses", "best_alone", "best_shared")
    assert [flat["fedavg", k]["value"] for k in counts] == list("11201")
    assert float(flat["local", "worst_decile"]["value"]) == pytest.approx((50 + 60 + 40) / 3)
    assert ("local", "difference_mean") not in flat
    clients = [row for row in every if (row["variant"], row["quantity"]) == ("mh", "client")]
    assert [(row["client"], row["samples"], row["seeds"]) for row in clients] == [
        (str(k), str(n), "0 1 2") for k, n in enumerate(SAMPLES)
    ]
    wanted = [wilson(x, n) for x, n in zip(np.mean(BY_SEED["mh"], 0), SAMPLES, strict=True)]
    assert [(float(row["low"]), float(row["high"])) for row in clients] == wanted

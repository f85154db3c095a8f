"""What --json prints and what is kept as JSON can be read by any program, whatever the numbers."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis.handmade import evaluated, record, written_below
from program import fedprior

from cli.commands import ONE
from fedprior.cli.app import json_text
from fedprior.engine.metrics import METRICS, Metric
from fedprior.records.schema import MetricInfo

PERPLEXITY = MetricInfo("perplexity", "", "lower")
CLI = Path(__file__).parents[2] / "src" / "fedprior" / "cli"


def strict(text: str) -> Any:
    """What a JSON text holds; Python's own names of numbers that JSON does not have are no JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_null_stands_for_what_json_has_no_number_for() -> None:
    content = {"a": [math.inf, {"b": (math.nan, 1.5, None)}], "c": np.float64(-math.inf)}
    assert strict(json_text(content)) == {"a": [None, {"b": [None, 1.5, None]}], "c": None}


def test_tables_and_comparisons(tmp_path: Path) -> None:
    for variant, values in (("local", (2.0, 3.0)), ("mh", (math.inf, 1.0))):
        of = evaluated([{"perplexity": values}], (10, 30), metrics=(PERPLEXITY,))
        written_below(tmp_path, record(variant, 0, *of, metrics=(PERPLEXITY,)))
    table = strict(fedprior("table", tmp_path, "--metric", "perplexity", "--json").out)
    assert table["toy"]["results"]["mh"]["metrics"]["perplexity"]["personal"]["own"]["mean"]["last"]["mean"] is None
    compared = strict(fedprior("compare", tmp_path, "--metric", "perplexity", "--json").out)
    assert compared["variants"]["mh"]["difference"]["per_client"] == [None, -2.0]


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))
    nll = METRICS.find("nll")
    METRICS.register(
        "wild", Metric(MetricInfo("wild", "", "lower"), nll.statistic, lambda _, n: np.full(len(n), np.inf))
    )
    done = fedprior(*ONE[:-4], "--rounds", "1", "--metric", "wild", "--json", "--out", tmp_path)
    assert done.code == 0, done.err
    summary = strict((tmp_path / "digits-mclr" / "summary.json").read_text())
    assert strict(done.out) == summary
    assert summary["results"]["fedavg"]["metrics"]["wild"]["personal"]["own"]["mean"]["last"]["mean"] is None


def test_every_command_writes_json_in_the_same_way() -> None:
    texts = {path.name: path.read_text() for path in CLI.glob("*.py")}
    assert {name for name, text in texts.items() if re.search(r"json\.dump", text)} == {"app.py", "serving.py"}

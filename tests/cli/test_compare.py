"""fedprior compare: rows client by client, from runs that are already there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import Outcome, contents, fedprior, refused

pytestmark = pytest.mark.xdist_group("cli")  # one worker makes the comparison that all of them look at


def test_a_comparison_of_real_runs(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    runs, outcome = compared
    picture, before = tmp_path / "clients.png", contents(runs)
    text = fedprior("compare", runs, "--plot", picture)
    assert (text.code, text.err) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert " ".join(text.out.split()).startswith(
        "digits-mclr: accuracy of the personal models on own test samples minus that of local R=2"
    )
    assert text.out.splitlines()[-1] == f"picture: {picture}"
    assert max(map(len, text.out.splitlines()[:-1])) <= 80
    comparison = json.loads(fedprior("compare", runs, "--json").out)
    fedavg = comparison["variants"]["fedavg"]
    d = fedavg["difference"]
    assert (len(comparison["clients"]), d["wins"] + d["ties"] + d["losses"], len(d["per_client"])) == (20, 20, 20)
    results = json.loads(outcome.out)["results"]
    own = {row: about["metrics"]["accuracy"]["personal"]["own"] for row, about in results.items()}
    for average in ("weighted", "mean"):  # the mean of paired differences is the difference of the tables' means
        apart = [own[row][average]["last"]["mean"] for row in ("fedavg", "local")]
        assert d[average]["mean"] == pytest.approx(apart[0] - apart[1])
    assert fedavg["fairness"]["worst_decile"] == own["fedavg"]["worst_decile"]["last"]
    assert fedavg["rounds"] == {"0": [12], "1": [12]}
    assert fedprior("compare", runs, "--format", "markdown").out.count("| fedavg R=2 | personal |") == 2
    low, high = fedavg["wilson"][0]
    assert low < fedavg["per_client"][0] < high
    assert fedprior("compare", runs, "--format", "csv", "--round", "last10").out.startswith(
        "task,variant,method,metric"
    )
    assert contents(runs) == before


def test_other_metrics(compared: tuple[Path, Outcome]) -> None:
    runs, outcome = compared
    results = json.loads(outcome.out)["results"]
    for metric in ("macro_f1", "nll"):
        comparison = json.loads(fedprior("compare", runs, "--metric", metric, "--json").out)
        assert comparison["metric"]["name"] == metric
        own = {row: about["metrics"][metric]["personal"]["own"]["mean"]["last"] for row, about in results.items()}
        difference = comparison["variants"]["mh"]["difference"]
        assert difference["mean"]["mean"] == pytest.approx(own["mh"]["mean"] - own["local"]["mean"])
        better = sum(d > 0 if metric == "macro_f1" else d < 0 for d in difference["per_client"])
        assert difference["wins"] == better  # of a loss, the smaller one wins
    assert "nll: lower is better" in " ".join(fedprior("compare", runs, "--metric", "nll").out.split())
    of_three = json.loads(fedprior("compare", runs, "--metric", "class_accuracy[3]", "--json").out)
    assert 0 < len(of_three["clients"]) < 20  # those who have the class


def test_what_cannot_be_compared_is_refused(compared: tuple[Path, Outcome], tmp_path: Path) -> None:
    runs, _ = compared
    refused(fedprior("compare", runs, "--format", "htm"), "unknown format 'htm'")
    refused(fedprior("compare", runs, "--plot", tmp_path / "x.doc"), "unknown kind 'doc' of picture (x.doc)")
    refused(fedprior("compare", runs, "--metric", "class_accuracy"), "has a value for each class")
    refused(fedprior("compare", runs, "--metric", "f1"), "unknown metric 'f1'")
    refused(fedprior("compare", runs, "--against", "mhh"), "did you mean 'mh'")
    assert not list(tmp_path.iterdir())

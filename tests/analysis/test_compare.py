"""Methods compared client by client, on records whose answers are known."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from program import contents, fedprior, refused
from rich.console import Console
from scipy import stats

from fedprior.analysis import figures
from fedprior.analysis.compare import Interval, compare, render, rich_tables
from fedprior.analysis.tables import collect, summarize
from fedprior.errors import FedpriorError
from fedprior.evaluate import averages
from fedprior.records import RunFolder

SAMPLES = (10, 20, 40, 10)
LOCAL = ((50, 60, 70, 80), (60, 60, 80, 80), (40, 60, 75, 90))  # [seed][client], at the last round
FEDAVG = ((60, 60, 60, 80), (70, 60, 65, 70), (50, 60, 70, 90))
MH = ((70, 60, 70, 90), (70, 60, 70, 90), (50, 60, 85, 60))


def record(
    root: Path,
    method: str,
    seed: int,
    *by_round: tuple[float, ...],
    model: str = "personal",
    samples: tuple[int, ...] = SAMPLES,
    validation: tuple[float, ...] = (),
    **more: Any,
) -> RunFolder:
    """A run's folder with each client's accuracy at rounds 1, 2, ... and the averages that go with it."""
    folder = RunFolder(root / method / str(seed))
    if not folder.exists:
        run = {"name": "toy", "method": method, "seed": seed, "fingerprint": "f", **more}
        folder.begin({"run": run, "environment": {}})
        folder.set_status("finished", len(by_round))
    for t, values in enumerate(by_round, 1):
        clients = [(t, model, "own", i, a, 1.0, m) for i, (a, m) in enumerate(zip(values, samples, strict=True))]
        folder.append("clients.csv", clients)
        means = averages(np.array(values, float), np.array(samples))
        folder.append("metrics.csv", [(t, model, "own", average, a, 1.0) for average, a in means.items()])
    for t, value in enumerate(validation, 1):
        folder.append("metrics.csv", [(t, model, "validation", "weighted", value, 1.0)])
    return folder


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three methods with three seeds."""
    for method, by_seed in (("mh", MH), ("local", LOCAL), ("fedavg", FEDAVG)):
        for seed, values in enumerate(by_seed):
            record(tmp_path, method, seed, (0, 0, 0, 0), values)
    return tmp_path


def test_paired_differences_are_those_of_a_paired_t_test(three: Path) -> None:
    found = compare([three])
    assert (found.task, found.round, found.against, found.data) == ("toy", "last", "local", "own")
    assert (found.clients, found.samples) == ([0, 1, 2, 3], [10, 20, 40, 10])
    assert list(found.methods) == ["local", "fedavg", "mh"]
    assert found.methods["local"].difference is None
    for method, by_seed in (("fedavg", FEDAVG), ("mh", MH)):
        d = found.methods[method].difference
        assert d is not None
        assert d.seeds == [0, 1, 2]
        for got, weights in ((d.weighted, SAMPLES), (d.mean, None)):
            ours, theirs = (np.average(values, axis=1, weights=weights) for values in (by_seed, LOCAL))
            wanted = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
            assert got.mean == pytest.approx(np.mean(ours - theirs))
            assert (got.low, got.high) == pytest.approx((wanted.low, wanted.high))
        assert d.per_client == pytest.approx(np.mean(by_seed, 0) - np.mean(LOCAL, 0))
    fedavg = found.methods["fedavg"].difference
    assert fedavg is not None
    # by hand: +10, 0, -10, 0 in seed 0; +10, 0, -15, -10 in seed 1; +10, 0, -5, 0 in seed 2
    assert fedavg.mean.mean == pytest.approx((0 - 15 / 4 + 5 / 4) / 3)
    assert fedavg.weighted.mean == pytest.approx((-300 - 600 - 100) / 80 / 3)


def test_who_wins_and_who_is_best(three: Path) -> None:
    found = compare([three]).methods
    counts = {m: (d.wins, d.ties, d.losses) for m, e in found.items() if (d := e.difference)}
    # over seeds: local 50, 60, 75, 83.3; fedavg 60, 60, 65, 80; mh 63.3, 60, 75, 80 (client 2: 70+80+75 = 70+70+85)
    assert counts == {"fedavg": (1, 1, 2), "mh": (1, 2, 1)}
    best = {method: (e.best.alone, e.best.shared) for method, e in found.items() if e.best}
    assert best == {"local": (1, 2), "fedavg": (0, 1), "mh": (1, 2)}  # client 1 is shared by all, client 2 by two


def test_equal_up_to_the_rounding_of_a_mean_is_a_tie(tmp_path: Path) -> None:
    """The same accuracies in another order of the seeds: their sums differ in the last bit."""
    ours, theirs = (100 / 21, 200 / 21, 400 / 21), (400 / 21, 100 / 21, 200 / 21)
    assert np.mean(ours) != np.mean(theirs)
    assert np.mean(np.subtract(ours, theirs)) != 0
    for seed, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        record(tmp_path, "local", seed, (a,), samples=(21,))
        record(tmp_path, "mh", seed, (b,), samples=(21,))
    mh = compare([tmp_path]).methods["mh"]
    assert mh.difference is not None
    assert (mh.difference.wins, mh.difference.ties, mh.difference.losses) == (0, 1, 0)
    assert mh.best is not None
    assert (mh.best.alone, mh.best.shared) == (0, 1)


def test_fairness(three: Path) -> None:
    fairness = compare([three]).methods["mh"].fairness
    for key, of in (("mean", np.mean), ("std_over_clients", np.std), ("worst_decile", np.min)):
        each = of(MH, axis=1)
        assert fairness[key] == {
            "mean": pytest.approx(each.mean()),
            "std": pytest.approx(each.std(ddof=1)),
            "seeds": [0, 1, 2],
        }


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    record(tmp_path, "local", 0, LOCAL[0])
    record(tmp_path, "mh", 0, MH[0])
    found = compare([tmp_path])
    d = found.methods["mh"].difference
    assert d is not None
    assert d.mean == Interval(pytest.approx(7.5), None, None)
    assert "| mh | personal | +3.75 ± n/a | +7.50 ± n/a | 2 | 2 | 0 | 2 + 2 | 1 |" in render(found, "markdown")


@pytest.mark.parametrize(
    ("choice", "rounds"), [("last", [4]), ("last10", [1, 2, 3, 4]), ("validation", [1]), ("best", [3])]
)
def test_rounds_are_chosen_as_in_the_tables(tmp_path: Path, choice: str, rounds: list[int]) -> None:
    values = [(50.0, 60, 70, 80), (55.0, 40, 90, 60), (90.0, 90, 90, 80), (10.0, 20, 80, 60)]
    for seed in (0, 1):
        for method, plus in (("local", 0), ("mh", 5 + seed)):
            by_round = [tuple(v + plus for v in at) for at in values]
            record(tmp_path, method, seed, *by_round, validation=(70, 60, 50, 40))
    found = compare([tmp_path], choice=choice).methods["mh"]
    assert found.rounds == {0: rounds, 1: rounds}
    assert found.difference is not None
    assert found.difference.per_client == pytest.approx([5.5] * 4)
    own = summarize(collect([tmp_path])["toy"])["mh"]["personal"]["own"]
    for average in ("mean", "worst_decile"):
        if choice != "best":  # there each average has a best round of its own, here the weighted one's
            assert found.fairness[average]["seeds"] == own[average][choice]["seeds"]
            for key in ("mean", "std"):
                assert found.fairness[average][key] == pytest.approx(own[average][choice][key])


def test_only_seeds_of_both_are_paired(tmp_path: Path) -> None:
    for seed in range(3):
        record(tmp_path, "local", seed, LOCAL[seed])
        record(tmp_path, "fedavg", seed, FEDAVG[seed])
    for seed in (1, 7):
        record(tmp_path, "mh", seed, MH[1])
    told: list[str] = []
    found = compare([tmp_path], warn=told.append)
    fedavg, mh = (found.methods[m].difference for m in ("fedavg", "mh"))
    assert fedavg is not None
    assert mh is not None
    assert (fedavg.seeds, mh.seeds, found.best_seeds) == ([0, 1, 2], [1], [1])
    assert mh.per_client == [10, 0, -10, 10]
    assert found.methods["mh"].fairness["mean"]["seeds"] == [1, 7]
    assert told == [
        "seeds 7 of mh are left out where local has no such seed",
        "seeds 0, 2 of local are left out where mh has no such seed",
        "for how many clients each method is the best is over seeds 1, which all methods have",
    ]
    record(tmp_path, "pfedme", 9, MH[0])
    with pytest.raises(FedpriorError, match=r"pfedme \(seeds 9\) and local \(seeds 0, 1, 2\) have no seed in common"):
        compare([tmp_path])


def test_the_reference(three: Path, tmp_path: Path) -> None:
    found = compare([three], against="mh")
    d = found.methods["local"].difference
    assert d is not None
    assert (d.wins, d.ties, d.losses) == (1, 2, 1)
    assert found.methods["mh"].difference is None
    told: list[str] = []
    without = compare([three / "mh", three / "fedavg"], warn=told.append)
    assert without.against == "fedavg"  # the first in the registry's order
    assert "toy has no Local-only runs; the reference is fedavg" in told[0]


def test_global_models(three: Path) -> None:
    for seed in range(3):
        for method in ("fedavg", "mh"):
            record(three, method, seed, (0, 0, 0, 0), LOCAL[0], model="global")
    told: list[str] = []
    found = compare([three], model="global", warn=told.append)
    assert {m: e.model for m, e in found.methods.items()} == {"local": "personal", "fedavg": "global", "mh": "global"}
    assert told == ["local has no global model; its personal models are compared"]
    d = found.methods["mh"].difference
    assert d is not None
    assert d.per_client == pytest.approx(np.array(LOCAL[0]) - np.mean(LOCAL, 0))
    assert "minus that of local (personal)" in render(found, "markdown")


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_paired_is_refused(tmp_path: Path) -> None:
    local = record(tmp_path / "a", "local", 0, LOCAL[0])

    def refuses(*parts: str, **options: str) -> None:
        arguments = [word for key, value in options.items() for word in (f"--{key}", value)]
        refused(fedprior("compare", tmp_path, *arguments), *parts)

    refuses("a comparison needs two methods and there are only runs of local")
    mh = record(tmp_path / "a", "mh", 0, MH[0])
    refuses("unknown method 'mhh' (did you mean 'mh'?); valid: local, mh", against="mhh")
    refuses("unknown round 'lats' (did you mean 'last'", round="lats")
    refuses("unknown model 'both'", model="both")
    refuses("unknown format 'latex'", format="latex")
    refuses("no accuracy of its personal models on validation samples", "--set validation=0.2", round="validation")
    refuses("unknown kind of picture (x.doc) 'doc'", plot=str(tmp_path / "x.doc"))
    for odd, parts in (
        ({"fingerprint": "g"}, ["not of one experiment (fingerprint: 'f' then, 'g' now", "b/pfedme/0"]),
        ({"partition": {"seed": 2}}, ["not of one experiment (partition: "]),
        ({"name": "other"}, ["runs of several tasks (toy, other) have no clients in common"]),
        ({"samples": (10, 20, 40, 11)}, ["do not have the same clients", "a/local/0"]),
    ):
        other = record(tmp_path / "b", "pfedme", 0, MH[0], **odd)  # type: ignore[arg-type]
        refuses(*parts)
        for path in other.path.iterdir():
            path.unlink()
    (mh.path / "clients.csv").write_text("round,model,data,client,accuracy,loss,samples\n")
    refuses(f"{mh.path / 'clients.csv'} has no rows of the personal models", "at round 1", "--resume")
    (mh.path / "clients.csv").write_text("round,model,data,client,accuracy,loss,samples\n1,personal,own,x,1,1,1\n")
    refuses(f"{mh.path / 'clients.csv'} is damaged", "'x'")
    for run in (local, mh):
        run.set_status("diverged", 1)
    with pytest.raises(FedpriorError, match=r"nothing to compare at or below .*: no run has been evaluated"):
        compare([tmp_path])
    assert not (tmp_path / "x.doc").exists()


# -- layout ------------------------------------------------------------------------------------------------------------


def test_the_tables_fit_80_columns(tmp_path: Path) -> None:
    names = ("local", "fedavg", "pfedme-released", "mh-released")
    rng = np.random.default_rng(0)
    for method in names:
        for seed in range(3):
            values = tuple(100 * rng.random(200))
            record(tmp_path, method, seed, values, samples=(50,) * 200)
    found = compare([tmp_path])
    console = Console(width=80, file=io.StringIO(), force_terminal=False)
    console.print(*rich_tables(found), sep="\n")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    markdown = render(found, "markdown").splitlines()
    for line in [line for line in markdown if line.startswith(("| l", "| f", "| p", "| mh"))]:
        for cell in line.replace(" ± ", "±").strip("| ").split(" | "):
            assert cell in text


def test_csv_holds_every_number(three: Path) -> None:
    found = compare([three])
    rows = {(r["method"], r["quantity"]): r for r in csv.DictReader(io.StringIO(render(found, "csv")))}
    d = found.methods["mh"].difference
    assert d is not None
    weighted = rows["mh", "difference_weighted"]
    assert [float(weighted[k]) for k in ("value", "low", "high")] == [d.weighted.mean, d.weighted.low, d.weighted.high]
    assert [weighted[k] for k in ("task", "model", "against", "against_model", "data", "round", "seeds")] == [
        *("toy", "personal", "local", "personal", "own", "last", "0 1 2")
    ]
    assert [rows["fedavg", k]["value"] for k in ("wins", "ties", "losses", "best_alone", "best_shared")] == list(
        "11201"
    )
    assert float(rows["local", "worst_decile"]["value"]) == pytest.approx((50 + 60 + 40) / 3)
    assert ("local", "difference_mean") not in rows
    with pytest.raises(FedpriorError, match="unknown format 'html'"):
        render(found, "html")


def test_the_picture_has_a_dot_for_every_client(three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    found = compare([three])
    figures.client_differences(found, three / "x.png")
    (axes,) = drawn[0].axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [
        "fedavg (personal)\n1 better, 1 equal,\n2 worse; 3 seeds",
        "mh (personal)\n1 better, 2 equal,\n1 worse; 3 seeds",
    ]
    for dots, method in zip([c for c in axes.collections if len(c.get_offsets()) == 4], ("fedavg", "mh"), strict=True):
        d = found.methods[method].difference
        assert d is not None
        assert np.asarray(dots.get_offsets())[:, 0] == pytest.approx(d.per_client)
        places = {tuple(place) for place in np.asarray(dots.get_offsets()).round(6).tolist()}
        assert len(places) == 4  # none is hidden behind another
    assert "local (personal)" in axes.get_xlabel()
    assert "last round" in axes.get_title(loc="left")


# -- the program -------------------------------------------------------------------------------------------------------


def test_a_comparison_of_real_runs(tmp_path: Path) -> None:
    runs, picture = tmp_path / "runs", tmp_path / "clients.png"
    quick = ("--rounds", "3", "--seeds", "2", "--set", "R=2", "--out", runs)
    assert fedprior("run", "digits-mclr", "-m", "fedavg", *quick).code == 0
    before = contents(runs)
    text = fedprior("compare", runs, "--plot", picture)
    assert (text.code, text.err) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert " ".join(text.out.split()).startswith(
        "digits-mclr: accuracy on own test samples minus that of local (personal)"
    )
    assert text.out.splitlines()[-1] == f"picture: {picture}"
    assert max(map(len, text.out.splitlines()[:-1])) <= 80
    found = json.loads(fedprior("compare", runs, "--json").out)
    fedavg = found["methods"]["fedavg"]
    d = fedavg["difference"]
    assert (len(found["clients"]), d["wins"] + d["ties"] + d["losses"], len(d["per_client"])) == (20, 20, 20)
    own = summarize(collect([runs])["digits-mclr"])
    for average in ("weighted", "mean"):  # the mean of paired differences is the difference of the tables' means
        apart = [own[m]["personal"]["own"][average]["last"]["mean"] for m in ("fedavg", "local")]
        assert d[average]["mean"] == pytest.approx(apart[0] - apart[1])
    assert fedavg["fairness"]["worst_decile"] == own["fedavg"]["personal"]["own"]["worst_decile"]["last"]
    assert fedavg["rounds"] == {"0": [3], "1": [3]}
    assert fedprior("compare", runs, "--format", "markdown").out.count("| fedavg | personal |") == 2
    assert fedprior("compare", runs, "--format", "csv", "--round", "last10").out.startswith("task,method,model,against")
    assert contents(runs) == before

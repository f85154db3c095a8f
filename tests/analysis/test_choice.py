"""The choice of a setting on validation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analysis.handmade import record, rows
from fedprior.analysis.choice import Candidate, choose, ends, summarize_sweep
from fedprior.errors import FedpriorError
from fedprior.records.schema import Row, Status


def candidate(lam: float, *finals: float, nll: float = 1.0, diverged: str | None = None) -> Candidate:
    records = tuple(
        record(
            f"mh lam={lam:g}",
            seed,
            [
                *rows({1: 99.0}, data="validation"),
                *(Row(2, "personal", "validation", a, {"accuracy": v, "nll": nll}) for a, v in _near(final)),
                *rows({2: 100.0 - final}),  # who looks at the test chooses otherwise
                *rows({2: 100.0 - final}, "global", "validation"),
            ],
            where=f"sweep/{lam:g}/{seed}",
            status=Status.DIVERGED if diverged else Status.FINISHED,
        )
        for seed, final in enumerate(finals)
    )
    return Candidate(f"mh lam={lam:g}", {"lam": lam}, records, diverged)


def _near(final: float) -> tuple[tuple[str, float], ...]:
    return ("weighted", final), ("mean", 50.0), ("worst_decile", 50.0)


def test_the_best_mean_over_seeds_is_chosen() -> None:
    cells = [candidate(1, 70.0, 72.0), candidate(2, 90.0, 60.0), candidate(3, 60.0, 90.0), candidate(4, 74.0, 75.0)]
    assert choose(cells) is cells[1]  # 75, the first of equals
    assert choose([cells[0], cells[3]]) is cells[3]
    assert choose([]) is None
    assert cells[1].score() == {"mean": 75.0, "std": pytest.approx(21.213, abs=1e-3), "seeds": [0, 1]}


def test_what_diverged_is_never_chosen() -> None:
    cells = [candidate(1, 99.0, diverged="in round 2 with seed 0"), candidate(2, 10.0)]
    assert choose(cells) is cells[1]
    assert choose(cells[:1]) is None
    summary = summarize_sweep(cells)
    assert summary["chosen"] == {"lam": 2}
    assert summary["cells"][0]["validation"] is None
    assert summary["cells"][0]["diverged"] == "in round 2 with seed 0"
    assert summarize_sweep(cells[:1])["chosen"] is None


def test_a_lower_metric_is_chosen_where_that_is_better() -> None:
    cells = [candidate(1, 90.0, nll=0.5), candidate(2, 80.0, nll=0.25), candidate(3, 70.0, nll=0.25)]
    assert choose(cells, "nll") is cells[1]
    assert choose(cells) is cells[0]
    with pytest.raises(FedpriorError, match="unknown metric 'f1'; valid: accuracy, nll"):
        choose(cells, "f1")


def test_a_sweep_as_plain_data() -> None:
    summary = summarize_sweep([candidate(1, 70.0, 72.0), candidate(2, 80.0, 84.0)])
    assert json.loads(json.dumps(summary)) == summary
    wanted: dict[str, Any] = {"variant": "mh lam=2", "setting": {"lam": 2}, "diverged": None}
    wanted |= {
        "rounds": 2,
        "folder": "sweep/2",
        "validation": {"mean": 82.0, "std": pytest.approx(8**0.5), "seeds": [0, 1]},
    }
    assert summary["cells"][1] == wanted
    assert summary["at_end"] == {"lam": "largest"}


def test_a_choice_at_the_end_of_its_range_is_told() -> None:
    assert summarize_sweep([candidate(1, 70.0), candidate(2, 80.0), candidate(3, 60.0)])["at_end"] == {}
    assert summarize_sweep([candidate(1, 80.0), candidate(2, 70.0)])["at_end"] == {"lam": "smallest"}
    past = [candidate(1, 70.0), candidate(2, 80.0), candidate(3, 60.0, diverged="in round 1 with seed 0")]
    assert summarize_sweep(past)["at_end"] == {}  # beyond it nothing converges
    assert summarize_sweep([candidate(1, 70.0)])["at_end"] == {}  # there was no choice
    assert summarize_sweep([candidate(1, 80.0, diverged="in round 1 with seed 0")])["at_end"] == {}
    tried = [{"start": start, "sgd": sgd} for start in ("w", "theta") for sgd in (False, True)]
    assert ends(tried[0], tried) == {}  # names have no end
    assert ends({"hidden": (32,)}, [{"hidden": (32,)}, {"hidden": (64, 32)}]) == {}  # nor have shapes
    for bounds, end in (((0.0, None), {}), ((None, 0.0), {"eta": "smallest"}), ((-1.0, 1.0), {"eta": "smallest"})):
        assert ends({"eta": 0.0}, [{"eta": 0.0}, {"eta": 1.0}], {"eta": bounds}) == end  # below zero lies nothing
    assert ends({"eta": 1.0}, [{"eta": 0.0}, {"eta": 1.0}], {"eta": (0.0, 1.0)}) == {}


def test_a_run_that_lost_its_last_round_is_refused() -> None:
    lost = record("mh", 0, [*rows({1: 50.0}, data="validation"), *rows({2: 50.0})])
    with pytest.raises(FedpriorError, match=r"runs/mh/0 has no accuracy .* on validation samples at round 2; remove"):
        choose([Candidate("mh", {}, (lost,))])

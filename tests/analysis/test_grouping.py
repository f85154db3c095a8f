"""Which runs belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis.handmade import evaluated, record, rows, written
from fedprior.analysis.grouping import group, read
from fedprior.analysis.series import series_of
from fedprior.errors import FedpriorError
from fedprior.records.runs import RunFolder
from fedprior.records.schema import RunRecord, Status


def run(variant: str, seed: int = 0, **more: Any) -> RunRecord:
    return record(variant, seed, rows({1: 10.0 + seed, 2: 20.0 + seed}), **more)


def recorded(root: Path, variant: str, seed: int) -> RunFolder:
    values = evaluated([{"accuracy": [10.0 * t + seed] * 2} for t in (1, 2)], samples=[3, 3])
    return written(root / variant / str(seed), record(variant, seed, *values))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folders = [recorded(tmp_path, variant, seed) for variant in ("pfedme", "local") for seed in (0, 10, 2)]
    (tmp_path / "config.json").write_text("{}")  # of somebody else
    groups = group(read([tmp_path]), order=("local", "pfedme"))
    assert list(groups["toy"]) == ["local", "pfedme"]
    assert list(groups["toy"]["pfedme"]) == [0, 2, 10]
    series = series_of(groups["toy"]["pfedme"][10])
    assert series["personal", "own", "mean"] == {1: 20.0, 2: 30.0}
    folders[0].set_status(Status.RUNNING, 2)  # a run going on at this moment
    with open(folders[0].path / "metrics.csv", "a") as file:
        file.write("3,personal,o")
    assert group(read([tmp_path]))["toy"]["pfedme"][0].rows == groups["toy"]["pfedme"][0].rows
    with pytest.raises(FedpriorError, match="no runs at or below"):
        read([tmp_path, tmp_path / "nowhere"])


def test_variants_stand_in_the_order_that_is_asked_for() -> None:
    runs = [run("pfedme"), run("mh lam=2"), run("local"), run("mh"), run("mine"), run("other")]
    assert list(group(runs)["toy"]) == ["pfedme", "mh lam=2", "local", "mh", "mine", "other"]  # as they first appear
    order = ("local", "mh", "pfedme")
    assert list(group(runs, order=order)["toy"]) == ["local", "mh", "mh lam=2", "pfedme", "mine", "other"]


def test_what_cannot_be_averaged_is_refused() -> None:
    with pytest.raises(FedpriorError, match="two runs of toy, local, seed 0, in runs/local/0 and runs/local/0; give"):
        group([run("local"), run("local")])
    with pytest.raises(FedpriorError, match=r"seeds of toy, local differ in their settings \(variant.settings.alpha: "):
        group([run("local"), run("local", 1, settings={"lam": 15.0, "alpha": 3})])
    with pytest.raises(
        FedpriorError, match=r"seeds of toy, mh differ in their settings \(protocol.rounds: 2 then, 9 now"
    ):
        group([run("mh"), run("mh", 1, protocol={"rounds": 9})])


def test_what_is_left_out_or_not_finished_is_told() -> None:
    told: list[str] = []
    runs = [
        run("local"),
        run("mh", status=Status.DIVERGED),
        run("lg", status=Status.STOPPED),
        record("fedavg", status=Status.RUNNING),
    ]
    assert list(group(runs, warn=told.append)["toy"]) == ["local", "lg"]
    assert told == [
        "runs/mh/0 diverged in round 2 and is left out",
        "runs/lg/0 is not finished; its last evaluation is reported",
        "runs/fedavg/0 has no evaluation yet and is left out",
    ]
    assert group([record("mh")]) == {}


def test_rows_may_differ_in_what_their_variant_changes() -> None:
    told: list[str] = []
    runs = [run("mh"), run("mh lam=30", settings={"lam": 30.0}), run("mh aggregated=50", own={"aggregated": 50})]
    runs += [run("fedavg", protocol={"participation": "sampled"}), run("pfedme batch=7", own={"batch": 7})]
    assert len(group(runs, warn=told.append, one_experiment=True)["toy"]) == 5
    assert told == []
    group([runs[2], run("local")], warn=told.append)  # what the first one changes is not what the others should have
    assert told == []


def test_rows_that_differ_in_the_protocol_without_saying_so_are_told() -> None:
    told: list[str] = []
    runs = [run("local"), run("mh", protocol={"batch": 7}), run("mh", 1, protocol={"batch": 7})]
    group(runs, warn=told.append, one_experiment=True)
    assert told == ["runs of toy are not of one experiment (batch: 20 then, 7 now, in runs/mh/0)"]


def test_a_budget_gives_each_method_its_own_rounds() -> None:
    told: list[str] = []
    budget = {"gradients": 280}
    runs = [
        run("local", protocol={"rounds": 14, "budget": budget}),
        run("mh", protocol={"rounds": 2, "budget": budget}),
    ]
    group(runs, warn=told.append)
    assert told == []
    group([*runs, run("lg", protocol={"rounds": 2})], warn=told.append)
    assert "runs of toy are not of one experiment (budget: " in told[0]
    told.clear()
    group([run("local"), run("mh", protocol={"rounds": 3})], warn=told.append)
    assert "(rounds: 2 then, 3 now" in told[0]


@pytest.mark.parametrize(
    ("odd", "text", "names"),
    [
        ({"fingerprint": "g"}, "fingerprint: f in runs/local/0, g", ["toy, fingerprint = f", "toy, fingerprint = g"]),
        ({"split": "z"}, "split: s in runs/local/0, z", ["toy, split = s", "toy, split = z"]),
        ({"clients": 5}, "clients: 4 in runs/local/0, 5", ["toy, clients = 4", "toy, clients = 5"]),
        (
            {"partition": {"seed": 2}, "fingerprint": "g"},
            "partition.seed: 1 in runs/local/0, 2",
            ["toy, partition.seed = 1", "toy, partition.seed = 2"],
        ),
        ({"newcomers": [1]}, "newcomers: none in runs/local/0, [1]", ["toy, newcomers = none", "toy, newcomers = [1]"]),
    ],
)
def test_other_data_or_clients_have_a_table_of_their_own(odd: dict[str, Any], text: str, names: list[str]) -> None:
    told: list[str] = []
    runs = [run("local"), run("mh", **odd), run("local", **odd, where="other/local/0")]
    groups = group(runs, order=("local", "mh"), warn=told.append)
    assert {name: list(by_variant) for name, by_variant in groups.items()} == {
        names[0]: ["local"],
        names[1]: ["local", "mh"],
    }
    assert told == [f"runs of toy are not of one experiment ({text} in runs/mh/0); each has a table of its own"]
    with pytest.raises(FedpriorError, match=r"are not of one experiment .* give the folders of one"):
        group(runs, one_experiment=True)


def test_what_older_runs_did_not_record_keeps_nothing_apart() -> None:
    told: list[str] = []
    old, new = run("local", split=None), run("mh")
    new.config["run"]["task"] |= {"new_clients": 0.0, "data": {"source": "digits", "options": {}, "folder": None}}
    assert list(group([old, new], warn=told.append)) == ["toy"]
    assert told == []
    new.config["run"]["task"]["new_clients"] = 0.2
    assert list(group([old, new])) == ["toy, new_clients = none", "toy, new_clients = 0.2"]


def test_cells_of_a_sweep_are_left_out() -> None:
    seen = rows({2: 50.0}, data="validation")
    place = "sweeps/toy/sweep/mh"
    cells = [
        record("mh", 0, seen, where=f"{place}/a/0"),
        record("mh", 0, seen, where=f"{place}/b/0", settings={"lam": 1.0}),
        record("mh", 0, where=f"{place}/c/0", status=Status.DIVERGED, numbers_as_data=["lam"]),
        record("mh", 0, where=f"{place}/d/0", status=Status.RUNNING),
    ]
    told: list[str] = []
    groups = group([run("mh"), run("local"), *cells], warn=told.append)
    assert {name: list(rows) for name, rows in groups.items()} == {"toy": ["mh", "local"]}
    assert told == [f"4 runs of sweeps are left out ({place}/a/0, ...): sweeps do not look at the test"]
    both = record("mh", 0, [*rows({2: 50.0}), *seen], where="sweep/toy/mh/0")  # a folder may be called so
    assert list(group([both])["toy"]) == ["mh"]


def test_two_updates_of_a_method_do_not_stand_in_one_table() -> None:
    one = rows({1: 50.0})
    old, new = record("mh", 0, one), record("mh lam=30", 0, one, revision=2)
    with pytest.raises(FedpriorError, match=r"two updates of mh \(revision 1 in runs/mh/0, 2 in runs/mh lam=30/0\)"):
        group([old, new])
    with pytest.raises(FedpriorError, match=r"seeds of toy, mh differ .*revisions.mh: 1 then, 2 now"):
        group([old, record("mh", 1, one, revision=2)])
    assert list(group([old, record("fedem", 0, one, revision=2)])["toy"]) == ["mh", "fedem"]


def test_tasks_are_kept_apart() -> None:
    told: list[str] = []
    groups = group([run("mh"), run("mh", task="other", fingerprint="g")], warn=told.append)
    assert {task: list(by_variant) for task, by_variant in groups.items()} == {"toy": ["mh"], "other": ["mh"]}
    assert told == []


def test_experiments_that_differ_beyond_what_is_shown_have_names_of_their_own() -> None:
    paths = ["a-long-path-of-one-hospital/one", "a-long-path-of-one-hospital/two"]
    runs = [record("mh", 0, rows({1: 50.0}), partition={"path": path}, where=path) for path in paths]
    groups = group(runs)
    assert [by_variant["mh"][0].where for by_variant in groups.values()] == paths
    assert list(groups) == [f"toy, partition.path = a-long-path-of-o ({k})" for k in (1, 2)]

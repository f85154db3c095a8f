"""What stands in a cell, from records in which every number is known."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from analysis.handmade import record, rows

from fedprior.records.schema import FINE_TUNED, LabelCounts, Status
from fedprior.reproduce.paper.ablation import RELEASED
from fedprior.reproduce.paper.artefact import Request
from fedprior.reproduce.paper.heterogeneity import ROWS as SKEWED
from fedprior.reproduce.paper.heterogeneity import Heterogeneity, best_so_far, majority_accuracy, nearest_round
from fedprior.reproduce.paper.matrix import Matrix
from fedprior.reproduce.paper.numbers import BEST, LAST, Entry, Runs, entries, entry, runs_by_cell, statistics
from fedprior.reproduce.paper.published import published
from fedprior.reproduce.paper.rows import LOCAL, MH, MH_FT
from fedprior.reproduce.paper.tasks import COLUMNS, TASKS
from fedprior.reproduce.paper.writing import budget_note, differences, write_cells
from fedprior.study.results import Results

TASK = TASKS.find("fmnist-mclr")


def runs(*curves: dict[int, float], model: str = "personal", diverged: tuple[int, ...] = ()) -> Runs:
    return Runs({seed: record(seed=seed, rows=rows(curve, model)) for seed, curve in enumerate(curves)}, diverged)


def test_last_and_best_are_told_apart() -> None:
    cell = entry(TASK, "mh", runs({1: 50.0, 2: 70.0, 3: 60.0}, {1: 40.0, 2: 30.0, 3: 20.0}), "personal", 61.0)
    assert cell is not None
    assert cell.last is not None
    assert cell.best is not None
    assert (cell.last["mean"], cell.best["mean"], cell.published) == (40.0, 55.0, 61.0)
    assert cell.last["std"] == pytest.approx((2 * 20**2 / 1) ** 0.5)  # n - 1
    assert (cell.rounds, cell.seeds, cell.full) == (3, (0, 1), False)


def test_the_budget_is_full_with_the_papers_rounds_and_seeds_only() -> None:
    long = {1: 1.0, 200: 2.0}
    for curves, full in (([long] * 5, True), ([long] * 4, False), ([{199: 1.0}] * 5, False)):
        cell = entry(TASK, "mh", runs(*curves), "personal")
        assert cell is not None
        assert cell.full is full
        digits = entry(TASKS.find("digits-mclr"), "mh", runs(*curves), "personal")  # which the paper does not have
        assert digits is not None
        assert digits.full is None


def test_a_model_that_was_not_scored_has_no_cell() -> None:
    assert entry(TASK, "mh", runs({1: 50.0}), FINE_TUNED) is None
    assert entry(TASK, "mh", runs({1: 50.0}, model=FINE_TUNED), FINE_TUNED) is not None


def cell(task: str, row: str, last: float, best: float, published: float | None = None) -> Entry:
    def number(mean: float) -> dict[str, object]:
        return {"mean": mean, "std": None, "seeds": [0]}

    return Entry(task, row, "personal", "own", "weighted", 10, (0,), False, number(last), number(best), published)  # type: ignore[arg-type]


def test_statistics_are_over_all_eight_tasks_or_not_at_all() -> None:
    cells = {(task, "mh"): cell(task, "mh", 10.0 * k, 10.0 * k + 5, 50.0) for k, task in enumerate(COLUMNS)}
    tasks = [TASKS.find(name) for name in COLUMNS]
    table = Matrix("t", cells, tasks, [MH, LOCAL], {}).table(LAST)
    (line,) = table.body
    hard = statistics([10.0, 60.0, 70.0])  # FEMNIST-DNN, CIFAR-10, Sent140
    assert hard is not None
    assert line[-4:] == ("35.00", "24.49", f"{hard.average:.2f}", f"{hard.std:.2f}")
    assert "[" not in "".join(line)  # the paper's are best on test, and do not stand beside the last round
    (best,) = Matrix("t", cells, tasks, [MH], {}).table(BEST).body
    assert best[2] == "5.00 [50.00]"
    del cells[COLUMNS[0], "mh"]
    (line,) = Matrix("t", cells, tasks, [MH], {}).table(LAST).body
    assert line[-4:] == ("-", "-", f"{hard.average:.2f}", f"{hard.std:.2f}")


def test_arrows_are_against_the_row_of_the_same_order() -> None:
    tasks = [TASKS.find("fmnist-mclr")]
    cells = {
        ("fmnist-mclr", "mh"): cell("fmnist-mclr", "mh", 50.0, 60.0, 70.0),
        ("fmnist-mclr", "mh+FT"): cell("fmnist-mclr", "mh+FT", 40.0, 65.0, 71.0),
    }
    matrix = Matrix("t", cells, tasks, [MH, MH_FT], {}, ("Avg",), against="mh")
    assert [line[2] for line in matrix.table(LAST).body] == ["50.00", "40.00 ↓"]
    assert [line[2] for line in matrix.table(BEST).body] == ["60.00 [70.00]", "65.00 ↑ [71.00]"]


def test_the_papers_own_arrows_and_deviations_stand_beside_its_values() -> None:
    """meg on FMNIST-DNN: 98.6 as Non-PP, and yet an arrow down, since the paper's numbers have more decimals."""
    task, paper = TASKS.find("fmnist-dnn"), published("ablation")
    lines = {}
    found = [record(row.variant, task=task.name, rows=rows({1: 50.0})) for row in RELEASED.rows]
    cells = entries(Results(found), [task], RELEASED.rows, paper)
    table = Matrix("t", cells, [task], RELEASED.rows, paper, (), printed_decimals=1, against="Non-PP").table(BEST)
    lines = {line[0]: line[2] for line in table.body}
    assert lines["meg"] == "50.00 [98.6 ± 0.01 ↓]"
    assert lines["mh"] == "50.00 [98.7 ± 0.01 ↑]"
    assert lines["Non-PP"] == "50.00 [98.6 ± 0.01]"
    assert "whose ± is the largest deviation of a run" in table.note


def test_cells_say_their_budget(tmp_path: Path) -> None:
    write_cells(tmp_path, [cell("fmnist-mclr", "mh", 50.0, 60.0, 61.0)])
    head, last, best = (tmp_path / "cells.csv").read_text().splitlines()
    assert head == (
        "task,row,metric,model,data,average,round,T,seeds,diverged,full_budget,mean,std,published,published_plus_minus"
    )
    assert last == "fmnist-mclr,mh,accuracy,personal,own,weighted,last,10,0,,no,50.0,,,"
    assert best == "fmnist-mclr,mh,accuracy,personal,own,weighted,best,10,0,,no,60.0,,61.0,"


def test_seeds_that_diverged_are_told_of(tmp_path: Path) -> None:
    lost = [record("mh-released", seed=seed, task="fmnist-mclr", status=Status.DIVERGED) for seed in (1, 3)]
    some = record("mh-released", seed=0, task="fmnist-mclr", rows=rows({1: 50.0, 2: 60.0}))
    for records, cell_text, seeds in (([some, *lost], "60.00 (2 diverged)", "0"), (lost, "diverged", "")):
        cells = entries(Results(records), [TASK], [MH], published("table1"))
        (line,) = Matrix("t", cells, [TASK], [MH], {}).table(LAST).body
        assert line[2] == cell_text
        write_cells(tmp_path, cells.values())
        last, best = csv.DictReader((tmp_path / "cells.csv").read_text().splitlines())
        assert (last["seeds"], last["diverged"], last["mean"]) == (seeds, "1 3", "60.0" if seeds else "")
        assert (best["published"], best["published_plus_minus"]) == ("98.44", "0.01")
    assert runs_by_cell(Results(lost)) == {("fmnist-mclr", "mh-released"): Runs({}, (1, 3))}
    # A model that a method lacks has no cell, whether other seeds diverged or not.
    assert entry(TASK, "mh", runs({1: 50.0}, diverged=(1,)), FINE_TUNED) is None


def test_the_round_nearest_to_the_paper() -> None:
    row = next(row for row in SKEWED if row.label == "mh-P")
    seeds = runs({1: 10.0, 2: 20.0, 3: 40.0, 4: 25.0}, {1: 12.0, 2: 26.0, 3: 44.0, 4: 25.0})
    # The paper's number is a maximum: that after round 4 the last value is 25 again does not count.
    assert nearest_round({("t", "mh-P"): 25.0}, {("t", "mh-P"): seeds}, [row]) == 2
    assert nearest_round({("t", "mh-P"): 99.0}, {("t", "mh-P"): seeds}, [row]) == 3
    assert nearest_round({}, {}, [row]) is None
    assert best_so_far(seeds.finished[0], "personal") == {1: 10.0, 2: 20.0, 3: 40.0, 4: 40.0}


def test_what_is_compared_with_the_paper_ends_at_that_round(tmp_path: Path) -> None:
    """The paper's number stands beside the best up to the round that was chosen, and nowhere else."""
    early_curves, whole_curve = {1: 10.0, 2: 89.5, 3: 12.0, 60: 95.0}, {20: 50.0, 1000: 97.0}
    records = [
        record("pfedme-released", task=task, rows=rows(curve))
        for task, curve in (
            ("fmnist-dnn-dirichlet-0.01-early", early_curves),
            ("fmnist-dnn-dirichlet-0.01", whole_curve),
        )
    ]
    counts = LabelCounts((0, 1), {0: {"train": [3, 1], "test": [1, 4]}})
    results = Results([replace(each, read_labels=lambda: counts) for each in records])
    request = Request(tasks=("fmnist-dnn-dirichlet-0.01",), methods=("pfedme-released",))
    Heterogeneity().make(request, results, tmp_path)
    text = (tmp_path / "heterogeneity.md").read_text()
    assert "best on test up to round 2, whose numbers are the nearest to the paper's" in text
    assert text.count("the paper gives no number of rounds for this task") == 2
    lines = list(csv.DictReader((tmp_path / "cells.csv").read_text().splitlines()))
    told = [(line["task"], line["T"], line["round"], line["mean"], line["published"]) for line in lines]
    assert told == [
        ("fmnist-dnn-dirichlet-0.01-early", "2", "last", "89.5", ""),
        ("fmnist-dnn-dirichlet-0.01-early", "2", "best", "89.5", "89.5"),
        ("fmnist-dnn-dirichlet-0.01", "1000", "last", "97.0", ""),
        ("fmnist-dnn-dirichlet-0.01", "1000", "best", "97.0", ""),
    ]
    assert {line["full_budget"] for line in lines} == {"the paper gives no number of rounds for this task"}


def test_proper_training_is_seldom_evaluated_and_early_rounds_always() -> None:
    found = {study.settings["name"]: study.settings for study in Heterogeneity().studies(Request())}
    assert len(found) == 12
    for name, settings in found.items():
        expected = (60, 1) if name.endswith("-early") else (1000, 20)
        assert (settings["rounds"], settings["eval_every"]) == expected
    short = {study.settings["rounds"] for study in Heterogeneity().studies(Request(rounds=10))}
    longer = {study.settings["rounds"] for study in Heterogeneity().studies(Request(rounds=100))}
    assert (short, longer) == ({10}, {60, 100})


def test_rows_with_fewer_seeds_are_named() -> None:
    usual = [cell("fmnist-dnn", row, 1.0, 2.0) for row in ("mh", "pFedMe")]
    fewer = replace(cell("fmnist-dnn", "pFedBayes", 1.0, 2.0), seeds=())
    assert budget_note([*usual, replace(fewer, seeds=(0, 1))]) == (
        "T = 10, 1 seed (less than the paper): fmnist-dnn; T = 10, 2 seeds (less than the paper): pFedBayes on fmnist-dnn"
    )


def test_a_majority_is_of_the_training_samples() -> None:
    counts = LabelCounts((0, 1), {0: {"train": [3, 1], "test": [1, 4]}, 1: {"train": [0, 2], "test": [0, 5]}})
    held = replace(record(), read_labels=lambda: counts)
    assert majority_accuracy({0: held}) == pytest.approx(60.0)


def test_seeds_and_rounds_of_a_request() -> None:
    own, asked = Request(), Request(seeds=3, rounds=7)
    dnn = TASKS.find("fmnist-dnn")
    assert (own.rounds_on(dnn), own.seeds_on(dnn, "mh"), own.seeds_on(dnn, "pfedbayes")) == (200, 2, 1)
    assert (asked.rounds_on(dnn), asked.seeds_on(dnn, "pfedbayes")) == (7, 3)


def test_notes_say_how_the_data_differ_from_the_papers() -> None:
    names = ("femnist-mclr", "femnist-dnn-scalar", "fmnist-dnn", "sent140-lstm", "mnist-mclr")
    tasks = [TASKS.find(name) for name in names]
    writers, sizes, tweets = differences(tasks)
    assert writers == "femnist-mclr, femnist-dnn-scalar: 105 writers (the paper: 198)"
    assert sizes.startswith("fmnist-dnn: client sizes are of a seed of ours")
    assert tweets.startswith("sent140-lstm: other users, 100-dimensional GloVe")
    note = Matrix("t", {}, tasks, [MH], {}).table(LAST).note
    assert writers in note
    assert tweets in note

"""What stands in a cell, from records in which every number is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from analysis.handmade import record, rows

from fedprior.records.schema import FINE_TUNED
from fedprior.reproduce.paper.artefact import Request
from fedprior.reproduce.paper.heterogeneity import ROWS as SKEWED
from fedprior.reproduce.paper.heterogeneity import majority_accuracy, nearest_round
from fedprior.reproduce.paper.matrix import Matrix
from fedprior.reproduce.paper.numbers import BEST, LAST, Entry, entry, statistics
from fedprior.reproduce.paper.rows import LOCAL, MH, MH_FT
from fedprior.reproduce.paper.tasks import COLUMNS, TASKS
from fedprior.reproduce.paper.writing import write_cells

TASK = TASKS.find("fmnist-mclr")


def runs(*curves: dict[int, float], model: str = "personal") -> dict[int, object]:
    return {seed: record(seed=seed, rows=rows(curve, model)) for seed, curve in enumerate(curves)}


def test_last_and_best_are_told_apart() -> None:
    cell = entry(TASK, "mh", runs({1: 50.0, 2: 70.0, 3: 60.0}, {1: 40.0, 2: 30.0, 3: 20.0}), "personal", 61.0)  # type: ignore[arg-type]
    assert cell is not None
    assert cell.best is not None
    assert (cell.last["mean"], cell.best["mean"], cell.published) == (40.0, 55.0, 61.0)
    assert cell.last["std"] == pytest.approx((2 * 20**2 / 1) ** 0.5)  # n - 1
    assert (cell.rounds, cell.seeds, cell.full) == (3, (0, 1), False)


def test_the_budget_is_full_with_the_papers_rounds_and_seeds_only() -> None:
    long = {1: 1.0, 200: 2.0}
    for curves, full in (([long] * 5, True), ([long] * 4, False), ([{199: 1.0}] * 5, False)):
        cell = entry(TASK, "mh", runs(*curves), "personal")  # type: ignore[arg-type]
        assert cell is not None
        assert cell.full is full


def test_a_model_that_was_not_scored_has_no_cell() -> None:
    assert entry(TASK, "mh", runs({1: 50.0}), FINE_TUNED) is None  # type: ignore[arg-type]
    assert entry(TASK, "mh", runs({1: 50.0}, model=FINE_TUNED), FINE_TUNED) is not None  # type: ignore[arg-type]


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
    assert [line[2] for line in matrix.table(BEST).body] == ["60.00 [70.00]", "65.00 ↑ [71.00 ↑]"]


def test_cells_say_their_budget(tmp_path: Path) -> None:
    write_cells(tmp_path, [cell("fmnist-mclr", "mh", 50.0, 60.0, 61.0)])
    head, last, best = (tmp_path / "cells.csv").read_text().splitlines()
    assert head.startswith("task,row,metric,model,data,average,round,T,seeds,full_budget,mean,std,published")
    assert last == "fmnist-mclr,mh,accuracy,personal,own,weighted,last,10,0,no,50.0,,"
    assert best == "fmnist-mclr,mh,accuracy,personal,own,weighted,best,10,0,no,60.0,,61.0"


def test_the_round_nearest_to_the_paper() -> None:
    row = next(row for row in SKEWED if row.label == "mh-P")
    seeds = runs({1: 10.0, 2: 20.0, 3: 40.0}, {1: 12.0, 2: 26.0, 3: 44.0})
    cells = {("t", "mh-P"): cell("t", "mh-P", 42.0, 42.0, 25.0)}
    assert nearest_round(cells, {("t", "mh-P"): seeds}, [row]) == 2  # type: ignore[dict-item]
    assert nearest_round({}, {}, [row]) is None


def test_a_majority_is_of_the_training_samples() -> None:
    from dataclasses import replace

    from fedprior.records.schema import LabelCounts

    counts = LabelCounts((0, 1), {0: {"train": [3, 1], "test": [1, 4]}, 1: {"train": [0, 2], "test": [0, 5]}})
    held = replace(record(), read_labels=lambda: counts)
    assert majority_accuracy({0: held}) == pytest.approx(60.0)


def test_seeds_and_rounds_of_a_request() -> None:
    own, asked = Request(), Request(seeds=3, rounds=7)
    dnn = TASKS.find("fmnist-dnn")
    assert (own.rounds_on(dnn), own.seeds_on(dnn, "mh"), own.seeds_on(dnn, "pfedbayes")) == (200, 2, 1)
    assert (asked.rounds_on(dnn), asked.seeds_on(dnn, "pfedbayes")) == (7, 3)

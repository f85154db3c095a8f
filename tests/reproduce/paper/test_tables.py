"""Tables with one row beside Local, made from end to end; whole ones are among the slow tests of the command."""

from __future__ import annotations

import csv

import pytest

from fedprior.analysis.summary import over_seeds
from fedprior.methods import make
from fedprior.reproduce.paper.numbers import Entry
from fedprior.reproduce.paper.rows import ROWS
from fedprior.reproduce.paper.table1 import NOTES, gaps
from fedprior.reproduce.paper.tasks import TASKS

from .quick import made


def test_notes_tell_what_differs_from_the_paper() -> None:
    text = "; ".join(NOTES)
    assert "Per-FedAvg adapts by one step" in text
    assert vars(make("perfedavg"))["adapt"] == 1
    assert "FedAMP takes one step on each batch" in text
    assert vars(make("fedamp"))["K"] == 1
    assert "MNIST without further words: with the label error" in text
    plain = [task for _, task in TASKS.items() if task.column in ("MNIST MCLR", "MNIST DNN")]
    assert [task.settings for task in plain] == [{"partition.labels": "released"}] * 2


@pytest.mark.xdist_group("reproduced tables")
@pytest.mark.parametrize("name", [pytest.param("ablation", marks=pytest.mark.slow), "robustness", "table1"])
def test_every_cell_is_told_with_its_budget(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    # One folder for all of them: what a table has trained, the next one finds.
    folder = tmp_path_factory.getbasetemp() / "reproduced"
    files, results = made(name, folder, methods=("mh-released",), tasks=("digits-mclr",), seeds=1, rounds=2)
    cells = list(csv.DictReader(files["cells.csv"].read_text().splitlines()))
    assert cells
    if name == "table1":
        assert "test accuracy (%) at published settings" in files["table1.md"].read_text()
    assert {cell["full_budget"] for cell in cells} == {"the paper gives no number of rounds for this task"}
    assert {record.round for record in results.records} == {2}
    assert {"mh-released", "local"} <= {record.config["run"]["variant"]["name"] for record in results.records}


def test_gaps_are_of_the_best_round_and_of_printed_numbers_alone() -> None:
    def cell(task: str, row: str, best: float, published: float | None) -> Entry:
        end, top = over_seeds({0: 1.0}), over_seeds({0: best - 0.5, 1: best + 0.5})
        return Entry(task, row, "personal", "own", "weighted", 2, (0, 1), None, end, top, published)

    tasks = [TASKS.find(name) for name in ("mnist-mclr", "femnist-mclr", "fmnist-mclr")]
    cells = {
        ("mnist-mclr", "mh"): cell("mnist-mclr", "mh", 91.0, 90.0),
        ("mnist-mclr", "Ditto"): cell("mnist-mclr", "Ditto", 91.0, None),
        ("mnist-mclr", "FedAMP"): cell("mnist-mclr", "FedAMP", 87.0, 90.0),
        ("fmnist-mclr", "mh"): cell("fmnist-mclr", "mh", 98.25, 98.5),
        ("femnist-mclr", "Local"): cell("femnist-mclr", "Local", 60.0, None),
    }
    table = gaps(cells, tasks, [row for row in ROWS if row.label in {label for _, label in cells}])
    assert table.head == ("method", "MNIST MCLR, correct labels", "FMNIST MCLR")
    assert table.body == (
        ("FedAMP", "-3.00", "-"),
        ("mh", "+1.00", "-0.25"),
        ("mean of the sizes", "2.00", "0.25"),
    )

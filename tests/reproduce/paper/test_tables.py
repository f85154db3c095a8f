"""Tables with one row beside Local, made from end to end; whole ones are among the slow tests of the command."""

from __future__ import annotations

import csv

import pytest

from fedprior.methods import make
from fedprior.reproduce.paper.table1 import NOTES
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

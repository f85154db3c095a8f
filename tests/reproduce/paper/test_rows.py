"""Rows: what is trained under a name is the same in every artefact, and every row can be trained."""

from __future__ import annotations

import pytest

from fedprior.errors import FedpriorError
from fedprior.reproduce.paper import ablation, aggregation, robustness
from fedprior.reproduce.paper.rows import FEDAVG, LOCAL, LOCAL_FT, MH, MH_FT, ROWS, chosen, trained
from fedprior.reproduce.paper.tasks import TASKS
from fedprior.study.variant import Variant

EVERY = [*ROWS, *ablation.RELEASED.rows, *ablation.PAPER.rows, *robustness.ROWS]


def test_a_name_stands_for_one_setting() -> None:
    by_name: dict[str, tuple[str, dict[str, object]]] = {}
    for row in EVERY:
        assert by_name.setdefault(row.variant, (row.method, dict(row.changes))) == (row.method, dict(row.changes))
        Variant.of(row.method, dict(row.changes), name=row.variant)


def test_labels_are_different() -> None:
    assert len({row.label for row in ROWS}) == len(ROWS)


def test_ft_is_another_model_of_the_same_run() -> None:
    assert (MH.variant, MH.changes) == (MH_FT.variant, MH_FT.changes)
    assert (MH.model, MH_FT.model) == ("personal", "fine-tuned")


def test_rows_by_method_and_local_always() -> None:
    kept = chosen(ROWS, ["fedavg"])
    assert {row.method for row in kept} == {"fedavg", "local"}
    assert [row for row in kept if row in (FEDAVG, LOCAL, LOCAL_FT)] == [FEDAVG, LOCAL, LOCAL_FT]
    with pytest.raises(FedpriorError, match=r"unknown method 'fedavgg'.*did you mean 'fedavg'"):
        chosen(ROWS, ["fedavgg"])


def test_where_time_is_short_fewer_rows_are_trained() -> None:
    few = {row.method for row in trained(ROWS, TASKS.find("sent140-lstm"), named=False)}
    assert {"local", "ditto", "mh", "mh-released", "fedem"} <= few
    assert not {"pfedbayes", "fedu", "lg"} & few
    assert len(trained(ROWS, TASKS.find("sent140-lstm"), named=True)) == len(ROWS)


def test_the_tasks_own_s_is_the_row_of_the_other_tables() -> None:
    task = TASKS.find("fmnist-dnn")
    assert aggregation.with_aggregated(MH, task, 20) is MH
    other = aggregation.with_aggregated(MH, task, 50)
    assert (other.variant, other.changes) == ("mh-released S=50", {"aggregated": 50})  # +FT is scored of no such row

"""The paper's own numbers: its averages and deviations follow from its cells, so none of them is mistyped."""

from __future__ import annotations

import pytest

from fedprior.reproduce.paper.numbers import statistics
from fedprior.reproduce.paper.published import published
from fedprior.reproduce.paper.robustness import decrease
from fedprior.reproduce.paper.rows import ROWS
from fedprior.reproduce.paper.tasks import COLUMNS, HARD, TASKS

ROUNDED = 0.0075  # two decimals, one of which the paper cuts off instead of rounding
ONE_DECIMAL = 0.1  # of cells that are themselves rounded


def test_the_averages_of_the_main_table_follow_from_its_cells() -> None:
    rows = published("table1")
    assert len(rows) == 14
    for row in rows.values():
        if not row.statistics:
            continue
        every = statistics([row.values[task] for task in COLUMNS])
        hard = statistics([row.values[task] for task in HARD])
        assert every is not None
        assert hard is not None
        measured = (every.average, every.std, hard.average, hard.std)
        printed = [row.statistics[name] for name in ("Avg", "Std", "H.Avg", "H.Std")]
        assert measured == pytest.approx(printed, abs=ROUNDED)


def test_blanks_stay_blank() -> None:
    bayes = published("table1")["pFedBayes"]
    assert set(bayes.values) == {*COLUMNS} - {*HARD}
    assert bayes.statistics == {}
    assert statistics([bayes.values.get(task) for task in COLUMNS]) is None


def test_the_other_tables_follow_from_their_cells() -> None:
    for row in published("ablation").values():
        every = statistics(list(row.values.values()))
        assert every is not None
        assert every.average == pytest.approx(row.statistics["Avg"], abs=ONE_DECIMAL)
    for row in published("aggregation").values():
        over = statistics(list(row.values.values()))
        assert over is not None
        assert over.std == pytest.approx(row.statistics["Std"], abs=0.051)
    for row in published("heterogeneity").values():
        over = statistics(list(row.values.values()))
        assert over is not None
        assert over.average == pytest.approx(row.statistics["Avg"], abs=0.051)
    for row in published("robustness").values():
        values = list(row.values.values())
        falls = statistics([decrease(a, b) for a, b in zip(values[::2], values[1::2], strict=True)])
        assert falls is not None
        assert falls.average == pytest.approx(row.statistics["average decrease"], abs=0.051)


def test_the_ablation_repeats_the_main_table_and_its_arrows_are_right() -> None:
    main, rows = published("table1"), published("ablation")
    for name, of in (("Non-PP", "pFedMe"), ("mh", "mh")):
        assert rows[name].values == pytest.approx(main[of].values, abs=0.051)
    for name in ("lg", "meg", "mh"):
        ways = rows[name].arrows
        for task, value in rows[name].values.items():
            than = rows["Non-PP"].values[task]
            if value != than:  # one decimal does not tell equals apart
                assert ways[task] == ("up" if value > than else "down"), (name, task)


def test_names_are_those_of_rows_and_tasks() -> None:
    assert set(published("table1")) == {row.printed for row in ROWS if row.printed}
    assert all(column in TASKS for row in published("table1").values() for column in row.values)

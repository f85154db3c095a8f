"""What the page says where no script runs, and its script in the same words."""

from __future__ import annotations

import dataclasses
import re
from functools import partial

import pytest
from analysis.handmade import COST, record, rows

from fedprior.records.schema import NLL, LabelCounts, RunRecord
from fedprior.records.thinning import KEY
from fedprior.report.page.about import about_html
from fedprior.report.page.gather import gather
from fedprior.report.page.page import page
from fedprior.report.page.pictures import curves_picture, gains_picture, holdings_picture
from fedprior.report.page.static import summary_html, task_words
from report.page.made import made
from report.page.test_page import payload_of


def overview_of(text: str) -> str:
    return text.partition('data-part="overview"')[2].partition("</section>")[0]


def test_a_row_over_tasks_is_called_by_what_it_has_on_all_of_them() -> None:
    def changed(run: RunRecord, **settings: float) -> RunRecord:
        return dataclasses.replace(run, config={**run.config, "changed": settings})

    one = [changed(run, lam=15.0, K=2) for run in made(("mh",), 1, task="one")]
    two = [changed(run, lam=30.0, K=2) for run in made(("mh",), 1, task="two")]
    text = page(gather([*one, *two]))
    assert '<th scope="row">mh K=2</th>' in overview_of(text)
    assert "mh: lam = 15 on one, 30 on two" in overview_of(text)
    payload = payload_of(text)
    assert (payload["rows"], payload["notes"]) == ([["mh", "mh K=2"]], ["mh: lam = 15 on one, 30 on two"])


def test_the_table_of_tasks_holds_what_its_caption_says() -> None:
    overview = overview_of(page(gather([*made(task="one"), *made(metrics=(NLL,), task="two")])))
    assert "accuracy in percent, personal models" in overview
    assert re.findall(r'<td data-label="two">([^<]*)</td>', overview) == ["\N{EN DASH}"] * 3


def test_large_costs_and_what_signs_mean() -> None:
    (task,) = gather(made(cost={**COST, "parameters": 400_000_000, "hvps": 7})).tasks
    text = summary_html(task, task.view(task.usual))
    assert task.methods["mh"].spent.megabytes == pytest.approx(1600 * 12 * (1.0 * 4 + 0.5 * 3))
    assert '<td data-label="MB sent">106k</td>' in text
    assert "\N{PLUS-MINUS SIGN} is one standard deviation over seeds." in text
    assert "A Hessian-vector product counts as two gradients." in text
    (task,) = gather(made(seeds=1)).tasks
    text = summary_html(task, task.view(task.usual))
    assert "standard deviation" not in text
    assert "Hessian" not in text
    assert "mean over seeds, the reference dashed" in page(gather(made()))
    assert "mean over seeds, the reference dashed" not in page(gather(made(seeds=1)))


def test_marks_of_an_axis_are_numbers() -> None:
    (task,) = gather(made()).tasks
    losses = gains_picture(task, task.view(task.usual._replace(metric="nll")))
    marks = re.findall(r'text-anchor="middle" class="label">([^<]*)<', losses)
    assert len(marks) >= 3
    assert all(abs(float(mark.replace("\N{MINUS SIGN}", "-"))) < 5 for mark in marks)
    assert "0" in marks


def test_of_thinned_records_all_clients_are_told() -> None:
    runs = [dataclasses.replace(run, config={**run.config, KEY: 8}) for run in made(seeds=1)]
    for run in runs:
        run.config["run"]["clients"] = 100_000
    (task,) = gather(runs).tasks
    assert "8 of 100,000 clients recorded one by one, with" in task_words(task)
    assert "8 clients with" in task_words(gather(made()).tasks[0])


def test_what_differs_between_the_seeds_of_a_row_is_told() -> None:
    first, second = made(("mh",), 2)
    second = dataclasses.replace(second, config={**second.config, "environment": {"jax": "9.9"}})
    (task,) = gather([first, second]).tasks
    assert "<td>seed 0: not recorded; seed 1: 9.9</td>" in about_html(task)


def test_curves_stay_inside_their_picture() -> None:
    falling = {1: 1e9, **dict.fromkeys(range(2, 20), 0.5), 20: 0.4}
    rising = {1: -1e9, **dict.fromkeys(range(2, 20), 0.4), 20: 0.5}
    runs = [record(name, 0, rows(each, metric="nll")) for name, each in (("local", falling), ("mh", rising))]
    (task,) = gather(runs).tasks
    lines = re.findall(r'points="([^"]*)"', curves_picture(task, task.view(task.usual)))
    heights = [[float(point.split(",")[1]) for point in line.split()] for line in lines]
    assert [len(each) for each in heights] == [20, 20]
    assert (heights[0][0], heights[1][0]) == (12, 300)  # at the edges
    assert all(12 <= y <= 300 for each in heights for y in each)


def test_of_very_many_clients_the_first_are_drawn() -> None:
    (task,) = gather(made(("mh",), 1, rounds=1, names=tuple(range(350)))).tasks
    assert task.holdings is not None
    text = holdings_picture(task)
    assert ">The first 300 of 350 clients are shown.</p>" in text
    first = list(task.holdings.totals().values())[:300]
    assert text.count('class="held"') == sum(count > 0 for counts in first for count in counts)
    assert "are shown" not in holdings_picture(gather(made()).tasks[0])


def test_label_counts_of_nobody_are_none() -> None:
    runs = made(("mh",), 1)
    for empty in (LabelCounts(("a",), {}), LabelCounts((), {"a": {}})):
        bare = dataclasses.replace(runs[0], clients=(), read_labels=partial(LabelCounts, *empty))
        (task,) = gather([bare]).tasks
        assert task.holdings is None
        assert "These records do not hold label counts" in page(gather([bare]))

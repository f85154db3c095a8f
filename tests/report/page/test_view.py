"""The numbers of a page: those of `fedprior compare`, at every choice, in Python and in the page's own script."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from fedprior.analysis.compare import compare
from fedprior.analysis.paired import holm, p_value
from fedprior.analysis.summary import over_tasks, summarize
from fedprior.records.schema import ACCURACY, AVERAGES, NLL
from fedprior.report.page.encode import encoded
from fedprior.report.page.gather import TaskNumbers, gather
from fedprior.report.page.sentences import number_text, sentences
from fedprior.report.page.static import summary_hint, tenth_words, worst_html, worst_line
from fedprior.report.page.view import DATA, Choice, differences, per_client
from report.page.made import made, twin
from report.page.scripts import evaluated
from report.page.test_sentences import TINY, study

UNEQUAL = {"local": [0, 1, 2, 3], "fedavg": [0, 1], "mh": [1, 2, 3], "ditto": [7]}
STUDIES = {
    "three seeds": made(),
    "one seed": made(seeds=1),
    "unequal seeds": made(tuple(UNEQUAL), UNEQUAL),
    "many": made([f"m{k}" for k in range(9)], 2, gap=0.1, rounds=3, metrics=(ACCURACY,), models=("personal",)),
    "one method": made(("mh",)),
    "rounds": [*made(("local", "mh"), 2), *made(("fedavg",), 2, rounds=7)],
    "thirds": study(  # of 300 samples; seeds agree by chance, and clients on average
        {
            "local": [[100 / 3, 60], [200 / 3, 60]],
            "mh": [[100 / 3 + 1 / 3, 60 + 1 / 3], [200 / 3 + 1 / 3, 60 + 1 / 3]],
            "fedavg": [[0, 60], [100, 60]],
            "ditto": [[50, 60], [50, 60], [100 / 3, 60], [200 / 3, 61]],
        },
        samples=(300, 300),
    ),
    "thirds of a loss": study(  # fedavg is as good for the first client on average, over those seeds that both have
        {
            "local": [[1 / 3, 0.6], [1 / 3, 0.6], [1 / 3, 0.7]],
            "fedavg": [[0, 0.6], [0, 0.6], [1, 0.7]],
            "ditto": [[0.5, 0.6], [0.5, 0.6], [1 / 3, 0.6], [2 / 3, 0.61]],
        },
        NLL,
    ),
    "tiny": TINY,
    "near": study(  # mh is worse for the first two clients, and equal for the third but for the last bits
        {
            "local": [[0.51234561, 0.31234561, 0.5123455 - 2e-11, 0.6]] * 2,
            "mh": [[0.51234564, 0.31234564, 0.5123455 + 2e-11, 0.5]] * 2,
        },
        NLL,
        (40, 40, 40, 40),
    ),
    "near and far from 0": study(  # with unequal seeds
        {"local": [[2e6, 2e6], [2e6, 2e6]], "mh": [[2e6 + 3e-7, 2e6 - 3e-7], [2e6, 2e6], [2e6, 2e6]]}, NLL
    ),
    "some pooled": [r for r in made(pooled=True) if r.seed < 2] + [r for r in made() if r.seed == 2],
    "lucky": study(
        {
            "local": [[40.0, 50.0], [42.5, 52.5], [37.5, 47.5], [99.0, 99.0], [99.0, 99.0]],
            "mh": [[50.0, 60.0], [52.6, 62.6], [47.5, 57.5]],
        }
    ),
    "infinite": study(  # the first with one seed, the other with both
        {
            "local": [[0.5, 0.6], [0.5, 0.7]],
            "mh": [[math.inf, 0.4], [0.3, 0.5]],
            "fedavg": [[math.inf, 0.9], [math.inf, 0.9]],
        },
        NLL,
    ),
    "tied": study({"local": [[50.0, 60.0]], "fedavg": [[60.0, 65.0]], "mh": [[60.001, 65.001]]}),
    "tied, some worse over seeds that both have": study(
        {
            "local": [[40.0, 50.0], [42.5, 52.5], [37.5, 47.5], [99.0, 99.0], [99.0, 99.0]],
            "ditto": [[66.6, 66.6], [66.5, 66.5], [66.7, 66.7], [66.4, 66.4], [66.8, 66.8]],
            "mh": [[50.0, 60.0], [52.6, 62.6], [47.5, 57.5]],
            "fedavg": [[50.0, 60.0], [52.6, 62.6], [47.5, 57.5]],
        }
    ),
    "infinite with some seeds, or one": study(
        {
            "local": [[0.5, 0.6], [0.5, 0.7]],
            "mh": [[math.inf, 0.4], [math.inf, 0.4]],
            "fedavg": [[math.inf, 0.4]],
            "ditto": [[0.4, 0.6], [math.inf, 0.4]],
        },
        NLL,
    ),
    "equal": [*made(), *(twin(record, "mh again") for record in made() if record.variant == "mh")],
}


@functools.cache
def task_of(study: str) -> TaskNumbers:
    (task,) = gather(STUDIES[study]).tasks
    return task


def choices(task: TaskNumbers) -> Iterator[Choice]:
    """Every choice that a reader of the page can make, and more: those of data that a method may lack."""
    for metric, model, round_ in task.blocks:
        for data in DATA:
            for average in AVERAGES:
                for against in task.methods:
                    yield Choice(metric, model, data, average, round_, against)


@pytest.mark.parametrize("against", ["local", "mh"])
@pytest.mark.parametrize("model", ["personal", "global"])
@pytest.mark.parametrize("metric", ["accuracy", "nll"])
@pytest.mark.parametrize("choice", ["last", "last10", "best"])
def test_the_numbers_are_those_of_compare(choice: str, metric: str, model: str, against: str) -> None:
    task = task_of("three seeds")
    oracle = compare(STUDIES["three seeds"], against=against, model=model, choice=choice, metric=metric)
    shown = task.view(Choice(metric, model, "own", "weighted", choice, against))
    plain = task.view(Choice(metric, model, "own", "mean", choice, against))
    worst = task.view(Choice(metric, model, "own", "worst_decile", choice, against))
    for line, other, tenth in zip(shown.lines, plain.lines, worst.lines, strict=True):
        entry = oracle.variants[line.variant]
        assert line.cell is not None
        assert line.cell.model == entry.model
        assert other.number is not None
        assert other.number["mean"] == pytest.approx(entry.fairness["mean"]["mean"], rel=1e-12)
        assert other.number["std"] == pytest.approx(entry.fairness["mean"]["std"], rel=1e-9)
        assert tenth.number is not None
        assert tenth.number["mean"] == pytest.approx(entry.fairness["worst_decile"]["mean"], rel=1e-12)
        if entry.difference is None:
            assert line.apart is None
            continue
        assert line.apart is not None
        assert other.apart is not None
        for mine, theirs in (
            (line.apart.interval, entry.difference.weighted),
            (other.apart.interval, entry.difference.mean),
        ):
            assert [mine.mean, mine.low, mine.high] == pytest.approx([theirs.mean, theirs.low, theirs.high], rel=1e-9)
        assert line.counts == (entry.difference.wins, entry.difference.ties, entry.difference.losses)
        reference = next(each.cell for each in shown.lines if each.variant == against)
        assert reference is not None
        assert list(differences(line.cell, reference, line.apart.seeds).values()) == pytest.approx(
            entry.difference.per_client, abs=1e-9
        )
    assert oracle.support is not None
    assert shown.few == (oracle.support.few if metric == "accuracy" else 0)
    assert shown.equal == oracle.equal


def test_unequal_seeds_are_paired() -> None:
    records = STUDIES["unequal seeds"]
    task = task_of("unequal seeds")
    shown = task.view(task.usual)
    seeds = {line.variant: line.apart and line.apart.seeds for line in shown.lines}
    assert seeds == {"local": None, "fedavg": [0, 1], "mh": [1, 2, 3], "ditto": None}
    oracle = compare([record for record in records if record.variant != "ditto"])
    for line in shown.lines:
        if line.apart is not None:
            entry = oracle.variants[line.variant].difference
            assert entry is not None
            assert line.apart.interval.mean == pytest.approx(entry.weighted.mean)
            assert line.counts == (entry.wins, entry.ties, entry.losses)


def test_pooled_numbers_are_those_of_the_table() -> None:
    (task,) = gather(made(pooled=True)).tasks
    summary = summarize({v: {run.seed: run for run in method.runs} for v, method in task.methods.items()})
    shown = task.view(Choice("accuracy", "personal", "pooled", "weighted", "last", "local"))
    for line in shown.lines:
        assert line.number == summary[line.variant]["metrics"]["accuracy"]["personal"]["pooled"]["weighted"]["last"]
        assert line.counts is None  # clients are compared on their own samples


def test_tasks_side_by_side_are_those_of_the_table() -> None:
    records = [*made(task="one"), *made(task="two", gap=1.0)]
    gathered = gather(records)
    summaries = {
        task.name: summarize({v: {run.seed: run for run in method.runs} for v, method in task.methods.items()})
        for task in gathered.tasks
    }
    rows = {row.variant: row for row in over_tasks(summaries).rows if row.model != "global"}
    for task in gathered.tasks:
        for line in task.view(task.usual).lines:
            assert line.number == rows[line.variant].numbers[task.name]


@pytest.mark.parametrize("study", STUDIES)
def test_the_script_says_the_same_at_every_choice(study: str) -> None:
    task = task_of(study)
    every = list(choices(task))
    said = evaluated(
        "choices.map((choice) => sentencesOf(viewOf(task, choice)))",
        task=encoded(task),
        choices=[choice._asdict() for choice in every],
    )
    for choice, heard in zip(every, said, strict=True):
        expected = [
            {"tone": s.tone, "parts": [list(part) for part in s.parts]}
            for s in sentences(task.view(choice), task.names)
        ]
        assert heard == expected, choice


def test_the_script_has_the_same_numbers_at_every_choice() -> None:
    task = task_of("unequal seeds")
    every = list(choices(task))
    views = evaluated(
        "choices.map((choice) => viewOf(task, choice))",
        task=encoded(task),
        choices=[choice._asdict() for choice in every],
    )
    for choice, theirs in zip(every, views, strict=True):
        mine = task.view(choice)
        for line, other in zip(mine.lines, theirs["lines"], strict=True):
            assert (line.number is None) == (other["number"] is None)
            if line.number is not None:
                assert other["number"]["mean"] == pytest.approx(line.number["mean"], rel=1e-8)
                assert other["number"]["std"] == pytest.approx(line.number["std"], rel=1e-5, abs=1e-6)
            assert (line.apart is None) == (other["apart"] is None)
            if line.apart is not None:
                interval = line.apart.interval
                assert other["apart"]["mean"] == pytest.approx(interval.mean, abs=1e-6)
                assert other["apart"]["low"] == pytest.approx(interval.low, abs=1e-5)
                assert other["apart"]["p"] == pytest.approx(line.apart.p, abs=1e-5)
                assert other["adjusted"] == pytest.approx(line.adjusted, abs=1e-5)
            counts = other["counts"] and (other["counts"]["wins"], other["counts"]["ties"], other["counts"]["losses"])
            assert counts == line.counts
            if line.cell is not None and line.number is not None:
                seeds = line.apart.seeds if line.apart is not None else line.number["seeds"]
                values = list(per_client(line.cell, seeds).values())
                assert other["clients"] == pytest.approx(values, rel=1e-5)


@pytest.mark.parametrize(("study", "counts"), [("near", (1, 1, 2)), ("near and far from 0", (1, 0, 1))])
def test_clients_are_counted_as_compare_does(study: str, counts: tuple[int, int, int]) -> None:
    task = task_of(study)
    entry = compare(STUDIES[study], metric="nll").variants["mh"].difference
    assert entry is not None
    (mine,) = [line.counts for line in task.view(task.usual).lines if line.variant == "mh"]
    theirs = evaluated("viewOf(task, choice).lines[1].counts", task=encoded(task), choice=task.usual._asdict())
    assert (entry.wins, entry.ties, entry.losses) == mine == tuple(theirs.values()) == counts


@pytest.mark.parametrize(
    ("study", "against"),
    [
        ("three seeds", "local"),
        ("three seeds", "mh"),
        ("unequal seeds", "mh"),
        ("one method", "mh"),
        ("infinite", "mh"),
    ],
)
def test_the_worst_clients_are_of_the_same_method(study: str, against: str) -> None:
    task = task_of(study)
    choice = task.usual._replace(against=against)
    theirs = evaluated(
        "[viewOf(task, choice)].map((view) => methodShown(view) || view.lines.find((line) => line.clients))[0]",
        "clients.js",
        task=encoded(task),
        choice=choice._asdict(),
        state={"method": None},
    )
    mine, info = worst_line(task.view(choice)), task.infos[choice.metric]
    assert mine is not None
    assert mine.variant == theirs["method"]["id"]
    worst = (min if info.higher_is_better else max)(theirs["clients"])
    assert number_text(worst, info) in worst_html(task, task.view(choice))


@pytest.mark.parametrize("study", ["three seeds", "infinite", "infinite with some seeds, or one"])
def test_the_script_has_the_same_worst_tenths(study: str) -> None:
    task = task_of(study)
    for choice in (task.usual, task.usual._replace(metric="nll")):
        shown = evaluated(
            "viewOf(task, choice).lines.map((line) => tenthText(task, line, task.metrics[choice.metric]))",
            "summary.js",
            task=encoded(task),
            choice=choice._asdict(),
        )
        mine = task.view(choice)
        assert shown == [tenth_words(line, mine.info) for line in mine.lines]


def test_a_curve_that_has_ended_is_read_as_such() -> None:
    curves = [
        {"line": "short", "x": [1, 2], "y": [50, 62.5]},
        {"line": "long", "x": [1, 2, 4], "y": [40, 55, 60]},
        {"line": "late", "x": [3, 4], "y": [70, None]},
    ]
    found = evaluated(
        "[1, 2, 4].map((place) => valuesAt(curves, place, {higher: true}).map(Object.values))",
        "curves.js",
        curves=curves,
    )
    assert found == [
        [["short", 50, None], ["long", 40, None]],
        [["short", 62.5, None], ["long", 55, None]],
        [["long", 60, None], ["short", 62.5, 2]],
    ]


def test_a_curve_that_spends_nothing_is_a_level_line() -> None:
    spends = {"x": [2, 4, 6], "y": [40, 50, 60], "s": None}
    free = {"x": [0, 0, 0], "y": [70, 71, None], "s": [1, 2, None]}
    level = {"x": [0, 6], "y": [71, 71], "s": [2, 2]}
    assert evaluated("acrossOf(curves)", "curves.js", curves=[spends, free]) == [spends, level]
    assert evaluated("acrossOf(curves)", "curves.js", curves=[free]) == [{**level, "x": [0, 1]}]


def test_the_script_says_the_same_of_the_signs_in_the_summary() -> None:
    task = task_of("three seeds")
    mine = summary_hint(task, task.view(task.usual))
    assert (
        "unadjusted 95 % intervals of the difference over paired seeds; a colour means that the difference can" in mine
    )
    theirs = evaluated(
        "summaryHint(viewOf(task, choice))", "summary.js", task=encoded(task), choice=task.usual._asdict()
    )
    assert theirs == f"Choose a heading to sort by it, a method to see its clients below. {mine}"


def test_the_script_knows_students_distribution() -> None:
    t = [0.0, 0.3, 1.7, 2.5, 12.0]
    dofs = list(range(1, 10))
    found = evaluated("dofs.map((dof) => t.map((x) => twoSided(x, dof)))", t=t, dofs=dofs)
    for dof, ps in zip(dofs, found, strict=True):
        assert ps == pytest.approx([2 * stats.t.sf(x, dof) for x in t], abs=1e-12)
    many = [0.04, 0.01, 0.03, 0.5]
    assert evaluated("holm(many)", many=many) == pytest.approx(list(holm(dict(enumerate(many))).values()))


def test_the_script_writes_numbers_as_tables_do() -> None:
    rng = np.random.default_rng(0)
    values = [*rng.normal(0, 60, 400).tolist(), 93.125, 93.375, -0.125, 0.0, -0.001, 62.5, 99.995, 1e-12]
    values += (rng.integers(0, 1600, 200) / 16).tolist()  # halves of the last digit among them
    for digits in (0, 2, 3):
        shown = evaluated("values.map((x) => fixed(x, digits))", values=values, digits=digits)
        for x, text in zip(values, shown, strict=True):
            assert math.isclose(float(text.replace("\N{MINUS SIGN}", "-")), float(f"{x:.{digits}f}")), x


def test_labels_are_pushed_apart_no_farther_than_need_be() -> None:
    placed = evaluated("pushedApart(wanted, 2, 0, 10)", wanted=[5.0, 5.0, 1.0, 9.9])
    assert placed == pytest.approx([4.0, 6.0, 1.0, 9.0])
    crowded = evaluated("pushedApart(wanted, 2, 0, 10)", wanted=[0.0] * 5)
    assert sorted(crowded) == pytest.approx([1, 3, 5, 7, 9])


def test_p_values_are_those_of_scipy() -> None:
    x = [0.4, 1.2, -0.3, 0.9]
    assert p_value(x) == pytest.approx(stats.ttest_1samp(x, 0).pvalue)
    adjusted = holm({"a": 0.011, "b": 0.02, "c": 0.9})
    assert adjusted == pytest.approx({"a": 0.033, "b": 0.04, "c": 0.9})

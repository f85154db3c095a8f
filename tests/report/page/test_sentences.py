"""What the numbers say, on numbers of which it is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from analysis.handmade import evaluated, record

from fedprior.records.schema import ACCURACY, NLL, MetricInfo, RunRecord
from fedprior.report.page.gather import gather
from fedprior.report.page.sentences import ONLY_ALONE, sentences
from report.page.made import made

SAMPLES = (40, 40)


def study(
    values: Mapping[str, Sequence[Sequence[float]]], info: MetricInfo = ACCURACY, samples: Sequence[int] = SAMPLES
) -> list[RunRecord]:
    """Runs of one round; the values of each method are those of its clients, by seed."""
    found = []
    for method, seeds in values.items():
        for seed, clients in enumerate(seeds):
            rows = evaluated([{info.name: clients}], samples, metrics=(info,))
            found.append(record(method, seed, *rows, metrics=(info,)))
    return found


def said(records: list[RunRecord]) -> list[str]:
    (task,) = gather(records).tasks
    return [sentence.text for sentence in sentences(task.view(task.usual), task.names)]


def test_better_worse_and_neither() -> None:
    heard = said(
        study(
            {
                "local": [[50, 60], [52.5, 62.5], [47.5, 57.5]],
                "mh": [[60, 70], [63, 73], [57, 68]],
                "fedavg": [[40, 50], [42, 52], [37, 48]],
                "ditto": [[50, 65], [55, 55], [45, 65]],
            }
        )
    )
    assert (
        heard[0]
        == "mh has the highest accuracy, 65.17 %. With 6 pairs judged together, the seeds cannot tell it from ditto."
    )
    assert heard[1] == (
        "Better than local (3 comparisons judged together); differences in points: mh +10.17 "
        "(95 % interval +9.45 to +10.88; better for 2 of 2 clients, worse for 0)."
    )
    assert heard[2].startswith(
        "Worse than local (3 comparisons judged together); differences in points: fedavg \N{MINUS SIGN}10.17 ("
    )
    assert heard[3].startswith(
        "Cannot be told apart from local (3 comparisons judged together); differences in points: ditto +0.83 ("
    )
    assert len(heard) == 5  # and that intervals are over seeds


def test_an_interval_of_its_own_is_not_enough_where_many_are_looked_at() -> None:
    local = [[50.0, 60.0], [52.5, 62.5], [47.5, 57.5]]
    near = [[x + d for x in clients] for clients, d in zip(local, (1.0, 1.3, 0.7), strict=True)]  # p = 0.029
    noise = [[x + d for x in clients] for clients, d in zip(local, (-1.0, 1.0, 0.5), strict=True)]
    alone = said(study({"local": local, "mh": near}))
    assert any(text.startswith("Better than local; differences in points: mh +1.00 (") for text in alone)
    beside = said(study({"local": local, "mh": near, "fedavg": noise, "ditto": noise}))
    assert not any(text.startswith("Better than") for text in beside)
    assert any("mh +1.00* (" in text for text in beside)
    assert any(text.endswith(f". * {ONLY_ALONE}") for text in beside)


def test_of_a_loss_the_lowest_is_best() -> None:
    heard = said(
        study({"local": [[2.0, 2.0], [2.1, 2.2], [1.9, 2.0]], "mh": [[1.0, 1.0], [1.1, 1.1], [0.9, 1.1]]}, NLL)
    )
    assert heard[0] == "mh has the lowest nll, 1.033. It can be told from the other method."
    assert heard[1].startswith("Better than local; differences in nll: mh \N{MINUS SIGN}1.000 (")


SKILL = MetricInfo("skill", "", "higher")
TINY = study(
    {
        "local": [[1e-7, 2e-7], [2e-7, 2e-7], [1e-7, 1e-7]],
        "mh": [[3e-7, 4e-7], [4.2e-7, 4.2e-7], [2.8e-7, 2.8e-7]],
        "fedavg": [[-1e-7, 0.0], [0.2e-7, 0.2e-7], [-1.2e-7, -1.2e-7]],
    },
    SKILL,
)


def test_however_small_numbers_are_the_larger_is_better() -> None:
    heard = said(TINY)
    assert heard[1].startswith("Better than local (2 comparisons judged together); differences in skill: mh ")
    assert heard[1].endswith("better for 2 of 2 clients, worse for 0).")
    assert heard[2].startswith("Worse than local (2 comparisons judged together); differences in skill: fedavg ")
    assert heard[2].endswith("better for 0 of 2 clients, worse for 2).")


def test_one_seed_has_no_intervals_and_says_so() -> None:
    heard = said(study({"local": [[50, 60]], "mh": [[60, 70]]}))
    assert heard[0].endswith("With one seed there are no intervals: another seed may reverse this.")
    assert heard[1] == (
        "One seed says nothing about other seeds; differences from local in points: mh +10.00 "
        "(better for 2 of 2 clients, worse for 0)."
    )
    assert not any("Intervals" in text for text in heard)


def test_seeds_that_agree_by_chance_are_no_certainty() -> None:
    heard = said(study({"local": [[50, 60], [52, 64]], "mh": [[60, 70], [64, 72]]}))  # +10 with both seeds
    assert heard[0] == "mh has the highest accuracy, 66.50 %. The seeds cannot tell it from local."
    assert heard[1] == (
        "All seeds have the very same difference, so there is no interval; differences from local in points: mh +10.00 "
        "(better for 2 of 2 clients, worse for 0)."
    )


def test_equal_methods_few_samples_and_what_is_lacking() -> None:
    both = [[50.0, 60.0], [55.0, 60.0]]
    heard = said(study({"local": both, "mh": both}))
    assert "The same value for every client: local and mh." in heard
    (task,) = gather(made(seeds=2, names=tuple(range(30)))).tasks
    small = sum(n < 20 for n in task.samples.values())
    assert small > 1
    few = f"{small} of 30 clients have fewer than 20 test samples: for these, one sample is worth more than 5 points."
    assert few in [sentence.text for sentence in sentences(task.view(task.usual), task.names)]
    (task,) = gather(made()).tasks
    other = sentences(task.view(task.usual._replace(model="global")), task.names)
    assert any(s.text == "Without a global model, so that the personal ones stand in: local." for s in other)


def test_a_method_that_is_infinite_with_any_seed_is_not_in_the_running() -> None:
    inf = float("inf")
    local, some, all_ = [[1.5, 1.6]] * 3, [[inf, 1.0], [1.0, 1.0], [inf, 1.0]], [[inf, 0.4]] * 3
    heard = said(study({"local": local, "fedavg": some, "mh": all_}, NLL))
    assert heard == [
        "local has nll 1.550, and there is nothing to compare it with.",
        "Infinite, and so not compared: fedavg (seeds 0, 2), mh (all seeds).",
    ]
    assert said(study({"fedavg": some, "mh": all_}, NLL)) == heard[1:]
    assert said(study({"local": local[:1], "mh": all_[:1]}, NLL))[1:] == ["Infinite, and so not compared: mh (seed 0)."]


def test_a_tie_names_all_that_share_the_best_number_as_it_is_written() -> None:
    high, near = [[60.0, 65.0]], [[60.001, 65.001]]
    heard = said(study({"local": [[50.0, 60.0]], "fedavg": high, "mh": near}))
    assert heard[0] == (
        "fedavg and mh have the highest accuracy, 62.50 %. "
        "With one seed there are no intervals: another seed may tell them apart."
    )
    assert said(study({"fedavg": high, "mh": near}))[0].startswith(
        "fedavg and mh have the same accuracy, 62.50 %. With"
    )
    seeds = [[60.0, 65.0], [62.0, 67.0], [58.0, 63.5]]
    steady = [[x - d for x in clients] for clients, d in zip(seeds, (1.0, 1.3, 0.7), strict=True)]
    noisy = [[x - d for x in clients] for clients, d in zip(seeds, (40.0, -20.0, 4.0), strict=True)]
    heard = said(study({"mh": seeds, "ditto": seeds[::-1], "local": steady}))
    assert heard[0] == (
        "mh and ditto have the highest accuracy, 62.58 %. With 3 pairs judged together, the seeds cannot tell all of them "
        "from local."
    )
    far = [[x - 30 for x in clients] for clients in steady]
    heard = said(study({"mh": seeds, "ditto": seeds, "local": far}))
    assert heard[0] == (
        "mh and ditto have the highest accuracy, 62.58 %. With 3 pairs judged together, they can be told from the other "
        "method."
    )
    (task,) = gather(study({"mh": seeds, "ditto": seeds, "local": far, "fedavg": noisy})).tasks
    best = task.view(task.usual).best
    assert best is not None
    assert (best.variants, best.beaten, best.untold) == (["mh", "ditto"], ["local"], ["fedavg"])


def test_seeds_that_differ_are_told() -> None:
    heard = said(made(("local", "mh", "ditto"), {"local": [0, 1], "mh": [1, 2], "ditto": [5]}))
    assert "Seeds differ (local 2, mh 2, ditto 1): differences are over those that both sides have." in heard
    assert "No seed in common with the reference: ditto." in heard


def test_the_best_is_compared_as_one_of_all_pairs() -> None:
    """With local alone mh would be told from it (p = 0.029 < 0.05); of three, the winner is one of three pairs."""
    local = [[50.0, 60.0], [52.5, 62.5], [47.5, 57.5]]
    near = [[x + d for x in clients] for clients, d in zip(local, (1.0, 1.3, 0.7), strict=True)]
    far = [[x - d for x in clients] for clients, d in zip(local, (30.0, 30.1, 30.2), strict=True)]
    assert said(study({"local": local, "mh": near}))[0].endswith("It can be told from the other method.")
    third = said(study({"local": local, "mh": near, "fedavg": far}))  # two pairs with fedavg, both told, and this one
    assert third[0].endswith("With 3 pairs judged together, it can be told from each of the 2 others.")
    noise = [[x + d for x in clients] for clients, d in zip(local, (-1.0, 1.0, 0.5), strict=True)]
    task = gather(study({"local": local, "mh": near, "fedavg": noise, "ditto": far})).tasks[0]
    best = task.view(task.usual).best
    assert best is not None
    assert best.variants == ["mh"]
    assert (best.beaten, best.untold, best.ahead) == (["ditto"], ["local", "fedavg"], [])


def test_the_best_may_be_worse_over_the_seeds_that_both_have() -> None:
    lucky = [[40.0, 50.0], [42.5, 52.5], [37.5, 47.5], [99.0, 99.0], [99.0, 99.0]]
    steady = [[50.0, 60.0], [52.6, 62.6], [47.5, 57.5]]
    heard = said(study({"local": lucky, "mh": steady}))
    assert heard[0] == ("local has the highest accuracy, 66.60 %. Over the seeds that both have, it is worse than mh.")


def test_rounds_that_differ_are_told() -> None:
    done = {("local", 0): 20, ("local", 1): 20, ("mh", 0): 13, ("mh", 1): 13, ("fedavg", 0): 20, ("fedavg", 1): 7}
    records = [
        dataclasses.replace(run, rows=tuple(row for row in run.rows if row.round <= done[run.variant, run.seed]))
        for run in made(("local", "mh", "fedavg"), 2, rounds=20)
    ]
    (task,) = gather(records).tasks
    wanted = "Rounds differ (local 20, mh 13, fedavg 7 to 20)."
    for choice in ("last", "last10"):
        assert wanted in [s.text for s in sentences(task.view(task.usual._replace(round=choice)), task.names)]
    assert not any("Rounds" in s.text for s in sentences(task.view(task.usual._replace(round="best")), task.names))
    assert not any("Rounds" in text for text in said(made()))


def test_of_many_methods_the_first_are_told() -> None:
    heard = said(made(("local", *(f"m{k}" for k in range(12))), gap=5.0))
    assert any(text.endswith("; and 6 more, in the table below.") for text in heard)
    heard = said(made(("local", *(f"m{k}" for k in range(12))), 2, gap=0.1))
    assert heard[0].endswith("With 75 pairs judged together, the seeds cannot tell it from any of the 12 others.")

"""Numbers over the seeds of a variant, the variants of a task, and tasks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from fedprior.analysis.changes import Apart, common_changes
from fedprior.analysis.grouping import Seeds
from fedprior.analysis.series import (
    MORE_MODELS,
    ROUNDS,
    SCORED_DATA,
    SCORED_MODELS,
    Series,
    all_series,
    columns,
    metric_name,
    reported,
)
from fedprior.errors import FedpriorError, unknown
from fedprior.records.schema import AVERAGES, NEWCOMERS, MetricInfo, RunRecord, Status
from fedprior.records.spending import BYTES, megabytes_sent, spending

ROUNDING = 1e-5  # what two programs may differ by in one model's numbers, those in percent included
BOTH = {SCORED_MODELS: "both", NEWCOMERS: "newcomer-both"}  # what two models are called that are one


class Number(TypedDict):
    """A number over seeds; a single one has no standard deviation, and neither have those of which one is infinite."""

    mean: float
    std: float | None
    seeds: list[int]


def over_seeds(values: Mapping[int, float]) -> Number:
    """A number over seeds.

    >>> over_seeds({0: 1.0, 2: 3.0})
    {'mean': 2.0, 'std': 1.4142135623730951, 'seeds': [0, 2]}
    """
    numbers = list(values.values())
    return {"mean": float(np.mean(numbers)), "std": _deviation(numbers), "seeds": list(values)}


def _deviation(numbers: Sequence[float]) -> float | None:
    return float(np.std(numbers, ddof=1)) if len(numbers) > 1 and np.isfinite(numbers).all() else None


def summarize(by_variant: Mapping[str, Seeds]) -> dict[str, Any]:
    """All numbers of a task's variants, as plain data.

    variant -> {method, settings, ..., metrics: {metric -> model -> data -> average -> choice of the round -> `Number`}}.
    None stands where nothing was evaluated, such as the global model of a method that has none. A metric with a value per
    class is there once for each of them.
    """
    return {
        variant: {**facts(seeds), "one_model": _one_model(seeds), "metrics": _metrics(seeds)}
        for variant, seeds in by_variant.items()
    }


def facts(seeds: Seeds) -> dict[str, Any]:
    """What a table says about a variant beside its numbers; the cost of a run from before it was recorded is None."""
    record = next(iter(seeds.values()))
    run, done = record.config["run"], rounds_done(seeds.values())
    budget = {"budget": run["protocol"]["budget"]} if run["protocol"].get("budget") else {}
    cost = record.config.get("cost")
    spent = None if cost is None else dataclasses.asdict(spending(cost, run["protocol"]["aggregated"]))
    measured = {name: info for seed in seeds for name, info in seeds[seed].metrics.items()}
    seconds = {seed: took for seed, each in seeds.items() if (took := each.seconds) is not None}
    return {
        **{key: run["variant"].get(key, {}) for key in ("method", "settings", "wrappers", "protocol")},
        "changed": record.config.get("changed", {}),
        "cost": cost,
        "round_takes": spent,
        "model_megabytes": None if not cost or cost.get("parameters") is None else cost["parameters"] * BYTES / 1e6,
        "megabytes_sent": None if cost is None else megabytes_sent(cost, run["protocol"]["aggregated"], done),
        "seconds": over_seeds(seconds) if seconds else None,
        "rounds": done,
        **budget,
        "measured": {
            name: {"unit": info.unit, "better": info.better, "per_class": info.per_class, "about": info.about}
            for name, info in measured.items()
        },
    }


def rounds_done(records: Iterable[RunRecord]) -> int:
    """The most rounds that any of some runs has done: what they cost is what they have spent, and not what was planned."""
    runs = list(records)
    done = [run.round for run in runs]
    if any(run.status is Status.RUNNING for run in runs):  # its status is as of its last change
        done += [row.round for run in runs for row in run.rows]
    return max(done)


def _one_model(seeds: Seeds) -> list[str]:
    """The personal models (of clients, of newcomers) that are the global one: nothing that was measured tells them apart."""
    every = [by_key for record in seeds.values() for by_key in all_series(record).values()]
    return [pair[0] for pair in BOTH if _never_apart(every, pair)]


def _never_apart(every: Iterable[Series], pair: tuple[str, ...]) -> bool:
    compared = False
    for by_key in every:
        for (model, *where), curve in by_key.items():
            other = by_key.get((pair[1], where[0], where[1]), {}) if model == pair[0] else {}
            rounds = curve.keys() & other.keys()
            if any(not math.isclose(curve[t], other[t], rel_tol=ROUNDING, abs_tol=ROUNDING) for t in rounds):
                return False
            compared |= bool(rounds) and where[0] == "own"
    return compared


def _metrics(seeds: Seeds) -> dict[str, Any]:
    series = {seed: all_series(seeds[seed]) for seed in sorted(seeds)}
    joined = {key[0] for by_column in series.values() for curves in by_column.values() for key in curves}
    models = (*SCORED_MODELS, *(name for name in MORE_MODELS if name in joined))
    measured = {column: info for record in seeds.values() for column, info in columns(record).items()}
    return {
        column: {
            model: {
                data: {
                    average: _by_choice(
                        {s: by_column.get(column, {}) for s, by_column in series.items()}, (model, data, average), info
                    )
                    for average in AVERAGES
                }
                for data in SCORED_DATA
            }
            for model in models
        }
        for column, info in measured.items()
    }


def _by_choice(series: Mapping[int, Series], key: tuple[str, str, str], info: MetricInfo) -> dict[str, Number | None]:
    numbers = {seed: reported(curves, *key, info.higher_is_better) for seed, curves in series.items()}
    chosen: dict[str, Number | None] = {}
    for choice in ROUNDS:
        kept = {seed: value for seed, by_choice in numbers.items() if (value := by_choice[choice]) is not None}
        if kept or choice != "validation":  # most runs hold no validation samples out
            chosen[choice] = over_seeds(kept) if kept else None
    return chosen


# -- what a summary holds ----------------------------------------------------------------------------------------------


def measured_columns(results: Mapping[str, Any], metric: str) -> dict[str, MetricInfo]:
    """The columns of a metric in a summary, one for each class if it has a value per class."""
    every = {
        column: MetricInfo(column, **about["measured"][metric_name(column)])
        for about in results.values()
        for column in about["metrics"]
    }
    if not (chosen := {c: info for c, info in every.items() if metric in (c, metric_name(c))}):
        raise unknown("metric", metric, {metric_name(column) for column in every})
    return chosen


def evaluated(about: Mapping[str, Any]) -> list[str]:
    """The models of a variant that were evaluated, by whatever metric."""
    return [
        model
        for model in (*SCORED_MODELS, *MORE_MODELS)
        if any(model in m and any(m[model]["own"]["weighted"].values()) for m in about["metrics"].values())
    ]


def models_of(about: Mapping[str, Any]) -> dict[str, str]:
    """What to call each model of a variant that was evaluated, and the model whose numbers are shown.

    Where the personal models are the global one, as FedAvg's are, both are one row.
    """
    names = {model: model for model in evaluated(about)}
    for (personal, common), both in BOTH.items():
        if personal in about.get("one_model", ()) and {personal, common} <= names.keys():
            names[common] = both  # it is evaluated on pooled samples whenever it is at all
            del names[personal]
    return {name: model for model, name in names.items()}


def has_choice(results: Mapping[str, Any], metric: str, choice: str) -> bool:
    """Whether any variant has a number at a choice of the round; only validation may be lacking everywhere."""
    columns = measured_columns(results, metric)
    return choice != "validation" or any(
        number_of(about, column, model, "own", "weighted", choice) is not None
        for about in results.values()
        for column in columns
        for model in evaluated(about)
    )


def number_of(about: Mapping[str, Any], column: str, model: str, data: str, average: str, choice: str) -> Number | None:
    """One number of a variant, None where it was not evaluated."""
    if choice not in ROUNDS:
        raise unknown("round", choice, ROUNDS)
    number: Number | None = about["metrics"].get(column, {}).get(model, {}).get(data, {}).get(average, {}).get(choice)
    return number


# -- over tasks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskRow:
    """One variant's model over the tasks."""

    variant: str
    model: str
    numbers: dict[str, Number | None]  # by task
    average: float | None  # over all tasks; None if the row lacks one
    std: float | None  # over tasks, with n - 1
    about: dict[str, Any]  # method, changed, wrappers: what all tasks agree on
    apart: Apart  # what it changes on some tasks, or not alike


@dataclass(frozen=True)
class OverTasks:
    """One metric over several tasks."""

    metric: MetricInfo
    data: str
    average: str
    choice: str
    tasks: tuple[str, ...]
    rows: tuple[TaskRow, ...]


def over_tasks(
    results: Mapping[str, Mapping[str, Any]],
    *,
    metric: str = "accuracy",
    data: str = "own",
    average: str = "weighted",
    choice: str = "last",
) -> OverTasks:
    """Put the summaries of several tasks side by side, with their mean and standard deviation over tasks."""
    tasks = tuple(results)
    every = {
        f"{task}, {variant}": about for task, by_variant in results.items() for variant, about in by_variant.items()
    }
    infos = measured_columns(every, metric)
    if metric not in infos:
        raise FedpriorError(f"{metric} has a value for each class; choose one of {', '.join(infos)}")
    rows = []
    for variant in dict.fromkeys(variant for by_variant in results.values() for variant in by_variant):
        abouts = {task: results[task][variant] for task in tasks if variant in results[task]}
        models = models_of(next(iter(abouts.values())))
        if any(models_of(about) != models for about in abouts.values()):  # one model on some task, and two on another
            found = {model for about in abouts.values() for model in evaluated(about)}
            models = {model: model for model in (*SCORED_MODELS, *MORE_MODELS) if model in found}
        about, apart = common_changes(abouts)
        for name, model in models.items():
            numbers = {
                task: number_of(abouts[task], metric, model, data, average, choice) if task in abouts else None
                for task in tasks
            }
            means = [number["mean"] for number in numbers.values() if number is not None]
            whole = len(means) == len(tasks)
            rows.append(
                TaskRow(
                    variant,
                    name,
                    numbers,
                    average=float(np.mean(means)) if whole else None,
                    std=_deviation(means) if whole else None,
                    about=about,
                    apart=apart,
                )
            )
    return OverTasks(infos[metric], data, average, choice, tasks, tuple(rows))

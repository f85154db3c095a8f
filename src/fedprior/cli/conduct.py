"""Running a study from the command line: progress, Ctrl-C, and what is printed and written at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedprior.cli.app import command_line, json_text, print_line, print_table, say_stopped, stoppable, tell, warn
from fedprior.cli.progress import progress as progress_of
from fedprior.errors import FedpriorError

if TYPE_CHECKING:
    from fedprior.study.cells import Cell, Plan
    from fedprior.study.program import Program
    from fedprior.study.results import Results
    from fedprior.study.study import Study
    from fedprior.study.trial import Progress

HOW = ("diverged", "failed")  # how runs can be lost
MOST_CLASSES = 20  # that an error lists


def measuring(metric: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a study with the metric that is to be reported among those that it measures."""
    from fedprior.analysis.series import metric_name
    from fedprior.engine.metrics import METRICS, measured

    METRICS.find(name := metric_name(metric))
    given = settings.get("metrics")
    if (given is not None and not isinstance(given, list)) or name in measured(given):
        return settings
    return {**settings, "metrics": [*measured(given), name]}


def conduct(
    study: Study,
    folder: Path,
    *,
    metric: str,
    plan: bool,
    workers: int,
    as_json: bool,
    events: Path | None,
    options: dict[str, Any],
) -> None:
    """Plan a study, or run it and report on it; ``events``: where event files for TensorBoard go."""
    for program in study.programs:  # builds and checks them, before anything is written
        _check_metric(metric, program)
    if not study.programs:
        raise FedpriorError(
            f"no row is left to run: {'; '.join(f'{row}: {why}' for (_, row), why in study.left_out.items())}"
        )
    for text in study.remarks():
        warn(text)
    if plan:
        print_plan(study.plan(folder))
        return
    results, stopped = _run(study, folder, workers, events, options)
    if stopped:
        say_stopped(how_to_go_on(options))
    for lost in results.lost:
        tell(lost.how, "red", lost.text)
    if results.records or as_json:
        report(study, results, folder, metric, as_json)
    if results.lost:
        raise typer.Exit(1)


def _check_metric(metric: str, program: Program) -> None:
    """Refuse to report what a row will not have measured: a metric, or one class of it."""
    from fedprior.analysis.series import metric_name
    from fedprior.engine.metrics import measured

    task, name, known = program.task, metric_name(metric), measured(program.protocol.metrics)
    if name not in known:
        raise FedpriorError(
            f"row '{program.variant.name}' of {task.name} does not measure {metric}; add it to its metrics"
        )
    if metric == name:
        return
    if not known[name].info.per_class:
        raise FedpriorError(f"--metric {metric}: {name} has no value for each class; give --metric {name}")
    classes = [str(label) for label in task.federation.classes]
    if metric not in (f"{name}[{label}]" for label in classes):
        few = f"{', '.join(classes[:MOST_CLASSES])}{', ...' if len(classes) > MOST_CLASSES else ''}"
        raise FedpriorError(
            f"--metric {metric}: {task.name} has no such class; give {name}[CLASS] with one of its "
            f"{len(classes)} classes ({few}), or {name} for all of them"
        )


def how_to_go_on(options: dict[str, Any]) -> str:
    """How to continue a command that was stopped."""
    instead = " in place of --overwrite" if options["overwrite"] else ""
    return f"the same command with --resume{instead} goes on from here"


def _run(
    study: Study, folder: Path, workers: int, events: Path | None, options: dict[str, Any]
) -> tuple[Results, bool]:
    with contextlib.ExitStack() as stack:
        should_stop = stack.enter_context(stoppable(how_to_go_on(options)))
        bars = stack.enter_context(progress_of(len(study.cells())))
        executor = None
        if workers > 1:
            from fedprior.study.workers import Pool

            executor = stack.enter_context(Pool(workers))
        files = None
        if events is not None:
            from fedprior.report.events import EventFiles

            files = EventFiles(events)
        bar: dict[tuple[str, str, int], Any] = {}
        several = len(study.tasks) > 1

        def watch(cell: Cell, progress: Progress | None) -> None:
            key = cell[:3]
            if key not in bar:
                name = f"{cell.task}, " * several + f"{cell.variant}, seed {cell.seed}"
                bar[key] = bars.add_task(name, total=cell.trial.program.rounds, remark="")
            if progress is None:
                bars.update(bar[key], remark=cell.ended)
            else:
                remark = "" if progress.accuracy is None else f"{progress.accuracy:5.2f} %"
                bars.update(bar[key], completed=progress.round, remark=remark)
                if files is not None:
                    files.add("/".join(map(str, key)), progress.rows)

        try:
            given = {"executor": executor, "command": command_line(), **options}
            results = study.run(folder, watch=watch, warn=warn, should_stop=should_stop, **given)
        except FedpriorError:
            for shown in bar.values():
                bars.remove_task(shown)
            raise
        done = len(results.records) + len(results.lost)
        unfinished = any(record.status != "finished" for record in results.records)
        return results, unfinished or done < len(study.cells())


RECORDED = "from the rounds of the same row that were recorded here"


def print_plan(plan: Plan, source: str = RECORDED) -> None:
    """Print how the cells of a study stand; ``source``: where the time that is left is known from."""
    from fedprior.report.tables import Table

    def time(seconds: float | None) -> str:
        return "unknown" if seconds is None else str(timedelta(seconds=round(seconds)))

    body = tuple(
        (cell.task, cell.variant, str(cell.seed), cell.status, f"{cell.done} of {cell.rounds}", time(cell.seconds_left))
        for cell in plan.cells
    )
    finished = sum(cell.seconds_left == 0 for cell in plan.cells)
    note = (
        f"{finished} of {len(body)} runs are done; time left, one after the other: {time(plan.seconds_left)} ({source})"
    )
    print_table(Table("planned runs", note, ("task", "row", "seed", "status", "rounds", "time left"), body))


def report(study: Study, results: Results, folder: Path, metric: str, as_json: bool) -> None:
    """Write the summaries and pictures of all tasks, and print the tables or everything as JSON."""
    from fedprior.engine.metrics import METRICS
    from fedprior.files import write_text
    from fedprior.report.untested import untested_runs

    of_classes = metric in METRICS and METRICS.find(metric).info.per_class
    untested = untested_runs(results.records, "accuracy" if of_classes else metric)
    results = dataclasses.replace(results, records=[record for record in results.records if record.is_tested])
    summaries: dict[str, Any] = {}
    for task in study.tasks:
        budget = task.protocol.budget
        about = {"rounds": task.protocol.rounds} if budget is None else {"budget": budget.model_dump()}
        lost = {how: [each.text for each in results.lost if (each.task, each.how) == (task.name, how)] for how in HOW}
        summaries[task.name] = {"task": task.name, **about, **lost, "results": {}}
        if task.name in untested:
            summaries[task.name] |= {"tested": False, "validation": untested[task.name].validation}
    for name, rows in results.summary(warn).items():
        summaries[name]["results"] = rows
        diverged = [lost.row for lost in results.lost if (lost.task, lost.how) == (name, "diverged")]
        results.curves("accuracy" if of_classes else metric, name, folder / name / "curves.png", diverged)
    texts = {name: json_text(summary) for name, summary in summaries.items()}
    for name, text in texts.items():
        write_text(folder / name / "summary.json", text)
    if as_json:
        text = next(iter(texts.values())) if len(texts) == 1 else json_text(summaries)
        sys.stdout.write(text)
        return
    for runs in untested.values():
        print_line(f"{runs.text}    records: {folder / runs.task}")
    for name, table in results.tables(metric=metric).items():
        print_table(table)
        print_line(f"curves: {folder / name / 'curves.png'}    records: {folder / name}")
    if sum(bool(summary["results"]) for summary in summaries.values()) > 1 and not of_classes:
        print_table(results.table(metric=metric))

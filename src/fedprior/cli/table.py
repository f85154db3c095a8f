"""fedprior table: the table of runs that are already there."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli.app import Json, Metric, RoundChoice, app, json_text, out, print_table, warn
from fedprior.errors import FedpriorError, unknown

Rows = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME,...",
        help="Only these rows, in this order; an unknown name prints the valid ones. May be repeated.",
    ),
]


@app.command()
def table(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders with runs.")],
    format: Annotated[str, typer.Option(help="text, markdown, latex, html or csv (csv holds every number).")] = "text",
    at: RoundChoice = "last",
    metric: Metric = "accuracy",
    rows: Rows = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these columns; an unknown name prints the valid ones.")
    ] = None,
    tasks: Annotated[
        bool, typer.Option("--tasks", help="One table of rows against tasks, with their average.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the tables of runs that are already there: one for each task, or one over all tasks.

    Rows stand by their method as in `fedprior methods`, Local first, unless
    --rows says otherwise. Runs of a task that differ in samples, partition or
    model have a table each.
    """
    from fedprior.analysis.evidence import evidence
    from fedprior.analysis.grouping import is_cell
    from fedprior.analysis.series import ROUNDS
    from fedprior.report.tables import FORMATS, render
    from fedprior.report.untested import untested_runs
    from fedprior.study.results import Results

    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if as_json and (format != "text" or tasks or columns is not None):
        raise FedpriorError("--json prints all numbers, and --format, --tasks and --columns shape a table; choose one")
    if at not in ROUNDS:
        raise unknown("round", at, ROUNDS)
    results = Results.read(*folders)
    where = f"at or below {', '.join(map(str, folders))}"
    if all(map(is_cell, results.records)):
        raise FedpriorError(f"nothing to show: {where} are only runs of sweeps, which do not look at the test")
    groups = results.groups(warn)
    if not groups and (untested := untested_runs(results.records)):
        raise FedpriorError(f"nothing to show: {'; '.join(runs.text for runs in untested.values())}")
    if not groups:
        raise FedpriorError(f"nothing to show: no run {where} has been evaluated")
    if rows:
        results = results.only(rows)
    if as_json:
        everything = {
            name: {"results": of, **dataclasses.asdict(evidence(results.groups()[name], metric, at))}
            for name, of in results.summary().items()
        }
        sys.stdout.write(json_text(everything))
        return
    shown = [results.task_table(at, metric)] if tasks else list(results.tables(at, metric, warn).values())
    if columns is not None:
        shown = [each.choose([name.strip() for name in columns.split(",")]) for each in shown]
    if format == "text":
        for k, each in enumerate(shown):
            if k:
                out.print()
            print_table(each)
    else:
        sys.stdout.write(render(shown, format) + "\n")
    for by_variant in groups.values():
        runs = [record for seeds in by_variant.values() for record in seeds.values()]
        if not any(record.config["run"]["variant"]["method"] == "local" for record in runs):
            name = runs[0].task
            warn(f"{name} has no Local-only runs to compare with; add them with: fedprior run {name} -m local")

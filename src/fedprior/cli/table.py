"""fedprior table: the table of runs that are already there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli.app import Metric, RoundChoice, app, print_table, warn
from fedprior.errors import FedpriorError, unknown


@app.command()
def table(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders with runs.")],
    format: Annotated[str, typer.Option(help="text, markdown, latex, html or csv (csv holds every number).")] = "text",
    at: RoundChoice = "last",
    metric: Metric = "accuracy",
    tasks: Annotated[
        bool, typer.Option("--tasks", help="One table of rows against tasks, with their average.")
    ] = False,
) -> None:
    """Print the tables of runs that are already there: one for each task, or one over all tasks."""
    from fedprior.analysis.series import ROUNDS
    from fedprior.report import layouts
    from fedprior.report.tables import FORMATS, render
    from fedprior.report.untested import untested_runs
    from fedprior.study.results import Results

    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if at not in ROUNDS:
        raise unknown("round", at, ROUNDS)
    results = Results.read(*folders)
    summaries = results.summary(warn)
    if not summaries and (untested := untested_runs(results.records)):
        raise FedpriorError(f"nothing to show: {'; '.join(runs.text for runs in untested.values())}")
    if not summaries:
        raise FedpriorError(f"nothing to show: no run at or below {', '.join(map(str, folders))} has been evaluated")
    if tasks:
        shown = [results.task_table(at, metric)]
    else:
        shown = [layouts.run_table(name, rows, at, metric) for name, rows in summaries.items()]
    for each in shown:
        if format == "text":
            print_table(each)
        else:
            sys.stdout.write(render(each, format) + "\n")
    for name, rows in summaries.items():
        if not any(about["method"] == "local" for about in rows.values()):
            warn(f"{name} has no Local-only runs to compare with; add them with: fedprior run {name} -m local")

"""fedprior compare: rows of a task, client by client."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli.app import Json, Metric, RoundChoice, app, json_text, out, print_line, warn
from fedprior.cli.table import Rows
from fedprior.errors import FedpriorError, unknown


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders with runs of one task.")],
    against: Annotated[
        str | None, typer.Option(metavar="NAME", help="The reference row (default: local, else the first).")
    ] = None,
    model: Annotated[str, typer.Option(help="Which models are compared: personal or global.")] = "personal",
    at: RoundChoice = "last",
    metric: Metric = "accuracy",
    rows: Rows = None,
    format: Annotated[str, typer.Option(help="text, markdown, latex, html or csv (csv holds every number).")] = "text",
    plot: Annotated[Path | None, typer.Option(help="Draw every client's differences into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the rows of a task client by client, from runs that are already there.

    Whom does a method help, and by how much? Differences are paired: the same
    client, the same seed, the same test samples. Two tables: differences from
    the reference with wins and losses, and how evenly the metric is spread over
    clients.
    """
    from fedprior.report import figures
    from fedprior.report.comparison import comparison_tables
    from fedprior.report.tables import FORMATS, render, rich_table
    from fedprior.study.results import Results

    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if as_json and format != "text":
        raise FedpriorError("--json prints all numbers, and --format shapes a table; choose one of them")
    results = Results.read(*folders)
    if rows:
        results = results.only(rows)
    comparison = results.compare(against=against, model=model, choice=at, metric=metric, warn=warn)
    if plot is not None:
        figures.client_differences(comparison, plot)
    if as_json:
        sys.stdout.write(json_text(dataclasses.asdict(comparison)))
        return
    tables = comparison_tables(comparison)
    if format != "text":
        sys.stdout.write(render(tables, format) + "\n")
        return
    out.print(rich_table(tables[0]), "", rich_table(tables[1]), sep="\n")
    if plot is not None:
        print_line(f"picture: {plot}")

"""fedprior report: one page of runs that are already there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli.app import app, print_line, warn
from fedprior.cli.table import Rows

Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders with runs, of one task or of several.")]
NoPartition = Annotated[
    bool, typer.Option("--no-partition", help="Leave out who holds which labels, which may be confidential.")
]


@app.command()
def report(
    folders: Folders,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="The page's heading (default: the task's name).")] = None,
    rows: Rows = None,
    no_partition: NoPartition = False,
) -> None:
    """Write one page that shows what runs came to, for a browser.

    What the numbers say, a table to sort, learning curves, which clients gain
    and lose, who holds what, and what it costs. The page is one file that needs
    no network: it can be mailed, printed, and read on a phone.
    """
    from fedprior.study.results import Results

    results = Results.read(*folders)
    if rows:
        results = results.only(rows)
    path = results.report(out, title=title, partition=not no_partition, warn=warn)
    print_line(f"report: {path.resolve().as_uri()}")

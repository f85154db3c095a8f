"""fedprior partition: who holds what."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedprior.cli.app import Settings, TaskName, app, assignments, json_text, print_line, print_table


@app.command()
def partition(
    task: TaskName,
    plot: Annotated[Path | None, typer.Option(help="Draw the label distribution and sizes into this file.")] = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the statistics as one JSON object.")] = False,
) -> None:
    """Show how a task's data is divided among its clients."""
    from fedprior.data.partitions import split_source, statistics
    from fedprior.errors import unknown
    from fedprior.report.partitions import picture
    from fedprior.report.tables import Table
    from fedprior.study.data_file import open_source
    from fedprior.study.settings import is_task_key, read, settable

    changes = assignments(settings)
    for key in changes:
        if not is_task_key(key):
            raise unknown("key", key, settable())
    file = read(task, changes)
    source = open_source(file.task.data)
    parts = split_source(source, file.task.partition)
    numbers = statistics(parts, source.n_classes)
    if plot is not None:
        title = f"{file.task.name}, {file.task.partition['kind']}"
        picture(parts, source.n_classes, plot, title, source.class_names)
    if as_json:
        sys.stdout.write(json_text(numbers))
        return
    rows = [(key, f"{value:,}" if isinstance(value, int) else f"{value:.3f}") for key, value in numbers.items()]
    body = tuple((key.replace("_", " "), text) for key, text in rows)
    print_table(Table(f"{file.task.name}: {file.task.partition['kind']}", "", ("", "value"), body, left=1))
    if plot is not None:
        print_line(f"picture: {plot}")

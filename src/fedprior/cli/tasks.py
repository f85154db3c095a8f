"""fedprior tasks: what can be learnt."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from fedprior.cli.app import Json, app, json_text, print_table


@app.command()
def tasks(
    name: Annotated[str | None, typer.Argument(metavar="[TASK]", help="Show one task whole, with its sources.")] = None,
    as_json: Json = False,
) -> None:
    """List the tasks, or show one with where each of its values comes from."""
    from fedprior.report.listings import sources_table, tasks_table
    from fedprior.study.settings import read, task_names

    if name is None:
        files = [read(task) for task in task_names()]
        if as_json:
            sys.stdout.write(json_text({file.task.name: file.plain() for file in files}))
            return
        rows = [(f.task.name, f.protocol.rounds, f.protocol.aggregated, f.protocol.batch, f.task.about) for f in files]
        print_table(tasks_table(rows))
        return
    file = read(name)
    if as_json:
        sys.stdout.write(json_text(file.plain()))
        return
    values = {key: value for key, value in file.plain().items() if key not in ("why", "about", "name", "method")}
    print_table(
        sources_table(
            f"{name}: {file.task.about}",
            ("key", "value"),
            [(key, _text(value), file.why.get(key, "")) for key, value in {**values, **file.method}.items()],
        )
    )


def _text(value: Any) -> str:
    return ", ".join(f"{k} = {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)

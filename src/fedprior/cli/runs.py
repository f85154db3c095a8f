"""fedprior runs: which runs there are, and how they stand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprior.cli.app import app, json_text, print_table
from fedprior.errors import FedpriorError

if TYPE_CHECKING:
    from fedprior.records.runs import RunFolder


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Runs at or below this folder.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each run, as a list.")] = False,
) -> None:
    """List runs: finished, running (by whom), stopped, diverged, damaged, or interrupted.

    A run is interrupted if its process ended without recording why.
    """
    from fedprior.analysis.grouping import runs_below
    from fedprior.report.tables import Table

    rows = [_standing(run, folder) for run in runs_below(folder)]
    if as_json:
        sys.stdout.write(json_text(rows))
        return
    head = ("task", "row", "seed", "status", "rounds", "folder")
    body = tuple(
        (str(r["task"]), str(r["row"]), str(r["seed"]), r["status"], f"{r['round']} of {r['rounds']}", r["folder"])
        for r in rows
    )
    notes = [f"{row['folder']}: {row['note']}" for row in rows if row["note"]]
    print_table(Table(f"runs below {folder}", "; ".join(notes), head, body, left=4))


def _standing(run: RunFolder, below: Path) -> dict[str, Any]:
    """How a run stands, as plain data."""
    from fedprior.cli.standing import standing
    from fedprior.records.schema import Status

    where = str(run.path.relative_to(below))
    about: dict[str, Any] = dict.fromkeys(("task", "row", "seed", "round", "rounds"), "?")
    try:
        config = run.config["run"]
        about |= {"task": config["task"]["name"], "row": config["variant"]["name"], "seed": config["seed"]}
        about |= {"rounds": config["protocol"]["rounds"], "round": run.status[1]}
        record = run.record()
    except FedpriorError as error:
        return {**about, "status": "damaged", "folder": where, "note": str(error)}
    status, note = standing(run)
    if status == "running" or record.status is Status.RUNNING:  # the status is as of its last change
        about["round"] = max([record.round, *(row.round for row in record.rows), *(row.round for row in record.times)])
    made = record.provenance or ()
    about |= {"begun": made[0].begun, "ended": made[-1].ended, "commands": [s.command for s in made]} if made else {}
    about |= {"seconds": record.seconds}
    return {**about, "status": status, "folder": where, "note": note}

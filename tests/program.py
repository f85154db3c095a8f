"""The command line called from within: what a user would see of it."""

from __future__ import annotations

import io
import os
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

with warnings.catch_warnings():  # typer < 0.21, which Flower asks for, imports what click >= 8.5 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    from fedprior.cli import main
    from fedprior.cli.app import err as to_err
    from fedprior.cli.app import out as to_out


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def fedprior(*arguments: object, columns: int = 80) -> Outcome:
    """Run ``fedprior ARGUMENTS`` in this process, on a terminal of so many columns that is no terminal."""
    out, err = io.StringIO(), io.StringIO()
    argv = patch.object(sys, "argv", ["fedprior", *map(str, arguments)])
    # A console keeps the width that it found when it was made, and worker processes of tests name one.
    wide, wide_too = (patch.object(console, "_width", columns) for console in (to_out, to_err))
    environment = patch.dict(os.environ, {"COLUMNS": str(columns)})
    with argv, environment, wide, wide_too, redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    assert isinstance(code, int)
    return Outcome(code, out.getvalue(), err.getvalue())


def refused(outcome: Outcome, *parts: str) -> str:
    """Check that the input was refused in one line that holds ``parts``; return the line."""
    assert outcome.code == 2, outcome
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("error: ")
    for part in parts:
        assert part in lines[0]
    return lines[0]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file at or below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def kept(folder: Path) -> dict[str, bytes]:
    """All records but what differs between runs with the same numbers: times, and when and how they were made."""
    return {name: c for name, c in contents(folder).items() if not name.endswith(("times.csv", "provenance.json"))}


def timeless(summary: Any) -> Any:
    """A summary without the seconds that runs took."""
    if not isinstance(summary, dict):
        return summary
    return {key: timeless(value) for key, value in summary.items() if key != "seconds"}

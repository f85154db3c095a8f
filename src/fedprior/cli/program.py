"""The program itself: what its commands share, and how it ends."""

from __future__ import annotations

import sys
from typing import Annotated, Any, NoReturn

import click
import typer
from rich.console import Console
from rich.markup import escape

import fedprior
from fedprior.errors import FedpriorError
from fedprior.experiment import parse_assignment

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Personalized federated learning with personalized priors.\n\nStart with: fedprior run digits-mclr",
)
out, err = Console(), Console(stderr=True)
STOPPED = 130  # the exit code after Ctrl-C

TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="A task (see `fedprior tasks`) or a TOML file of your own.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of the task (rounds, aggregated, beta, partition.labels, ...) or a hyper-parameter of every "
        "method that has it (lam, eta, K, ...). May be repeated.",
    ),
]


def assignments(settings: list[str] | None) -> dict[str, Any]:
    """What ``--set`` was given, by key."""
    return dict(parse_assignment(text) for text in settings or [])


def warn(text: str) -> None:
    """Tell what is valid but may not be meant."""
    err.print(f"[yellow]warning:[/yellow] {escape(text)}", soft_wrap=True)


@app.callback(invoke_without_command=True)
def _version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        out.print(fedprior.__version__, highlight=False)
    elif context.invoked_subcommand is None:
        out.print(context.get_help())


def main() -> NoReturn:
    """Run the command line; a problem with the input is one line on stderr and exit code 2."""
    try:
        code = app(standalone_mode=False) or 0
    except (FedpriorError, OSError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        err.print(f"[red]error:[/red] {escape(' '.join(text.splitlines()))}", soft_wrap=True, highlight=False)
        code = 2
    if code == STOPPED:
        err.print("stopped; the same command with --resume goes on from here", soft_wrap=True)
    sys.exit(code)

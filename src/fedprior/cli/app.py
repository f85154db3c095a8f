"""The program itself: what its commands share, how it speaks, and how it ends."""

from __future__ import annotations

import json
import math
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import click
import typer
import typer.core
import typer.main
from rich.console import Console
from rich.text import Text

from fedprior.errors import FedpriorError, printable

if TYPE_CHECKING:
    from fedprior.report.tables import Table

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Personalized federated learning with personalized priors.\n\nStart with: fedprior run digits-mclr",
)
out, err = Console(), Console(stderr=True)
STOPPED = 130  # the exit code after Ctrl-C
GO_ON = "the same command goes on from here"


class _Argument(typer.core.TyperArgument):
    """An argument that keeps its help: typer < 0.21 gives it away to click >= 8.5, which then takes it for none."""

    def __init__(self, *, help: str | None = None, **more: Any):
        super().__init__(help=help, **more)
        self.help = help


typer.main.TyperArgument = _Argument  # type: ignore[attr-defined]

TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="A task (see `fedprior tasks`) or a TOML file of your own.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of the task (rounds, aggregated, partition.labels, ...) for all rows, a hyper-parameter of "
        "every method that has it (lam, eta, K, ...), or what wraps them (beta, fine_tune). May be repeated.",
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        help="What is reported: accuracy, nll, macro_f1, class_accuracy or another; an unknown name prints the valid ones."
    ),
]
RoundChoice = Annotated[str, typer.Option("--round", help="Which round is reported: last, last10, validation or best.")]
Json = Annotated[bool, typer.Option("--json", help="Print everything as one JSON object on stdout.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Number of independent runs per row: seeds 0, 1, ...")]
Rounds = Annotated[int | None, typer.Option(help="Rounds to run (default: the task's).")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with runs that are there; finished ones are reused.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace runs that are there.")]
Out = Annotated[Path, typer.Option("--out", help="Where records go: OUT/<task>/<row>/<seed>.")]
PlanOnly = Annotated[
    bool, typer.Option("--plan", help="List the runs, how far each of them is and the time left; run nothing.")
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that share out the cores, each running cells of its own.")]
TensorBoard = Annotated[
    Path | None,
    typer.Option("--tensorboard", metavar="DIR", help="Also write every evaluation as event files for TensorBoard."),
]
CheckpointSeconds = Annotated[float, typer.Option(min=0, help="Least time between two checkpoints.")]


def assignments(settings: list[str] | None, **options: Any) -> dict[str, Any]:
    """What ``--set`` was given, by key, and ``options`` that stand for keys of their own (None: not given); each once."""
    from fedprior.study.assignment import parse_assignment

    chosen: dict[str, Any] = {}
    for key, value in (parse_assignment(text) for text in settings or []):
        if key in chosen:
            raise FedpriorError(f"--set gives '{key}' twice; leave one of them out")
        chosen[key] = value
    for key, value in options.items():
        if value is not None and key in chosen:
            raise FedpriorError(
                f"--{key.replace('_', '-')} and --set {key}=... both say the same; leave one of them out"
            )
    return chosen | {key: value for key, value in options.items() if value is not None}


def warn(text: str) -> None:
    """Tell what is valid but may not be meant."""
    tell("warning", "yellow", text)


def tell(what: str, style: str, text: str) -> None:
    """Say something on stderr. Names in it may come from anywhere: they are neither markup nor control the terminal."""
    err.print(Text.assemble((f"{what}:", style), f" {printable(text)}"), soft_wrap=True, highlight=False)


def need_flower() -> None:
    """Refuse to go on without Flower."""
    try:
        import flwr  # noqa: F401
    except ImportError as error:
        raise FedpriorError("this needs Flower; pip install 'fedprior[flower]'") from error


def print_table(table: Table) -> None:
    """Print a table for a terminal."""
    from fedprior.report.tables import rich_table

    out.print(rich_table(table))


def print_line(text: str, style: str = "") -> None:
    """Print a line as it is."""
    out.print(Text(printable(text, keep="\n"), style), soft_wrap=True, highlight=False)


def json_text(content: Any) -> str:
    """Numbers as JSON, which any program can read: null stands for what JSON has no number for (infinite, NaN).

    >>> print(json_text({"a": (1.0, math.inf)}), end="")
    {
     "a": [
      1.0,
      null
     ]
    }
    """
    return json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The same with None for what JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def command_line() -> str:
    """The command that is being run, as it could be given again."""
    return shlex.join(["fedprior", *sys.argv[1:]])


def say_stopped(how: str) -> NoReturn:
    """End a command that was stopped; ``how`` it goes on."""
    err.print(f"stopped; {how}", soft_wrap=True)
    raise typer.Exit(STOPPED)


@contextmanager
def stoppable(how: str) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C or a request to end finish the round at hand and keep the run resumable; a second one stops at once.

    ``how``: what a command that was stopped at once goes on by.
    """
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        err.print("stopping after this round; press Ctrl-C again to stop at once")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    except KeyboardInterrupt:
        say_stopped(how)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@app.callback(invoke_without_command=True)
def _version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        import fedprior

        out.print(fedprior.__version__, highlight=False)
    elif context.invoked_subcommand is None:
        out.print(context.get_help())


def main() -> NoReturn:
    """Run the command line; a problem with the input is one line on stderr and exit code 2."""
    try:
        code = app(standalone_mode=False) or 0
    except (FedpriorError, OSError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        tell("error", "red", " ".join(text.splitlines()))
        code = 2
    sys.exit(code)

"""fedprior reproduce: the paper's tables and figures, by name."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprior.cli.app import (
    GO_ON,
    PlanOnly,
    Rounds,
    Workers,
    app,
    command_line,
    print_line,
    print_table,
    say_stopped,
    stoppable,
    tell,
    warn,
)
from fedprior.cli.conduct import RECORDED, print_plan
from fedprior.cli.progress import Display
from fedprior.cli.progress import progress as progress_of
from fedprior.errors import FedpriorError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from fedprior.reproduce.paper.artefact import Artefact, Request
    from fedprior.reproduce.paper.kept import Kept
    from fedprior.reproduce.paper.tuned import Tuned
    from fedprior.study.cells import Cell, Plan
    from fedprior.study.results import Results
    from fedprior.study.study import Study
    from fedprior.study.trial import Progress

GUESSED = f"{RECORDED}, or else guessed from the gradients that it takes and mh's time on two cores"


@app.command()
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A table or figure of the paper; without a name, all are listed."),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="Only these tasks, with commas or several times; an unknown name prints the valid ones."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="Only the rows of these methods, and Local. `mh-released` selects the row that the tables call mh; `mh` is "
            "the same method with its steps in the paper's order. An unknown name prints the valid ones."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs per row: seeds 0, 1, ... (default: each task's).")] = None,
    rounds: Rounds = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use the embedded digits and few rounds: done in under two minutes.")
    ] = False,
    tuned: Annotated[
        bool,
        typer.Option(
            "--tuned",
            help="For table1: every row is the best of eight trials on validation samples. All goes to OUT/tuned.",
        ),
    ] = False,
    out: Annotated[Path, typer.Option("--out", help="Where records, tables and figures go.")] = Path("reproduction"),
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            show_default=False,
            help="Accepted, but not needed: this command always goes on with what is there.",
        ),
    ] = True,
    plan: PlanOnly = False,
    workers: Workers = 1,
) -> None:
    """Reproduce a table or figure of the paper, with the published values beside the measured ones.

    What was trained before is used again, whichever table it was trained for:
    stop at any time and repeat the command to go on.

    OUT/NAME holds the table or figure, and its numbers as CSV files. OUT/cells
    holds all runs. OUT/records holds digests of those that are done: they are
    small and stand in for the runs on another machine.

    Examples:

      fedprior reproduce table1 --quick
      fedprior reproduce table1 --plan
      fedprior reproduce table1 --tasks mnist-mclr-released,fmnist-mclr
      fedprior reproduce ablation --methods mh-released,lg-released --seeds 5
    """
    from fedprior.records.schema import Status
    from fedprior.reproduce.paper import run
    from fedprior.reproduce.paper.artefact import ARTEFACTS, Request, names
    from fedprior.reproduce.paper.kept import Kept
    from fedprior.reproduce.paper.tuned import Tuned

    if name is None:
        _list()
        return
    artefact, request = ARTEFACTS.find(name)(), Request(names(tasks), names(methods), seeds, rounds, quick, tuned)
    if tuned and name != Tuned.name:
        raise FedpriorError(f"--tuned is for {Tuned.name} alone, not for {name}; leave it out")
    folders = run.folders(out, request)
    for each in folders:
        run.check_folder(each)
    folder = folders[-1]
    cells = folder / "cells"
    if tuned:
        artefact = Tuned()
        trials = artefact.plan(request, cells)
        _tell_of(artefact.left_out, request)
        # One that was killed just before its end has no time left, and yet would be run.
        ended = all(cell.status in (Status.FINISHED, Status.DIVERGED) for cell in trials.cells)
        if plan and (trials.seconds_left != 0 or not ended):
            print_plan(trials, GUESSED)
            tell("then", "blue", "every row is trained at what did best on validation samples")
            return
        if not plan:
            _mark(folders)
        if not _tune(artefact, request, cells, trials):
            say_stopped(GO_ON)
    studies = artefact.studies(request)
    kept = Kept(folder / run.RECORDS)
    planned = run.plan(studies, cells, None if artefact.models else kept)
    _tell_of(run.left_out(studies), request)
    if plan:
        print_plan(planned, GUESSED)
        return
    _mark(folders)
    results = _train(artefact, studies, cells, kept, planned, workers)
    if results is None:
        say_stopped(GO_ON)
    for text in results.diverged:
        tell("diverged", "red", text)
    with progress_of() as bars:
        artefact.steps = Making(bars, name).step
        paths = artefact.make(request, results, folder / name)
    for path in paths:
        print_line(str(path))


def _tell_of(left_out: list[str], request: Request) -> None:
    """Rows that were asked for by name are not left out in silence."""
    for text in left_out if request.methods is not None else ():
        warn(text)


def _mark(folders: list[Path]) -> None:
    from fedprior.reproduce.paper.run import mark_folder

    for folder in folders:
        mark_folder(folder)


def _tune(artefact: Tuned, request: Request, cells: Path, planned: Plan) -> bool:
    with stoppable(GO_ON) as should_stop, progress_of() as bars:
        watch = Watcher(bars, "trials", planned).watch
        return artefact.prepare(request, cells, watch=watch, warn=warn, should_stop=should_stop, command=command_line())


def _list() -> None:
    from fedprior.report.tables import Table
    from fedprior.reproduce.paper.artefact import ARTEFACTS

    body = tuple((name, artefact.about, artefact.where) for name, artefact in ARTEFACTS.items())
    print_table(Table("the paper's tables and figures", "", ("name", "what it is", "in the paper"), body, 1, remarks=2))
    print_line(
        "\n"
        "To make one:                  fedprior reproduce NAME\n"
        "To see how long it takes:     fedprior reproduce NAME --plan\n"
        "To try it on a small scale:   fedprior reproduce NAME --quick"
    )


def _train(
    artefact: Artefact, studies: list[Study], cells: Path, kept: Kept, planned: Plan, workers: int
) -> Results | None:
    from fedprior.reproduce.paper.run import train
    from fedprior.study.results import Results

    if not studies:
        return Results([])
    with contextlib.ExitStack() as stack:
        should_stop, bars = stack.enter_context(stoppable(GO_ON)), stack.enter_context(progress_of())
        executor = None
        if workers > 1:
            from fedprior.study.workers import Pool

            executor = stack.enter_context(Pool(workers))
        watcher = Watcher(bars, artefact.name, planned)
        return train(
            studies,
            cells,
            watch=watcher.watch,
            warn=warn,
            should_stop=should_stop,
            executor=executor,
            command=command_line(),
            kept=kept,
            models=artefact.models,
        )


class Making:
    """A bar for an artefact whose tables and figures take long to make, once it tells how far it is."""

    def __init__(self, bars: Display, name: str):
        self._bars, self._name = bars, name
        self._bar: TaskID | None = None

    def step(self, done: int, of: int, what: str) -> None:
        """Tell how far it is."""
        if self._bar is None:
            self._bar = self._bars.add_task(self._name, total=of, remark="")
        self._bars.update(self._bar, completed=done, remark=what)


class Watcher:
    """One bar over all cells; its remark tells of the cell at work, and how long all that are left will take."""

    def __init__(self, bars: Display, name: str, plan: Plan):
        known = [cell.seconds_left for cell in plan.cells if cell.seconds_left]
        typical = sum(known) / len(known) if known else 1.0
        self._planned = {
            (cell.task, cell.variant, cell.seed): typical if cell.seconds_left is None else cell.seconds_left
            for cell in plan.cells
        }
        self._at_first = {(cell.task, cell.variant, cell.seed): cell.done for cell in plan.cells}
        self._done: dict[tuple[str, str, int], float] = {}  # the part of what was left of each cell
        self._bars, self._begun = bars, time.monotonic()
        self._bar = bars.add_task(name, total=len(plan.cells), remark="")

    def watch(self, cell: Cell, progress: Progress | None) -> None:
        """Tell how far a cell is, and how long all of them will take."""
        key, rounds = cell[:3], cell.trial.program.rounds
        first = self._at_first.get(key, 0)
        at = rounds if progress is None else progress.round
        self._done[key] = (at - first) / (rounds - first) if first < rounds else 1.0
        if progress is None:
            words = [cell.ended]
        else:
            words = [f"{at} of {rounds}", *([] if progress.accuracy is None else [f"{progress.accuracy:.2f} %"])]
        remark = ", ".join([f"{cell}: {words[0]}", *words[1:], self.left()])
        self._bars.update(self._bar, completed=sum(part >= 1 for part in self._done.values()), remark=remark)

    def left(self) -> str:
        """The time that is left, from the plan and how it has held so far."""
        done = sum(self._planned.get(key, 0.0) * part for key, part in self._done.items())
        rest = sum(self._planned.values()) - done
        if done <= 0:
            return "time left unknown"
        return f"{timedelta(seconds=round(rest * (time.monotonic() - self._begun) / done))} left"

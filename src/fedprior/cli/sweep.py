"""fedprior sweep: hyper-parameters chosen on validation samples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprior.cli.app import (
    GO_ON,
    Json,
    Rounds,
    Settings,
    TaskName,
    app,
    assignments,
    command_line,
    json_text,
    print_line,
    print_table,
    say_stopped,
    stoppable,
    tell,
    warn,
)
from fedprior.cli.progress import progress as progress_of
from fedprior.errors import FedpriorError

if TYPE_CHECKING:
    from fedprior.study.cells import Cell
    from fedprior.study.sweep import Sweep
    from fedprior.study.trial import Progress


@app.command()
def sweep(
    task: TaskName,
    method: Annotated[
        list[str],
        typer.Option("--method", "-m", metavar="NAME", help="A method (see `fedprior methods`). May be repeated."),
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE,VALUE,...",
            help="Values of a hyper-parameter to try, for every method that has it. May be repeated: all combinations are "
            "tried. Without it, the values that each method declares.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of independent runs per setting: seeds 0, 1, ...")] = 1,
    rounds: Rounds = None,
    settings: Settings = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Where records go: OUT/<task>/sweep. What is there already is reused.")
    ] = Path("sweeps"),
    picture: Annotated[
        Path | None,
        typer.Option("--parallel", metavar="FILE", help="Where the picture of all settings goes (default: in OUT)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Choose hyper-parameters on validation samples, never on test.

    A part of each client's training samples (`--set validation=0.2`) is held
    out. Every setting of the grid is trained on the rest; the one whose
    personal models do best on the held-out samples is chosen, and the command
    is shown that trains with it on all training samples. A sweep that was
    stopped, or given a larger grid, computes what is missing.

    Examples:

      fedprior sweep digits-mclr -m pfedme
      fedprior sweep mnist-mclr -m mh -m pfedme --grid lam=5,15,30 --seeds 3
    """
    from fedprior.analysis.choice import summarize_sweep
    from fedprior.files import write_text
    from fedprior.report import figures, layouts, words
    from fedprior.study.sweep import open_sweep

    chosen = assignments(settings, rounds=rounds)
    study = open_sweep(task, method, grid or [], seeds, chosen)
    for text in study.remarks():
        warn(text)
    if not _try_all(study, folder):
        say_stopped(GO_ON)
    (opened,) = study.tasks
    place, chosen_by = folder / opened.name / "sweep", words.chosen_by()
    picture = picture or place / "parallel.png"
    summaries = {
        name: {
            **summarize_sweep(study.outcomes(name), bounds=_bounds(name)),
            "command": study.command(name, task, settings or [], rounds),
        }
        for name in study.candidates
    }
    figures.sweep_picture(opened.name, summaries, f"{chosen_by}; seeds: {seeds}", picture)
    everything: dict[str, Any] = {
        "task": opened.name,
        "seeds": study.seeds,
        "validation": opened.settings.validation,
        "chosen_by": f"{chosen_by}; the test was not looked at",
        "methods": summaries,
        "picture": str(picture),
    }
    write_text(place / "summary.json", text := json_text(everything))
    if as_json:
        sys.stdout.write(text)
    else:
        for name, of in summaries.items():
            print_line(f"{opened.name}, {name}: {chosen_by}", style="bold")
            print_table(layouts.sweep_table(of))
            if of["command"] is not None:
                at_end = " and ".join(of["at_end"])
                print_line(
                    f"Chosen on validation samples, {opened.settings.validation:.0%} of the training samples; the test was "
                    "not looked at. "
                    + (f"A wider --grid of {at_end} may choose better, as the range ends there. " if at_end else "")
                    + "To train with the chosen setting on all training samples:"
                )
                print_line(f"  {of['command']}\n")
        print_line(f"picture: {picture}    records: {place}")
    hopeless = [name for name, of in summaries.items() if of["chosen"] is None]
    for name in hopeless:
        tell("diverged", "red", f"every setting of {name} diverged, so there is none to choose; try smaller steps")
    if hopeless:
        raise typer.Exit(1)


def _bounds(name: str) -> dict[str, tuple[float | None, float | None]]:
    """The least and the most that the settings of a method can be."""
    from fedprior.core.hyper import hypers
    from fedprior.methods import METHODS

    return {key: (about.least, about.most) for key, about in hypers(METHODS.find(name).cls).items()}


def _try_all(study: Sweep, folder: Path) -> bool:
    """Run all cells with a bar per method; False if it was stopped."""
    with stoppable(GO_ON) as should_stop, progress_of(len(study.candidates)) as bars:
        bar = {name: bars.add_task(name, total=len(own), remark="") for name, own in study.candidates.items()}

        def watch(cell: Cell, progress: Progress | None) -> None:
            if progress is not None:
                remark = f"{cell.variant}, seed {cell.seed}: round {progress.round} of {progress.rounds}"
                bars.update(bar[cell.trial.program.variant.name], remark=remark)

        def done(name: str, count: int) -> None:
            bars.update(bar[name], completed=count, remark="")

        try:
            return study.try_all(
                folder, watch=watch, done=done, warn=warn, should_stop=should_stop, command=command_line()
            )
        except FedpriorError:
            for shown in bar.values():
                bars.remove_task(shown)
            raise

"""The commands that train: run and sweep."""

from __future__ import annotations

import itertools
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from fedprior import methods as registry
from fedprior.analysis import figures, tables
from fedprior.cli.program import STOPPED, Settings, TaskName, app, assignments, err, out, warn
from fedprior.errors import FedpriorError, unknown
from fedprior.experiment import Budget, configure, open_task, parse_assignment
from fedprior.records import RunFolder, replace_file
from fedprior.run import Diverged, Progress, Trial
from fedprior.sweep import (
    CHOSEN_BY,
    Cell,
    on_validation,
    plan,
    read_grid,
    run_command,
    settings_table,
    summarize,
    try_all,
)

DEFAULT_METHODS = ("fedavg", "pfedme", "mh")
ALL = "all"  # stands for every method


@app.command()
def run(
    task: TaskName,
    method: Annotated[
        list[str] | None,
        typer.Option(
            *("--method", "-m"),
            metavar="NAME",
            help="A method (see `fedprior methods`), or all: those that are defined for the model. May be repeated.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of independent runs per method: seeds 0, 1, ...")] = 1,
    rounds: Annotated[int | None, typer.Option(help="Rounds to run (default: the task's).")] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="gradients=N",
            help="Compare at equal cost: each method gets as many rounds as take a client that trains in all of them N "
            "gradients (a Hessian-vector product counts as two).",
        ),
    ] = None,
    new_clients: Annotated[
        float | None,
        typer.Option(
            metavar="PART",
            help="Hold out this part of the clients, and let them join the trained federation at the end.",
        ),
    ] = None,
    settings: Settings = None,
    folder: Annotated[Path, typer.Option("--out", help="Where records go: OUT/<task>/<method>/<seed>.")] = Path("runs"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with runs that are there; finished ones are reused.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace runs that are there.")] = False,
    local: Annotated[bool, typer.Option("--local/--no-local", help="Include the Local-only baseline.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object on stdout.")] = False,
    checkpoint_seconds: Annotated[float, typer.Option(min=0, help="Least time between two checkpoints.")] = 30.0,
) -> None:
    """Run methods on a task and compare them.

    Every number names what it is: the personal models (each client's own) and the global model, on each client's own test
    samples or on all of them pooled, averaged by samples, over clients, or over the worst tenth of the clients.

    Examples:

      fedprior run digits-mclr --seeds 3

      fedprior run mnist-mclr -m mh -m pfedme --set lam=30 --set eta=0.01 --seeds 5

      fedprior run my-task.toml -m fedavg --set beta=2 --out results --resume

      fedprior run digits-mclr --budget gradients=6000 --new-clients 0.2

      fedprior run digits-dnn -m all
    """
    given = [*(["local"] if local else []), *(method or DEFAULT_METHODS)]
    every = [name for name in registry.METHODS if local or name != "local"] if ALL in given else []
    names = list(dict.fromkeys([*(name for name in given if name != ALL), *every]))
    chosen = assignments(settings)
    if rounds is not None:
        chosen["rounds"] = rounds
    if budget is not None:
        chosen |= _budget(budget)
    if new_clients is not None:
        chosen["new_clients"] = new_clients
    if resume and overwrite:
        raise FedpriorError("--resume goes on with a run and --overwrite replaces it; choose one of them")
    experiment, built = configure(task, names, chosen)
    if experiment.budget is not None and "rounds" in chosen:
        raise FedpriorError("rounds and budget both say how long to run; choose one of them")
    for name, m in built.items():
        for idle in m.idle():
            warn(f"{name}: {idle} is valid but switches that part off")
    opened = open_task(experiment)
    trials = []
    for name, m in built.items():
        try:
            trials.append(Trial(opened, m, name))
        except FedpriorError as error:
            if name in given:
                raise
            warn(f"{name} is left out: {error}")
    if experiment.beta != 1 and not any(trial.beta != 1 for trial in trials):
        raise FedpriorError(
            f"beta = {experiment.beta:g} acts on a global model, and none of {', '.join(names)} has one"
        )
    places = {(t.name, s): folder / experiment.name / t.name / str(s) for t in trials for s in range(seeds)}
    for trial in trials:  # all of them before the first one runs
        for seed in range(seeds):
            record = RunFolder(places[trial.name, seed])
            if record.exists and resume:
                record.check_same(trial.config(seed))
            elif record.exists and not overwrite:
                raise FedpriorError(
                    f"{record.path} already holds a run; --resume goes on with it, --overwrite replaces it"
                )

    runs: dict[str, dict[int, tables.Series]] = {}
    diverged: list[str] = []
    stopped = False
    with _stoppable() as should_stop, _bars() as bars:
        for trial in trials:
            for seed in range(seeds):
                bar = bars.add_task(f"{trial.name}, seed {seed}", total=trial.rounds, accuracy="")

                def watch(progress: Progress, bar: Any = bar) -> None:
                    shown = "" if progress.accuracy is None else f"{progress.accuracy:5.2f} %"
                    bars.update(bar, completed=progress.round, accuracy=shown)

                try:
                    result = trial.run(
                        seed,
                        places[trial.name, seed],
                        resume=resume,
                        overwrite=overwrite,
                        watch=watch,
                        should_stop=should_stop,
                        checkpoint_seconds=checkpoint_seconds,
                    )
                except Diverged as error:
                    diverged.append(f"{error} (seed {seed}; records kept in {places[trial.name, seed]})")
                    bars.update(bar, accuracy="diverged")
                    continue
                except FedpriorError:
                    bars.remove_task(bar)
                    raise
                for warning in result.warnings:
                    warn(f"{trial.name}, seed {seed}: {warning}")
                runs.setdefault(trial.name, {})[seed] = tables.series_of(result.rows)
                stopped = not result.finished or should_stop()
                if stopped:
                    break
            if stopped:
                break
    if stopped:
        raise typer.Exit(STOPPED)
    for text in diverged:
        err.print(f"[red]diverged:[/red] {escape(text)}", soft_wrap=True)
    if runs or as_json:
        length = {"rounds": experiment.rounds} if experiment.budget is None else {"budget": dict(experiment.budget)}
        about = {trial.name: tables.facts(trial.config(0)) for trial in trials}
        _report(experiment.name, runs, about, folder, as_json, {**length, "diverged": diverged})
    if diverged:
        raise typer.Exit(1)


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
            "tried. Without it, the ranges that each method declares.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of independent runs per setting: seeds 0, 1, ...")] = 1,
    rounds: Annotated[int | None, typer.Option(help="Rounds to run (default: the task's).")] = None,
    settings: Settings = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Where records go: OUT/<task>/sweep. What is there already is reused.")
    ] = Path("sweeps"),
    picture: Annotated[
        Path | None,
        typer.Option(
            "--parallel", metavar="FILE", help="Where the parallel-coordinates picture goes (default: in OUT)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object on stdout.")] = False,
) -> None:
    """Choose hyper-parameters on validation samples, never on test.

    A part of each client's training samples (`--set validation=0.2`) is held out. Every setting of the grid is trained
    on the rest; the one whose personal models do best on the held-out samples is chosen, and the command is shown that
    trains with it on all training samples. A sweep that was stopped, or given a larger grid, computes what is missing.

    Examples:

      fedprior sweep digits-mclr -m pfedme

      fedprior sweep mnist-mclr -m mh -m pfedme --grid lam=5,15,30 --grid alpha=0.003,0.01,0.03 --seeds 3
    """
    names, chosen = list(dict.fromkeys(method)), assignments(settings)
    if rounds is not None:
        chosen["rounds"] = rounds
    experiment, _ = configure(task, names, chosen)
    experiment = on_validation(experiment, chosen)
    cells = plan(experiment, names, chosen, read_grid(grid or []))
    every = list(itertools.chain(*cells.values()))
    for idle in dict.fromkeys(f"{cell.name}: {text}" for cell in every for text in cell.method.idle()):
        warn(f"{idle} is valid but switches that part off")
    opened = open_task(experiment)
    with _stoppable() as should_stop, _bars() as bars:
        bar = {name: bars.add_task(name, total=len(own), accuracy="") for name, own in cells.items()}

        def watch(cell: Cell, seed: int, progress: Progress) -> None:
            bars.update(bar[cell.name], accuracy=f"{cell}, seed {seed}: round {progress.round} of {progress.rounds}")

        def done(cell: Cell) -> None:
            bars.update(bar[cell.name], advance=1, accuracy="")

        try:
            finished = try_all(opened, every, seeds, folder, watch=watch, done=done, warn=warn, should_stop=should_stop)
        except KeyboardInterrupt:  # the second Ctrl-C
            finished = False
        except FedpriorError:
            for shown in bar.values():
                bars.remove_task(shown)
            raise
    if not finished:
        err.print("stopped; the same command goes on from here")
        sys.exit(STOPPED)
    place = folder / experiment.name / "sweep"
    picture = picture or place / "parallel.png"
    found = {
        name: {**summarize(own), "command": run_command(task, own, settings or [], rounds, seeds)}
        for name, own in cells.items()
    }
    figures.parallel_coordinates(experiment.name, found, f"{CHOSEN_BY}; seeds: {seeds}", picture)
    summary = {
        "task": experiment.name,
        "seeds": list(range(seeds)),
        "validation": experiment.validation,
        "chosen_by": f"{CHOSEN_BY}; the test was not looked at",
        "methods": found,
        "picture": str(picture),
    }
    text = json.dumps(summary, indent=1)
    replace_file(place / "summary.json", lambda p: p.write_text(text + "\n"))
    if as_json:
        sys.stdout.write(text + "\n")
    else:
        for name, of in found.items():
            out.print(f"{experiment.name}, {name}: {CHOSEN_BY}", style="bold", highlight=False)
            out.print(settings_table(of))
            if of["command"] is not None:
                out.print(
                    f"Chosen on validation samples, {experiment.validation:.0%} of the training samples; the test was "
                    "not looked at. To train with the chosen setting on all training samples:",
                    highlight=False,
                )
                out.print(f"  {escape(of['command'])}\n", soft_wrap=True, highlight=False)
        out.print(f"picture: {picture}    records: {place}", soft_wrap=True, highlight=False)
    hopeless = [name for name, of in found.items() if of["chosen"] is None]
    for name in hopeless:
        err.print(
            f"[red]diverged:[/red] every setting of {name} diverged, so there is none to choose; try smaller steps",
            soft_wrap=True,
        )
    if hopeless:
        raise typer.Exit(1)


class _Bars(Bars):
    def stop(self) -> None:
        """Stop; where there is no bar to leave behind, leave nothing."""
        if self.task_ids:
            super().stop()
        else:
            self.live.transient = True
            self.live.stop()


def _bars() -> Bars:
    return _Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[bold]{task.fields[accuracy]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
    )


def _budget(text: str) -> dict[str, Any]:
    """The assignment that ``--budget gradients=N`` stands for."""
    kind, equals, _ = text.partition("=")
    if not equals:
        raise FedpriorError(f"--budget '{text}' is not of the form gradients=N")
    if kind.strip() not in Budget.model_fields:
        raise unknown("budget", kind.strip(), Budget.model_fields)
    return dict([parse_assignment(f"budget.{text.strip()}")])


def _report(
    task: str,
    runs: dict[str, dict[int, tables.Series]],
    about: dict[str, dict[str, Any]],
    folder: Path,
    as_json: bool,
    more: dict[str, Any],
) -> None:
    results = tables.summarize(runs, about)
    picture = folder / task / "curves.png"
    if runs:
        figures.learning_curves(task, runs, picture)
    summary = {"task": task, **more, "results": results}
    text = json.dumps(summary, indent=1)
    replace_file(folder / task / "summary.json", lambda p: p.write_text(text + "\n"))
    if as_json:
        sys.stdout.write(text + "\n")
    else:
        out.print(tables.rich_table(task, results))
        out.print(f"curves: {picture}    records: {folder / task}", soft_wrap=True, highlight=False)


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C finish the round at hand and keep the run resumable; a second Ctrl-C stops at once."""
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        err.print("stopping after this round; press Ctrl-C again to stop at once")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)

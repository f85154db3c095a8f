"""The commands that look: at tasks, methods, partitions, records and the theory."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table as RichTable

from fedprior import methods as registry
from fedprior.analysis import compare as comparing
from fedprior.analysis import figures, partitions, tables
from fedprior.cli.program import Settings, TaskName, app, assignments, err, out, warn
from fedprior.cost import SAMPLES, measure, work_text
from fedprior.data.clients import CHUNK
from fedprior.data.sources import load
from fedprior.errors import unknown
from fedprior.experiment import configure, parse, read_task, split, task_names
from fedprior.records import replace_file


@app.command()
def tasks(
    name: Annotated[str | None, typer.Argument(metavar="[TASK]", help="Show one task whole, with its sources.")] = None,
) -> None:
    """List the tasks, or show one with where each of its values comes from."""
    if name is not None:
        experiment = parse(read_task(name), f"task '{name}'")
        table = RichTable(
            "key", "value", "where it comes from", title=f"{name}: {experiment.about}", title_justify="left"
        )
        shown = experiment.model_dump(exclude={"why", "about", "name", "method"}, exclude_unset=True)
        for key, value in {**shown, **experiment.method}.items():
            text = ", ".join(f"{k} = {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            table.add_row(key, text, experiment.why.get(key, ""))
        out.print(table)
        return
    table = RichTable("task", "rounds", "S", "batch", "about", title="tasks", title_justify="left")
    for task in task_names():
        e = parse(read_task(task), f"task '{task}'")
        table.add_row(task, str(e.rounds), str(e.aggregated or "all"), str(e.batch), e.about)
    out.print(table)


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[METHOD]", help="Show one method's defaults and sources.")
    ] = None,
) -> None:
    """List the methods with what they cost, or show one's defaults and where they come from."""
    if name is not None:
        built = registry.make(name)
        table = RichTable(
            "setting", "default", "where it comes from", title=f"{name}: {built.paper}", title_justify="left"
        )
        for key in registry.keys(name):
            value = (
                built.switch(key) if hasattr(built, "switch") and getattr(built, key) is None else getattr(built, key)
            )
            table.add_row(
                key, str(value), built.sources.get(key, "the method's name" if key in ("mean", "order") else "")
            )
        out.print(table)
        out.print(f"participation: {' or '.join(built.participation)} (the first is the default)", highlight=False)
        return
    made = {name: registry.make(name) for name in registry.METHODS}
    costs = {name: measure(built) for name, built in made.items()}
    products = " (h: Hessian-vector products)" if any(cost.hvps for cost in costs.values()) else ""
    table = RichTable(
        title="methods: cost per client and round, counted at the defaults",
        caption=f"grads: gradients of the loss on a batch{products}; fwd: other evaluations of the model, on a batch or on "
        f"up to {CHUNK} samples of a pass over all (counted for a client of {SAMPLES}); down, up, kept: numbers received, "
        "sent and kept between rounds, in units of the model's size; trains: who does, unless told otherwise",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in ("method", "grads", "fwd", "down", "up", "kept", "trains", "paper"):
        number = heading in ("grads", "fwd", "down", "up", "kept")
        table.add_column(heading, no_wrap=heading != "paper", justify="right" if number else "left")
    for method, built in made.items():
        cost = costs[method]
        floats = (f"{round(x, 2):g}" for x in (cost.down, cost.up, cost.state))
        work = (work_text(cost.gradients, cost.hvps), str(cost.forward))
        table.add_row(method, *work, *floats, built.participation[0], built.paper)
    out.print(table)
    out.print("The defaults and where each comes from: fedprior methods NAME", highlight=False)


@app.command()
def partition(
    task: TaskName,
    plot: Annotated[Path | None, typer.Option(help="Draw the label distribution and sizes into this file.")] = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the statistics as one JSON object.")] = False,
) -> None:
    """Show how a task's data is parted among its clients."""
    experiment, _ = configure(task, [], assignments(settings))
    source = load(experiment.data.source, normalize=experiment.data.normalize)
    parted = split(source, experiment)
    found = partitions.statistics(parted, source.n_classes)
    if plot is not None:
        replace_file(plot, lambda p: partitions.picture(parted, source.n_classes, p, experiment.name))
    if as_json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    table = RichTable("", "value", title=f"{experiment.name}: {experiment.partition['kind']}", title_justify="left")
    for key, value in found.items():
        table.add_row(key.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:.3f}")
    out.print(table)
    if plot is not None:
        out.print(f"picture: {plot}", soft_wrap=True, highlight=False)


@app.command()
def table(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders with runs.")],
    format: Annotated[str, typer.Option(help="text, markdown, latex or csv (csv holds every number).")] = "text",
    at: Annotated[
        str, typer.Option("--round", help="Which round is reported: last, last10, validation or best.")
    ] = "last",
) -> None:
    """Print the table of runs that are already there."""
    if format not in tables.FORMATS:
        raise unknown("format", format, tables.FORMATS)
    if at not in tables.ROUNDS:
        raise unknown("round", at, tables.ROUNDS)
    for task, found in tables.collect_runs(folders, warn).items():
        about = {method: tables.facts(next(iter(runs.values())).folder.config) for method, runs in found.items()}
        results = tables.summarize(tables.series_by_seed(found), about)
        if format == "text":
            out.print(tables.rich_table(task, results, at))
        else:
            sys.stdout.write(tables.render(task, results, at, format) + "\n")
        if "local" not in results:
            warn(f"{task} has no Local-only runs to compare with; add them with: fedprior run {task} -m local")


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders with runs of one task.")],
    against: Annotated[
        str | None, typer.Option(metavar="NAME", help="The reference method (default: local, else the first).")
    ] = None,
    model: Annotated[str, typer.Option(help="Which models are compared: personal or global.")] = "personal",
    at: Annotated[
        str, typer.Option("--round", help="Which round is compared: last, last10, validation or best.")
    ] = "last",
    format: Annotated[str, typer.Option(help="text, markdown or csv (csv holds every mean and count).")] = "text",
    plot: Annotated[Path | None, typer.Option(help="Draw every client's differences into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object on stdout.")] = False,
) -> None:
    """Compare the methods of a task client by client, from runs that are already there.

    Whom does a method help, and by how much? Differences are paired: the same client, the same seed, the same test samples.
    Two tables: differences from the reference with wins and losses, and how evenly accuracy is spread over clients.
    """
    if format not in comparing.FORMATS:
        raise unknown("format", format, comparing.FORMATS)
    found = comparing.compare(folders, against=against, model=model, choice=at, warn=warn)
    if plot is not None:
        figures.client_differences(found, plot)
    if as_json:
        sys.stdout.write(json.dumps(dataclasses.asdict(found), indent=1) + "\n")
    elif format == "text":
        differences, fairness = comparing.rich_tables(found)
        out.print(differences, "", fairness, sep="\n")
        if plot is not None:
            out.print(f"picture: {plot}", soft_wrap=True, highlight=False)
    else:
        sys.stdout.write(comparing.render(found, format) + "\n")


@app.command()
def theory(
    folder: Annotated[Path, typer.Option("--out", help="Where the pictures and theory.json go.")] = Path("theory"),
    seeds: Annotated[int, typer.Option(min=2, help="Runs per point where clients are sampled.")] = 5,
) -> None:
    """Measure the paper's two theorems on problems whose answer is known: a table and a picture each."""
    import jax

    from fedprior.analysis import theory as numbers

    with jax.enable_x64(True), err.status("measuring (a few minutes) ..."):
        found: dict[str, numbers.Table] = {
            "rate": numbers.rate(seeds=seeds),
            "radius": numbers.radius(),
            "step": numbers.step(),
        }
        by_steps = {local: numbers.step_bound(numbers.quadratic(lam=2.0), local) for local in (1, 2, 5, 20)}
        found["bounds"] = [
            {"constant": name, **{f"R = {local}": values[name] for local, values in by_steps.items()}}
            for name in by_steps[1]
        ]
        paths = numbers.draw(found["rate"], found["radius"], found["step"], folder)
    titles = {
        "rate": "(a) error of the average iterate against T",
        "radius": "(b) squared distance of personal models from w* against lambda",
        "step": "(c) error after 300 rounds at multiples of Theorem 1's step bound",
        "bounds": "(c) Theorem 1's constants at lambda = 2",
    }
    for key, rows in found.items():
        shown = RichTable(title=titles[key], title_justify="left", box=box.SIMPLE)
        for name in rows[0]:
            shown.add_column(name, justify="right")
        for row in rows:
            shown.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
        out.print(shown)
    for problem, s, slope, half in numbers.slopes(found["rate"]):
        out.print(f"{problem}, S = {s}: slope {slope:.2f} ± {half:.2f} (95 %)", highlight=False)
    replace_file(folder / "theory.json", lambda p: p.write_text(json.dumps(found, indent=1) + "\n"))
    out.print(f"pictures: {', '.join(map(str, paths))}", soft_wrap=True, highlight=False)

"""fedprior run: methods on a task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedprior.cli.app import (
    CheckpointSeconds,
    Json,
    Metric,
    Out,
    Overwrite,
    PlanOnly,
    Resume,
    Rounds,
    Settings,
    TaskName,
    TensorBoard,
    Workers,
    app,
    assignments,
)
from fedprior.cli.conduct import conduct, measuring
from fedprior.errors import FedpriorError, unknown

DEFAULT_METHODS = ("fedavg", "pfedme", "mh")
ALL = "all"  # stands for every method


@app.command()
def run(
    task: TaskName,
    method: Annotated[
        list[str] | None,
        typer.Option(
            *("--method", "-m"),
            metavar="NAME[:KEY=VALUE,...]",
            help="A row of the table: a method (see `fedprior methods`) and what it changes, or all: those that are "
            f"defined for the model. May be repeated. Default: {', '.join(DEFAULT_METHODS)}, and local beside them.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of independent runs per row: seeds 0, 1, ...")] = 1,
    rounds: Rounds = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=N",
            help="Compare at equal cost: each method runs for as many rounds as N allows. KIND is gradients (of one client "
            "that trains in every round), total_gradients (of the whole federation) or megabytes (sent, both ways). A "
            "Hessian-vector product counts as two gradients.",
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
    folder: Out = Path("runs"),
    resume: Resume = False,
    overwrite: Overwrite = False,
    local: Annotated[bool, typer.Option("--local/--no-local", help="Include the Local-only baseline.")] = True,
    metric: Metric = "accuracy",
    plan: PlanOnly = False,
    workers: Workers = 1,
    as_json: Json = False,
    tensorboard: TensorBoard = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
) -> None:
    """Run methods on a task and compare them.

    Every number names what it is: the personal models (each client's own) and
    the global model, on each client's own test samples or on all of them
    pooled, averaged by samples, over clients, or over the worst tenth of the
    clients.

    Examples:

      fedprior run digits-mclr --seeds 3
      fedprior run mnist-mclr -m mh -m mh:beta=2 -m mh:aggregated=50,lam=30
      fedprior run my-task.toml -m fedavg --set beta=2 --out results --resume
      fedprior run digits-mclr --budget gradients=6000 --new-clients 0.2
      fedprior run digits-dnn -m all
    """
    chosen = assignments(settings, rounds=rounds, new_clients=new_clients)
    if budget is not None:
        if found := [key for key in chosen if key.partition(".")[0] == "budget"]:
            raise FedpriorError(f"--budget and --set {found[0]}=... both say what may be spent; leave one of them out")
        chosen |= _budget(budget)
    if "rounds" in chosen and any(key.startswith("budget") for key in chosen):
        raise FedpriorError("rounds and budget both say how long to run; choose one of them")
    from fedprior.methods import METHODS
    from fedprior.study.settings import keywords
    from fedprior.study.study import Study
    from fedprior.study.variant import Variant

    given = [Variant.parse(text) for text in method or DEFAULT_METHODS if text != ALL]
    names = {variant.name for variant in given}
    every = [] if ALL not in (method or ()) else [n for n in METHODS if n not in names and (local or n != "local")]
    rows = [*given, *(Variant.of(name) for name in every)]
    if local and all(row.method_name != "local" for row in rows):
        rows, every = [Variant.of("local"), *rows], [*every, "local"]
    chosen = keywords(measuring(metric, chosen))
    study = Study(task, rows, seeds=seeds, local=False, optional=every, **chosen)
    options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "checkpoint_seconds": checkpoint_seconds}
    conduct(
        study, folder, metric=metric, plan=plan, workers=workers, as_json=as_json, events=tensorboard, options=options
    )


def _budget(text: str) -> dict[str, Any]:
    """The assignment that ``--budget KIND=N`` stands for."""
    from fedprior.study.assignment import parse_assignment
    from fedprior.study.settings import Budget

    kind, equals, _ = text.partition("=")
    if not equals:
        raise FedpriorError(f"--budget '{text}' is not of the form KIND=N; kinds: {', '.join(Budget.model_fields)}")
    if kind.strip() not in Budget.model_fields:
        raise unknown("budget", kind.strip(), Budget.model_fields)
    return dict([parse_assignment(f"budget.{text.strip()}")])

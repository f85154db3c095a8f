"""fedprior study: a file of variants, tasks and seeds."""

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
    Seeds,
    Settings,
    TensorBoard,
    Workers,
    app,
    assignments,
)
from fedprior.cli.conduct import conduct, measuring


@app.command()
def study(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file that describes a study.")],
    seeds: Seeds = None,
    rounds: Rounds = None,
    settings: Settings = None,
    folder: Out = Path("runs"),
    resume: Resume = False,
    overwrite: Overwrite = False,
    metric: Metric = "accuracy",
    plan: PlanOnly = False,
    workers: Workers = 1,
    as_json: Json = False,
    tensorboard: TensorBoard = None,
    checkpoint_seconds: CheckpointSeconds = 30.0,
) -> None:
    r"""Run the study that a file describes: variants x tasks x seeds.

    A study file names its tasks and its rows; a row says what it changes, and
    its method where that is not its name:

      tasks = ["digits-mclr", "digits-dnn"]
      seeds = 5

      \[variants]
      mh = {}
      "mh+AM" = {method = "mh", beta = 2}
      "mh S=10" = {method = "mh", aggregated = 10}

      \[settings]
      rounds = 50
    """
    from fedprior.study.file import read_study

    chosen = assignments(settings, rounds=rounds)
    described = read_study(file, seeds=seeds, changes=measuring(metric, chosen))
    options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "checkpoint_seconds": checkpoint_seconds}
    conduct(
        described,
        folder,
        metric=metric,
        plan=plan,
        workers=workers,
        as_json=as_json,
        events=tensorboard,
        options=options,
    )

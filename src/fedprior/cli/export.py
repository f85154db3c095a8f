"""fedprior export: models out of a run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprior.cli.app import app, need_flower, print_line, warn
from fedprior.cli.standing import is_deployed
from fedprior.errors import FedpriorError

if TYPE_CHECKING:
    from fedprior.models.saved import Predictor


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run: OUT/<task>/<row>/<seed>.")],
    client: Annotated[
        str | None, typer.Option(metavar="ID", help="Whose personal model (default: the global model).")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every client's model, into a folder with an index.")] = False,
    at: Annotated[
        str,
        typer.Option(
            "--round",
            help="Of which round: last, or best-on-validation (which a task with validation samples has).",
        ),
    ] = "last",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file (default: model.safetensors), or with --all the folder (models)."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The task's file of samples, if it was moved since.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Save a model of a run, to be used by `fedprior predict` or, in Python, fedprior.load(...).predict(x).

    A personal model is the one that was scored, and a client that was held out
    of training joins for it. The run's data must be at hand, and be the same as
    then. Of a deployed run, its server has the global model alone.

    Examples:

      fedprior export runs/digits-mclr/mh/0 --client 3 -o client-3.safetensors
      fedprior export runs/digits-mclr/mh/0 --all --round best-on-validation
    """
    if every and client is not None:
        raise FedpriorError("--all saves the models of all clients, and --client that of one; choose one of them")
    target = output or Path("models" if every else "model.safetensors")
    if target.exists() and not overwrite:
        raise FedpriorError(f"{target} is there already; --overwrite replaces it, -o names another place")
    if is_deployed(run):
        predictor = _of_server(run, whole=every or client is not None, at=at, data=data)
        predictor.save(target)
        print_line(_told(predictor, target))
        return
    from fedprior.study.export import client_called, export_all, open_run

    result = open_run(run, data)
    for text in result.warnings:
        warn(text)
    if every:
        saved = export_all(result, target, at)
        print_line(
            f"{len(saved)} models of round {saved[0].about['round']} in {target}, listed in {target / 'index.json'}"
        )
        return
    predictor = result.predictor(None if client is None else client_called(result.trial.program.task, client), at)
    predictor.save(target)
    print_line(_told(predictor, target))


def _of_server(run: Path, whole: bool, at: str, data: Path | None) -> Predictor:
    """The global model of a deployed run; nothing else of it is here."""
    if whole:
        raise FedpriorError(
            f"{run} holds a deployed run, whose personal models stay on their sites: each finds its own in the folder that "
            "its state-dir names; without --client and --all, the global model is saved"
        )
    if at != "last" or data is not None:
        raise FedpriorError(f"{run} holds a deployed run, of which the newest global model is here, and no data")
    need_flower()
    from fedprior.flower.global_model import global_predictor
    from fedprior.records.runs import RunFolder

    return global_predictor(RunFolder(run))


def _told(predictor: Predictor, target: Path) -> str:
    about = predictor.about
    whose = "the global model" if predictor.client is None else f"the model of client {predictor.client!r}"
    accuracy, samples = about["test_accuracy"], about["test_samples"]
    scored = "no test accuracy is recorded" if accuracy is None else f"{accuracy:.2f} % of {samples} test samples"
    return f"{whose} ({about['row']}, seed {about['seed']}, round {about['round']}: {scored}): {target}"

"""Models out of a run's folder: the run is opened again from what it recorded, and its models are saved.

The data must be at hand, since the personal model of some methods depends on the client's own training samples.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprior.errors import FedpriorError
from fedprior.files import write_json
from fedprior.records.runs import RunFolder
from fedprior.records.sameness import GIVEN
from fedprior.records.schema import ClientId

if TYPE_CHECKING:
    from fedprior.models.saved import Predictor
    from fedprior.study.results import Result
    from fedprior.study.task import Task
    from fedprior.study.variant import Variant

IN_PYTHON = "save its models in Python: fp.run(task, ..., out=..., resume=True), then result.save(path, client=...)"
INDEX = "index.json"


def open_run(folder: Path, data: Path | None = None) -> Result:
    """The run in a folder with its newest state; what it was made from must be the same as then, as for a resume.

    ``data``: where the file of samples is now, if the run's task has one and it was moved.
    """
    from fedprior.study.program import Program
    from fedprior.study.results import Result
    from fedprior.study.trial import Trial

    run = RunFolder(folder)
    if not run.exists:
        raise FedpriorError(f"{folder} holds no run; name the folder of one: OUT/<task>/<row>/<seed>")
    if run.config.get("deployed"):
        raise FedpriorError(
            f"{folder} holds a deployed run, whose samples are elsewhere; `fedprior export {folder}` saves its global "
            "model, and each site finds its own model in the folder that its state-dir names"
        )
    recorded, file = run.config["run"], data or run.config.get("data_file")
    try:
        task, variant = _task(folder, recorded, file), _variant(folder, recorded)
        program = Program(task, variant, data=tuple(recorded.get("numbers_as_data", ())))
        trial = Trial(program, int(recorded["seed"])).compiled_as(run.config)
    except (KeyError, TypeError) as error:
        raise FedpriorError(f"{folder / 'config.json'} does not describe a run of fedprior ({error!r})") from error
    config = trial.config()
    config["run"]["protocol"]["selection"] = recorded["protocol"].get("selection")  # who trained, models do not ask
    warnings = run.check_same(config)
    engine = trial.program.engine
    host, damaged = run.restore(engine.host_template(trial.values or ()))
    if host is None:
        why = f"all {len(damaged)} are damaged" if damaged else "a sweep deletes the states of finished runs"
        raise FedpriorError(f"{folder} keeps no state to take a model from ({why}); run it again with --overwrite")
    warnings += [f"checkpoint {name} is damaged; an older one is used" for name in damaged]
    return Result(trial, engine.placement.from_host(host), run, warnings=warnings)


def _task(folder: Path, recorded: dict[str, Any], file: Path | str | None) -> Task:
    from fedprior.study.settings import read
    from fedprior.study.task import open_task

    settings = dict(recorded["task"])
    if settings["data"].get("source") == "arrays":
        raise FedpriorError(f"{folder} holds a run of arrays, which only your program has; {IN_PYTHON}")
    if settings["data"].get("source") is None:
        if not Path(str(file)).exists():
            raise FedpriorError(f"the file of samples of {folder}, {file}, is not there; say where it is: --data FILE")
        settings["data"] = {**settings["data"], "file": str(file)}
    protocol = dict(recorded["protocol"])
    if str(protocol.get("selection")).startswith(GIVEN):
        del protocol["selection"]
    return open_task(read({**settings, **protocol}))


def _variant(folder: Path, recorded: dict[str, Any]) -> Variant:
    from fedprior.methods import METHODS
    from fedprior.study.variant import Variant

    about = recorded["variant"]
    given = [key for key, value in about["settings"].items() if isinstance(value, str) and value.startswith(GIVEN)]
    if about["method"] not in METHODS or given:
        what = f"the method '{about['method']}'" if about["method"] not in METHODS else f"an object for {given[0]}"
        raise FedpriorError(f"{folder} holds a run with {what}, which only your program has; {IN_PYTHON}")
    return Variant(about["name"], about["method"], about["settings"], about["wrappers"], about["protocol"])


def client_called(task: Task, text: str) -> ClientId:
    """The client that a text on the command line means: ids may be numbers."""
    return next((one for one in _ids(task) if str(one) == text), text)


def _ids(task: Task) -> list[ClientId]:
    return [*task.federation.ids, *(() if task.newcomers is None else task.newcomers.ids)]


def export_all(result: Result, folder: Path, round: str = "last") -> list[Predictor]:
    """Save every client's model, newcomers' too, and the global model where there is one; an index maps ids to files."""
    from fedprior.study.models_of import global_mixture, state_of

    whose: list[ClientId | None] = [*_ids(result.trial.program.task)]
    if global_mixture(result, state_of(result, round)) is not None:
        whose.append(None)
    saved, index = [], []
    for k, client in enumerate(whose):
        file = "global.safetensors" if client is None else file_name(k, client)
        saved.append(predictor := result.predictor(client, round))
        predictor.save(folder / file)
        index.append({"client": client, "file": file, **{key: predictor.about[key] for key in ("of", "round")}})
    write_json(folder / INDEX, {"models": index})
    return saved


def file_name(k: int, client: ClientId) -> str:
    """The name of a client's file: its place, and of its id what is harmless in a path.

    >>> file_name(3, "St. C"), file_name(12, "../a/b")
    ('003-St-C.safetensors', '012-a-b.safetensors')
    """
    harmless = re.sub(r"[^A-Za-z0-9]+", "-", str(client)).strip("-")[:40]
    return f"{k:03d}{f'-{harmless}' if harmless else ''}.safetensors"

"""Experiments: validated settings, the tasks that ship with fedprior, and the data and model behind them."""

from __future__ import annotations

import inspect
import tomllib
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import numpy as np
import pydantic
from jax import Array

from fedprior import methods, models
from fedprior.data import partition as partitions
from fedprior.data.clients import Federation, federate, part_newcomers
from fedprior.data.partition import Partition
from fedprior.data.sources import Source, from_arrays, load
from fedprior.errors import FedpriorError, unknown
from fedprior.method import Method
from fedprior.problem import Classifier, ModelBuilder
from fedprior.selection import Selection

PARTITIONS: dict[str, Callable[..., Partition]] = {
    "lognormal": partitions.lognormal,
    "pathological": partitions.pathological,
    "dirichlet": partitions.dirichlet,
    "natural": partitions.natural,
    "grouped": partitions.grouped,
    "iid": partitions.iid,
}
GIVEN = ("y", "group", "is_test")  # arguments of a partitioner that come from the data, not from the settings
ALIASES = {"lambda": "lam"}  # a Python field cannot be called lambda


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class DataSettings(_Strict):
    """Which data, and how pixels become numbers (None: the source's own default)."""

    source: str
    normalize: str | None = None


class Budget(_Strict):
    """What each method may spend, in place of a number of rounds that is the same for all."""

    gradients: int = pydantic.Field(ge=1)  # of each client that trains in every round; see `cost.rounds_within`


class Experiment(_Strict):
    """Everything that defines an experiment but its methods and seeds. Unknown keys and wrong types are errors."""

    name: str = pydantic.Field(pattern=r"^[^/\\.][^/\\]*$")  # it names a folder
    about: str = ""
    data: DataSettings
    partition: dict[str, Any]
    model: dict[str, Any]
    rounds: int = pydantic.Field(200, ge=1)  # T
    budget: Budget | None = None  # sets every method's own number of rounds, in place of ``rounds``
    aggregated: int | None = pydantic.Field(None, ge=1)  # S; None: all clients
    batch: int = pydantic.Field(20, ge=1)
    participation: Literal["all", "sampled"] | None = None  # None: the method's own default
    selection: Literal["uniform", "samples", "round-robin"] = "uniform"
    weights: Literal["samples", "uniform"] = "samples"
    beta: float = pydantic.Field(1.0, gt=0, allow_inf_nan=False)  # server relaxation; 2 is the paper's AM
    fine_tune: int = pydantic.Field(0, ge=0)  # FT: steps the personal model takes for the test only
    validation: float = pydantic.Field(0.0, ge=0, lt=1)  # part of each client's training samples
    new_clients: float = pydantic.Field(0.0, ge=0, lt=1)  # part of the clients, who join only after training
    eval_every: int = pydantic.Field(1, ge=1)  # rounds between evaluations
    pooled: Literal["last", "every", "never"] = "last"  # when personal models see the pooled test
    chunk: int = pydantic.Field(1, ge=1)  # clients per vmap: 1 on CPUs, more on accelerators
    method: dict[str, Any] = {}  # hyper-parameters for every method that has them
    why: dict[str, str] = {}  # where each value comes from


PARTS: dict[str, type[_Strict]] = {"data": DataSettings, "budget": Budget}  # settings that have settings


def _one_line(error: pydantic.ValidationError, what: str, valid: Iterable[str]) -> FedpriorError:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return unknown(
            f"key in {what}",
            where,
            [f"{first['loc'][0]}.{k}" for k in PARTS[str(first["loc"][0])].model_fields]
            if len(first["loc"]) > 1
            else valid,
        )
    if first["type"] == "missing":
        return FedpriorError(f"{what}: '{where}' is missing")
    given = f" (given: {first['input']!r})" if not isinstance(first["input"], dict) else ""
    return FedpriorError(f"{what}: {where}: {first['msg'].lower()}{given}")


def parse(content: Mapping[str, Any], what: str) -> Experiment:
    """Validate settings, down to the partitioner's and the model's own."""
    try:
        experiment = Experiment.model_validate(dict(content))
    except pydantic.ValidationError as error:
        raise _one_line(error, what, Experiment.model_fields) from None
    _partition_options(experiment)
    return experiment


def _partition_options(experiment: Experiment) -> dict[str, Any]:
    """Check the partition's settings against the signature of its function, so that each fact stands in one place."""
    given = dict(experiment.partition)
    kind = given.pop("kind", None)
    if kind is None:
        raise FedpriorError(
            f"task '{experiment.name}': 'partition.kind' is missing; valid: {', '.join(sorted(PARTITIONS))}"
        )
    if not isinstance(kind, str) or kind not in PARTITIONS:
        raise unknown("partition kind", str(kind), PARTITIONS)
    function = PARTITIONS[kind]
    hints = typing.get_type_hints(function)
    fields: dict[str, Any] = {
        name: (hints[name], ... if p.default is inspect.Parameter.empty else p.default)
        for name, p in inspect.signature(function).parameters.items()
        if name not in GIVEN
    }
    model = pydantic.create_model("partition", __config__=pydantic.ConfigDict(extra="forbid", strict=True), **fields)
    try:
        model.model_validate(given)
    except pydantic.ValidationError as error:
        raise _one_line(error, f"partition '{kind}'", fields) from None
    return given


# -- tasks -------------------------------------------------------------------------------------------------------------


def task_names() -> list[str]:
    """The tasks that ship with fedprior."""
    return sorted(
        p.name.removesuffix(".toml") for p in resources.files("fedprior.tasks").iterdir() if p.name.endswith(".toml")
    )


def read_task(name: str) -> dict[str, Any]:
    """The settings of a shipped task by name, or of a TOML file by path."""
    if name in task_names():
        text = (resources.files("fedprior.tasks") / f"{name}.toml").read_text()
    elif name.endswith(".toml"):
        try:
            text = Path(name).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise FedpriorError(f"cannot read task file {name}: {getattr(error, 'strerror', error)}") from error
    else:
        raise unknown("task", name, [*task_names(), "<a file ending in .toml>"])
    try:
        return {"name": Path(name).stem, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError as error:
        raise FedpriorError(f"task {name} is not valid TOML: {error}") from error


def parse_assignment(text: str) -> tuple[str, Any]:
    """Read ``key=value``; the value is a TOML value, or else a plain string.

    >>> parse_assignment("lambda=15"), parse_assignment("partition.labels=released")
    (('lam', 15), ('partition.labels', 'released'))
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise FedpriorError(f"'{text}' is not of the form key=value")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return ALIASES.get(key, key), parsed


def configure(
    task: str | Mapping[str, Any], names: Iterable[str], assignments: Mapping[str, Any] | None = None
) -> tuple[Experiment, dict[str, Method]]:
    """Settings of a task with assignments applied, and its methods.

    A key of the experiment (``rounds``, ``partition.labels``) is set there; any other is set on every method that has it,
    and is an error only if none has it.
    """
    content = read_task(task) if isinstance(task, str) else dict(task)
    names = list(dict.fromkeys(names))
    has = {name: methods.keys(name) for name in names}
    own: dict[str, Any] = {}
    for key, value in (assignments or {}).items():
        first, *rest = key.split(".")
        if first in Experiment.model_fields and first not in ("method", "why"):
            _assign(content, [first, *rest], value)
        elif any(key in keys for keys in has.values()):
            own[key] = value
        else:
            valid = {*Experiment.model_fields, *(k for keys in has.values() for k in keys)} - {"method", "why", "about"}
            raise unknown("key", key, valid)
    experiment = parse(content, f"task '{content.get('name', '?')}'")
    return experiment, {name: method_for(experiment, name, own) for name in names}


def method_for(experiment: Experiment, name: str, own: Mapping[str, Any] | None = None) -> Method:
    """A registered method with the task's hyper-parameters where it has them, and ``own`` above those.

    What a name stands for (mh: mean = mh) is not for the task to change, only for ``own``.
    """
    shared = {ALIASES.get(key, key): value for key, value in experiment.method.items()}
    known = {key for other in methods.METHODS for key in methods.keys(other)}
    for key in shared:
        if key not in known:
            raise unknown(f"key in [method] of task '{experiment.name}'", key, known)
    has, preset = methods.keys(name), methods.METHODS[name][1]
    settings = {key: value for key, value in shared.items() if key in has and key not in preset}
    return methods.make(name, **(settings | {key: value for key, value in (own or {}).items() if key in has}))


def _assign(content: dict[str, Any], path: list[str], value: Any) -> None:
    *parents, last = path
    for part in parents:
        inner = content.get(part, {})
        if not isinstance(inner, dict):
            raise FedpriorError(f"'{'.'.join(path)}': '{part}' is a single value and has no parts")
        content[part] = dict(inner)
        content = content[part]
    content[last] = value


# -- data and model behind the settings --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """An experiment with its data laid out client by client and its model: all that a method needs to run."""

    experiment: Experiment
    federation: Federation
    problem: Classifier
    partition: Partition
    select: Selection | None = None  # a selection strategy of the user's own
    newcomers: Federation | None = None  # the partition's other clients, who join after training

    def __post_init__(self) -> None:
        s, n = self.experiment.aggregated, self.federation.n_clients
        if s is not None and s > n:
            besides = f" besides {self.newcomers.n_clients} newcomers" if self.newcomers else ""
            raise FedpriorError(f"aggregated = {s} clients per round, but there are {n}{besides}; valid: 1 to {n}")


def open_task(experiment: Experiment) -> Task:
    """Load the data, part it among the clients and build the model."""
    source = load(experiment.data.source, normalize=experiment.data.normalize)
    return _task(experiment, source, split(source, experiment))


def split(source: Source, experiment: Experiment) -> Partition:
    """Part a source as the experiment says."""
    function, options = PARTITIONS[experiment.partition["kind"]], _partition_options(experiment)
    given: dict[str, Any] = {}
    for name in inspect.signature(function).parameters:
        if name in GIVEN:
            given[name] = getattr(source, name)
    if "group" in given and given["group"] is None:
        kind = experiment.partition["kind"]
        raise FedpriorError(f"partition '{kind}' needs writers or users, and {source.name} has none; try dirichlet")
    return function(**given, **options)


def _task(
    experiment: Experiment, source: Source, partition: Partition, model: ModelBuilder | eqx.Module | None = None
) -> Task:
    staying = joining = None
    if experiment.new_clients:
        staying, joining = part_newcomers(partition.clients, experiment.new_clients)
    federation = federate(source, partition, experiment.validation, clients=staying)
    newcomers = None if joining is None else federate(source, partition, experiment.validation, clients=joining)
    if model is None:
        options = dict(experiment.model)
        name = options.pop("name", None)
        if not isinstance(name, str):
            raise FedpriorError(f"task '{experiment.name}': model.name is missing; valid: {', '.join(models.MODELS)}")

        def build(key: Array) -> eqx.Module:
            return models.build(name, options, source.x.shape[1:], source.n_classes, source.vectors, key)

        model = build
    return Task(experiment, federation, Classifier(model, source.n_classes), partition, newcomers=newcomers)


def task_from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    client_id: np.ndarray,
    model: ModelBuilder | eqx.Module,
    *,
    name: str = "arrays",
    is_test: np.ndarray | None = None,
    test_fraction: float = 0.25,
    n_classes: int | None = None,
    **settings: Any,
) -> Task:
    """A task from your own arrays: samples x, labels y, the client of each sample, and any Equinox model.

    ``model`` is a function of a key that builds it (every seed gets its own start) or a ready model (every seed starts from
    its weights). Without ``is_test``, a seeded part of each client's samples is its test. ``settings`` are those of
    :class:`Experiment`, such as ``rounds`` and ``aggregated``.
    """
    source = from_arrays(x, y, client_id, n_classes, name)
    experiment = parse(
        {
            "name": name,
            "data": {"source": "arrays"},
            "partition": {"kind": "natural", "test_fraction": test_fraction},
            "model": {"name": type(model).__name__ if isinstance(model, eqx.Module) else "given"},
            **settings,
        },
        f"task '{name}'",
    )
    assert source.group is not None
    partition = partitions.natural(source.y, source.group, is_test=is_test, test_fraction=test_fraction)
    return _task(experiment, source, partition, model)

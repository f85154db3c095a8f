"""Validated settings: what is to be learnt (a task), how (the protocol), and the files that say so. Imports no JAX.

A task file is flat: keys of the task and of the protocol stand side by side, ``[method]`` holds hyper-parameters for every
method that has them, and ``[why]`` says where each value comes from.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic

from fedprior import models
from fedprior.data import partitions
from fedprior.errors import FedpriorError, one_line, unknown
from fedprior.files import parsed, read_bytes
from fedprior.study.assignment import ALIASES, RENAMED, assign, native
from fedprior.study.data_file import check_data, with_partition, with_path

MOST_TOML = 2**20  # bytes
LONGEST = 120  # bytes in the name of a folder, to which endings are added; file systems take 255
LENGTHS = f"1 to {LONGEST} characters, of which accented letters and those of other scripts count 2 to 4 times"
DEEP_KEY = re.compile(r"^[ \t]*\[{0,2}(?:[^.,=\n]*\.){100}", re.MULTILINE)


def is_long(name: str) -> bool:
    """Whether a name takes too many bytes to be a folder's."""
    return len(name.encode(errors="surrogatepass")) > LONGEST


class Strict(pydantic.BaseModel):
    """Settings of which unknown keys and wrong types are errors."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class DataSettings(Strict):
    """Which data: a source by name or a file of one's own, and how it becomes numbers (None: the default of either)."""

    source: str | None = None
    normalize: str | None = None
    file: str | None = None  # relative to the task file; once read, the whole path
    label: str | None = None  # the names of columns of the file, this one and those below
    client: str | None = None
    split: str | None = None
    features: list[str] | None = pydantic.Field(None, min_length=1)  # None: all columns that are named nowhere else
    ignore: list[str] | None = None

    @pydantic.model_serializer(mode="wrap")
    def _plain(self, all_of_it: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What belongs to a source, or to a file."""
        keep = ("source", "normalize") if self.file is None else ()
        return {key: value for key, value in all_of_it(self).items() if key in keep or value is not None}


class TaskSettings(Strict):
    """What is to be learnt."""

    name: str = pydantic.Field(pattern=r"^[^/\\.][^/\\]*$")  # it names a folder
    about: str = ""
    data: DataSettings
    partition: dict[str, Any]
    model: dict[str, Any]
    validation: float = pydantic.Field(0.0, ge=0, lt=1)  # part of each client's training samples
    new_clients: float = pydantic.Field(0.0, ge=0, lt=1)  # part of the clients, who join only after training

    @pydantic.field_validator("name")
    @classmethod
    def _short(cls, name: str) -> str:
        if is_long(name):
            raise ValueError(f"it names a folder: use {LENGTHS}")
        return name


class Budget(Strict):
    """What each method may spend, of one kind, in place of a number of rounds that is the same for all."""

    gradients: int | None = pydantic.Field(None, ge=1)  # of a client that trains in every round
    total_gradients: int | None = pydantic.Field(None, ge=1)  # of the whole federation
    megabytes: float | None = pydantic.Field(None, gt=0, allow_inf_nan=False)  # sent, both ways

    @pydantic.model_validator(mode="after")
    def _one(self) -> Budget:
        if sum(value is not None for value in (self.gradients, self.total_gradients, self.megabytes)) != 1:
            raise ValueError("a budget is of one kind: gradients, total_gradients or megabytes")
        return self

    @pydantic.model_serializer
    def _plain(self) -> dict[str, float]:
        return {kind: value for kind, value in self if value is not None}

    @pydantic.field_validator("megabytes", mode="before")
    @classmethod
    def _whole(cls, value: object) -> object:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Protocol(Strict):
    """How it is learnt and looked at. A variant may change any of it for its own row."""

    rounds: int = pydantic.Field(200, ge=1, le=10**9)  # T
    budget: Budget | None = None  # sets every method's own number of rounds, in place of ``rounds``
    aggregated: int | None = pydantic.Field(None, ge=1)  # S; None: all clients
    batch: int = pydantic.Field(20, ge=1)
    participation: Literal["all", "sampled"] | None = None  # None: the method's own default
    selection: str = "uniform"
    weights: Literal["samples", "uniform"] = "samples"
    eval_every: int = pydantic.Field(1, ge=1)  # rounds between evaluations
    # When personal models see the pooled test; None: last, or never where it would take N x N too long.
    pooled: Literal["last", "every", "never"] | None = None
    score_fine_tuned: int = pydantic.Field(0, ge=0)  # steps of FT after which personal models are scored once more
    metrics: list[str] | None = None  # besides accuracy and nll; None: every one that is no value per class
    gce: bool = False  # whether evaluations record how coherent the clients' envelope gradients are
    clients_per_vmap: int = pydantic.Field(1, ge=1)  # 1 on CPUs, more on accelerators
    # How many clients are recorded one by one; None: all of them, or a sample of a very large federation.
    client_rows: Literal["all"] | Annotated[int, pydantic.Field(ge=1)] | None = None
    # Whether records say how many samples of each class a client has, which may be confidential.
    record_labels: bool = True

    @property
    def unsaid(self) -> set[str]:
        """Left out of the record while off, so that runs from before the setting existed still match."""
        return set() if self.score_fine_tuned else {"score_fine_tuned"}


PARTS = {"data": DataSettings.model_fields, "budget": Budget.model_fields}  # settings that have settings
# Of the protocol: what a run's states do not depend on.
NOT_RECORDED = {"metrics", "gce", "clients_per_vmap", "client_rows", "record_labels"}


@dataclass(frozen=True)
class TaskFile:
    """What a task's file says."""

    task: TaskSettings
    protocol: Protocol
    method: dict[str, Any] = field(default_factory=dict)  # hyper-parameters for every method that has them
    why: dict[str, str] = field(default_factory=dict)  # where each value comes from

    def plain(self) -> dict[str, Any]:
        """The file's content as plain data, from which another process reads the same task."""
        parts = (self.task.model_dump(exclude_unset=True), self.protocol.model_dump(exclude_unset=True))
        return {**parts[0], **parts[1], "method": self.method, "why": self.why}


def parse(content: Mapping[str, Any], what: str) -> TaskFile:
    """Validate what a task file says, down to the partition's and the model's own settings."""
    given = with_partition(with_path(native(content), Path()))
    method, why = given.pop("method", {}), given.pop("why", {})
    for name, table in (("method", method), ("why", why)):
        if not isinstance(table, dict):
            raise FedpriorError(f"{what}: '{name}' must be a table of settings (given: {table!r})")
    valid = [*TaskSettings.model_fields, *Protocol.model_fields, "method", "why"]
    for key in given:
        if key in RENAMED:
            raise FedpriorError(f"{what}: '{key}' is now called '{RENAMED[key]}'")
        if key not in valid:
            raise unknown(f"key in {what}", key, valid)
    try:
        task = TaskSettings.model_validate({k: v for k, v in given.items() if k in TaskSettings.model_fields})
        protocol = Protocol.model_validate({k: v for k, v in given.items() if k in Protocol.model_fields})
    except pydantic.ValidationError as error:
        raise one_line(error, what, valid, PARTS) from None
    check_data(task.data, task.partition, what)
    partitions.check_options(task.partition, f"task '{task.name}'")
    _check_model(task)
    shared = {ALIASES.get(key, key): value for key, value in method.items()}
    return TaskFile(task, protocol, shared, {key: str(value) for key, value in why.items()})


def _check_model(task: TaskSettings) -> None:
    options = dict(task.model)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise FedpriorError(f"task '{task.name}': model.name is missing; valid: {', '.join(models.MODELS)}")
    if task.data.source == "arrays":
        return  # a model of the user's own
    if name not in models.MODELS:
        raise unknown("model", name, models.MODELS)
    if options:  # only now, since it imports JAX
        models.check_options(name, options)


def change_protocol(protocol: Protocol, changes: Mapping[str, Any], what: str) -> Protocol:
    """The protocol with some settings changed, validated."""
    if not changes:
        return protocol
    content = protocol.model_dump(exclude_unset=True)
    for key, value in changes.items():
        content = assign(content, key, native(value))
    _check_length(changes, content, what)
    try:
        return Protocol.model_validate(content)
    except pydantic.ValidationError as error:
        raise one_line(error, what, Protocol.model_fields, PARTS) from None


def _check_length(changes: Mapping[str, Any], content: Mapping[str, Any], what: str) -> None:
    """Refuse rounds that a budget would override, whether it is given with them or was there before."""
    if "rounds" in changes and content.get("budget") is not None:
        raise FedpriorError(f"{what}: rounds and budget both say how long to run; choose one of them")


# What a study has beside its settings: a parameter of `Study` would take a setting of the same name.
BESIDE = {
    "self": "leave it out",
    "task": "name the task itself: fedprior run TASK, or `tasks` in a study file",
    "variants": "give rows by --method, or in [variants] of a study file",
    "seeds": "give --seeds, or `seeds` at the top of a study file",
    "local": "give --local or --no-local, or `local` at the top of a study file",
    "optional": "leave it out",
}


def keywords(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that may be given to a study by keyword, or an error that says what to give instead."""
    for key in settings:
        if key in BESIDE:
            raise FedpriorError(f"'{key}' is no setting; {BESIDE[key]}")
    return dict(settings)


# -- files -------------------------------------------------------------------------------------------------------------


def task_names() -> list[str]:
    """The tasks that ship with fedprior."""
    files = resources.files("fedprior.study.tasks").iterdir()
    return sorted(p.name.removesuffix(".toml") for p in files if p.name.endswith(".toml"))


def read_task(name: str) -> dict[str, Any]:
    """The content of a shipped task by name, or of a TOML file by path."""
    if name in task_names():
        text = (resources.files("fedprior.study.tasks") / f"{name}.toml").read_text(encoding="utf-8")
        return {"name": name, **tomllib.loads(text)}
    if name.endswith(".toml"):
        return with_path({"name": Path(name).stem, **read_toml(Path(name), "task")}, Path(name).parent)
    raise unknown("task", name, [*task_names(), "<a file ending in .toml>"])


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The content of a TOML file, or what is wrong with it."""

    def parse_toml(data: bytes) -> Any:
        text = data.decode()
        if DEEP_KEY.search(text):  # the parser would take hours
            raise RecursionError
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise FedpriorError(f"{what} {path} is not valid TOML: {error}") from error

    name = f"{what} file {path}"
    content: dict[str, Any] = parsed(name, parse_toml, read_bytes(path, MOST_TOML, links=True, name=name))
    return content


# -- keys ---------------------------------------------------------------------------------------------------------------


def is_task_key(key: str) -> bool:
    """Whether a key, such as ``rounds`` or ``partition.clients``, belongs to the task or the protocol."""
    first = key.partition(".")[0]
    return first in TaskSettings.model_fields or first in Protocol.model_fields


def read(task: str | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> TaskFile:
    """A task by name, path or content, with settings of the task and the protocol changed."""
    content = read_task(task) if isinstance(task, str) else dict(task)
    what = f"task '{content.get('name', '?')}'"
    changes = changes or {}
    for key, value in changes.items():
        content = assign(content, key, value)
    _check_length(changes, content, what)
    return parse(content, what)


def settable(more: Iterable[str] = ()) -> list[str]:
    """The keys that ``--set`` takes, to be listed in an error."""
    return sorted({*TaskSettings.model_fields, *Protocol.model_fields, *more} - {"about"})

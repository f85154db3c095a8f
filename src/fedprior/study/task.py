"""A task with its data laid out client by client and its model: all that a method needs to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import numpy as np
from jax import Array

from fedprior import methods, models
from fedprior.data.federation import Federation, federate, part_newcomers
from fedprior.data.partitions import Partition, natural, split_source
from fedprior.data.scaling import standardize
from fedprior.data.sources import Source, from_arrays
from fedprior.engine.selection import Selection
from fedprior.errors import FedpriorError, unknown
from fedprior.models.classifier import Classifier, ModelBuilder
from fedprior.study.assignment import current_key, native
from fedprior.study.data_file import SCALINGS, is_scaled, open_source
from fedprior.study.settings import (
    Protocol,
    TaskFile,
    TaskSettings,
    change_protocol,
    is_task_key,
    parse,
    read,
    settable,
)


@dataclass(frozen=True)
class Task:
    """What is to be learnt, opened; with the protocol and the hyper-parameters that its file suggests."""

    settings: TaskSettings
    protocol: Protocol
    defaults: dict[str, Any]  # hyper-parameters for every method that has them
    federation: Federation
    problem: Classifier
    partition: Partition
    select: Selection | None = None  # a selection strategy of the user's own
    newcomers: Federation | None = None  # the partition's other clients, who join after training
    content: dict[str, Any] | None = None  # plain data from which another process opens the same; None: from arrays
    remarks: tuple[str, ...] = ()  # what is valid in the data but may not be meant

    @property
    def name(self) -> str:
        """The task's name."""
        return self.settings.name

    def with_protocol(self, **changes: Any) -> Task:
        """The task with another protocol."""
        return replace(self, protocol=change_protocol(self.protocol, changes, f"task '{self.name}'"))

    def __repr__(self) -> str:
        held_out = f" and {self.newcomers.n_clients} newcomers" if self.newcomers else ""
        return f"Task({self.name!r}: {self.federation.n_clients} clients{held_out}, {self.problem.n_classes} classes)"


def task(name: str | Mapping[str, Any], /, **settings: Any) -> Task:
    """Open a shipped task or a TOML file by name, with settings changed by keyword.

    ``settings`` are keys of the task or the protocol (``rounds``), or hyper-parameters for every method that has them.

    >>> task("digits-mclr", rounds=5, lam=5.0)
    Task('digits-mclr': 20 clients, 10 classes)
    """
    settings = {current_key(key): native(value) for key, value in settings.items()}
    own = {key: value for key, value in settings.items() if is_task_key(key)}
    shared = {key: value for key, value in settings.items() if key not in own}
    known = methods.all_keys()
    for key in shared:
        if key not in known:
            raise unknown("key", key, settable(known))
    file = read(name, own)
    return open_task(replace(file, method={**file.method, **shared}))


def open_task(file: TaskFile) -> Task:
    """Load the data, partition it among the clients and build the model."""
    source = open_source(file.task.data)
    options = {key: value for key, value in file.task.model.items() if key != "name"}
    # JAX remembers how a model is built for as long as the process lives: nothing that holds the samples may be part of it.
    name, shape, n_classes, vectors = file.task.model["name"], source.x.shape[1:], source.n_classes, source.vectors

    def build(key: Array) -> eqx.Module:
        return models.build(name, options, shape, n_classes, vectors, key)

    return _task(file, source, split_source(source, file.task.partition), build, file.plain())


def _task(
    file: TaskFile,
    source: Source,
    partition: Partition,
    model: ModelBuilder | eqx.Module,
    content: dict[str, Any] | None = None,
) -> Task:
    settings = file.task
    staying = joining = None
    if settings.new_clients:
        staying, joining = part_newcomers(partition.clients, settings.new_clients)
    federation = federate(source, partition, settings.validation, clients=staying)
    newcomers = None if joining is None else federate(source, partition, settings.validation, clients=joining)
    remarks = _untested(federation)
    if is_scaled(settings.data):
        federation, newcomers, about = standardize(federation, newcomers)
        remarks = (*about, *remarks)
    problem = Classifier(model, source.n_classes)
    problem.check_reads(federation.train.x, federation.classes)
    s, n = file.protocol.aggregated, federation.n_clients
    if s is not None and s > n:
        besides = f" besides {newcomers.n_clients} newcomers" if newcomers else ""
        raise FedpriorError(f"aggregated = {s} clients per round, but there are {n}{besides}; valid: 1 to {n}")
    return Task(
        settings,
        file.protocol,
        file.method,
        federation,
        problem,
        partition,
        newcomers=newcomers,
        content=content,
        remarks=remarks,
    )


def _untested(federation: Federation) -> tuple[str, ...]:
    """Who has no test samples, where others have some."""
    without = [repr(one) for one, size in zip(federation.ids, federation.test.size, strict=True) if not size]
    if not without or not federation.is_tested:
        return ()
    listed = ", ".join(without[:5]) + (f" and {len(without) - 5} more" if len(without) > 5 else "")
    return (
        f"{len(without)} of {federation.n_clients} clients have no test samples ({listed}): they train, and are left out of "
        "all test numbers",
    )


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
    normalize: str = "none",
    **settings: Any,
) -> Task:
    """A task from your own arrays: samples x, labels y, the client of each sample, and any Equinox model.

    Clients and labels are called what you call them: ``client_id`` holds whole numbers or texts, and so may ``y``.
    ``model`` is a function of a key that builds it (every seed gets its own start) or a ready model (every seed starts from
    its weights). Without ``is_test``, a seeded part of each client's samples is its test; with ``test_fraction`` = 0 all are
    trained on and nothing is tested. ``normalize`` = "standard" shifts and scales each number of a sample to mean 0 and
    deviation 1 over the training samples. ``settings`` are those of a task file, such as ``rounds`` and ``aggregated``, but
    for its ``data`` and ``partition``.
    """
    if client_id is None:
        raise FedpriorError("client_id is missing: say who holds each sample, by a whole number or a text")
    if normalize not in SCALINGS:
        raise unknown("normalization of arrays", normalize, SCALINGS)
    for key, instead in (("data", "x, y and normalize"), ("partition", "client_id, is_test and test_fraction")):
        if key in settings:
            raise FedpriorError(f"'{key}' is no setting of a task from arrays, where {instead} say it; leave it out")
    source = from_arrays(x, y, client_id, n_classes, name)
    file = parse(
        {
            "name": name,
            "data": {"source": "arrays"} | ({} if normalize == "none" else {"normalize": normalize}),
            "partition": {"kind": "natural", "test_fraction": test_fraction},
            "model": {"name": type(model).__name__ if isinstance(model, eqx.Module) else "given"},
            **settings,
        },
        f"task '{name}'",
    )
    assert source.group is not None
    partition = natural(
        source.y, source.group, is_test=is_test, group_names=source.group_names, test_fraction=test_fraction
    )
    return _task(file, source, partition, model)

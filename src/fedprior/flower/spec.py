"""What a deployed federation learns: a task file, whose samples stay where they are, and what all sites must agree on.

The file is that of a task with the table ``[sites]`` in place of data and partition::

    rounds = 50
    aggregated = 3

    [sites]
    shape = [30]                           # of a sample
    classes = ["benign", "malignant"]      # in this order on every site

    [model]
    name = "mclr"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from fedprior import models
from fedprior.core.method import Mixture
from fedprior.data.federation import Federation, Samples
from fedprior.data.partitions import Partition
from fedprior.data.preparation import Preparation
from fedprior.errors import FedpriorError, one_line
from fedprior.files import digest
from fedprior.models.classifier import Classifier, ModelBuilder
from fedprior.models.file import Built
from fedprior.models.saved import Predictor, output_names
from fedprior.records.schema import plain
from fedprior.study.program import Program
from fedprior.study.settings import Strict, TaskFile, parse, read_toml
from fedprior.study.task import Task
from fedprior.study.variant import Variant

# By default no metric is measured whose sums tell how many samples of each class a site has.
METRICS = ("accuracy", "nll", "brier", "ece")
# Settings of a simulation, which would do nothing here.
SIMULATED = ["data", "partition", "validation", "new_clients", "pooled", "gce", "score_fine_tuned", "clients_per_vmap"]
SHOWN = 40  # samples of zeros that stand for those that nobody but their owner sees


class SiteSettings(Strict):
    """What every site must have in common."""

    shape: list[pydantic.PositiveInt] = pydantic.Field(min_length=1)
    classes: list[int | str] = pydantic.Field(min_length=2)

    @pydantic.field_validator("classes")
    @classmethod
    def _differ(cls, classes: list[int | str]) -> list[int | str]:
        if len(set(map(str, classes))) < len(classes):
            raise ValueError("two classes look the same in records; each is named once")
        return classes


@dataclass(frozen=True)
class Spec:
    """A deployed task: its file, the model, and what the sites have in common."""

    file: TaskFile
    sites: SiteSettings
    model: ModelBuilder
    digest: str  # of all that the two sides must agree on
    built: Built | None = None  # what a registered model is built from; None: a model of the user's own

    def program(self, federation: Federation, row: str | Variant) -> Program:
        """The row's method on some federation of this task: that of all sites as the server sees it, or of a single one."""
        variant = Variant.parse(row) if isinstance(row, str) else row
        if found := [key for key in SIMULATED if key in variant.protocol]:
            raise FedpriorError(
                f"row '{variant.name}': '{found[0]}' is for simulations, and does nothing here; leave it out"
            )
        problem = Classifier(self.model, len(self.sites.classes))
        problem.check_reads(federation.train.x, self.sites.classes)
        nobody = Partition((), (), np.zeros(0, int), federation.names)
        task = Task(self.file.task, self.file.protocol, self.file.method, federation, problem, nobody)
        return Program(task, variant)

    def predictor(self, problem: Classifier, mixture: Mixture, client: str | None, about: dict[str, Any]) -> Predictor:
        """A model with all that it takes to use it on samples of this task."""
        shape, classes = tuple(self.sites.shape), self.sites.classes
        names = output_names(classes, len(classes))
        return Predictor(problem, mixture, Preparation(shape=shape), shape, names, client, about, self.built)

    def federation(self, names: Sequence[str], train: Samples, test: Samples, fingerprint: str) -> Federation:
        """The federation of the named clients."""
        return Federation(
            train,
            test,
            None,
            len(self.sites.classes),
            fingerprint,
            names=tuple(names),
            class_names=tuple(self.sites.classes),
            split=fingerprint,
        )

    def unseen(self, names: Sequence[str], sizes: Sequence[tuple[int, int]], fingerprint: str) -> Federation:
        """The federation as its server knows it: how many samples each client has to train and to test, and none of them."""
        x, y = np.zeros((SHOWN, *self.sites.shape), np.float32), np.zeros(SHOWN, np.int32)
        nowhere = np.zeros(len(names), np.int32)
        train, test = (Samples(x, y, nowhere, np.array(size, np.int32)) for size in zip(*sizes, strict=True))
        return self.federation(names, train, test, fingerprint)


def open_spec(path: Path | str, model: ModelBuilder | None = None) -> Spec:
    """Read a deployed task's file; ``model`` builds a model of the user's own."""
    content = read_toml(Path(path), "task")
    sites = _site_settings(content.pop("sites", {}), f"[sites] of {path}")
    if found := [key for key in SIMULATED if key in content]:
        raise FedpriorError(
            f"{path}: '{found[0]}' is for simulations; here every site has its own samples, leave it out"
        )
    everything = {
        "name": Path(path).stem,
        "metrics": list(METRICS),
        **content,
        "data": {"source": "arrays"},
        "partition": {"kind": "natural"},
        "pooled": "never",  # nobody sees the samples of all
    }
    if model is None and "model" not in content:
        raise FedpriorError(f"{path}: '[model]' is missing; name one, or give a function that builds your own")
    file = parse({"model": {"name": "given"}, **everything}, f"task {path}")
    build = _registered(file, sites) if model is None else model
    built = _built(file) if model is None else None
    return Spec(file, sites, build, digest(repr(plain([file.plain(), sites.model_dump()]))), built)


def recorded_spec(config: dict[str, Any]) -> Spec:
    """The spec of a deployed run whose model is a registered one, from its records."""
    run = config["run"]
    sites = _site_settings(config["deployed"].get("sites"), "[sites] of the recorded task")
    file = parse({**run["task"], **run["protocol"]}, f"task '{run['task']['name']}'")
    return Spec(file, sites, _registered(file, sites), "", _built(file))


def _site_settings(given: Any, what: str) -> SiteSettings:
    try:
        return SiteSettings.model_validate(given)
    except pydantic.ValidationError as error:
        raise one_line(error, what, SiteSettings.model_fields) from None


def _built(file: TaskFile) -> Built:
    options = {key: value for key, value in file.task.model.items() if key != "name"}
    return Built(name=file.task.model["name"], options=options, vectors=None)


def _registered(file: TaskFile, sites: SiteSettings) -> ModelBuilder:
    options = {key: value for key, value in file.task.model.items() if key != "name"}
    name, shape = file.task.model["name"], tuple(sites.shape)
    models.MODELS.find(name)
    models.check_options(name, options)

    def build(key: Any) -> Any:
        return models.build(name, options, shape, len(sites.classes), None, key)

    return build

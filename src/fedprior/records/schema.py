"""What records hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from fedprior.files import plain as plain

FORMAT = 2  # the current one; `formats` reads those before it
AVERAGES = ("weighted", "mean", "worst_decile")
NEWCOMERS = ("newcomer", "newcomer-global")  # the models of clients that join after training
FINE_TUNED = "fine-tuned"  # the personal models after further steps, where they are scored besides
CHECK = "check"  # the column of checksums
KEYS = {  # the columns of each table that stand before those of the metrics
    "metrics.csv": ("round", "model", "data", "average"),
    "clients.csv": ("round", "model", "data", "client", "samples"),
    "times.csv": ("round", "train_seconds", "evaluation_seconds"),
}
ClientId = int | str


class Status(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    FINISHED = "finished"


@dataclass(frozen=True)
class MetricInfo:
    """What a reader of records must know of a metric."""

    name: str
    unit: str  # "%" or "" for a plain number
    better: str  # "higher" or "lower"
    about: str = ""
    per_class: bool = False  # one value per class, in columns "name[class]"

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value is a better one."""
        return self.better == "higher"

    def columns(self, class_names: Sequence[int | str]) -> list[str]:
        """The columns that records have of the metric: one, or one for each class.

        >>> NLL.columns(["a"]), MetricInfo("recall", "%", "higher", per_class=True).columns(["a", "b"])
        (['nll'], ['recall[a]', 'recall[b]'])
        """
        return [f"{self.name}[{label}]" for label in class_names] if self.per_class else [self.name]

    @property
    def label(self) -> str:
        """The name as text, with its unit."""
        return self.name.replace("_", " ") + (f" ({self.unit})" if self.unit else "")


ACCURACY = MetricInfo("accuracy", "%", "higher", "share of samples whose most probable class is the right one")
NLL = MetricInfo("nll", "", "lower", "negative log-likelihood, the loss that is trained on")


class Row(NamedTuple):
    """One average over clients, of one kind of model on one kind of data after one round: a value per metric."""

    round: int
    model: str
    data: str
    average: str
    values: dict[str, float]


class ClientRow(NamedTuple):
    """One client's own values."""

    round: int
    model: str
    data: str
    client: ClientId
    samples: int
    values: dict[str, float]


class Times(NamedTuple):
    """How long a round took, in seconds."""

    round: int
    train_seconds: float
    evaluation_seconds: float


class Session(NamedTuple):
    """When and how a run was begun or resumed."""

    begun: str  # UTC, as ISO 8601 says
    ended: str | None  # None: it goes on, or ended without a word
    command: str | None  # None: run from Python
    fedprior: str  # the version


class LabelCounts(NamedTuple):
    """How many samples of each class the clients have."""

    classes: tuple[ClientId, ...]
    clients: dict[ClientId, dict[str, list[int]]]  # client -> train, test or validation -> a number for each class


@dataclass(frozen=True)
class RunRecord:
    """A run as analysis sees it: frozen, complete, and free of any engine."""

    config: dict[str, Any]  # as of the current format
    status: Status
    round: int  # the last one done
    rows: tuple[Row, ...]
    clients: Sequence[ClientRow]  # read when they are first looked at
    where: str = "memory"  # the folder
    times: tuple[Times, ...] = ()
    provenance: tuple[Session, ...] | None = None  # None: not recorded, as before format 2 had it
    read_labels: Callable[[], LabelCounts | None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def label_counts(self) -> LabelCounts | None:
        """How many samples of each class the clients have; None where that was left out, or not recorded yet."""
        return self.read_labels()

    @property
    def seconds(self) -> float | None:
        """How long all rounds took together; None if the time of any of them is unknown."""
        done = self.round - (self.status is Status.DIVERGED)
        if not self.times or [row.round for row in self.times] != [*range(1, max(done, len(self.times)) + 1)]:
            return None
        return sum(row.train_seconds + row.evaluation_seconds for row in self.times)

    @property
    def task(self) -> str:
        """The task's name."""
        return str(self.config["run"]["task"]["name"])

    @property
    def variant(self) -> str:
        """The name of the row of a table that the run belongs to."""
        return str(self.config["run"]["variant"]["name"])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.config["run"]["seed"])

    @property
    def is_tested(self) -> bool:
        """Whether there were test samples; without any, a run has no test numbers and never will."""
        return bool(self.config.get("tested", True))

    @property
    def metrics(self) -> dict[str, MetricInfo]:
        """What was measured, by name."""
        return {info["name"]: MetricInfo(**info) for info in self.config["metrics"]}


def averages(value: np.ndarray, count: np.ndarray, worst_is_low: bool = True) -> dict[str, float]:
    """The three averages of a per-client value: by samples, over clients, and over the tenth that fares worst.

    >>> averages(np.array([50.0, 100.0]), np.array([30, 10]))
    {'weighted': 62.5, 'mean': 75.0, 'worst_decile': 50.0}
    """
    value, count = value[count > 0], count[count > 0]  # a client too small to have a validation sample
    order = np.sort(value) if worst_is_low else -np.sort(-value)
    return {
        "weighted": float(np.average(value, weights=count)),
        "mean": float(np.mean(value)),
        "worst_decile": float(np.mean(order[: max(1, len(value) // 10)])),
    }

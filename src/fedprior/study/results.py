"""What came of runs: one run's models and numbers, and the tables and pictures of many."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprior.analysis import grouping, summary
from fedprior.analysis.evidence import evidence
from fedprior.analysis.grouping import Warn, silent
from fedprior.errors import FedpriorError, unknown
from fedprior.records.runs import Run
from fedprior.records.schema import RunRecord, Status
from fedprior.report import words
from fedprior.study import models_of

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from fedprior.analysis.compare import Comparison
    from fedprior.engine.round import State
    from fedprior.models.saved import Predictor
    from fedprior.report.tables import Table
    from fedprior.study.trial import Trial


class Lost(NamedTuple):
    """A run that did not finish: it diverged, or failed for another reason."""

    task: str
    row: str
    how: str  # "diverged" or "failed"
    text: str  # what to tell
    round: int = 0  # where it diverged; 0: nobody said


@dataclass
class Result:
    """One run: its numbers, every client's own values (``record.clients``), and the models."""

    trial: Trial
    state: State
    run: Run
    warnings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The row that the run belongs to."""
        return self.trial.program.variant.name

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.trial.seed

    @property
    def finished(self) -> bool:
        """Whether the last round is done."""
        return self.record.status == Status.FINISHED

    @functools.cached_property
    def record(self) -> RunRecord:
        """What was recorded."""
        return self.run.record()

    def value(
        self, metric: str = "accuracy", model: str = "personal", data: str = "own", average: str = "weighted"
    ) -> float:
        """A metric at the last evaluated round."""
        rows = [row for row in self.record.rows if row[1:4] == (model, data, average)]
        if not rows:
            why = "" if self.record.is_tested or data == "validation" else ": nothing was tested"
            raise FedpriorError(f"{self.name} has no '{model}' model evaluated on '{data}' ({average}){why}")
        if metric not in rows[-1].values:
            raise unknown("metric", metric, rows[-1].values)
        return rows[-1].values[metric]

    def accuracy(self, model: str = "personal", data: str = "own", average: str = "weighted") -> float:
        """Test accuracy in percent at the last evaluated round."""
        return self.value("accuracy", model, data, average)

    def global_model(self, round: str = "last") -> Any:
        """The global model as an Equinox module, or None where the method has none."""
        mixture = models_of.global_mixture(self, self._state(round))
        return None if mixture is None else models_of.modules(self, mixture)[0]

    def personal_model(self, client: int | str, round: str = "last") -> tuple[np.ndarray, list[Any]]:
        """One client's personal model as mixture weights [M] and M Equinox modules (M = 1 for most methods).

        A client that was held out of training has the model with which it was scored: it joins the trained federation.
        ``round``: "last", or "best-on-validation".
        """
        import numpy as np

        mixture = models_of.personal_mixture(self, self._state(round), client)
        return np.asarray(mixture[0]), models_of.modules(self, mixture)

    def predictor(self, client: int | str | None = None, round: str = "last") -> Predictor:
        """One client's personal model, or without a client the global model, ready to predict and to be saved."""
        return models_of.predictor(self, self._state(round), client, round)

    def save(self, path: Path | str, client: int | str | None = None, round: str = "last") -> Path:
        """Save one client's personal model, or without a client the global model, for `fedprior.load`."""
        return self.predictor(client, round).save(path)

    def _state(self, round: str) -> State:
        return models_of.state_of(self, round)

    def __repr__(self) -> str:
        return f"Result({self.name!r}, seed {self.seed}: {self.record.status.value}, round {self.record.round})"


@dataclass
class Results:
    """The runs of a study, or those read from folders: tables, curves and comparisons."""

    records: list[RunRecord]
    runs: list[Result] = field(default_factory=list)  # those of this process, with their models
    lost: list[Lost] = field(default_factory=list)
    order: tuple[str, ...] = ()  # of methods; empty: rows stand in the order of the records

    @property
    def diverged(self) -> list[str]:
        """The runs whose numbers are no longer finite, a sentence each."""
        return [lost.text for lost in self.lost if lost.how == "diverged"]

    @property
    def failed(self) -> list[str]:
        """The runs that something else kept from ending, as a lack of memory does, a sentence each; they can be resumed."""
        return [lost.text for lost in self.lost if lost.how == "failed"]

    @staticmethod
    def read(*folders: Path | str) -> Results:
        """The runs at or below some folders."""
        return Results(grouping.read(folders), order=_order())

    def groups(self, warn: Warn = silent) -> dict[str, dict[str, dict[int, RunRecord]]]:
        """task -> row -> seed -> run, in the order of the rows; diverged runs are left out."""
        return grouping.group(self.records, order=self.order, warn=warn)

    def summary(self, warn: Warn = silent) -> dict[str, Any]:
        """All numbers as plain data: task -> row -> ..."""
        return {task: summary.summarize(rows) for task, rows in self.groups(warn).items()}

    def only(self, names: Sequence[str]) -> Results:
        """The runs of these rows, in this order; a row is called by its name or as tables show it, several with commas."""
        called: dict[str, str] = {}
        for rows in self.summary().values():
            called |= {words.row_name(row, about): row for row, about in rows.items()} | {row: row for row in rows}
        parts = [part for name in names for part in ([name] if name in called else map(str.strip, name.split(",")))]
        for part in parts:
            if part not in called:
                raise unknown("row", part, called)
        wanted = list(dict.fromkeys(called[part] for part in parts))
        records = [record for name in wanted for record in self.records if record.variant == name]
        lost = [one for one in self.lost if one.row in wanted]
        return Results(records, [run for run in self.runs if run.name in wanted], lost)

    def tables(self, round: str = "last", metric: str = "accuracy", warn: Warn = silent) -> dict[str, Table]:
        """A table for each task, and for each partition or data of it; those that lack the round are warned about."""
        from fedprior.report import layouts

        found, without = {}, list[str]()
        for name, rows in self.groups().items():
            numbers = summary.summarize(rows)
            if summary.has_choice(numbers, metric, round):
                found[name] = layouts.run_table(name, numbers, round, metric, evidence(rows, metric, round))
            else:
                without.append(name)
        for name in without:
            if not found:
                raise FedpriorError(f"{_no_validation(name)}, or choose another --round")
            warn(f"{_no_validation(name)}; it has no table")
        return found

    def table(self, round: str = "last", metric: str = "accuracy") -> Table:
        """The table of one task, or, of several tasks, that of rows against tasks with their average."""
        if len(self.groups()) != 1:
            return self.task_table(round, metric)
        (table,) = self.tables(round, metric).values()
        return table

    def task_table(self, round: str = "last", metric: str = "accuracy") -> Table:
        """Rows against tasks, with the average and the standard deviation over tasks."""
        from fedprior.report import layouts

        if not (summaries := self.summary()):
            raise FedpriorError(f"there are no runs to show{self._why_none()}")
        for name, rows in summaries.items():
            if not summary.has_choice(rows, metric, round):
                raise FedpriorError(f"{_no_validation(name)}, or choose another --round")
        return layouts.task_table(summary.over_tasks(summaries, choice=round, metric=metric))

    def curves(
        self,
        metric: str = "accuracy",
        task: str | None = None,
        path: Path | None = None,
        diverged: Iterable[str] = (),
    ) -> Figure | None:
        """The learning curves of a task (the first, if none is named), drawn or saved.

        Rows of which every recorded run diverged are named in the picture, and so are those of ``diverged``.
        """
        from fedprior.report import figures

        groups = self.groups()
        if not groups:
            raise FedpriorError(f"there are no runs to draw{self._why_none()}")
        name = next(iter(groups)) if task is None else task
        if name not in groups:
            raise unknown("task", name, groups)
        lost = [r.variant for r in self.records if r.task == name and r.status is Status.DIVERGED]
        absent = [variant for variant in dict.fromkeys([*lost, *diverged]) if variant not in groups[name]]
        return figures.learning_curves(name, groups[name], metric=metric, path=path, diverged=absent)

    def _why_none(self) -> str:
        untested = any(not record.is_tested for record in self.records)
        return ": nothing was tested (no client has test samples)" if untested else ""

    def compare(self, **options: Any) -> Comparison:
        """The rows of one task compared client by client; see `analysis.compare.compare`."""
        from fedprior.analysis.compare import compare

        return compare(self.records, order=self.order, **options)

    def report(
        self, path: Path | str, *, title: str | None = None, partition: bool = True, warn: Warn = silent
    ) -> Path:
        """Write one page of all runs for a browser, in a file that needs no network.

        ``partition``: whether it shows who holds which labels, which may be confidential.
        """
        from fedprior.report.page.page import write_report

        return write_report(self.records, Path(path), order=self.order, title=title, partition=partition, warn=warn)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, name: str) -> list[Result]:
        """The runs of a row that were made in this process, by seed."""
        found = [run for run in self.runs if run.name == name]
        if not found:
            raise unknown("row", name, {run.name for run in self.runs})
        return found

    def _repr_html_(self) -> str:
        from fedprior.report.tables import render

        groups: Iterable[str] = self.groups()
        return render(self.table(), "html") if groups else "<p>no runs</p>"

    def __repr__(self) -> str:
        return f"Results({len(self.records)} runs)"


def _no_validation(name: str) -> str:
    return f"{name} held out no validation samples to choose a round by; run it with --set validation=0.2"


def _order() -> tuple[str, ...]:
    from fedprior.methods import METHODS

    return tuple(METHODS)

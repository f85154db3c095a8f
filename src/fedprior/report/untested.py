"""Runs of which nothing was tested: what is said of them in place of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedprior.analysis.series import VALIDATION, find_metric, series_of
from fedprior.analysis.summary import Number, over_seeds
from fedprior.records.schema import MetricInfo, RunRecord, Status
from fedprior.report.words import format_number, in_unit, metric_words


@dataclass(frozen=True)
class Untested:
    """The runs of a task that has no test samples."""

    task: str
    metric: MetricInfo
    variants: tuple[str, ...]
    validation: dict[str, Number]  # of the personal models after the last round, weighted, where there are such samples

    @property
    def text(self) -> str:
        """What there is to say."""
        said = f"{self.task}: nothing was tested, since no client has test samples; trained: {', '.join(self.variants)}"
        if not self.validation:
            return said
        about = f"{metric_words(self.metric)}{in_unit(self.metric)} of the personal models on validation samples, last round"
        numbers = (f"{name} {format_number(number, self.metric)}" for name, number in self.validation.items())
        return f"{said}; {about}: {', '.join(numbers)}"


def untested_runs(records: Iterable[RunRecord], metric: str = "accuracy") -> dict[str, Untested]:
    """The tasks of which nothing was tested, by name."""
    tasks: dict[str, dict[str, list[RunRecord]]] = {}
    for record in records:
        if not record.is_tested and record.status is not Status.DIVERGED:
            tasks.setdefault(record.task, {}).setdefault(record.variant, []).append(record)
    found = {}
    for task, variants in tasks.items():
        info = find_metric([record for runs in variants.values() for record in runs], metric)
        curves = {
            variant: {run.seed: curve for run in runs if (curve := series_of(run, metric).get(VALIDATION))}
            for variant, runs in variants.items()
        }
        numbers = {
            variant: over_seeds({seed: curve[max(curve)] for seed, curve in seeds.items()})
            for variant, seeds in curves.items()
            if seeds
        }
        found[task] = Untested(task, info, tuple(variants), numbers)
    return found

"""How each client's model did on some samples: sums per client, of which values and averages are taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedprior.engine.metrics import METRICS
from fedprior.records.schema import averages


@dataclass(frozen=True)
class Score:
    """How each client's model did: sums per client, so that any value and average can be taken of them later."""

    sums: dict[str, Any]  # metric -> tree of arrays [N, ...]
    count: np.ndarray  # [N] samples
    class_names: tuple[str, ...] = ()

    def values(self, metric: str) -> np.ndarray:
        """Every client's own value [N] (per class: [N, C])."""
        return METRICS.find(metric).value(self.sums[metric], self.count)

    def columns(self) -> dict[str, np.ndarray]:
        """Every client's own values [N] of all metrics, by the names of the records' columns."""
        columns_by_name: dict[str, np.ndarray] = {}
        for name in self.sums:
            info, values = METRICS.find(name).info, self.values(name)
            by_column = values.T if info.per_class else values[None]
            # A model may have more outputs than there are classes.
            columns_by_name |= dict(zip(info.columns(self.class_names), by_column, strict=False))
        return columns_by_name

    def averages(self) -> dict[str, dict[str, float]]:
        """The averages over clients: average -> column -> value; of a class that no client has there is none."""
        by_average: dict[str, dict[str, float]] = {}
        whole = self._together()
        for name in self.sums:
            metric = METRICS.find(name)
            columns = Score({name: self.sums[name]}, self.count, self.class_names).columns()
            for column, value in columns.items():
                has = ~np.isnan(value)
                if not np.any(has & (self.count > 0)):
                    continue
                each = averages(value[has], self.count[has], worst_is_low=metric.info.higher_is_better)
                if not metric.mean:
                    each["weighted"] = whole[column]
                for average, number in each.items():
                    by_average.setdefault(average, {})[column] = number
        return by_average

    def _together(self) -> dict[str, float]:
        """The values on all clients' samples together."""
        sums = {
            name: jax.tree.map(lambda x: np.sum(x, axis=0, keepdims=True), tree)
            for name, tree in self.sums.items()
            if not METRICS.find(name).mean
        }
        pooled = Score(sums, np.sum(self.count, keepdims=True), self.class_names)
        return {column: float(value[0]) for column, value in pooled.columns().items()}

    @property
    def is_finite(self) -> bool:
        """Whether the loss of every client is a number."""
        return bool(np.isfinite(self.sums["nll"]).all())

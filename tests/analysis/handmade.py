"""Records made by hand, so that every number in them is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.records.runs import RunFolder
from fedprior.records.schema import (
    ACCURACY,
    AVERAGES,
    NLL,
    ClientId,
    ClientRow,
    MetricInfo,
    Row,
    RunRecord,
    Status,
    Times,
    averages,
)

MACRO_F1 = MetricInfo("macro_f1", "", "higher", "mean over classes of F1")
CLASS_ACCURACY = MetricInfo("class_accuracy", "%", "higher", "accuracy on the samples of a class", per_class=True)
COST = {
    **{"gradients": 140, "hvps": 0, "forward": 3, "down": 1.0, "up": 0.5, "state": 2.0},
    **{"parameters": 1000, "trained_clients_per_round": 4},
}


def config(
    variant: str = "mh",
    seed: int = 0,
    *,
    task: str = "toy",
    method: str | None = None,
    metrics: Sequence[MetricInfo] = (ACCURACY, NLL),
    class_names: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    protocol: Mapping[str, Any] | None = None,
    own: Mapping[str, Any] | None = None,  # what the variant changes of the protocol
    partition: Mapping[str, Any] | None = None,
    cost: Mapping[str, Any] | None = COST,
    revision: int = 1,
    **run: Any,
) -> dict[str, Any]:
    """A configuration of the current format; without a method's name, the variant's first word is it."""
    own, method = dict(own or {}), method or variant.split()[0]
    standard = {"rounds": 2, "budget": None, "aggregated": 3, "batch": 20, "participation": "all", "eval_every": 1}
    return {
        "format": 2,
        "run": {
            "task": {"name": task, "data": {"source": "digits"}, "partition": dict(partition or {"seed": 1})},
            "protocol": {**standard, **(protocol or {}), **own},
            "variant": {
                "name": variant,
                "method": method,
                "settings": dict(settings or {"lam": 15.0}),
                "wrappers": {},
                "protocol": own,
                "revisions": {method: revision},
            },
            "seed": seed,
            "clients": 4,
            "fingerprint": "f",
            "split": "s",
            **run,
        },
        "start": {"shapes": {"weight": [2]}, "scores": [0.5]},
        "metrics": [dataclasses.asdict(info) for info in metrics],
        "class_names": list(class_names),
        "environment": {},
        **({"cost": dict(cost)} if cost else {}),
    }


def record(
    variant: str = "mh",
    seed: int = 0,
    rows: Iterable[Row] = (),
    client_rows: Iterable[ClientRow] = (),
    *,
    status: Status = Status.FINISHED,
    where: str | None = None,
    **more: Any,
) -> RunRecord:
    """A run that ended where its rows end."""
    rows = tuple(rows)
    last = max((row.round for row in rows), default=0)
    where = where or f"runs/{variant}/{seed}"
    return RunRecord(config(variant, seed, **more), status, last, rows, tuple(client_rows), where)


def rows(
    values: Mapping[int, float],
    model: str = "personal",
    data: str = "own",
    metric: str = "accuracy",
    which: Sequence[str] = AVERAGES,
) -> list[Row]:
    """The values of one metric by round, the same at every average."""
    return [Row(t, model, data, average, {metric: value}) for t, value in values.items() for average in which]


def both_models(values: Mapping[int, float], pooled: float | None = None) -> list[Row]:
    """Personal and global models of the same accuracy, and perhaps that of the personal ones on pooled data at the end; the
    loss tells them apart.
    """
    end = [] if pooled is None else rows({max(values): pooled}, data="pooled")
    apart = [row._replace(values={**row.values, "nll": 1.0}) for row in rows(values, "global")]
    return [*(row._replace(values={**row.values, "nll": 0.5}) for row in rows(values)), *apart, *end]


def evaluated(
    by_round: Sequence[Mapping[str, Sequence[float]]],
    samples: Sequence[int],
    model: str = "personal",
    metrics: Sequence[MetricInfo] = (ACCURACY,),
    names: Sequence[ClientId] | None = None,
) -> tuple[list[Row], list[ClientRow]]:
    """Every client's values at rounds 1, 2, ... and the averages that go with them."""
    averaged, clients = [], []
    count = np.array(samples)
    for t, values in enumerate(by_round, 1):
        each = {
            info.name: averages(np.array(values[info.name], float), count, info.higher_is_better)
            for info in metrics
            if info.name in values
        }
        averaged += [Row(t, model, "own", a, {name: by[a] for name, by in each.items()}) for a in AVERAGES]
        clients += [
            ClientRow(t, model, "own", name, samples[i], {metric: float(v[i]) for metric, v in values.items()})
            for i, name in enumerate(names or range(len(samples)))
        ]
    return averaged, clients


def written(folder: Path, record: RunRecord) -> RunFolder:
    """The folder that a run with this record would have left."""
    run = RunFolder(folder)
    run.begin(record.config)
    for t in range(1, record.round + 1):
        mine = [row for row in record.rows if row.round == t], [row for row in record.clients if row.round == t]
        run.append(*mine, Times(t, 0.25, 0.5))
    run.set_status(record.status, record.round)
    return run


def written_below(root: Path, record: RunRecord) -> Path:
    """The run as files, in the folder <root>/<task>/<variant>/<seed>."""
    return written(root / record.task / record.variant / str(record.seed), record).path

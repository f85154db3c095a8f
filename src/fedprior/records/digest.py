"""What tables and figures need of a finished run, as JSON of some kilobytes; a run's folder takes megabytes.

Kept are the configuration, the curves of accuracy (and of the coherence, where it was recorded), all that was measured in
the last round, every client's accuracy there, and who holds which labels. Models, times and earlier values of clients are
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedprior.errors import FedpriorError
from fedprior.records.reading import LazyRows
from fedprior.records.schema import ACCURACY, ClientRow, LabelCounts, Row, RunRecord, Status
from fedprior.records.shape import check_shape

CURVES = (ACCURACY.name, "gce")
AVERAGE = "weighted"  # of the curves
Content = dict[str, Any]


def digest_of(record: RunRecord) -> Content:
    """The digest of a run."""
    last = max((row.round for row in record.rows), default=0)
    clients = record.clients.of_rounds({last}) if isinstance(record.clients, LazyRows) else record.clients
    labels = record.label_counts
    return {
        "config": record.config,
        "status": record.status.value,
        "round": record.round,
        "curves": _curves(row for row in record.rows if row.average == AVERAGE and row.round < last),
        "last": [list(row) for row in record.rows if row.round == last],
        "clients": _columns(row for row in clients if row.round == last),
        "labels": None if labels is None else {"classes": labels.classes, "clients": [*labels.clients.items()]},
    }


def record_of(content: Any, where: str) -> RunRecord:
    """The run that a digest is of; ``where``: what it was read from."""
    try:
        config, status, at = content["config"], Status(content["status"]), int(content["round"])
        check_shape(config, where)
        last = tuple(
            Row(int(t), model, data, average, dict(values)) for t, model, data, average, values in content["last"]
        )
        rows = (*_rows(content["curves"]), *last)
        clients = tuple(_client_rows(content["clients"], last[0].round if last else 0))
        labels = _labels(content["labels"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FedpriorError(f"{where} holds no records of runs ({error!r}); remove it") from error
    return RunRecord(config, status, at, rows, clients, where, read_labels=lambda: labels)


def _curves(rows: Iterable[Row]) -> list[Content]:
    """A column for each metric: less to write than a line for each round, and a third when compressed."""
    found: dict[tuple[str, str], Content] = {}
    for row in rows:
        start = {"model": row.model, "data": row.data, "rounds": [], **{name: [] for name in CURVES}}
        curve = found.setdefault((row.model, row.data), start)
        curve["rounds"].append(row.round)
        for name in CURVES:
            curve[name].append(row.values.get(name))
    return [*found.values()]


def _rows(curves: Iterable[Content]) -> list[Row]:
    found = [
        Row(int(t), str(curve["model"]), str(curve["data"]), AVERAGE, _known(zip(CURVES, values, strict=True)))
        for curve in curves
        for t, *values in zip(curve["rounds"], *(curve[name] for name in CURVES), strict=True)
    ]
    return sorted(found, key=lambda row: row.round)


def _known(values: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    return {name: float(value) for name, value in values if value is not None}


def _columns(rows: Iterable[ClientRow]) -> list[Content]:
    found: dict[tuple[str, str], Content] = {}
    for row in rows:
        start: Content = {"model": row.model, "data": row.data, "client": [], "samples": [], ACCURACY.name: []}
        columns = found.setdefault((row.model, row.data), start)
        columns["client"].append(row.client)
        columns["samples"].append(row.samples)
        columns[ACCURACY.name].append(row.values.get(ACCURACY.name))
    return [*found.values()]


def _client_rows(kinds: Iterable[Content], t: int) -> Iterable[ClientRow]:
    for kind in kinds:
        for client, samples, value in zip(kind["client"], kind["samples"], kind[ACCURACY.name], strict=True):
            values = _known([(ACCURACY.name, value)])
            yield ClientRow(t, str(kind["model"]), str(kind["data"]), client, int(samples), values)


def _labels(content: Mapping[str, Any] | None) -> LabelCounts | None:
    return None if content is None else LabelCounts(tuple(content["classes"]), dict(content["clients"]))

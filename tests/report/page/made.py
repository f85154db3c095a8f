"""Records of whole studies made by hand, as large as a test needs them, without running anything."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from analysis.handmade import record

from fedprior.records.schema import (
    ACCURACY,
    AVERAGES,
    NLL,
    ClientId,
    ClientRow,
    LabelCounts,
    MetricInfo,
    Row,
    RunRecord,
    Session,
    Status,
    Times,
    averages,
)

BRIER = MetricInfo("brier", "", "lower", "squared error of the probabilities")
ECE = MetricInfo("ece", "%", "lower", "expected calibration error")
BALANCED = MetricInfo("balanced_accuracy", "%", "higher", "mean over classes of their accuracy")
MACRO_F1 = MetricInfo("macro_f1", "%", "higher", "mean over classes of F1")
ALL = (ACCURACY, NLL, BALANCED, MACRO_F1, BRIER, ECE)  # what a run measures unless told otherwise


class Clients(Sequence[ClientRow]):
    """Clients' values that are made when they are asked for: a large study has millions of them."""

    def __init__(
        self, values: Mapping[str, Mapping[str, np.ndarray]], names: Sequence[ClientId], samples: Sequence[int]
    ):
        self.values, self.names, self.samples = values, names, samples

    def of_rounds(self, rounds: Collection[int]) -> list[ClientRow]:
        return [row for t in sorted(rounds) for row in self._round(t)]

    def _round(self, t: int) -> Iterator[ClientRow]:
        for model, by_metric in self.values.items():
            for c, name in enumerate(self.names):
                values = {metric: float(x[t - 1, c]) for metric, x in by_metric.items()}
                yield ClientRow(t, model, "own", name, self.samples[c], values)

    def _all(self) -> list[ClientRow]:
        values = next(iter(next(iter(self.values.values())).values()))
        return self.of_rounds(range(1, len(values) + 1))

    def __iter__(self) -> Iterator[ClientRow]:
        return iter(self._all())

    def __getitem__(self, k: Any) -> Any:
        return self._all()[k]

    def __len__(self) -> int:
        return len(self._all())


def made(
    methods: Sequence[str] = ("local", "fedavg", "mh"),
    seeds: int | Mapping[str, Sequence[int]] = 3,
    *,
    rounds: int = 12,
    names: Sequence[ClientId] = tuple(range(8)),
    metrics: Sequence[MetricInfo] = (ACCURACY, NLL),
    models: Sequence[str] = ("personal", "global"),
    task: str = "toy",
    labels: bool = True,
    gap: float = 3.0,
    pooled: bool = False,
    **more: Any,
) -> list[RunRecord]:
    """A run for each method and seed; a method is better than the one before it by about ``gap`` points. Local has no
    global model, and its personal models' values are made as all others are.
    """
    sizes = np.random.default_rng(5).integers(6, 60, len(names))
    found = []
    for k, method in enumerate(methods):
        for seed in range(seeds) if isinstance(seeds, int) else seeds[method]:
            rng = np.random.default_rng(zlib.crc32(f"{task} {method} {seed}".encode()))
            own = [model for model in models if method != "local" or model != "global"]
            values = {
                model: _values(rng, 70 + gap * k - 5 * (model == "global"), rounds, sizes, metrics) for model in own
            }
            rows = list(_rows(values, sizes, metrics))
            if pooled:  # of the personal models, after the last round
                end = [row for row in rows if row.round == rounds and row.model == "personal"]
                rows += [row._replace(data="pooled", values={m: 0.9 * x for m, x in row.values.items()}) for row in end]
            clients = Clients(values, names, sizes.tolist())
            protocol = {"rounds": rounds}
            base = record(method, seed, rows, task=task, metrics=metrics, protocol=protocol, clients=len(names), **more)
            found.append(_signed(base, clients, _labels(names, sizes) if labels else None))
    return found


def _values(
    rng: np.random.Generator, end: float, rounds: int, sizes: np.ndarray, metrics: Sequence[MetricInfo]
) -> dict[str, np.ndarray]:
    """Every metric's values [rounds, clients]; those of accuracy are shares of the clients' samples."""
    level = end - 30 * np.exp(-np.arange(1, rounds + 1) / 4)[:, None]
    share = np.clip(level + rng.normal(0, 4, (1, len(sizes))) + rng.normal(0, 2, (rounds, len(sizes))), 0, 100)
    values = {ACCURACY.name: 100 * np.round(share / 100 * sizes) / sizes}
    for info in metrics:
        noise = rng.random((rounds, len(sizes)))
        values.setdefault(info.name, share + noise if info.higher_is_better else (110 - share) / 40 + noise)
    return {info.name: values[info.name] for info in metrics}


def _rows(
    by_model: Mapping[str, Mapping[str, np.ndarray]], sizes: np.ndarray, metrics: Sequence[MetricInfo]
) -> Iterator[Row]:
    for t in range(len(next(iter(next(iter(by_model.values())).values())))):
        for model, values in by_model.items():
            each = {info.name: averages(values[info.name][t], sizes, info.higher_is_better) for info in metrics}
            for average in AVERAGES:
                yield Row(t + 1, model, "own", average, {name: by[average] for name, by in each.items()})


def _labels(names: Sequence[ClientId], sizes: np.ndarray) -> LabelCounts:
    rng = np.random.default_rng(3)
    clients = {}
    for name, size in zip(names, sizes.tolist(), strict=True):
        test = rng.multinomial(size, rng.dirichlet(np.full(4, 0.4)))
        clients[name] = {"train": (3 * test).tolist(), "test": test.tolist()}
    return LabelCounts(("a", "b", "c", "d"), clients)


def _signed(base: RunRecord, clients: Sequence[ClientRow], labels: LabelCounts | None) -> RunRecord:
    times = tuple(Times(t, 0.02, 0.01) for t in range(1, base.round + 1))
    session = Session(
        "2026-01-02T03:04:05", "2026-01-02T03:05:05", f"fedprior run {base.task} -m {base.variant}", "0.1.0"
    )
    return RunRecord(
        base.config, Status.FINISHED, base.round, base.rows, clients, base.where, times, (session,), lambda: labels
    )


def twin(given: RunRecord, name: str) -> RunRecord:
    """The same run of a row with another name."""
    run = given.config["run"]
    config = {**given.config, "run": {**run, "variant": {**run["variant"], "name": name}}}
    return dataclasses.replace(given, config=config, where=f"runs/{name}/{given.seed}")


def large(methods: int = 25, seeds: int = 5, rounds: int = 200, clients: int = 100) -> list[RunRecord]:
    """A study as large as a page must bear."""
    names = ["local", *(f"method-{k}" for k in range(1, methods))]
    return made(names, seeds, rounds=rounds, names=tuple(range(clients)), metrics=ALL, gap=0.5, task="large")

"""Methods compared client by client, from records: whom a method helps, by how much, and how evenly.

Every client is its own control: a difference is a method's accuracy on the client's own test samples minus that of the
reference on the same samples, with the same seed. Its mean over clients is one number per seed, and the interval is
Student's t over these numbers: it tells what another seed may change, not what other clients would.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table as RichTable
from scipy import stats

from fedprior.analysis.tables import (
    MODELS,
    ROUNDS,
    Run,
    chosen_rounds,
    collect_runs,
    markdown_table,
    over_seeds,
    shown,
    terminal_table,
)
from fedprior.errors import FedpriorError, unknown
from fedprior.evaluate import averages

FORMATS = ("text", "markdown", "csv")
EQUAL = 1e-9  # percent: the rounding of a mean over seeds, far below one sample of the largest client


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % confidence interval, which a single seed does not have."""

    mean: float
    low: float | None
    high: float | None

    @staticmethod
    def of(values: Iterable[float]) -> Interval:
        """Student's t interval of the mean.

        >>> print(Interval.of([1.0, 2.0, 3.0]), "and", Interval.of([2.0]))
        +2.00 ± 2.48 and +2.00 ± n/a
        """
        x = np.array(list(values))
        mean = float(x.mean())
        if len(x) == 1:
            return Interval(mean, None, None)
        half = float(stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)))
        return Interval(mean, mean - half, mean + half)

    @property
    def half(self) -> float | None:
        """Half the interval's width."""
        return None if self.high is None else self.high - self.mean

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± " + ("n/a" if self.half is None else f"{self.half:.2f}")


@dataclass(frozen=True)
class Difference:
    """A method minus the reference in points of accuracy, over the seeds that both have."""

    weighted: Interval  # by the clients' test samples
    mean: Interval  # every client counts the same
    per_client: list[float]  # averaged over seeds
    wins: int  # clients for which the method is better, by ``per_client``
    ties: int
    losses: int
    seeds: list[int]


@dataclass(frozen=True)
class Best:
    """For how many clients no method of the comparison is better."""

    alone: int
    shared: int  # with another method


@dataclass(frozen=True)
class Entry:
    """One method of a comparison."""

    model: str
    rounds: dict[int, list[int]]  # seed -> the rounds that were chosen
    difference: Difference | None  # None: the reference itself
    best: Best | None  # None: there is no seed that all methods have
    fairness: dict[str, dict[str, Any]]  # mean, std_over_clients, worst_decile -> {mean, std, seeds}


@dataclass(frozen=True)
class Comparison:
    """The methods of one task, compared client by client on their own test samples."""

    task: str
    round: str
    against: str
    clients: list[int]
    samples: list[int]  # test samples of each client
    best_seeds: list[int]  # those that all methods have
    methods: dict[str, Entry]
    data: str = "own"

    @property
    def reference(self) -> str:
        """The reference method and its model."""
        return f"{self.against} ({self.methods[self.against].model})"


class _Clients(NamedTuple):
    rounds: list[int]  # [T]
    samples: dict[int, int]  # client -> test samples
    accuracy: np.ndarray  # [T, N]

    def fairness(self) -> dict[str, float]:
        """How accuracy is spread over clients, each number taken per round and averaged over the chosen rounds."""
        count = np.array(list(self.samples.values()))
        each = [{**averages(now, count), "std_over_clients": float(np.std(now))} for now in self.accuracy]
        return {key: float(np.mean([e[key] for e in each])) for key in ("mean", "std_over_clients", "worst_decile")}


def compare(
    folders: Iterable[Path],
    *,
    against: str | None = None,
    model: str = "personal",
    choice: str = "last",
    warn: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Compare the methods recorded at or below the folders with a reference (default: Local, else the first one).

    A method without a global model (Local) takes part in a comparison of global models with its personal ones. ``choice``
    is one of ``tables.ROUNDS``; "best" and "validation" go by accuracy weighted by samples.
    """
    if model not in MODELS:
        raise unknown("model", model, MODELS)
    if choice not in ROUNDS:
        raise unknown("round", choice, ROUNDS)
    task, by_method = _one_task(list(folders), warn)
    if against is None:
        against = "local" if "local" in by_method else next(iter(by_method))
    elif against not in by_method:
        raise unknown("method", against, by_method)
    if "local" not in by_method:
        warn(f"{task} has no Local-only runs; the reference is {against}; add them with: fedprior run {task} -m local")

    models = {method: _model_of(method, by_seed, model, warn) for method, by_seed in by_method.items()}
    runs = {
        method: {seed: _read(by_seed[seed], models[method], choice) for seed in sorted(by_seed)}
        for method, by_seed in by_method.items()
    }
    samples = _same_clients(by_method, runs)
    differences = {m: _difference(m, runs[m], against, runs[against], warn) for m in runs if m != against}
    best_seeds = sorted(set.intersection(*(set(by_seed) for by_seed in runs.values())))
    if any(d.seeds != best_seeds for d in differences.values()):
        which = (
            f"over seeds {_listed(best_seeds)}, which all methods have" if best_seeds else "not told: no seed is in all"
        )
        warn(f"for how many clients each method is the best is {which}")
    best = _best(runs, best_seeds)
    return Comparison(
        task=task,
        round=choice,
        against=against,
        clients=list(samples),
        samples=list(samples.values()),
        best_seeds=best_seeds,
        methods={
            method: Entry(
                model=models[method],
                rounds={seed: c.rounds for seed, c in by_seed.items()},
                difference=differences.get(method),
                best=best.get(method),
                fairness=_fairness(by_seed),
            )
            for method, by_seed in runs.items()
        },
    )


def _one_task(folders: list[Path], warn: Callable[[str], None]) -> tuple[str, dict[str, dict[int, Run]]]:
    """The task of the runs at or below the folders, and its runs: method -> seed -> run."""
    found = collect_runs(folders, warn, one_experiment=True)
    if len(found) > 1:
        raise FedpriorError(f"runs of several tasks ({', '.join(found)}) have no clients in common; give one's folder")
    if not found:
        raise FedpriorError(f"nothing to compare at or below {', '.join(map(str, folders))}: no run has been evaluated")
    ((task, by_method),) = found.items()
    if len(by_method) == 1:
        raise FedpriorError(
            f"a comparison needs two methods and there are only runs of {next(iter(by_method))}; "
            f"add another with: fedprior run {task} -m NAME"
        )
    return task, by_method


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _model_of(method: str, by_seed: dict[int, Run], wanted: str, warn: Callable[[str], None]) -> str:
    """The wanted model, or the personal one where the method has no global one."""
    if wanted != "global" or any(("global", "own", "weighted") in run.series for run in by_seed.values()):
        return wanted
    warn(f"{method} has no global model; its personal models are compared")
    return "personal"


def _read(run: Run, model: str, choice: str) -> _Clients:
    """Every client's accuracy at the chosen rounds of a run."""
    path = run.folder.path / "clients.csv"
    rounds = chosen_rounds(run.series, model, "own", "weighted")[choice]
    if not rounds:
        data, fix = ("validation", "--set validation=0.2") if choice == "validation" else ("own test", "--overwrite")
        raise FedpriorError(
            f"{run.folder.path} has no accuracy of its {model} models on {data} samples to choose a round by; "
            f"choose another --round or run it anew with {fix}"
        )
    values: dict[int, dict[int, tuple[float, int]]] = {t: {} for t in rounds}
    try:
        for r in run.folder.rows("clients.csv"):
            if r["model"] == model and r["data"] == "own" and (t := int(r["round"])) in values:
                values[t][int(r["client"])] = float(r["accuracy"]), int(r["samples"])
    except (KeyError, TypeError, ValueError) as error:
        raise FedpriorError(f"{path} is damaged ({error}); run it anew with --overwrite") from error
    if missing := [t for t, found in values.items() if not found]:
        raise FedpriorError(
            f"{path} has no rows of the {model} models on own test samples at round {missing[0]}, which metrics.csv has; "
            f"go on with the run (--resume) or run it anew (--overwrite)"
        )
    counts = [{client: m for client, (_, m) in sorted(found.items())} for found in values.values()]
    if any(count != counts[0] for count in counts):
        raise FedpriorError(f"{path} does not hold the same clients at rounds {_listed(rounds)}; run it anew")
    accuracy = np.array([[found[client][0] for client in counts[0]] for found in values.values()])
    return _Clients(rounds, counts[0], accuracy)


def _same_clients(by_method: dict[str, dict[int, Run]], runs: dict[str, dict[int, _Clients]]) -> dict[int, int]:
    """The test samples of each client, which must be the same in all runs."""
    (first, samples), *others = (
        (by_method[method][seed].folder.path, clients.samples)
        for method, by_seed in runs.items()
        for seed, clients in by_seed.items()
    )
    for path, theirs in others:
        if theirs != samples:
            raise FedpriorError(
                f"{path} and {first} do not have the same clients with the same numbers of test samples; "
                "give runs of one experiment"
            )
    return samples


def _difference(
    method: str,
    ours: dict[int, _Clients],
    against: str,
    theirs: dict[int, _Clients],
    warn: Callable[[str], None],
) -> Difference:
    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        raise FedpriorError(
            f"{method} (seeds {_listed(ours)}) and {against} (seeds {_listed(theirs)}) have no seed in common; "
            "run both with the same --seeds"
        )
    for name, odd in ((method, set(ours) - set(theirs)), (against, set(theirs) - set(ours))):
        if odd:
            other = against if name == method else method
            warn(f"seeds {_listed(sorted(odd))} of {name} are left out where {other} has no such seed")
    apart = np.array([ours[s].accuracy.mean(0) - theirs[s].accuracy.mean(0) for s in seeds])  # [S, N]
    count = list(ours[seeds[0]].samples.values())
    per_client = apart.mean(0)
    wins, losses = int(np.sum(per_client > EQUAL)), int(np.sum(per_client < -EQUAL))
    return Difference(
        weighted=Interval.of(np.average(apart, axis=1, weights=count)),
        mean=Interval.of(apart.mean(1)),
        per_client=per_client.tolist(),
        wins=wins,
        ties=len(per_client) - wins - losses,
        losses=losses,
        seeds=seeds,
    )


def _best(runs: dict[str, dict[int, _Clients]], seeds: list[int]) -> dict[str, Best]:
    if not seeds:
        return {}
    accuracy = np.array(
        [np.mean([by_seed[s].accuracy.mean(0) for s in seeds], 0) for by_seed in runs.values()]
    )  # [M, N]
    top = accuracy >= accuracy.max(0) - EQUAL
    alone = top & (top.sum(0) == 1)
    return {m: Best(int(a.sum()), int((t & ~a).sum())) for m, t, a in zip(runs, top, alone, strict=True)}


def _fairness(by_seed: dict[int, _Clients]) -> dict[str, dict[str, Any]]:
    found = {seed: clients.fairness() for seed, clients in by_seed.items()}
    return {key: over_seeds({seed: f[key] for seed, f in found.items()}) for key in next(iter(found.values()))}


# -- layout ------------------------------------------------------------------------------------------------------------

DIFFERENCES = (
    *("method", "model", "difference, weighted", "difference, mean"),
    *("wins", "ties", "losses", "best for (alone + shared)", "seeds"),
)
SHORT_DIFFERENCES = ("method", "model", "weighted", "mean", "win", "tie", "loss", "best for", "n")  # for 80 columns
FAIRNESS = ("method", "model", "mean over clients", "standard deviation over clients", "worst decile", "seeds")
SHORT_FAIRNESS = ("method", "model", "mean", "std", "worst 10%", "n")
CSV = (
    *("task", "method", "model", "against", "against_model", "data", "round"),
    *("quantity", "value", "low", "high", "std", "seeds"),
)


def titles(found: Comparison) -> tuple[str, str]:
    """What the numbers of the two tables are."""
    return (
        f"{found.task}: accuracy on own test samples minus that of {found.reference}, in points, {ROUNDS[found.round]}",
        f"{found.task}: accuracy on own test samples over clients, in percent, {ROUNDS[found.round]}",
    )


def notes(found: Comparison) -> tuple[str, str]:
    """How to read the two tables."""
    return (
        "Weighted (by samples) and mean (of clients): over n paired seeds, ± 95 % confidence interval (Student's t over "
        f"seeds; n/a with one seed); wins, ties, losses: for how many of {len(found.clients)} clients, averaged over "
        "seeds; best for: clients for which no method is better, alone + shared with others",
        "Mean and standard deviation (std) over clients, mean of the worst tenth; ± standard deviation over n seeds",
    )


def _difference_rows(found: Comparison) -> list[tuple[str, ...]]:
    body = []
    for method, entry in found.methods.items():
        best = "-" if entry.best is None else f"{entry.best.alone} + {entry.best.shared}"
        if (d := entry.difference) is None:
            body.append((method, entry.model, "reference", *["-"] * 4, best, str(len(entry.rounds))))
        else:
            numbers = map(str, (d.weighted, d.mean, d.wins, d.ties, d.losses))
            body.append((method, entry.model, *numbers, best, str(len(d.seeds))))
    return body


def _fairness_rows(found: Comparison) -> list[tuple[str, ...]]:
    return [
        (method, entry.model, *map(shown, entry.fairness.values()), str(len(entry.rounds)))
        for method, entry in found.methods.items()
    ]


def rich_tables(found: Comparison) -> list[RichTable]:
    """The two tables for a terminal: differences and wins, fairness."""
    bodies, heads = (_difference_rows(found), _fairness_rows(found)), (SHORT_DIFFERENCES, SHORT_FAIRNESS)
    return [terminal_table(*part) for part in zip(titles(found), notes(found), heads, bodies, strict=True)]


def render(found: Comparison, format: str) -> str:
    """The comparison as markdown (two tables) or CSV (one number a line)."""
    if format == "markdown":
        bodies, heads = (_difference_rows(found), _fairness_rows(found)), (DIFFERENCES, FAIRNESS)
        parts = zip(titles(found), notes(found), heads, bodies, strict=True)
        return "\n\n".join("\n".join([f"{t}.", "", *markdown_table(h, b), "", f"{n}."]) for t, n, h, b in parts)
    if format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV)
        for method, entry in found.methods.items():
            what = (
                found.task,
                method,
                entry.model,
                found.against,
                found.methods[found.against].model,
                found.data,
                found.round,
            )
            for line in _numbers(entry, found.best_seeds):
                writer.writerow([*what, *("" if v is None else v for v in line)])
        return text.getvalue().rstrip("\n")
    raise unknown("format", format, FORMATS)


def _numbers(entry: Entry, best_seeds: list[int]) -> Iterable[tuple[Any, ...]]:
    """Every number of an entry: quantity, value, low, high, std, seeds."""
    if (d := entry.difference) is not None:
        seeds = " ".join(map(str, d.seeds))
        for name, i in (("weighted", d.weighted), ("mean", d.mean)):
            yield f"difference_{name}", i.mean, i.low, i.high, None, seeds
        for name in ("wins", "ties", "losses"):
            yield name, getattr(d, name), None, None, None, seeds
    if entry.best is not None:
        for name in ("alone", "shared"):
            yield f"best_{name}", getattr(entry.best, name), None, None, None, " ".join(map(str, best_seeds))
    for name, n in entry.fairness.items():
        yield name, n["mean"], None, None, n["std"], " ".join(map(str, n["seeds"]))

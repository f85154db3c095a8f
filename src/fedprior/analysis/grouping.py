"""Which runs belong together: by task, variant and seed.

A variant is a row of a table. Its runs differ in their seed and in nothing else; the variants of a task share its data,
its partition and its clients.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedprior.errors import FedpriorError
from fedprior.records.runs import find_runs
from fedprior.records.schema import RunRecord, Status, differences

Seeds = Mapping[int, RunRecord]
Warn = Callable[[str], None]
OF_THE_TASK = ("task", "fingerprint", "split", "clients", "newcomers")  # what the runs of a task have in common
FREE_PROTOCOL = ("participation",)  # for which each method has a default of its own


def silent(text: str) -> None:
    """Warn nobody."""


def read(folders: Iterable[str | Path]) -> list[RunRecord]:
    """All runs recorded at or below the folders."""
    records: list[RunRecord] = []
    for folder in folders:
        runs = find_runs(Path(folder))
        if not runs:
            raise FedpriorError(f"no runs at or below {folder}; a run's folder holds config.json and metrics.csv")
        records += [run.record() for run in runs]
    return records


def group(
    records: Iterable[RunRecord], *, order: Sequence[str] = (), warn: Warn = silent, one_experiment: bool = False
) -> dict[str, dict[str, dict[int, RunRecord]]]:
    """Records by task, variant and seed, without those of runs that diverged, were never evaluated or had nothing to test.

    Variants stand in the order in which they first appear, or by the place of their method in ``order``, then by name.
    Variants of a task that do not have the same data and clients are warned about, or refused where ``one_experiment`` is
    needed. A setting of the protocol in which variants differ, though none of them says that it changes it, is warned about.
    """
    groups: dict[str, dict[str, dict[int, RunRecord]]] = defaultdict(lambda: defaultdict(dict))
    untested: Counter[str] = Counter()
    for record in records:
        if record.status is Status.DIVERGED:
            warn(f"{record.where} diverged in round {record.round} and is left out")
            continue
        if record.status is not Status.FINISHED:
            warn(f"{record.where} is not finished; its last evaluation is reported")
        if not record.is_tested:
            untested[record.task] += 1
            continue
        if not record.rows:
            continue
        seeds = groups[record.task][record.variant]
        if record.seed in seeds:
            raise FedpriorError(
                f"two runs of {record.task}, {record.variant}, seed {record.seed}; give folders that do not overlap"
            )
        seeds[record.seed] = record
    for task, count in untested.items():
        warn(
            f"{task}: {count} run{'s' * (count > 1)} left out, of which nothing was tested (no client has test samples)"
        )
    for task, by_variant in groups.items():
        for variant, seeds in by_variant.items():
            _check_seeds(task, variant, seeds)
        _check_variants(task, [next(iter(seeds.values())) for seeds in by_variant.values()], warn, one_experiment)
    return {
        task: {variant: dict(sorted(by_variant[variant].items())) for variant in _ordered(by_variant, order)}
        for task, by_variant in groups.items()
    }


def _check_seeds(task: str, variant: str, seeds: Seeds) -> None:
    first, *others = ({k: v for k, v in record.config["run"].items() if k != "seed"} for record in seeds.values())
    for record, other in zip(list(seeds.values())[1:], others, strict=True):
        if apart := differences(first, other):
            raise FedpriorError(
                f"seeds of {task}, {variant} differ in their settings ({apart[0]}, in {record.where}); "
                "give the folders of one experiment, or give the variants names of their own"
            )


def _check_variants(task: str, records: list[RunRecord], warn: Warn, one_experiment: bool) -> None:
    """Refuse or tell what keeps the variants, of each of which one record is given, from being comparable."""
    _check_revisions(task, records)
    stated: dict[str, Any] = {}  # what the protocol says where a variant does not change it
    common = {key: records[0].config["run"].get(key) for key in OF_THE_TASK}
    for record in records:
        run = record.config["run"]
        both = {key: run.get(key) for key in OF_THE_TASK if key != "split" or (run.get(key) and common[key])}
        apart = differences({key: common[key] for key in both}, both)  # older runs did not record how they were split
        if apart and one_experiment:
            raise FedpriorError(f"{_not_of_one_experiment(task, apart[0], record)}; give the folders of one")
        own = {*run["variant"]["protocol"], *FREE_PROTOCOL, *(("rounds",) if run["protocol"].get("budget") else ())}
        given = {key: value for key, value in run["protocol"].items() if key not in own}
        stated |= {key: value for key, value in given.items() if key not in stated}
        apart += differences({key: stated[key] for key in given}, given)
        if apart:
            warn(_not_of_one_experiment(task, apart[0], record))


def _check_revisions(task: str, records: list[RunRecord]) -> None:
    """Refuse rows of one method (or wrapper) whose update has changed between them."""
    first: dict[str, RunRecord] = {}
    for record in records:
        for name, revision in record.config["run"]["variant"]["revisions"].items():
            other = first.setdefault(name, record)
            then = other.config["run"]["variant"]["revisions"][name]
            if then != revision:
                raise FedpriorError(
                    f"runs of {task} are of two updates of {name} (revision {then} in {other.where}, {revision} in "
                    f"{record.where}); give the folders of one"
                )


def _not_of_one_experiment(task: str, apart: str, record: RunRecord) -> str:
    return f"runs of {task} are not of one experiment ({apart}, in {record.where})"


def _ordered(by_variant: Mapping[str, Seeds], order: Sequence[str]) -> list[str]:
    if not order:
        return list(by_variant)
    places = {name: place for place, name in enumerate(order)}

    def key(variant: str) -> tuple[int, str]:
        return places.get(method_of(by_variant[variant]), len(order)), variant

    return sorted(by_variant, key=key)


def method_of(seeds: Seeds) -> str:
    """The name of the method that a variant runs."""
    return str(next(iter(seeds.values())).config["run"]["variant"]["method"])

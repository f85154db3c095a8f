"""Which runs belong together: by task, variant and seed.

A variant is a row of a table. Its runs differ in their seed and in nothing else; the variants of a task share its data,
its partition and its clients.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedprior.errors import FedpriorError
from fedprior.records.runs import RunFolder, find_runs
from fedprior.records.sameness import differences
from fedprior.records.schema import RunRecord, Status

Seeds = Mapping[int, RunRecord]
Warn = Callable[[str], None]
OF_THE_DATA = ("fingerprint", "split", "clients", "newcomers")  # what runs of a task share besides its settings
FREE_PROTOCOL = ("participation",)  # for which each method has a default of its own


def silent(text: str) -> None:
    """Warn nobody."""


def read(folders: Iterable[str | Path]) -> list[RunRecord]:
    """All runs recorded at or below the folders."""
    records: list[RunRecord] = []
    for folder in folders:
        records += [run.record() for run in runs_below(Path(folder))]
    return records


def runs_below(folder: Path) -> list[RunFolder]:
    """The runs at or below a folder, of which there must be some."""
    if not (runs := find_runs(folder)):
        raise FedpriorError(f"no runs at or below {folder}; a run's folder holds config.json and metrics.csv")
    return runs


def group(
    records: Iterable[RunRecord], *, order: Sequence[str] = (), warn: Warn = silent, one_experiment: bool = False
) -> dict[str, dict[str, dict[int, RunRecord]]]:
    """Records by task, variant and seed, without runs that diverged, were never evaluated or had nothing to test, and
    without the cells of sweeps, which never see the test.

    Variants stand in the order of :func:`ordered`. Runs of a task that do not have the same samples, clients and model are
    groups of their own, called by what they differ in, or refused where ``one_experiment`` is needed. A setting of the
    protocol in which variants differ, though none of them says that it changes it, is warned about.
    """
    groups: dict[str, dict[str, dict[int, RunRecord]]] = {}
    for name, runs in _experiments(_counting(records, warn), warn, one_experiment).items():
        by_variant: dict[str, dict[int, RunRecord]] = defaultdict(dict)
        for record in runs:
            seeds = by_variant[record.variant]
            if (twin := seeds.setdefault(record.seed, record)) is not record:
                raise FedpriorError(
                    f"two runs of {name}, {record.variant}, seed {record.seed}, in {twin.where} and {record.where}; "
                    "give folders that do not overlap"
                )
        for variant, seeds in by_variant.items():
            _check_seeds(name, variant, seeds)
        _check_variants(name, [next(iter(seeds.values())) for seeds in by_variant.values()], warn)
        groups[name] = {variant: dict(sorted(by_variant[variant].items())) for variant in ordered(by_variant, order)}
    return groups


def is_cell(record: RunRecord) -> bool:
    """Whether a run is a cell of a sweep: it says so, or lies where cells do, and looks at validation samples alone."""
    where = [part.name for part in Path(record.where).absolute().parents]  # <task>/sweep/<method>/<cell>/<seed>
    swept = "numbers_as_data" in record.config["run"] or where[2:3] == ["sweep"]
    return swept and all(row.data == "validation" for row in record.rows)


def _counting(records: Iterable[RunRecord], warn: Warn) -> list[RunRecord]:
    """The records of runs that were evaluated; of the others it is told why not."""
    kept, cells, untested = [], list[RunRecord](), Counter[str]()
    for record in records:
        if is_cell(record):
            cells.append(record)
            continue
        if record.status is Status.DIVERGED:
            warn(f"{record.where} diverged in round {record.round} and is left out")
            continue
        if record.is_tested and not record.rows:
            warn(f"{record.where} has no evaluation yet and is left out")
        elif record.status is not Status.FINISHED:
            warn(f"{record.where} is not finished; its last evaluation is reported")
        if not record.is_tested:
            untested[record.task] += 1
        elif record.rows:
            kept.append(record)
    for task, count in untested.items():
        warn(
            f"{task}: {count} run{'s' * (count > 1)} left out, of which nothing was tested (no client has test samples)"
        )
    if cells:
        what = "1 run of a sweep is" if len(cells) == 1 else f"{len(cells)} runs of sweeps are"
        warn(f"{what} left out ({cells[0].where}{', ...' if len(cells) > 1 else ''}): sweeps do not look at the test")
    return kept


def _experiments(records: Iterable[RunRecord], warn: Warn, one_experiment: bool) -> dict[str, list[RunRecord]]:
    """Records by task, and by what else must be the same in a table; older runs did not record how they were split."""
    by_task: dict[str, list[list[RunRecord]]] = defaultdict(list)
    for record in records:
        alike = (runs for runs in by_task[record.task] if not _apart(runs[0], record))
        if (runs := next(alike, None)) is not None:
            runs.append(record)
        else:
            by_task[record.task].append([record])
    named: dict[str, list[RunRecord]] = {}
    for task, experiments in by_task.items():
        (first, *_), *others = experiments
        for other, *_ in others:
            key = _apart(first, other)[0]
            texts = (f"{_shown(_identity(record).get(key))} in {record.where}" for record in (first, other))
            text = f"runs of {task} are not of one experiment ({key}: {', '.join(texts)})"
            if one_experiment:
                raise FedpriorError(f"{text}; give the folders of one")
            warn(f"{text}; each has a table of its own")
        named |= dict(zip(_names(task, [runs[0] for runs in experiments]), experiments, strict=True))
    return named


def _apart(one: RunRecord, other: RunRecord) -> list[str]:
    """In what two runs differ that must be the same in a table."""
    ours, theirs = _identity(one), _identity(other)
    keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
    known = [key for key in keys if key != "split" or (ours.get(key) and theirs.get(key))]
    return sorted(known, key=lambda key: key in OF_THE_DATA)  # a setting says more than a fingerprint


def _identity(record: RunRecord) -> dict[str, Any]:
    """What the runs of a table have in common, by dotted keys: the task's settings, then its data."""
    run = record.config["run"]
    return _flat({**run["task"], **{key: run.get(key) for key in OF_THE_DATA}})


def _flat(settings: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Nested settings by dotted keys, without what is empty, zero or None: older runs do not have every key."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{within}{key}.") if isinstance(value, dict) else {within + key: value} if value else {}
    return flat


def _names(task: str, firsts: Sequence[RunRecord]) -> list[str]:
    """A name for each experiment of a task, of each of which one run is given: by settings, and by its data if need be."""
    if len(firsts) == 1:
        return [task]
    every = [_identity(record) for record in firsts]
    keys = [key for key in dict.fromkeys(itertools.chain(*every)) if len({str(each.get(key)) for each in every}) > 1]
    for told in ([key for key in keys if key not in OF_THE_DATA], keys):
        names = [", ".join([task, *(f"{key} = {_shown(each.get(key))}" for key in told)]) for each in every]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({k})" for k, name in enumerate(names, 1)]  # what they differ in is too long to be shown


def _shown(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)[:16]


def _check_seeds(task: str, variant: str, seeds: Seeds) -> None:
    first, *others = ({k: v for k, v in record.config["run"].items() if k != "seed"} for record in seeds.values())
    for record, other in zip(list(seeds.values())[1:], others, strict=True):
        if apart := differences(first, other):
            raise FedpriorError(
                f"seeds of {task}, {variant} differ in their settings ({apart[0]}, in {record.where}); "
                "give the folders of one experiment, or give the variants names of their own"
            )


def _check_variants(task: str, records: list[RunRecord], warn: Warn) -> None:
    """Refuse or tell what keeps the variants, of each of which one record is given, from being comparable."""
    _check_revisions(task, records)
    stated: dict[str, Any] = {}  # what the protocol says where a variant does not change it
    for record in records:
        run = record.config["run"]
        own = {*run["variant"]["protocol"], *FREE_PROTOCOL, *(("rounds",) if run["protocol"].get("budget") else ())}
        given = {key: value for key, value in run["protocol"].items() if key not in own}
        stated |= {key: value for key, value in given.items() if key not in stated}
        if apart := differences({key: stated[key] for key in given}, given):
            warn(f"runs of {task} are not of one experiment ({apart[0]}, in {record.where})")


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


def ordered(by_variant: Mapping[str, Seeds], order: Sequence[str]) -> list[str]:
    """Variants in the one order that tables, comparisons, summaries and pictures share.

    It is the order in which they were asked for, as the records stand. Of folders, where nobody knows it, it is that of
    their methods in ``order``, which is the registry's and has Local first; rows of one method then stand by name.
    """
    if not order:
        return list(by_variant)
    places = {name: place for place, name in enumerate(order)}

    def key(variant: str) -> tuple[int, str]:
        return places.get(method_of(by_variant[variant]), len(order)), variant

    return sorted(by_variant, key=key)


def method_of(seeds: Seeds) -> str:
    """The name of the method that a variant runs."""
    return str(next(iter(seeds.values())).config["run"]["variant"]["method"])

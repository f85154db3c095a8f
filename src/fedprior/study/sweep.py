"""A sweep: a study of every cell of a grid of hyper-parameters, looked at on validation samples, never on test.

    OUT/<task>/sweep/<method>/<cell>/<seed>/     a run's folder, where <cell> is a digest of all the settings

A cell is thus found again by whatever grid it belongs to: finished ones are reused, one that was killed goes on. Cells that
differ only in numbers are run by one compiled program, which takes those numbers as data.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedprior import methods
from fedprior.analysis.choice import Candidate, choose
from fedprior.analysis.grouping import Warn
from fedprior.core.hyper import hypers
from fedprior.core.method import Method
from fedprior.errors import FedpriorError
from fedprior.records.runs import RunFolder
from fedprior.records.schema import RunRecord, Status
from fedprior.study.assignment import current_key, format_value, parse_assignment
from fedprior.study.cells import Cell, CellWatch
from fedprior.study.grid import check_grid, lacks, read_grid
from fedprior.study.program import Program, method_for
from fedprior.study.rehearsal import traceable
from fedprior.study.results import Results
from fedprior.study.settings import is_task_key, read, read_task
from fedprior.study.study import Study
from fedprior.study.task import Task
from fedprior.study.task import task as open_by_name
from fedprior.study.trial import Trial
from fedprior.study.variant import Variant
from fedprior.wrappers import WRAPPERS

VALIDATION = 0.2  # of each client's training samples, unless the task says otherwise


class Sweep(Study):
    """Every combination of the grid's values, for each method and the keys that it has and that do something.

    Without a grid, the values that the method's hyper-parameters declare, leaving out what ``settings`` fix for all cells.
    """

    def __init__(
        self,
        task: Task,
        names: Iterable[str],
        grid: Mapping[str, Sequence[Any]] | None = None,
        *,
        seeds: int | Sequence[int] = 1,
        **settings: Any,
    ):
        names = list(dict.fromkeys(names))
        self.fixed = {current_key(key): value for key, value in settings.items()}
        self.grid = {current_key(key): values for key, values in (grid or {}).items()}
        check_grid(names, self.grid, self.fixed)
        self.candidates: dict[str, list[Variant]] = {name: self._cells_of(task, name) for name in names}
        around = {key: value for key, value in self.fixed.items() if key in WRAPPERS or is_task_key(key)}
        super().__init__(task, itertools.chain(*self.candidates.values()), seeds=seeds, local=False, **around)
        self._outcomes: dict[str, tuple[dict[int, RunRecord], str | None]] = {}

    def _cells_of(self, task: Task, name: str) -> list[Variant]:
        keys, own = methods.keys(name), {k: v for k, v in self.fixed.items() if k in methods.keys(name)}
        cls = methods.METHODS.find(name).cls
        declared = {key: about.sweep for key, about in hypers(cls).items() if about.sweep and key not in self.fixed}
        values: Mapping[str, Sequence[Any]] = self.grid or declared
        if not values:
            raise FedpriorError(f"{name} declares nothing more to sweep; say what: --grid key=value,value,...")
        base = method_for(task, Variant.of(name, own, name=name))
        swept = [key for key in values if key in keys and not lacks(base, key)]
        cells: dict[str, Variant] = {}
        for combination in itertools.product(*(values[key] for key in swept)):
            given = Variant.of(name, {**own, **dict(zip(swept, combination, strict=True))}, name=name)
            method = method_for(task, given)
            if any(lacks(method, key) and given.settings[key] != values[key][0] for key in swept):
                continue  # as the cell with the first of the values, since in this combination the key does nothing
            setting = {key: getattr(method, key) for key in swept}
            label = " ".join([name, *(f"{key}={format_value(value)}" for key, value in setting.items())])
            cells.setdefault(label, Variant(label, name, {**given.settings, **setting}))
        self.swept = {**getattr(self, "swept", {}), name: swept}
        return list(cells.values())

    def setting(self, variant: Variant) -> dict[str, Any]:
        """The values of the swept keys of a cell."""
        return {key: variant.settings[key] for key in self.swept[variant.method_name]}

    # -- one program for many cells ------------------------------------------------------------------------------------

    @cached_property
    def programs(self) -> list[Program]:
        """Programs that together run all cells: each those that differ only in what can be data."""
        return [program for program, _ in self._shared]

    @cached_property
    def _shared(self) -> list[tuple[Program, list[Variant]]]:
        (task,) = self.tasks
        held = task.federation.validation
        if held is None or not np.sum(held.size):
            part = task.settings.validation
            raise FedpriorError(
                f"validation = {part:g} leaves no client a validation sample; use --set validation=0.5, say"
            )
        rows = zip(self.rows, self.variants, strict=True)
        shared, rest = [], [self._fitting(task, row, given) for row, given in rows]
        while rest:
            first = rest[0]
            data, own = traceable(task, first), self.setting(first)
            alike = [
                other
                for other in rest
                if other.method == first.method
                and all(isinstance(v, float) if k in data else v == own[k] for k, v in self.setting(other).items())
            ]
            rest = [variant for variant in rest if variant not in alike]
            together = Variant(first.method_name, first.method, first.settings, first.wrappers)
            program = Program(task, together, data=data, only_validation=True)
            program.check()
            shared.append((program, alike))
        return shared

    def trials(self) -> Iterator[Trial]:
        """Every cell as a trial of the program that it shares."""
        for program, alike in self._shared:
            for variant in alike:
                method = method_for(program.task, variant)
                for seed in self.seeds:
                    yield SweptTrial(program, seed, method, variant)

    def folder(self, out: Path, trial: Trial) -> Path:
        """A folder named by a digest of all the cell's settings."""
        run = {key: value for key, value in trial.config()["run"].items() if key != "seed"}
        cell = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:12]
        return out / trial.program.task.name / "sweep" / trial.program.variant.name / cell / str(trial.seed)

    def cells(self, out: Path | str | None = None) -> list[Cell]:
        """All cells, each under its own name."""
        return [
            cell._replace(variant=cell.trial.variant.name)
            for cell in super().cells(out)
            if isinstance(cell.trial, SweptTrial)
        ]

    # -- running and choosing ------------------------------------------------------------------------------------------

    def try_all(
        self,
        out: Path,
        *,
        watch: CellWatch = lambda cell, progress: None,
        done: Callable[[str, int], None] = lambda name, count: None,
        warn: Warn = lambda text: None,
        should_stop: Callable[[], bool] = lambda: False,
        command: str | None = None,
    ) -> bool:
        """Run every cell; what is in ``out`` already is reused. False if ``should_stop`` said so.

        ``done`` is told of each method how many of its settings have been tried.
        """
        self._warn_about_old_cells(out, warn)
        for cell in self.cells(out):
            assert cell.folder is not None
            records, diverged = self._outcomes.setdefault(cell.variant, ({}, None))
            if diverged is not None:
                continue
            if should_stop():
                return False
            name = cell.trial.program.variant.name
            record = self._reused(cell, warn)
            if record is None:
                results = Results([])
                result = self._run_cell(cell, results, watch, warn, should_stop, {"resume": True, "command": command})
                if result is not None and not result.finished:
                    return False
                record = RunFolder(cell.folder).record()
            records[cell.seed] = record
            if record.status == Status.DIVERGED:
                self._outcomes[cell.variant] = (records, f"in round {record.round} with seed {cell.seed}")
            else:
                # A finished cell is its numbers: the states of a large grid's cells would fill the disk.
                shutil.rmtree(cell.folder / "checkpoints", ignore_errors=True)
            done(name, sum(self._is_tried(variant) for variant in self.candidates[name]))
        return True

    def _is_tried(self, variant: Variant) -> bool:
        records, diverged = self._outcomes.get(variant.name, ({}, None))
        return diverged is not None or len(records) == len(self.seeds)

    def _reused(self, cell: Cell, warn: Warn) -> RunRecord | None:
        """The record of a cell that was run before."""
        assert cell.folder is not None
        run = RunFolder(cell.folder)
        if not run.exists or run.status[0] not in (Status.FINISHED, Status.DIVERGED):
            return None
        for text in run.check_same(cell.trial.config()):
            warn(f"{cell.variant}, seed {cell.seed}: {text}")
        return run.record()

    def _warn_about_old_cells(self, out: Path, warn: Warn) -> None:
        (task,) = self.tasks
        place = out / task.name / "sweep"
        old = {p.parent for p in place.glob("*/*/*/config.json") if RunFolder(p.parent).written_format < 2}
        if old:
            warn(f"{place} holds runs of an older version ({len(old)}), which are not reused: their cells start anew")

    def outcomes(self, name: str) -> list[Candidate]:
        """A method's cells and what came of them."""
        found = []
        for variant in self.candidates[name]:
            records, diverged = self._outcomes[variant.name]
            found.append(Candidate(variant.name, self.setting(variant), tuple(records.values()), diverged))
        return found

    def command(self, name: str, task: str, settings: Iterable[str], rounds: int | None) -> str | None:
        """The command that trains with the chosen cell on all training samples; None if all diverged.

        ``settings``: the ``--set`` of all cells. Local would take over the chosen step size, and is left out.
        """
        best = choose(self.outcomes(name))
        if best is None:
            return None
        keys = {
            *methods.keys(name),
            *(key for p in self.programs if p.variant.name == name for key in p.variant.wrappers),
        }
        words = ["fedprior", "run", task, "--method", name, *([] if name == "local" else ["--no-local"])]
        words += ["--seeds", str(len(self.seeds))] if len(self.seeds) > 1 else []
        words += ["--rounds", str(rounds)] if rounds is not None else []
        kept = [
            text
            for text in settings
            if (key := parse_assignment(text)[0]) in keys or (is_task_key(key) and key != "validation")
        ]
        kept += [f"{key}={format_value(value)}" for key, value in best.setting.items()]
        kept += ["validation=0.0"] if read_task(task).get("validation") else []
        return shlex.join([*words, *(word for text in kept for word in ("--set", text))])


class SweptTrial(Trial):
    """A cell: a shared program at the cell's own values."""

    def __init__(self, program: Program, seed: int, method: Method, variant: Variant):
        self.variant = variant
        super().__init__(program, seed, method)


def open_sweep(task: str, names: Iterable[str], grid: Iterable[str], seeds: int, settings: Mapping[str, Any]) -> Sweep:
    """The sweep of a task by name: with validation samples, looked at after the last round (unless ``settings`` say so)."""
    own = {key: value for key, value in settings.items() if is_task_key(key)}
    file = read(task, own)
    if "validation" in own and not file.task.validation:
        raise FedpriorError(
            f"validation = 0: a sweep chooses on validation samples; give more than 0, as in --set validation={VALIDATION}"
        )
    changes: dict[str, Any] = {} if "eval_every" in own else {"eval_every": file.protocol.rounds}
    changes |= {} if file.task.validation else {"validation": VALIDATION}
    fixed = {key: value for key, value in settings.items() if key not in own}
    names, tried = list(names), read_grid(grid)
    check_grid(names, tried, settings)
    return Sweep(open_by_name(task, **own, **changes), names, tried, seeds=seeds, **fixed)

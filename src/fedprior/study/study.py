"""A study: variants x tasks x seeds, planned, run, resumed and extended. The only orchestrator of runs.

fp.Study(task, {"mh": {}, "mh+AM": {"method": "mh", "beta": 2}, "mh S=50": {"method": "mh", "aggregated": 50}}, seeds=5)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from typing import Any

from fedprior import methods
from fedprior.analysis.grouping import Warn, silent
from fedprior.core.method import Method
from fedprior.errors import FedpriorError, unknown
from fedprior.records.runs import RunFolder
from fedprior.study.assignment import current_key, native
from fedprior.study.cells import Cell, CellWatch, Plan, chosen_seeds, job_of, planned, reused
from fedprior.study.program import Program, has_global_model, method_for
from fedprior.study.recorder import CHECKPOINT_SECONDS, check_vacant, run_trial
from fedprior.study.remarks import remarks_on
from fedprior.study.results import Lost, Result, Results
from fedprior.study.settings import TaskSettings, is_task_key, keywords, settable
from fedprior.study.task import Task
from fedprior.study.task import task as open_by_name
from fedprior.study.trial import Diverged, Trial
from fedprior.study.variant import Variant, Variants, check_names, differ, rows_of
from fedprior.study.workers import run_jobs
from fedprior.wrappers import WRAPPERS, checked


class Study:
    """Variants x tasks x seeds.

    ``variants``: names (``"mh"``, ``"mh:beta=2"``), or a dictionary from each row's name to what it changes, with the key
    "method" where that is not the row's name. ``seeds``: how many, or which. ``local``: whether the Local-only row is added
    where it is missing. ``optional``: rows that nobody asked for by name; they are left out where the model does not allow
    them, and run without wrappers that do not fit them. ``settings`` are changed for all rows: of the protocol
    (``rounds=50``), of wrappers (``beta=2``), and hyper-parameters of every method that has them; what a row sets itself
    takes precedence.
    """

    def __init__(
        self,
        task: Task | str | Sequence[Task | str],
        variants: Variants,
        *,
        seeds: int | Sequence[int] = 1,
        local: bool = True,
        optional: Iterable[str] = (),
        **settings: Any,
    ):
        self.seeds = chosen_seeds(seeds)
        rows, self.optional = rows_of(variants), set(optional)
        if local and not any(row.method_name == "local" for row in rows):
            rows = [Variant.of("local"), *rows]
            self.optional.add("local")
        self.variants = check_names(rows)
        self.settings = {current_key(key): native(value) for key, value in settings.items()}
        self._given: list[Task | str] = [task] if isinstance(task, Task | str) else list(task)
        self.left_out: dict[tuple[str, str], str] = {}  # a task and an optional row, and why
        self.without: dict[tuple[str, str], str] = {}  # a task and an optional row, and the wrappers that do not fit it

    @cached_property
    def tasks(self) -> list[Task]:
        """The tasks, opened, with the settings of the study."""
        own = {key: value for key, value in self.settings.items() if is_task_key(key)}
        tasks = [self._open(task, own) for task in self._given]
        if len({task.name.casefold() for task in tasks}) < len(tasks):
            raise FedpriorError(
                f"two tasks have one name ({', '.join(task.name for task in tasks)}); rename one of them"
            )
        return tasks

    @staticmethod
    def _open(task: Task | str, own: dict[str, Any]) -> Task:
        if isinstance(task, str):
            return open_by_name(task, **own)
        for key in own:
            if key.partition(".")[0] in TaskSettings.model_fields:
                raise FedpriorError(f"'{key}' belongs to the task, which is open already; set it where it is opened")
        return task.with_protocol(**own)

    @cached_property
    def rows(self) -> list[Variant]:
        """The variants with the settings of the study."""
        shared = {key: value for key, value in self.settings.items() if not is_task_key(key)}
        named = [variant for variant in self.variants if isinstance(variant.method, str)]
        has = {variant.name: methods.keys(str(variant.method)) for variant in named}
        asked = [name for name in has if name != "local" or name not in self.optional] or list(has)
        for key in (key for key in shared if key not in WRAPPERS):
            rows = [name for name, keys in has.items() if key in keys]
            if not rows:
                raise unknown("key", key, settable({*WRAPPERS, *(key for keys in has.values() for key in keys)}))
            if not set(rows) & set(asked):
                raise FedpriorError(
                    f"'{key}' is no setting of {', '.join(asked)}, and would change {', '.join(rows)} only, which was not "
                    f"asked for by name; name it (-m {rows[0]}:{key}=...) if that is meant"
                )
        around = {key: checked(key, value) for key, value in shared.items() if key in WRAPPERS}
        return [
            variant.changed({k: v for k, v in shared.items() if k in has.get(variant.name, ())}, around)
            for variant in self.variants
        ]

    @cached_property
    def programs(self) -> list[Program]:
        """A program for each task and row, checked; nothing is compiled yet."""
        programs = []
        for task in self.tasks:
            for row, given in zip(self.rows, self.variants, strict=True):
                method_for(task, row)  # settings that are not valid are refused for every row, optional ones too
                try:
                    program = Program(task, self._fitting(task, row, given))
                    program.check()
                except FedpriorError as error:
                    if row.name not in self.optional:
                        raise
                    self.left_out[task.name, row.name] = str(error)
                    continue
                programs.append(program)
        return programs

    def _fitting(self, task: Task, row: Variant, given: Variant) -> Variant:
        """An optional row without those wrappers of the whole study that need a global model where there is none."""
        needing = [key for key in row.wrappers.keys() - given.wrappers.keys() if WRAPPERS.find(key).needs_global_model]
        if row.name not in self.optional or not needing:
            return row
        (program := Program(task, row)).check_method()
        if has_global_model(task, program.method):
            return row
        self.without[task.name, row.name] = ", ".join(sorted(needing))
        wrappers = {key: value for key, value in row.wrappers.items() if key not in needing}
        return Variant(row.name, row.method, row.settings, wrappers, row.protocol)

    def _named(self, task: str, row: str) -> str:
        """A row as it is told, with its task where there are several."""
        return row if len(self.tasks) == 1 else f"{task}, {row}"

    def remarks(self) -> list[str]:
        """What is valid but may not be meant: settings that do nothing, rows that were left out."""
        data = [f"{task.name}: {text}" for task in self.tasks for text in task.remarks]
        texts = data + [*self._unreached()] + [text for program in self.programs for text in remarks_on(program)]
        left = [f"{self._named(*row)} is left out: {why}" for row, why in self.left_out.items()]
        without = [
            f"{self._named(*row)} has no global model and runs without {keys}" for row, keys in self.without.items()
        ]
        return list(dict.fromkeys([*left, *without, *texts]))

    def _unreached(self) -> Iterator[str]:
        """The settings of all rows that a row given as an object has otherwise, which keeps its own."""
        for row in (row for row in self.rows if not isinstance(row.method, str)):
            own = {key: getattr(row.method, key) for key in self.settings if hasattr(row.method, key)}
            for key in (key for key, value in own.items() if key not in WRAPPERS and differ(value, self.settings[key])):
                yield (
                    f"{row.name} keeps its {key} = {own[key]!r} where other rows have {key} = {self.settings[key]!r}: it is "
                    "given as an object; give its name to change it"
                )

    # -- cells ---------------------------------------------------------------------------------------------------------

    def trials(self) -> Iterator[Trial]:
        """Every cell as a trial, those of one program together."""
        for program in self.programs:
            for seed in self.seeds:
                yield Trial(program, seed)

    def folder(self, out: Path, trial: Trial) -> Path:
        """Where a cell's records go."""
        return out / trial.program.task.name / trial.program.variant.name / str(trial.seed)

    def cells(self, out: Path | str | None = None) -> list[Cell]:
        """All cells, with the trial and the folder of each."""
        return [
            Cell(
                trial.program.task.name,
                trial.program.variant.name,
                trial.seed,
                trial,
                None if out is None else self.folder(Path(out), trial),
            )
            for trial in self.trials()
        ]

    def plan(self, out: Path | str | None = None) -> Plan:
        """Which cells there are, which are done, and the time left as far as rounds done so far tell."""
        return planned(self.cells(out))

    # -- running -------------------------------------------------------------------------------------------------------

    def run(
        self,
        out: Path | str | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
        watch: CellWatch = lambda cell, progress: None,
        warn: Warn = silent,
        should_stop: Callable[[], bool] = lambda: False,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        executor: Executor | None = None,
        command: str | None = None,
        models: bool = True,
        wanted: Callable[[Cell], bool] = lambda cell: True,
    ) -> Results:
        """Run every cell, into ``out/<task>/<row>/<seed>`` if given. Cells that diverge lose no other.

        ``executor``: run cells in other processes; then ``out`` is needed, and methods, models and data go by their names.
        ``command``: the command line, which is recorded. ``models``: whether the models are wanted; without them, results
        hold records only, and the states of cells that are done are not read again. ``wanted``: which cells to run.
        """
        if resume and overwrite:
            raise FedpriorError("--resume goes on with a run and --overwrite replaces it; choose one of them")
        cells = [cell for cell in self.cells(out) if wanted(cell)]
        for cell in cells:  # all of them are checked before the first one runs
            if cell.folder is not None and (run := RunFolder(cell.folder)).exists and not overwrite:
                run.check_plain()
                check_vacant(run, resume, overwrite)
                run.check_same(cell.trial.config())
        options: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "checkpoint_seconds": checkpoint_seconds}
        options |= {} if command is None else {"command": command}
        results = Results([])
        left = cells if models or overwrite else reused(cells, results, watch, warn)
        if executor is not None:
            run_jobs(executor, left, [job_of(cell, options) for cell in left], results, watch, warn, should_stop)
            return results
        for cell in left:
            if should_stop():
                break
            result = self._run_cell(cell, results, watch, warn, should_stop, options)
            if not models:
                results.runs.clear()
            if result is not None and not result.finished:
                break
        return results

    def _run_cell(
        self,
        cell: Cell,
        results: Results,
        watch: CellWatch,
        warn: Warn,
        should_stop: Callable[[], bool],
        options: dict[str, Any],
    ) -> Result | None:
        try:
            result = run_trial(
                cell.trial, cell.folder, watch=lambda p: watch(cell, p), should_stop=should_stop, **options
            )
        except Diverged as error:
            kept = "" if cell.folder is None else f"; records kept in {cell.folder}"
            text = f"{error} (seed {cell.seed}{kept})"
            results.lost.append(Lost(cell.task, cell.variant, "diverged", text, error.round))
            watch(cell, None)
            return None
        for text in result.warnings:
            warn(f"{cell.variant}, seed {cell.seed}: {text}")
        results.runs.append(result)
        results.records.append(result.record)
        return result


def run(
    task: Task,
    method: str | Method | Variant,
    *,
    seeds: int | Sequence[int] = 1,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    watch: CellWatch = lambda cell, progress: None,
    **settings: Any,
) -> list[Result]:
    """Run one method with several seeds: a registered name (with the task's settings), a variant or a Method.

    ``out``: keep records in ``out/<task>/<row>/<seed>``. ``watch(cell, progress)`` is called after each round, and
    ``progress.rows`` are what its evaluation gave. A run that diverges is an error.
    """
    study = Study(task, [method], seeds=seeds, local=False, **keywords(settings))
    results = study.run(out, resume=resume, overwrite=overwrite, watch=watch)
    if results.lost:  # in this process, nothing else is lost
        lost = results.lost[0]
        raise Diverged(lost.text, lost.round)
    return results.runs

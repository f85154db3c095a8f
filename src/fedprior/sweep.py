"""A sweep: every cell of a grid of hyper-parameters, and the setting that does best on validation samples, never on test.

    OUT/<task>/sweep/<method>/<cell>/<seed>/     a run's folder, where <cell> is a digest of all the settings

A cell is thus found again by whatever grid it belongs to: finished ones are reused, one that was killed goes on. Cells that
differ only in numbers are run by one compiled program (:class:`fedprior.tricks.Swept`).
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from rich import box
from rich.table import Table as RichTable

from fedprior import methods
from fedprior.analysis.tables import over_seeds
from fedprior.data.clients import ClientData, Samples
from fedprior.engine import State, merge_of_one_round, round_of_one_client
from fedprior.errors import FedpriorError, unknown
from fedprior.evaluate import Score
from fedprior.experiment import Experiment, Task, method_for, parse_assignment, read_task
from fedprior.method import Method, Mixture
from fedprior.records import RunFolder
from fedprior.run import Diverged, Progress, Trial
from fedprior.tricks import Swept

VALIDATION = 0.2  # of each client's training samples, unless the experiment says otherwise
CHOSEN_BY = (
    "accuracy in percent of the personal models on own validation samples, weighted, last round, mean over seeds"
)


@dataclass(eq=False)
class Cell:
    """One setting of one method, and what came of it."""

    name: str  # of the method
    setting: dict[str, Any]  # the values of the swept keys
    method: Method
    rounds: int = 0
    folder: Path | None = None
    accuracy: dict[int, float] = field(default_factory=dict)  # by seed, as CHOSEN_BY says
    diverged: str | None = None  # when, and with which seed

    def __str__(self) -> str:
        return ", ".join(f"{key}={written(value)}" for key, value in self.setting.items()) or "as set"


# -- which cells there are ---------------------------------------------------------------------------------------------


def read_grid(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Read ``key=value,value,...``, each value as ``--set`` reads it.

    >>> read_grid(["lambda=0.1,1", "start=w,theta"])
    {'lam': [0.1, 1], 'start': ['w', 'theta']}
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, _, values = text.partition("=")
        if not values or not all(value.strip() for value in values.split(",")):
            raise FedpriorError(f"'{text}' is not of the form key=value,value,...")
        parsed = [parse_assignment(f"{key}={value}") for value in values.split(",")]
        if parsed[0][0] in grid:
            raise FedpriorError(f"the grid names '{parsed[0][0]}' twice; give all its values at once")
        grid[parsed[0][0]] = [value for _, value in parsed]
    return grid


def written(value: Any) -> str:
    """A value as ``--set`` reads it.

    >>> written(15.0), written(0.1), written(True), written("w"), written("15")
    ('15', '0.1', 'true', 'w', '"15"')
    """
    if isinstance(value, str):
        return value if parse_assignment(f"key={value}")[1] == value else json.dumps(value)
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    return json.dumps(value)


def on_validation(experiment: Experiment, assigned: Mapping[str, Any]) -> Experiment:
    """The experiment as a sweep runs it: with validation samples, looked at after the last round (unless ``assigned``)."""
    changes: dict[str, Any] = {} if "eval_every" in assigned else {"eval_every": experiment.rounds}
    if experiment.validation == 0:
        changes["validation"] = VALIDATION
    return experiment.model_copy(update=changes)


def plan(
    experiment: Experiment, names: Iterable[str], assigned: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]
) -> dict[str, list[Cell]]:
    """The cells of each method: all combinations of the grid's values for the keys it has.

    Without a grid, of the ranges that the method declares, leaving out what is ``assigned`` (the ``--set`` of all cells).
    """
    has = {name: methods.keys(name) for name in names}
    for key in grid:
        if key in Experiment.model_fields:
            raise FedpriorError(
                f"--grid goes over a method's own settings, and '{key}' is the task's; use --set {key}=..."
            )
        if not any(key in keys for keys in has.values()):
            raise unknown("key in --grid", key, {key for keys in has.values() for key in keys})
        if key in assigned:
            raise FedpriorError(f"'{key}' is in --grid and in --set; leave it out of one of them")
    own = {key: value for key, value in assigned.items() if key not in Experiment.model_fields}
    cells: dict[str, list[Cell]] = {}
    for name, keys in has.items():
        declared = methods.METHODS[name][0].ranges
        ranges: Mapping[str, Sequence[Any]] = grid or {k: declared[k] for k in declared if k not in assigned}
        if not ranges:
            raise FedpriorError(f"{name} declares nothing more to sweep; say what: --grid key=value,value,...")
        swept = [key for key in ranges if key in keys]
        cells[name] = []
        for values in itertools.product(*(ranges[key] for key in swept)):
            method = method_for(experiment, name, own | dict(zip(swept, values, strict=True)))
            setting = {key: getattr(method, key) for key in swept}
            if all(setting != cell.setting for cell in cells[name]):
                cells[name].append(Cell(name, setting, method))
    return cells


# -- one program for many cells ----------------------------------------------------------------------------------------


class Program(Trial):
    """A trial that looks at validation samples only, and whose ``swept`` fields are data: one program for many cells."""

    def __init__(self, task: Task, method: Method, name: str, swept: tuple[str, ...]):
        self.swept = swept
        super().__init__(task, method, name)
        self._begin = self.engine.starting(self._started)

    def dressed(self, method: Method) -> Swept:
        """The method with its tricks, and the swept fields as data around all of them."""
        return Swept(method, self.swept, super().dressed)

    def at(self, method: Method) -> Program:
        """The trial of a cell: these programs, with the method's values of the swept fields."""
        cell = copy.copy(self)
        cell.settings = dict(vars(method))
        return cell

    def start(self, seed: int) -> State:
        """The cell's state before the first round."""
        setting = jnp.array([self.settings[name] for name in self.swept], float)
        return self._begin(jax.random.key_data(jax.random.key(seed)), setting)

    def _started(self, arrays: Any, seed: Array, setting: Array) -> State:
        assert isinstance(self.method, Swept)
        plain = copy.copy(self.engine)
        plain.method = self.method.at(setting)  # what server and clients begin with may depend on it, too
        state = plain.start_with(arrays, seed)
        return state._replace(server=self.method.with_setting(state.server, setting))

    def config(self, seed: int) -> dict[str, Any]:
        """As of a plain run, and which settings were data: the compiler may round those differently in the last bit."""
        found = super().config(seed)
        return {**found, "run": {**found["run"], "swept": list(self.swept)}}

    def folder(self, out: Path) -> Path:
        """Where the cell's runs go, a folder per seed."""
        settings = {key: value for key, value in self.config(0)["run"].items() if key != "seed"}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        return out / self.task.experiment.name / "sweep" / self.name / digest[:12]

    def _evaluate(self, state: State, t: int) -> dict[tuple[int, str, str], Score]:
        assert self.validator is not None
        return {(t, model, "validation"): score for model, score in self.validator.own(state).items()}


def programs(task: Task, cells: Iterable[Cell]) -> Iterator[tuple[Program, list[Cell]]]:
    """Programs one after the other, each with the cells it can run: those that differ in what can be data only."""
    rest = list(cells)
    while rest:
        first = rest[0]
        swept = traceable(task, first.method)
        alike = [
            cell
            for cell in rest
            if cell.name == first.name
            and all(isinstance(v, float) if k in swept else v == first.setting[k] for k, v in cell.setting.items())
        ]
        rest = [cell for cell in rest if cell not in alike]
        yield Program(task, first.method, first.name, swept), alike


def traceable(task: Task, method: Method) -> tuple[str, ...]:
    """The numbers among a method's fields that a program can take as data, since no Python code asks for their value."""
    numbers = tuple(name for name, value in vars(method).items() if isinstance(value, float))
    if _traces(task, method, numbers):
        return numbers
    single = tuple(name for name in numbers if _traces(task, method, (name,)))
    return single if _traces(task, method, single) else ()


def _traces(task: Task, method: Method, names: tuple[str, ...]) -> bool:
    """Whether a round and the personal model can be built without knowing the values of the named fields."""
    e, n, swept = task.experiment, task.federation.n_clients, Swept(method, names)

    def rehearse(setting: Array, train: Samples, key: Array) -> Mixture:
        i, w0, base = jnp.int32(0), task.problem.init(key), swept.at(setting)
        server = swept.with_setting(base.server(task.problem, w0, n, key), setting)
        state = State(i, jax.random.key_data(key), server, (), ())
        client, _, up, _ = round_of_one_client(task.problem, swept, train, e.batch, state, i, base.client(w0, key), i)
        ids = jnp.arange(e.aggregated or n)
        ups = jax.tree.map(lambda x: jnp.stack([x] * len(ids)), up)
        server = merge_of_one_round(swept, state, ups, ids, jnp.asarray(train.size)[ids], e.weights)
        data = ClientData(train, i, e.batch, key, 0)
        return swept.personal_model(task.problem, client, swept.send(swept.outbox(server), i, key), data, key)

    try:
        jax.eval_shape(rehearse, jnp.zeros(len(names)), Samples(*task.federation.train), jax.random.key(0))
    except TypeError:  # JAX's errors about values that are not known yet, and about types that they do not fit
        return False
    return True


# -- running and choosing ----------------------------------------------------------------------------------------------


def try_all(
    task: Task,
    cells: Iterable[Cell],
    seeds: int,
    out: Path,
    *,
    watch: Callable[[Cell, int, Progress], None] = lambda cell, seed, progress: None,
    done: Callable[[Cell], None] = lambda cell: None,
    warn: Callable[[str], None] = lambda text: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Run every cell with seeds 0, 1, ...; what is in ``out`` already is reused. False if ``should_stop`` said so."""
    held = task.federation.validation
    if held is None or not np.sum(held.size):
        part = task.experiment.validation
        raise FedpriorError(
            f"validation = {part:g} leaves no client a validation sample; use --set validation=0.5, say"
        )
    for program, alike in programs(task, cells):
        for cell in alike:
            trial = program.at(cell.method)
            cell.rounds, cell.folder = trial.rounds, trial.folder(out)
            for seed in range(seeds):
                if should_stop() or not _run(trial, cell, seed, watch, warn, should_stop):
                    return False
                if cell.diverged:
                    break
            done(cell)
    return True


def _run(
    trial: Program,
    cell: Cell,
    seed: int,
    watch: Callable[[Cell, int, Progress], None],
    warn: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> bool:
    """Run a cell with one seed, or go on with it, or take what is there; False if it was stopped."""
    assert cell.folder is not None
    record = RunFolder(cell.folder / str(seed))
    if record.exists and record.status["status"] in ("finished", "diverged"):
        warnings = [f"reusing a result of another {text}" for text in record.check_same(trial.config(seed))]
    else:
        try:
            result = trial.run(
                seed,
                record.path,
                resume=True,
                watch=lambda progress: watch(cell, seed, progress),
                should_stop=should_stop,
            )
        except Diverged:
            warnings = []
        else:
            if not result.finished:
                return False
            warnings = result.warnings
    for text in warnings:
        warn(f"{cell.name}, {cell}, seed {seed}: {text}")
    status = record.status
    if status["status"] == "diverged":
        cell.diverged = f"in round {status['round']} with seed {seed}"
        return True
    cell.accuracy[seed] = _accuracy(record, cell.rounds)
    # A finished cell is its numbers: the states of a large grid's cells would fill the disk.
    shutil.rmtree(record.path / "checkpoints", ignore_errors=True)
    return True


def _accuracy(record: RunFolder, rounds: int) -> float:
    wanted = (str(rounds), "personal", "validation", "weighted")
    for row in record.rows("metrics.csv"):
        if (row["round"], row["model"], row["data"], row["average"]) == wanted:
            return float(row["accuracy"])
    raise FedpriorError(f"{record.path / 'metrics.csv'} has lost round {rounds}; remove {record.path} and sweep again")


def choose(cells: Iterable[Cell]) -> Cell | None:
    """The cell that did best on validation, the first of equals; None if all diverged."""
    alive = [cell for cell in cells if not cell.diverged]
    return max(alive, key=lambda cell: float(np.mean(list(cell.accuracy.values()))), default=None)


def summarize(cells: Iterable[Cell]) -> dict[str, Any]:
    """A method's cells and the chosen setting, as plain data."""
    cells = list(cells)
    best = choose(cells)
    return {
        "chosen": None if best is None else best.setting,
        "cells": [
            {
                "setting": cell.setting,
                "validation": None if cell.diverged else over_seeds(cell.accuracy),
                "diverged": cell.diverged,
                "rounds": cell.rounds,
                "folder": str(cell.folder),
            }
            for cell in cells
        ],
    }


def run_command(
    task: str, cells: Iterable[Cell], settings: Iterable[str], rounds: int | None, seeds: int
) -> str | None:
    """The command that trains with the chosen cell on all training samples; None if all diverged.

    ``settings``: the ``--set`` of all cells. Local would take over the chosen step size, and is left out.
    """
    best = choose(cells)
    if best is None:
        return None
    keys = methods.keys(best.name)
    words = ["fedprior", "run", task, "--method", best.name, *([] if best.name == "local" else ["--no-local"])]
    words += ["--seeds", str(seeds)] if seeds > 1 else []
    words += ["--rounds", str(rounds)] if rounds is not None else []
    kept = [text for text in settings if (key := parse_assignment(text)[0]) in keys or _of_task(key)]
    kept += [f"{key}={written(value)}" for key, value in best.setting.items()]
    kept += ["validation=0.0"] if read_task(task).get("validation") else []
    return shlex.join([*words, *(word for text in kept for word in ("--set", text))])


def _of_task(key: str) -> bool:
    return key.split(".")[0] in Experiment.model_fields and key != "validation"


def settings_table(found: Mapping[str, Any]) -> RichTable:
    """All of a method's settings (as of :func:`summarize`) for a terminal, the chosen one marked."""
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for heading in (*found["cells"][0]["setting"], "validation", "seeds"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for cell in found["cells"]:
        row = [written(value) for value in cell["setting"].values()]
        if (number := cell["validation"]) is None:
            table.add_row(*row, "diverged", "", cell["diverged"])
        else:
            deviation = "" if number["std"] is None else f"±{number['std']:.2f}"
            mark = "chosen" if cell["setting"] == found["chosen"] else ""
            table.add_row(*row, f"{number['mean']:.2f}{deviation}", str(len(number["seeds"])), mark)
    return table

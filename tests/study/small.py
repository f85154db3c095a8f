"""Small tasks, and programs on them that tests share: compiling is what takes the time."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

import fedprior as fp
from fedprior.study.program import Program
from fedprior.study.recorder import run_trial
from fedprior.study.trial import Trial


@functools.cache
def small_task(draw: int = 0, **settings: Any) -> fp.Task:
    """Three classes on five clients, other samples for each ``draw``; a tuple stands for a list, to be looked up."""
    rng = np.random.default_rng(draw)
    y = rng.integers(0, 3, 120)
    x = (2 * np.eye(3)[y] + rng.normal(size=(120, 3))).astype(np.float32)
    lists = {key: list(value) for key, value in settings.items() if isinstance(value, tuple)}
    options = {"rounds": 6, "aggregated": 2, "batch": 8, **settings, **lists}
    return fp.task_from_arrays(x, y, np.arange(120) % 5, lambda key: eqx.nn.Linear(3, 3, key=key), **options)


@functools.cache
def small_program(row: str = "meg:R=2,K=2", **settings: Any) -> Program:
    """A row on such a task."""
    free = ("rounds", "eval_every", "record_labels")  # the compiled parts do not depend on these
    if set(free) & set(settings):
        rest = {key: value for key, value in settings.items() if key not in free}
        program = copy.copy(small_program(row, **rest))
        for part in ("engine", "evaluator", "validator", "cost"):
            getattr(small_program(row, **rest), part)
        program.__dict__ |= vars(small_program(row, **rest)) | {"task": small_task(**settings)}
        for stale in ("protocol", "rounds"):
            program.__dict__.pop(stale, None)
        return program
    return Program(small_task(**settings), fp.Variant.parse(row))


def run(folder: Path | None, seed: int = 0, row: str = "meg:R=2,K=2", **options: Any) -> fp.Result:
    """A trial of a small program, with a checkpoint after every round."""
    settings = {
        key: options.pop(key) for key in ("rounds", "eval_every", "validation", "new_clients") if key in options
    }
    trial = Trial(small_program(row, **settings), seed)
    return run_trial(trial, folder, checkpoint_seconds=0, **options)


def stop_after(n: int) -> dict[str, Any]:
    """Options that stop a run after round n."""
    seen: list[int] = []
    return {"watch": lambda p: seen.append(p.round), "should_stop": lambda: seen[-1] == n - 1}


def share(study: fp.Study, *others: fp.Study) -> fp.Study:
    """Let a study run with the programs that others have compiled, where they are the same."""
    known = [program for other in others for program in other.programs]

    def same(a: Program, b: Program) -> bool:
        return (a.task.name, a.variant, a.protocol) == (b.task.name, b.variant, b.protocol)

    study.__dict__["programs"] = [next((k for k in known if same(k, mine)), mine) for mine in study.programs]
    return study

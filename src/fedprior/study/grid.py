"""The grid of a sweep: which values of which hyper-parameters are tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedprior import methods
from fedprior.core.hyper import hypers, without_effect
from fedprior.core.method import Method
from fedprior.errors import FedpriorError, unknown
from fedprior.study.assignment import parse_assignment
from fedprior.study.settings import is_task_key, settable
from fedprior.wrappers import WRAPPERS


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


def check_grid(names: Iterable[str], grid: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any]) -> None:
    """Refuse a grid that makes no sense."""
    has = {name: methods.keys(name) for name in names}
    for key in fixed:
        if key not in WRAPPERS and not is_task_key(key) and not any(key in keys for keys in has.values()):
            raise unknown("key", key, settable({*WRAPPERS, *(key for keys in has.values() for key in keys)}))
    for key in grid:
        if is_task_key(key) or key in WRAPPERS:
            whose = "the task's" if is_task_key(key) else "a wrapper's"
            raise FedpriorError(
                f"--grid goes over a method's own settings, and '{key}' is {whose}; use --set {key}=..."
            )
        if not any(key in keys for keys in has.values()):
            raise unknown("key in --grid", key, {key for keys in has.values() for key in keys})
        if key in fixed:
            raise FedpriorError(f"'{key}' is in --grid and in --set; leave it out of one of them")
        made = [
            methods.make(name, **{k: v for k, v in fixed.items() if k in keys})
            for name, keys in has.items()
            if key in keys
        ]
        if all(lacks(method, key) for method in made):
            why = without_effect(made[0])[key]
            raise FedpriorError(f"--grid {key}: {why}, so that all its values would do the same")


def lacks(method: Method, key: str) -> bool:
    """Whether a key does nothing, for lack of what it needs."""
    needs = hypers(method)[key].needs
    return needs is not None and not needs[1](method)

"""What a row changes of its method, on several tasks at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Apart = dict[str, dict[str, Any]]  # setting -> task -> value; a task that is not there does not change it


def common_changes(by_task: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], Apart]:
    """What a row is and changes on all tasks alike, and what it changes on some, or not alike.

    >>> one, two = ({"method": "mh", "changed": {"lam": lam, "K": 2}, "wrappers": {}} for lam in (15.0, 30.0))
    >>> common_changes({"one": one, "two": two})
    ({'method': 'mh', 'changed': {'K': 2}, 'wrappers': {}}, {'lam': {'one': 15.0, 'two': 30.0}})
    """
    first = next(iter(by_task.values()))
    common: dict[str, Any] = {"method": first["method"]}
    apart: Apart = {}
    for kind in ("changed", "wrappers"):
        of = {task: about.get(kind) or {} for task, about in by_task.items()}
        names = dict.fromkeys(name for settings in of.values() for name in settings)
        alike = {
            n for n in names if all(n in each and each[n] == next(iter(of.values())).get(n) for each in of.values())
        }
        common[kind] = {name: next(iter(of.values()))[name] for name in names if name in alike}
        apart |= {n: {task: each[n] for task, each in of.items() if n in each} for n in names if n not in alike}
    return common, apart

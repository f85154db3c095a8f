"""Personalized federated learning with personalized priors: pFedBreD and the methods it is compared with.

Names are loaded when they are first used, so that ``import fedprior`` itself imports neither JAX nor anything as heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedprior.core import configure_jax
from fedprior.errors import FedpriorError

if TYPE_CHECKING:
    from fedprior.core.hyper import hyper
    from fedprior.core.method import Method
    from fedprior.methods import make, register
    from fedprior.models.saved import Predictor, load
    from fedprior.study.results import Result, Results
    from fedprior.study.study import Study, run
    from fedprior.study.task import Task, task, task_from_arrays
    from fedprior.study.variant import Variant

__all__ = [
    "FedpriorError",
    "Method",
    "Predictor",
    "Result",
    "Results",
    "Study",
    "Task",
    "Variant",
    "__version__",
    "hyper",
    "load",
    "make",
    "register",
    "run",
    "task",
    "task_from_arrays",
]

_HOME = {
    "Method": "core.method",
    "Predictor": "models.saved",
    "Result": "study.results",
    "Results": "study.results",
    "Study": "study.study",
    "Task": "study.task",
    "Variant": "study.variant",
    "hyper": "core.hyper",
    "load": "models.saved",
    "make": "methods",
    "register": "methods",
    "run": "study.study",
    "task": "study.task",
    "task_from_arrays": "study.task",
}
_RENAMED = {
    "open_task": "fedprior.task(name, **settings)",
    "Experiment": "fedprior.study.settings (TaskSettings and Protocol)",
    "Engine": "fedprior.engine.engine.Engine, or fedprior.Study to run methods",
    "Evaluator": "fedprior.engine.evaluate.Evaluator",
}

configure_jax()  # one host device per core: must be settled before JAX starts


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fedprior")
    if name in _HOME:
        value = getattr(importlib.import_module(f"fedprior.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _RENAMED:
        raise AttributeError(f"fedprior.{name} has a new name: {_RENAMED[name]}")
    raise AttributeError(f"module 'fedprior' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)

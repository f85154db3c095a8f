"""The table of methods: one line per name, with its class and the settings that the name stands for."""

from __future__ import annotations

import dataclasses
import importlib
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from fedprior.errors import FedpriorError, unknown
from fedprior.registry import Registry

if TYPE_CHECKING:
    from fedprior.core.method import Method


class Entry(NamedTuple):
    """What a name stands for: a class, or the file and name of one of this folder's, and settings.

    This folder's are imported when they are asked for, so that the names alone, as tables order them, cost no time.
    """

    given: type[Method] | str
    preset: Mapping[str, Any] = types.MappingProxyType({})

    @property
    def cls(self) -> type[Method]:
        """The class."""
        if not isinstance(self.given, str):
            return self.given
        file, _, name = self.given.partition(".")
        return cast("type[Method]", getattr(importlib.import_module(f"fedprior.methods.{file}"), name))


# A setting given here is what the name stands for, and a task's [method] section does not change it: the lam of Ditto,
# FedAMP and FedPAC and the server's step of pFedHN are on other scales than those of pFedMe and pFedBreD, for which tasks
# set them, and pFedBayes steps with Adam.
METHODS: Registry[Entry] = Registry(
    "method",
    {
        "local": Entry("local.Local"),
        "fedavg": Entry("fedavg.FedAvg"),
        "fedprox": Entry("fedprox.FedProx"),
        "scaffold": Entry("scaffold.Scaffold"),
        "reptile": Entry("reptile.Reptile"),
        "perfedavg": Entry("perfedavg.PerFedAvg"),
        "perfedavg-hf": Entry("perfedavg.PerFedAvg", {"hessian": "free"}),
        "ditto": Entry("ditto.Ditto", {"lam": 1.0}),
        "fedamp": Entry("fedamp.FedAMP", {"lam": 1.0}),
        "heurfedamp": Entry("fedamp.HeurFedAMP", {"lam": 1.0}),
        "fedfomo": Entry("fedfomo.FedFomo"),
        "fedem": Entry("fedem.FedEM"),
        "pfedbayes": Entry("pfedbayes.PFedBayes", {"alpha": 1e-3, "alpha_m": 1e-3}),
        "fedpac": Entry("fedpac.FedPAC", {"lam": 0.01}),
        "pfedhn": Entry("pfedhn.PFedHN", {"alpha_m": 0.01}),
        "fedu": Entry("fedu.FedU"),
        "pfedme": Entry("pfedme.PFedMe"),
        "pfedme-released": Entry("pfedme.PFedMe", {"start": "w"}),
        "pfedbred": Entry("pfedbred.PFedBreD"),
        "lg": Entry("pfedbred.PFedBreD", {"mean": "lg"}),
        "meg": Entry("pfedbred.PFedBreD", {"mean": "meg"}),
        "mh": Entry("pfedbred.PFedBreD", {"mean": "mh"}),
        "lg-released": Entry("pfedbred.PFedBreD", {"mean": "lg", "order": "released"}),
        "meg-released": Entry("pfedbred.PFedBreD", {"mean": "meg", "order": "released"}),
        "mh-released": Entry("pfedbred.PFedBreD", {"mean": "mh", "order": "released"}),
    },
)


def register(name: str, cls: type[Method], *, replace: bool = False, **preset: Any) -> None:
    """Add a method of your own under a new name, for this process; ``replace`` allows a name that is taken."""
    METHODS.register(name, Entry(cls, preset), replace=replace)


def keys(name: str) -> dict[str, Any]:
    """The settable fields of a method and their types."""
    cls = METHODS.find(name).cls
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def make(name: str, **settings: Any) -> Method:
    """Build a registered method.

    >>> make("mh", lam=30.0).lam
    30.0
    """
    hints = keys(name)
    for key, value in settings.items():
        if key not in hints:
            raise unknown(f"setting of method {name}", key, hints)
        settings[key] = _typed(name, key, value, hints[key])
    entry = METHODS.find(name)
    return entry.cls(**{**entry.preset, **settings})


def _typed(method: str, key: str, value: Any, hint: Any) -> Any:
    """Check a value against the field's type; a whole number may stand for a float, and NumPy's numbers for Python's."""
    from jax import Array

    value = value.item() if isinstance(value, np.generic) else value
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if Array in kinds and isinstance(value, np.ndarray):
        return value
    if any(isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool) for kind in kinds):
        return value
    wanted = " or ".join("none" if kind is type(None) else kind.__name__ for kind in kinds)
    raise FedpriorError(f"{method}: {key} = {value!r} has the wrong type ({type(value).__name__}); it must be {wanted}")


def all_keys() -> set[str]:
    """The settable fields of any method."""
    return {key for name in METHODS for key in keys(name)}

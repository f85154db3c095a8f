"""The table of methods: one line per name, with its class and the settings that the name stands for."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from fedprior.core.method import Method
from fedprior.errors import FedpriorError, unknown
from fedprior.methods.ditto import Ditto
from fedprior.methods.fedamp import FedAMP, HeurFedAMP
from fedprior.methods.fedavg import FedAvg
from fedprior.methods.fedem import FedEM
from fedprior.methods.fedfomo import FedFomo
from fedprior.methods.fedpac import FedPAC
from fedprior.methods.fedprox import FedProx
from fedprior.methods.fedu import FedU
from fedprior.methods.local import Local
from fedprior.methods.perfedavg import PerFedAvg
from fedprior.methods.pfedbayes import PFedBayes
from fedprior.methods.pfedbred import PFedBreD
from fedprior.methods.pfedhn import PFedHN
from fedprior.methods.pfedme import PFedMe
from fedprior.methods.reptile import Reptile
from fedprior.methods.scaffold import Scaffold
from fedprior.registry import Registry


class Entry(NamedTuple):
    """What a name stands for."""

    cls: type[Method]
    preset: Mapping[str, Any] = types.MappingProxyType({})


# A setting given here is what the name stands for, and a task's [method] section does not change it: the lam of Ditto,
# FedAMP and FedPAC and the server's step of pFedHN are on other scales than those of pFedMe and pFedBreD, for which tasks
# set them, and pFedBayes steps with Adam.
METHODS: Registry[Entry] = Registry(
    "method",
    {
        "local": Entry(Local),
        "fedavg": Entry(FedAvg),
        "fedprox": Entry(FedProx),
        "scaffold": Entry(Scaffold),
        "reptile": Entry(Reptile),
        "perfedavg": Entry(PerFedAvg),
        "perfedavg-hf": Entry(PerFedAvg, {"hessian": "free"}),
        "ditto": Entry(Ditto, {"lam": 1.0}),
        "fedamp": Entry(FedAMP, {"lam": 1.0}),
        "heurfedamp": Entry(HeurFedAMP, {"lam": 1.0}),
        "fedfomo": Entry(FedFomo),
        "fedem": Entry(FedEM),
        "pfedbayes": Entry(PFedBayes, {"alpha": 1e-3, "alpha_m": 1e-3}),
        "fedpac": Entry(FedPAC, {"lam": 0.01}),
        "pfedhn": Entry(PFedHN, {"alpha_m": 0.01}),
        "fedu": Entry(FedU),
        "pfedme": Entry(PFedMe),
        "pfedme-released": Entry(PFedMe, {"start": "w"}),
        "pfedbred": Entry(PFedBreD),
        "lg": Entry(PFedBreD, {"mean": "lg"}),
        "meg": Entry(PFedBreD, {"mean": "meg"}),
        "mh": Entry(PFedBreD, {"mean": "mh"}),
        "lg-released": Entry(PFedBreD, {"mean": "lg", "order": "released"}),
        "meg-released": Entry(PFedBreD, {"mean": "meg", "order": "released"}),
        "mh-released": Entry(PFedBreD, {"mean": "mh", "order": "released"}),
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

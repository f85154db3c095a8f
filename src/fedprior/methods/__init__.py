"""The registry: one line per method, from its name to its class and the settings the name stands for."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

import numpy as np
from jax import Array

from fedprior.errors import FedpriorError, unknown
from fedprior.method import Method
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

# A setting given here is what the name stands for, and a task's [method] section does not change it: the lam of Ditto,
# FedAMP and FedPAC and the server's step of pFedHN are on other scales than those of pFedMe and pFedBreD, for which tasks
# set them, and pFedBayes steps with Adam.
METHODS: dict[str, tuple[type[Method], dict[str, Any]]] = {
    "local": (Local, {}),
    "fedavg": (FedAvg, {}),
    "fedprox": (FedProx, {}),
    "scaffold": (Scaffold, {}),
    "reptile": (Reptile, {}),
    "perfedavg": (PerFedAvg, {}),
    "perfedavg-hf": (PerFedAvg, {"hessian": "free"}),
    "ditto": (Ditto, {"lam": 1.0}),
    "fedamp": (FedAMP, {"lam": 1.0}),
    "heurfedamp": (HeurFedAMP, {"lam": 1.0}),
    "fedfomo": (FedFomo, {}),
    "fedem": (FedEM, {}),
    "pfedbayes": (PFedBayes, {"alpha": 1e-3, "alpha_m": 1e-3}),
    "fedpac": (FedPAC, {"lam": 0.01}),
    "pfedhn": (PFedHN, {"alpha_m": 0.01}),
    "fedu": (FedU, {}),
    "pfedme": (PFedMe, {}),
    "pfedme-released": (PFedMe, {"start": "w"}),
    "pfedbred": (PFedBreD, {}),
    "lg": (PFedBreD, {"mean": "lg"}),
    "meg": (PFedBreD, {"mean": "meg"}),
    "mh": (PFedBreD, {"mean": "mh"}),
    "lg-released": (PFedBreD, {"mean": "lg", "order": "released"}),
    "meg-released": (PFedBreD, {"mean": "meg", "order": "released"}),
    "mh-released": (PFedBreD, {"mean": "mh", "order": "released"}),
}


def register(name: str, cls: type[Method], **preset: Any) -> None:
    """Add a method of your own under a name, for this process."""
    METHODS[name] = (cls, preset)


def keys(name: str) -> dict[str, Any]:
    """The settable fields of a method and their types."""
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    cls, _ = METHODS[name]
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
    cls, preset = METHODS[name]
    return cls(**{**preset, **settings})


def _typed(method: str, key: str, value: Any, hint: Any) -> Any:
    """Check a value against the field's type; a whole number may stand for a float."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if Array in kinds and isinstance(value, np.ndarray):
        return value
    if any(isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool) for kind in kinds):
        return value
    wanted = " or ".join("none" if kind is type(None) else kind.__name__ for kind in kinds)
    raise FedpriorError(f"{method}: {key} = {value!r} has the wrong type ({type(value).__name__}); it must be {wanted}")

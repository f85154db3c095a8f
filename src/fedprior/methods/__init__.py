"""The table of methods: one line per name, with its class and the settings that the name stands for."""

from __future__ import annotations

import importlib
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
    from fedprior.core.method import Method

    given: object = cls
    if not (isinstance(given, type) and issubclass(given, Method)):
        raise FedpriorError(
            f"method '{name}': give a subclass of fedprior.Method, and settings beside it: "
            f"register(name, FedAvg, alpha=0.1); given: {given!r}"
        )
    METHODS.register(name, Entry(cls, preset), replace=replace)


def keys(name: str) -> Mapping[str, Any]:
    """The settable fields of a method and their types."""
    from fedprior.core.kinds import kinds

    return kinds(METHODS.find(name).cls)


def make(name: str, **settings: Any) -> Method:
    """Build a registered method; a whole number may stand for a float, and NumPy's numbers for Python's.

    >>> make("mh", lam=30.0).lam
    30.0
    """
    from fedprior.core.kinds import standing_for

    entry, types_of = METHODS.find(name), keys(name)
    given = {**entry.preset, **settings}
    for key in given:
        if key not in types_of:
            raise unknown(f"setting of method {name}", key, types_of)
    return entry.cls(**{key: standing_for(types_of[key], value) for key, value in given.items()})


def all_keys() -> set[str]:
    """The settable fields of any method."""
    return {key for name in METHODS for key in keys(name)}

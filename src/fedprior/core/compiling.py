"""The one way in which programs are compiled. What the compiler is told is part of the bits of a run, and is recorded."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from fedprior.errors import FedpriorError

CompilerOptions = Mapping[str, str]

# By default jaxlib 0.10 hands reductions to a library of kernels too, or splits them into parts of 32, and which of the two
# depends on the number of devices: with more than 32 classes, bits did as well. With this it hands over matrix products
# alone, which also speeds up a CNN: the library's reductions are slow where a process has several devices.
_FUSION = "xla_cpu_experimental_ynn_fusion_type"
_PREFERRED = {_FUSION: "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}


def check_options(options: CompilerOptions) -> None:
    """Refuse options that the compiler at hand does not know."""
    try:
        Compiler(options)(lambda: 0).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        listed = ", ".join(f"{key}={value}" for key, value in options.items())
        raise FedpriorError(
            f"the run was compiled with {listed}, which this version of jaxlib does not take; install the version that its "
            "config.json names under 'environment'"
        ) from error


@functools.cache
def preferred_options() -> CompilerOptions:
    """What new runs tell the compiler beyond its defaults: nothing on accelerators, nor where the user has set it."""
    if _FUSION in os.environ.get("XLA_FLAGS", "") or jax.default_backend() != "cpu":
        return {}
    try:
        check_options(_PREFERRED)
    except FedpriorError:  # another version of jaxlib
        return {}
    return _PREFERRED


@dataclass(frozen=True)
class Compiler:
    """``jax.jit`` with options for the compiler: those that a run recorded, or (None) those of new runs.

    >>> Compiler()(lambda x: x + 1)(1).item()
    2
    """

    given: CompilerOptions | None = None

    @property
    def options(self) -> CompilerOptions:
        """What the compiler is told of every program."""
        return preferred_options() if self.given is None else self.given

    def __call__(self, function: Callable[..., Any], **how: Any) -> Any:
        """Compile a function."""
        return jax.jit(function, compiler_options=dict(self.options), **how)

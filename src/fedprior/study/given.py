"""Settings that are objects, as records have them: what they are, and a digest that tells one from another."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior.records.sameness import GIVEN

# What these define goes by its name: its code changes with the version, which records tell by themselves.
LIBRARIES = {"builtins", "equinox", "fedprior", "functools", "jax", "jaxlib", "math", "numpy", "operator", "optax"}


def recorded(value: Any) -> Any:
    """A setting as a record has it: names and numbers as they are, tuples as lists, and of other objects a digest.

    >>> recorded(0.5), recorded((0.1, 0.2)), recorded(np.eye(2)) == recorded(np.eye(2)), recorded(np.ones(2))
    (0.5, [0.1, 0.2], True, 'a given ndarray 10b68eaa086b')
    """
    return _plain(value) if _is_plain(value) else described(type(value).__name__, value)


def described(what: str, value: Any) -> str:
    """An object as a record has it, called by what it is."""
    return f"{GIVEN}{what} {digest(value)}"


def digest(value: Any) -> str:
    """What tells an object from others of its kind: its arrays, its plain fields, and the code of its functions."""
    return hashlib.sha256(repr(_about(value, frozenset())).encode()).hexdigest()[:12]


def _is_plain(value: Any) -> bool:
    return (
        all(map(_is_plain, value)) if isinstance(value, list | tuple) else isinstance(value, str | int | float | None)
    )


def _plain(value: Any) -> Any:
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _about(value: Any, above: frozenset[int]) -> Any:
    """What tells an object from others as nested lists of texts; ``above``: the objects that it is part of."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | bytes | int | float | complex | None):
        return repr(value)
    if isinstance(value, np.ndarray | jax.Array):
        return _about_array(value)
    if id(value) in above:
        return "itself"
    about = functools.partial(_about, above=above | {id(value)})
    name = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', None)}"
    cls = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), value.co_names, [about(constant) for constant in value.co_consts]]
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        return [cls, name, getattr(value, "__name__", "")]
    if isinstance(value, types.MethodType):
        return [cls, about(value.__self__), about(value.__func__)]
    if hasattr(value, "__qualname__") and name.partition(".")[0] in LIBRARIES:
        return [cls, name]
    if isinstance(value, types.FunctionType):
        inside = [about(_content(cell)) for cell in value.__closure__ or ()]
        return [cls, name, about(value.__code__), about(value.__defaults__), about(value.__kwdefaults__), inside]
    if isinstance(value, functools.partial):
        return [cls, about(value.func), about(value.args), about(value.keywords)]
    if isinstance(value, Mapping):
        return [cls, sorted(([about(key), about(inner)] for key, inner in value.items()), key=repr)]
    if isinstance(value, set | frozenset):
        return [cls, sorted((about(inner) for inner in value), key=repr)]
    if isinstance(value, list | tuple):
        return [cls, [about(inner) for inner in value]]
    if hasattr(value, "__wrapped__"):  # as jax.jit leaves a function
        return [cls, about(value.__wrapped__)]
    if dataclasses.is_dataclass(value):  # Equinox modules too; what else they hold was computed from their fields
        return [cls, [[field.name, about(getattr(value, field.name, None))] for field in dataclasses.fields(value)]]
    return [cls, about(getattr(value, "__dict__", {}))]


def _about_array(array: np.ndarray | jax.Array) -> list[str]:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    held = np.asarray(array)
    content = repr(held.tolist()).encode() if held.dtype.hasobject else np.ascontiguousarray(held).tobytes()
    return [str(held.dtype), str(held.shape), hashlib.sha256(content).hexdigest()]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is still empty
        return None

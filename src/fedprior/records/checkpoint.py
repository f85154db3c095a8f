"""Any tree of arrays as named arrays in a safetensors file, with a checksum. Names are the paths of the leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from fedprior.errors import FedpriorError
from fedprior.files import arrays_digest, cannot_write, replace_file
from fedprior.records.formats import current_name

T = TypeVar("T")


def named(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by the names of their paths.

    >>> list(named({"w": np.zeros(2), "layers": [np.zeros(1)]}))
    ['layers.0', 'w']
    """
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in paths}


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def as_data(leaf: Any) -> Any:
    """The shape and type in which a leaf is kept: random keys are kept as plain numbers."""
    return jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf


def pack(tree: Any) -> dict[str, np.ndarray]:
    """A tree as named arrays on the host."""
    return {
        name: np.array(jax.device_get(jax.random.key_data(leaf) if _is_key(leaf) else leaf))
        for name, leaf in named(tree).items()
    }


def unpack(
    arrays: dict[str, np.ndarray],
    like: T,
    misfit: str = "the checkpoint does not fit this run",
    hint: str = "was it written by another method?",
) -> T:
    """The tree that was packed, on the host; ``like`` has its structure, shapes and types (as of ``jax.eval_shape``)."""
    wanted = named(like)
    if set(wanted) != set(arrays):
        odd = sorted(set(wanted) ^ set(arrays))[0]
        raise FedpriorError(f"{misfit} (differs at {odd}); {hint}")

    def restore(name: str, leaf: Any) -> Any:
        value, data = arrays[name], as_data(leaf)
        if value.shape != data.shape or value.dtype != data.dtype:
            raise FedpriorError(
                f"{misfit}: {name} is {value.dtype}{list(value.shape)}, but {data.dtype}{list(data.shape)} is needed"
            )
        return jax.random.wrap_key_data(jnp.asarray(value)) if _is_key(leaf) else value

    leaves = [restore(name, leaf) for name, leaf in wanted.items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def to_bytes(tree: Any) -> bytes:
    """A tree as the bytes of a safetensors file."""
    return safetensors.numpy.save(pack(tree))


def write(path: Path, tree: Any) -> None:
    """Replace a checkpoint file."""
    write_state(path, pack(tree))


def write_state(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Replace a checkpoint file by a state that is packed already."""
    write_arrays(path, arrays, {"sha256": arrays_digest(arrays)})


def write_arrays(path: Path, arrays: dict[str, np.ndarray], about: dict[str, str], mode: int | None = None) -> None:
    """Replace a safetensors file: named arrays, and texts about them; ``mode``: who may read it, as of ``replace_file``."""
    try:
        replace_file(path, lambda p: safetensors.numpy.save_file(arrays, p, metadata=about), mode)
    except safetensors.SafetensorError as error:
        raise cannot_write(path, error) from error


def read(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of a checkpoint file of any format by their current names; None where it is not what was written."""
    content = read_arrays(path)
    if content is None or content[1].get("sha256") != arrays_digest(content[0]):
        return None
    return {current_name(name): array for name, array in content[0].items()}


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]] | None:
    """What a safetensors file holds; None where it is none, or is cut."""
    if not path.is_file():  # a pipe would wait
        return None
    try:
        with safetensors.safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
            return arrays, file.metadata() or {}
    except (safetensors.SafetensorError, OSError, TypeError, ValueError, AttributeError):  # also types that NumPy lacks
        return None

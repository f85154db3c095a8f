"""The table of models: MCLR, DNN, CNN and LSTM, and those that a user registers.

An entry is a subclass of :class:`fedprior.models.base.Model`. Classes are imported when they are first asked for, so that
names can be listed and checked without JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedprior.errors import FedpriorError
from fedprior.registry import Registry

if TYPE_CHECKING:
    import numpy as np
    from jax import Array

    from fedprior.models.base import Model

MODELS: Registry[type[Model]] = Registry(
    "model",
    {
        "mclr": "fedprior.models.mlp:MCLR",
        "dnn": "fedprior.models.mlp:DNN",
        "cnn": "fedprior.models.cnn:CNN",
        "lstm": "fedprior.models.lstm:LSTM",
    },
)


def find_model(name: str) -> type[Model]:
    """The class of a name; anything but a subclass of Model is refused."""
    from fedprior.models.base import Model

    entry: object = MODELS.find(name)
    if isinstance(entry, type) and issubclass(entry, Model):
        return entry
    raise FedpriorError(
        f"model '{name}' is registered as {getattr(entry, '__name__', entry)!r}, which is not a subclass of "
        "fedprior.models.base.Model; write it as one, or give a plain module or a function of a key to "
        "task_from_arrays(..., model=...)"
    )


def default_options(name: str) -> dict[str, Any]:
    """The options of a model with their defaults.

    >>> default_options("dnn")
    {'hidden': 100, 'slope': 0.1}
    """
    from fedprior.models import base

    return base.default_options(find_model(name))


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the model does not have, or whose values are not of the right kind.

    >>> check_options("dnn", {"hidden": 0})
    Traceback (most recent call last):
    fedprior.errors.FedpriorError: option hidden of model 'dnn' must be at least 1, not 0
    """
    from fedprior.models import base

    base.check_options(name, find_model(name), options)


def build(
    name: str,
    options: Mapping[str, Any],
    x_shape: tuple[int, ...],
    n_classes: int,
    vectors: np.ndarray | None,
    key: Array,
) -> Model:
    """Make the named model for samples of shape ``x_shape`` (without the batch).

    ``vectors`` [V, d] are the word vectors of data made of word indices, and None for all other data.

    >>> import jax
    >>> build("mclr", {}, (28, 28), 10, None, jax.random.key(0)).head.weight.shape
    (10, 784)
    """
    check_options(name, options)
    if not x_shape or min(x_shape) < 1 or n_classes < 2:
        raise FedpriorError(
            f"a model needs inputs and at least two classes; given: shape {x_shape}, {n_classes} classes"
        )
    return find_model(name).for_data(x_shape, n_classes, vectors, key=key, **options)

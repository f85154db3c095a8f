"""What every model has: a last linear layer called head, the features it reads, options, and PyTorch's initial values.

Models map a *batch*: ``features(x)`` is the input of the last linear layer, ``logits(x) = head(features(x))``. Weights keep
PyTorch's layout (``[out, in]``, ``[out, in, k, k]``, LSTM gates in the order i, f, g, o), so that the leaves of a model, in
their order, are the parameters of the same PyTorch module. The layout is also the faster one here: with ``[in, out]`` a step
of MCLR inside a scanned SGD loop takes 1.7 times the time (the other models: the same time). The names of a model's fields
are part of the checkpoint format.

Initial values: U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases (K. He et al., "Delving deep into rectifiers",
ICCV 2015, with the gain PyTorch gives its layers), U(-1/sqrt(hidden), 1/sqrt(hidden)) for the LSTM.
"""

from __future__ import annotations

import abc
import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import equinox as eqx
import jax
import numpy as np
from jax import Array

from fedprior.errors import FedpriorError, unknown


def uniform(key: Array, shape: tuple[int, ...], fan_in: int) -> Array:
    """Draw from U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    bound = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Frozen(eqx.Module):
    """An array that belongs to a model but is not trained.

    The rest of the library splits models with ``is_leaf=lambda x: isinstance(x, Frozen)``, which keeps the array out of the
    parameters.
    """

    array: Array


class Linear(eqx.Module):
    """``x -> x W^T + b``.

    >>> import jax.numpy as jnp
    >>> layer = Linear(3, 2, key=jax.random.key(0))
    >>> layer(jnp.ones((5, 3))).shape
    (5, 2)
    """

    weight: Array  # [out, in]
    bias: Array  # [out]

    def __init__(self, in_size: int, out_size: int, *, key: Array) -> None:
        w_key, b_key = jax.random.split(key)
        self.weight = uniform(w_key, (out_size, in_size), in_size)
        self.bias = uniform(b_key, (out_size,), in_size)

    def __call__(self, x: Array) -> Array:
        """Map [B, in] to [B, out]."""
        # x W^T + b, transposed twice, and kept apart from what follows: the CPU program's two matrix products are
        # faster so, above all that of the gradient (MCLR: 0.65 times the time; DNN: no difference).
        return jax.lax.optimization_barrier(self.weight @ x.T + self.bias[:, None]).T


class Shift(eqx.Module):
    """``z -> z + b``: a Linear whose product x W^T is given."""

    bias: Array  # [out]

    def __call__(self, z: Array) -> Array:
        """Map [B, out] to [B, out]."""
        return z + self.bias


class Model(eqx.Module):
    """Base of all models that have a name: a last linear layer, the features it reads, and the logits it makes of them.

    The constructor is ``(in_size, n_classes, *, key, ...)``, where keyword-only arguments other than ``key`` are the model's
    options; a model that reads something other than flattened numbers overrides :meth:`for_data`.
    """

    if TYPE_CHECKING:  # a field of this class would come first among the leaves of every model
        head: Linear
    reads_input: ClassVar[str | None] = None  # the field of the Linear that reads the flattened input, if there is one
    # The gradient of a larger batch is added up over slices of at most so many samples.
    samples_per_slice: ClassVar[int | None] = None

    @abc.abstractmethod
    def features(self, x: Array) -> Array:
        """Map inputs [B, ...] to the input of the last linear layer [B, d]."""

    @property
    def input_layer(self) -> str | None:
        """What ``reads_input`` names, where it is sure to hold: not if a subclass of the class that says so computes
        anything else, and not if the layer is another one.
        """
        for owner in type(self).__mro__:
            if "reads_input" in vars(owner):
                break
            if not {"features", "logits", "__call__"}.isdisjoint(vars(owner)):
                return None
        return self.reads_input if type(getattr(self, self.reads_input or "", None)) is Linear else None

    def logits(self, x: Array) -> Array:
        """Map inputs [B, ...] to unnormalised log-probabilities [B, C]."""
        return self.head(self.features(x))

    @classmethod
    def for_data(
        cls, x_shape: tuple[int, ...], n_classes: int, vectors: np.ndarray | None, *, key: Array, **options: Any
    ) -> Self:
        """Make the model for samples of shape ``x_shape``, or say why it does not fit them.

        ``vectors`` [V, d] are the word vectors of data made of word indices, and None for all other data. Unless a model
        says otherwise, it reads the numbers of a sample as one row.
        """
        refuse_words(cls, vectors)
        make: Callable[..., Self] = cls
        try:
            inspect.signature(make).bind(math.prod(x_shape), n_classes, key=key, **options)
        except TypeError as error:
            raise FedpriorError(
                f"{cls.__name__} cannot be made from {cls.__name__}(in_size, n_classes, key=key, **options): {error}; "
                "give it such a constructor, or a class method for_data of its own"
            ) from error
        return make(math.prod(x_shape), n_classes, key=key, **options)


def refuse_words(model_class: type[Model], vectors: np.ndarray | None) -> None:
    """Refuse data made of word indices, for a model that reads numbers."""
    if vectors is not None:
        name = model_class.__name__.lower()
        raise FedpriorError(f"model '{name}' takes numbers, and this data set is made of word indices; use 'lstm'")


def default_options(model_class: type[Model]) -> dict[str, Any]:
    """The options of a model with their defaults; ``inspect.Parameter.empty`` stands for an option that must be given."""
    parameters = inspect.signature(model_class).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "key"}


def check_options(name: str, model_class: type[Model], given: Mapping[str, Any]) -> None:
    """Refuse an option that the model does not have, or a value of another kind than the option's default."""
    defaults = default_options(model_class)
    for option, value in given.items():
        if option not in defaults:
            if not defaults:
                raise FedpriorError(f"model '{name}' has no options; given: {option}")
            raise unknown(f"option of model '{name}'", option, defaults)
        problem = _problem_with(value, defaults[option])
        if problem is not None:
            raise FedpriorError(f"option {option} of model '{name}' {problem}")
    for option, default in defaults.items():
        if default is inspect.Parameter.empty and option not in given:
            raise FedpriorError(f"model '{name}' needs a value for its option {option}, which has no default")


def _problem_with(value: Any, default: Any) -> str | None:
    """What is wrong with an option's value, judged by its default; None where nothing is."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else f"is true or false, not {value!r}"
    if isinstance(default, str):
        return None if isinstance(value, str) else f"is a text (default '{default}'), not {value!r}"
    if not isinstance(default, int | float):
        return None  # an option without a default, or with one that says nothing about its kind
    whole = isinstance(default, int)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return f"is {'a whole number' if whole else 'a number'} (default {default}), not {value!r}"
    least = min(default, 1)  # whole numbers are sizes and counts, unless the default itself is smaller
    return f"must be at least {least}, not {value}" if whole and value < least else None

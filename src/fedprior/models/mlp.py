"""Models of flattened inputs: logistic regression, and one hidden layer."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
from jax import Array

from fedprior.models.base import Linear, Model


class MCLR(Model):
    """Multinomial logistic regression; the features are the (flattened) input itself.

    >>> import jax.numpy as jnp
    >>> MCLR(784, 10, key=jax.random.key(0)).logits(jnp.ones((5, 28, 28))).shape
    (5, 10)
    """

    head: Linear
    reads_input: ClassVar[str] = "head"

    def __init__(self, in_size: int, n_classes: int, *, key: Array) -> None:
        self.head = Linear(in_size, n_classes, key=key)

    def features(self, x: Array) -> Array:
        """Flatten [B, ...] to [B, in_size]."""
        return x.reshape(len(x), -1)


class DNN(Model):
    """One hidden layer of 100 leaky rectifiers with slope 0.1 (T. Dinh et al., "pFedMe", NeurIPS 2020).

    >>> import jax.numpy as jnp
    >>> DNN(784, 10, key=jax.random.key(0)).features(jnp.ones((5, 784))).shape
    (5, 100)
    """

    hidden: Linear
    head: Linear
    slope: float = eqx.field(static=True)
    reads_input: ClassVar[str] = "hidden"

    def __init__(self, in_size: int, n_classes: int, *, hidden: int = 100, slope: float = 0.1, key: Array) -> None:
        hidden_key, head_key = jax.random.split(key)
        self.hidden = Linear(in_size, hidden, key=hidden_key)
        self.head = Linear(hidden, n_classes, key=head_key)
        self.slope = slope

    def features(self, x: Array) -> Array:
        """Map [B, ...] to [B, hidden]."""
        return jax.nn.leaky_relu(self.hidden(x.reshape(len(x), -1)), self.slope)

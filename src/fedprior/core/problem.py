"""What a method may ask of a model on a batch, with the parameters given as a vector."""

from __future__ import annotations

from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from fedprior.core.batch import Batch
from fedprior.core.optimize import gradient_steps
from fedprior.core.vectors import Scalar, Vector


class Problem(eqx.Module):
    """A loss over batches. Subclasses give ``init`` and ``losses``; a classifier also gives ``logits``."""

    def init(self, key: Array) -> Vector:
        """Draw a starting point."""
        raise NotImplementedError

    def losses(self, w: Vector, batch: Batch) -> Array:
        """Per-sample losses [B]."""
        raise NotImplementedError

    def loss(self, w: Vector, batch: Batch) -> Array:
        """f(w; B): the mean loss over the batch's real samples."""
        return jnp.sum(batch.weight * self.losses(w, batch))

    def grad(self, w: Vector, batch: Batch) -> Vector:
        """The gradient of f(w; B)."""
        return cast(Vector, jax.grad(self.loss)(w, batch))

    def proximal_steps(self, mu: Vector, start: Vector, batch: Batch, lam: Scalar, alpha: Scalar, K: int) -> Vector:
        """K times x <- x - alpha [grad f(x; B) + lam (x - mu)], from ``start``, all on one batch."""
        return gradient_steps(lambda x: self.grad(x, batch) + lam * (x - mu), start, alpha, K)

    def logits(self, w: Vector, x: Array) -> Array:
        """Scores [B, C]."""
        raise NotImplementedError(f"{type(self).__name__} has no logits")

    def features(self, w: Vector, x: Array) -> Array:
        """Input of the last layer [B, d]."""
        raise NotImplementedError(f"{type(self).__name__} has no features")

    def head(self, w: Vector) -> Vector:
        """The last linear layer's parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no head")

    def with_head(self, w: Vector, head: Vector) -> Vector:
        """The parameters with the last linear layer's replaced."""
        raise NotImplementedError(f"{type(self).__name__} has no head")

    def head_shape(self, w: Vector) -> tuple[int, int]:
        """Number of classes and of features."""
        raise NotImplementedError(f"{type(self).__name__} has no head")

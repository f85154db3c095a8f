"""Gradient steps: plain ones, those of any optax optimizer, and R of them on a client's own batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import optax
from jax import Array, lax

from fedprior.core.batch import Batch, Data
from fedprior.core.vectors import Scalar, Tree, Vector

Optimizer: TypeAlias = str | optax.GradientTransformation  # a name of OPTIMIZERS, or one of the user's own
# What a step size needs: an optimizer that is given as an object has its own.
NAMED = ("an optimizer given by name", lambda method: isinstance(method.optimizer, str))
OPTIMIZERS = ("sgd", "adabelief", "adagrad", "adam", "adamax", "adamw", "lamb", "lion", "nadam", "rmsprop", "yogi")


def gradient_steps(grad: Callable[[Vector], Vector], w: Vector, alpha: Scalar, steps: int) -> Vector:
    """``steps`` times w <- w - alpha grad(w), for a gradient that stays the same function.

    >>> from jax import numpy as jnp
    >>> float(gradient_steps(lambda x: x - 4.0, Vector(jnp.array(0.0)), 0.5, 2).tree)
    3.0
    """
    return lax.fori_loop(0, steps, lambda _, x: x - alpha * grad(x), w)


def make_optimizer(name: Optimizer, alpha: Scalar) -> optax.GradientTransformation:
    """An optax optimizer by name with step size ``alpha``, or the given one as it is."""
    return getattr(optax, name)(alpha) if isinstance(name, str) else name


def optimize(
    grad: Callable[[Vector, Any], Vector],
    w: Vector,
    picks: Tree,
    optimizer: optax.GradientTransformation,
    memory: optax.OptState | None = None,
) -> tuple[Vector, optax.OptState]:
    """One optimizer step per pick: w <- w + update(grad(w, pick)); returns w and the optimizer's state.

    ``picks`` [R, ...]: an array, or a tree of arrays that belong together.
    """

    def step(carry: tuple[Vector, optax.OptState], pick: Any) -> tuple[tuple[Vector, optax.OptState], None]:
        w, memory = carry
        update, memory = optimizer.update(grad(w, pick), memory, w)
        return (optax.apply_updates(w, update), memory), None

    start = (w, optimizer.init(w) if memory is None else memory)
    (w, memory), _ = lax.scan(step, start, picks)
    return w, memory


def local_steps(
    grad: Callable[[Vector, Batch], Vector],
    w: Vector,
    data: Data,
    steps: int,
    alpha: Scalar,
    optimizer: Optimizer = "sgd",
    memory: optax.OptState | None = None,
    pull: Callable[[Vector], Vector] | None = None,
) -> tuple[Vector, optax.OptState]:
    """``steps`` steps on the client's next batches, along grad(w, B) + pull(w); returns w and the optimizer's state."""

    def slope(w: Vector, pick: Array) -> Vector:
        g = grad(w, data.batch(pick))
        return g if pull is None else g + pull(w)

    return optimize(slope, w, data.draw(steps), make_optimizer(optimizer, alpha), memory)

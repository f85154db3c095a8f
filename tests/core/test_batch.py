"""Batches: the mean over the real samples, whatever fills a short one."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from toys import Quadratic, vector

from fedprior.core.batch import Batch


def batch(*mask: float) -> Batch:
    """Samples of 1/2 (w - c)^2 with c = 0, 2, 4, ..."""
    c = 2.0 * jnp.arange(len(mask))
    return Batch(jnp.stack([c, jnp.ones_like(c)], axis=1), jnp.zeros(len(mask), jnp.int32), jnp.array(mask))


@pytest.mark.parametrize(
    ("mask", "weight"),
    [
        ((1.0, 1.0, 1.0, 1.0), [0.25] * 4),
        ((1.0, 1.0, 0.0, 0.0), [0.5, 0.5, 0.0, 0.0]),
        ((0.5, 1.0, 0.0, 0.0), [0.25, 0.5, 0.0, 0.0]),  # less weight, and still counted
        ((0.0, 0.0), [0.0, 0.0]),
    ],
)
def test_weights_are_those_of_the_mean_over_real_samples(mask: tuple[float, ...], weight: list[float]) -> None:
    assert batch(*mask).weight.tolist() == weight


def test_filling_changes_neither_loss_nor_gradient() -> None:
    problem, w = Quadratic(1), vector(3.0)
    short, filled = batch(1.0, 1.0), batch(1.0, 1.0, 0.0, 0.0, 0.0)
    assert float(problem.loss(w, short)) == float(problem.loss(w, filled)) == (4.5 + 0.5) / 2
    assert problem.grad(w, short).tree.tolist() == problem.grad(w, filled).tree.tolist() == [2.0]

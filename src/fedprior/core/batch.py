"""Samples as a method sees them: masked batches, and one client's view of what is its own."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp
from jax import Array

SAMPLES_PER_STEP = 128  # of a pass over everything that a client has


class Batch(NamedTuple):
    """Samples with a mask, so that a short batch has the shape of a full one."""

    x: Array  # [B, ...]
    y: Array  # [B]
    mask: Array  # [B], 1 for a sample, 0 for filling; a number in between gives the sample less weight

    @property
    def weight(self) -> Array:
        """Weights [B] of the mean over the real samples."""
        return self.mask / jnp.maximum(jnp.sum(self.mask > 0), 1)


class Data(Protocol):
    """One client's own samples, the same object in simulation and on a deployed client."""

    size: Array  # how many samples there are

    def draw(self, count: int) -> Array:
        """Sample indices [count, B] of the next batches, filled up by -1; epochs are reshuffled and continue across rounds.

        Draw all picks before a loop and scan over them: inside a compiled loop one call would stand for many.
        """

    def batch(self, pick: Array) -> Batch:
        """Fetch the samples of one row [B] of what ``draw`` gave."""

    def split(self, fraction: float) -> tuple[Data, Data]:
        """Split the samples for good: (the rest, a fixed ``fraction`` of them, but at least one); the rest may be empty."""

    def fold(self, f: Any, start: Any) -> Any:
        """Run ``acc = f(acc, batch)`` over all samples, once each, in masked chunks."""

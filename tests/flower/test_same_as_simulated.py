"""Promise 1: a deployed federation ends with the bits of a simulation of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedprior.methods import METHODS
from flower.example import Deployment, assert_same

pytestmark = pytest.mark.bits

# All clients train, and are sent the same; each client is sent something else.
QUICK = ("mh", "fedamp")
ROWS = [f"{name}:M=2" if name == "fedfomo" else name for name in METHODS if name not in QUICK]
# What a row may change besides the method: who trains and counts how much, wrappers, batches, and when is scored.
CHANGED = (
    "mh:participation=sampled,weights=uniform",
    "fedavg:participation=all,beta=2,fine_tune=1",
    "ditto:batch=16,aggregated=2,eval_every=2",
    "mh:batch=1000",  # more than anyone has: a batch is as long as the largest site
)


@pytest.mark.parametrize("row", [*QUICK, *(pytest.param(row, marks=pytest.mark.slow) for row in (*ROWS, *CHANGED))])
def test_deployed_is_simulated(tmp_path: Path, row: str) -> None:
    model = "dnn" if row == "fedpac" else "mclr"
    deployment = Deployment(tmp_path, row, model=model)
    assert_same(deployment, deployment.run(), row, model=model)

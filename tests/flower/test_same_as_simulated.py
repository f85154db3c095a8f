"""Promise 1: a deployed federation ends with the bits of a simulation of it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedprior.methods import METHODS
from flower.example import Deployment, assert_same

QUICK = ("mh",)
pytestmark = pytest.mark.bits


@pytest.mark.parametrize("row", [*QUICK, *(pytest.param(m, marks=pytest.mark.slow) for m in METHODS if m not in QUICK)])
def test_deployed_is_simulated(tmp_path: Path, row: str) -> None:
    model = "dnn" if row == "fedpac" else "mclr"
    deployment = Deployment(tmp_path, row, model=model)
    assert_same(deployment, deployment.run(), row, model=model)

"""What all tests of a deployed federation have in common."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _flower_logs_reach_pytest() -> Iterator[None]:
    """Flower's logger keeps its records to itself."""
    logger = logging.getLogger("flwr")
    before, logger.propagate = logger.propagate, True
    yield
    logger.propagate = before

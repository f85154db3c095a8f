"""The paper's experiments run in single precision, unlike the theory beside them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _float64() -> None:
    """Nothing: it stands in for the fixture of the folder above."""

"""One comparison for all tests that only look at runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import Outcome, fedprior

from cli.commands import COMPARE


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A comparison of three methods over two seeds, and what it printed with --json. Who writes into it uses a copy."""
    out = tmp_path_factory.mktemp("compared")
    outcome = fedprior(*COMPARE, "--json", "--out", out)
    assert outcome.code == 0, outcome.err
    return out / "digits-mclr", outcome

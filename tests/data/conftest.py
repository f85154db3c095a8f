"""Fixtures for tests that read data: a small hub, and registries that forget what a test adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.small_hub import write_all
from fedprior.data.partitions import PARTITIONS
from fedprior.data.sources import SOURCES


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small mnist, femnist and sent140 in a folder named by FEDPRIOR_DATA, with a cache of their own."""
    pytest.importorskip("datasets", reason="the hub extra is not installed")
    root = tmp_path / "data"
    write_all(root)
    monkeypatch.setenv("FEDPRIOR_DATA", str(root))
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path / "cache"))
    return root


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources and partitions that a test registers are forgotten after it."""
    for registry in (SOURCES, PARTITIONS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))

"""Training what an artefact needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from fedprior.errors import FedpriorError
from fedprior.reproduce.paper.run import train
from fedprior.study.results import Lost, Results
from fedprior.study.study import Study


class Losing:
    """A study of which every run is lost."""

    def __init__(self, *how: str):
        self.how = how

    def cells(self) -> tuple[str, ...]:
        return self.how

    def run(self, out: Path, **options: Any) -> Results:
        return Results([], lost=[Lost("toy", "mh", how, f"mh: {how} {k}") for k, how in enumerate(self.how)])


def lose(tmp_path: Path, *studies: Losing) -> Results | None:
    return train(cast("list[Study]", studies), tmp_path, watch=lambda cell, progress: None, warn=lambda text: None)


def test_a_run_that_failed_makes_no_table(tmp_path: Path) -> None:
    with pytest.raises(FedpriorError, match="a run failed: mh: failed 0, and 1 more; the same command tries again"):
        lose(tmp_path, Losing("failed", "diverged"), Losing("failed"))
    results = lose(tmp_path, Losing("diverged"))
    assert results is not None
    assert results.diverged == ["mh: diverged 0"]  # which is a result

"""How a run stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedprior.records.lock import hold
from fedprior.records.schema import Status
from fedprior.records.standing import standing


@pytest.mark.parametrize("status", Status)
def test_what_was_recorded_and_who_is_at_work_say_how_a_run_stands(tmp_path: Path, status: Status) -> None:
    word, by = standing(status, tmp_path)
    assert (word, by) == ("interrupted" if status is Status.RUNNING else status.value, None)
    with hold(tmp_path):
        word, by = standing(status, tmp_path)
        assert word == "running"
        assert by is not None
        assert by.startswith("process ")

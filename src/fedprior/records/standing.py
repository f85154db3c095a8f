"""How a run stands: what its record says of it, and whether a process is at work in its folder."""

from __future__ import annotations

from pathlib import Path

from fedprior.records.lock import holder
from fedprior.records.schema import Status


def standing(status: Status, folder: Path) -> tuple[str, str | None]:
    """How a run stands, in a word, and by whom it is run at the moment.

    One that was at work when it was last recorded, and in whose folder nobody works any more, was interrupted.
    """
    if by := holder(folder):
        return "running", by
    return "interrupted" if status is Status.RUNNING else status.value, None

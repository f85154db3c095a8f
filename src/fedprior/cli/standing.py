"""How a run stands, as `fedprior runs` and `fedprior flower status` tell it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedprior.records.runs import RunFolder


def is_deployed(run: Path) -> bool:
    """Whether a folder holds a deployed run; what is wrong with one that cannot be read is told elsewhere."""
    from fedprior.errors import FedpriorError
    from fedprior.records.runs import RunFolder

    try:
        return bool(RunFolder(run).exists and RunFolder(run).config.get("deployed"))
    except FedpriorError:
        return False


def standing(run: RunFolder) -> tuple[str, str]:
    """How a run stands, in a word, and what else there is to say: by whom it is run, or how it goes on."""
    from fedprior.records.standing import standing as standing_of

    word, by = standing_of(run.status[0], run.path)
    if by:
        return word, f"by {by}"
    if word not in ("interrupted", "stopped"):
        return word, ""
    how = "`fedprior flower resume`" if is_deployed(run.path) else "--resume"
    return word, f"{how} goes on with it"

"""The state of the round that is best on the validation samples, kept beside the newest states.

It is chosen by the accuracy of the personal models, weighted by samples; of equal rounds the first counts. A run that goes
back to one of its newest states must have the best of the rounds until then, so that what is kept is the best up to each of
them: usually one state, at most as many as there are newest ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprior.files import writing
from fedprior.records.schema import Row

if TYPE_CHECKING:
    import numpy as np

CHOICE = "best-on-validation"
_WANTED = ("personal", "validation", "weighted")
Arrays = dict[str, "np.ndarray"]


def on_validation(rows: Iterable[Row]) -> dict[int, float]:
    """round -> the accuracy by which rounds are chosen."""
    found = {row.round: row.values.get("accuracy", math.nan) for row in rows if row[1:4] == _WANTED}
    return {t: value for t, value in found.items() if not math.isnan(value)}


def first_best(values: Mapping[int, float], higher_is_better: bool = True) -> int | None:
    """The round of the best value, the first of equal ones; None where there is none.

    >>> first_best({1: 50.0, 2: 70.0, 3: 70.0}), first_best({})
    (2, None)
    """
    sign = 1 if higher_is_better else -1
    return max(values, key=lambda t: (sign * values[t], -t), default=None)


def write(folder: Path, arrays: Arrays, t: int) -> None:
    """Keep the state of round t in a run's folder."""
    from fedprior.records import checkpoint

    checkpoint.write_state(_file(folder, t), arrays)


def read(folder: Path, t: int) -> Arrays | None:
    """The state of round t if it was kept, and is whole."""
    from fedprior.records import checkpoint

    return checkpoint.read(_file(folder, t))


def states(folder: Path, kind: str) -> list[Path]:
    """The files of saved states of a kind ("round" or "best"), oldest first; a file of any other name is left alone."""
    found = (folder / "checkpoints").glob(f"{kind}-*.safetensors")
    return sorted((path for path in found if re.fullmatch(rf"{kind}-[0-9]{{8,}}", path.stem)), key=_round)


def drop_others(folder: Path, newest: Iterable[Path], values: Mapping[int, float]) -> None:
    """Drop every state that is not the best up to one of the ``newest`` states, given the values of all rounds so far."""
    needed = {first_best({t: value for t, value in values.items() if t <= _round(end)}) for end in newest}
    for path in states(folder, "best"):
        if _round(path) not in needed:
            with writing(path):
                path.unlink()


def _file(folder: Path, t: int) -> Path:
    return folder / "checkpoints" / f"best-{t:08d}.safetensors"


def _round(path: Path) -> int:
    return int(path.stem.split("-")[1])


def copied(state: Any) -> Arrays:
    """A state as named arrays of its own: the next round reuses the memory of the state itself."""
    from fedprior.records import checkpoint

    return checkpoint.pack(state)

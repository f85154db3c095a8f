"""Study files: variants, tasks and seeds in TOML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from fedprior.errors import one_line
from fedprior.study.settings import Strict, keywords, read_toml
from fedprior.study.study import Study


class StudySettings(Strict):
    """What a study file says."""

    about: str = ""
    tasks: list[str] = pydantic.Field(min_length=1)  # names, or paths of task files relative to the study's
    variants: dict[str, dict[str, Any]] = pydantic.Field(min_length=1)  # a row's name -> what it changes
    seeds: int | list[int] = 1
    local: bool = True  # whether the Local-only row is added where it is missing
    settings: dict[str, Any] = pydantic.Field(default_factory=dict)  # for all rows


def read_study(path: Path | str, *, seeds: int | None = None, changes: Mapping[str, Any] | None = None) -> Study:
    """The study of a TOML file, perhaps with other seeds and settings."""
    path = Path(path)
    try:
        study = StudySettings.model_validate(read_toml(path, "study"))
    except pydantic.ValidationError as error:
        raise one_line(error, f"study '{path.stem}'", StudySettings.model_fields) from None
    beside = [path.parent / name for name in study.tasks]
    tasks = [
        str(p) if name.endswith(".toml") and p.exists() else name for name, p in zip(study.tasks, beside, strict=True)
    ]
    return Study(
        tasks,
        study.variants,
        seeds=study.seeds if seeds is None else seeds,
        local=study.local,
        **keywords({**_flat(study.settings), **(changes or {})}),
    )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables within settings as keys with dots: {"partition": {"clients": 3}} is partition.clients = 3."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found

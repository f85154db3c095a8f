"""An artefact of the digits, made as the command makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedprior.reproduce.paper.artefact import ARTEFACTS, Request
from fedprior.reproduce.paper.run import train
from fedprior.study.results import Results


def made(name: str, folder: Path, **options: Any) -> tuple[dict[str, Path], Results]:
    """The files of a quick artefact by name, and what was trained for it."""
    artefact, request = ARTEFACTS.find(name)(), Request(quick=True, **options)
    studies = artefact.studies(request)
    results = train(studies, folder / "cells", watch=lambda cell, progress: None, warn=lambda text: None)
    assert results is not None
    paths = artefact.make(request, results, folder / name)
    assert all(path.stat().st_size for path in paths)
    assert {path.name for path in paths} == {path.name for path in (folder / name).iterdir()}
    return {path.name: path for path in paths}, results

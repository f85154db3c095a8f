"""An artefact of the digits, made as the command makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedprior.reproduce.paper.artefact import ARTEFACTS, Request
from fedprior.reproduce.paper.run import train
from fedprior.study.results import Results

SLOWLY_MADE = ("complexity", "deviation")  # which tell how far they are


def made(name: str, folder: Path, **options: Any) -> tuple[dict[str, Path], Results]:
    """The files of a quick artefact by name, and what was trained for it."""
    steps = list[tuple[int, int, str]]()
    artefact, request = ARTEFACTS.find(name)(lambda *step: steps.append(step)), Request(quick=True, **options)
    studies = artefact.studies(request)
    results = train(studies, folder / "cells", watch=lambda cell, progress: None, warn=lambda text: None)
    assert results is not None
    paths = artefact.make(request, results, folder / name)
    assert bool(steps) == (name in SLOWLY_MADE)
    assert [step[:2] for step in steps] == [(k + 1, len(steps)) for k in range(len(steps))]
    assert all(path.stat().st_size for path in paths)
    assert {path.name for path in paths} == {path.name for path in (folder / name).iterdir()}
    return {path.name: path for path in paths}, results

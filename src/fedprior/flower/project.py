"""A Flower project that is ready to run: what `fedprior flower init` writes."""

from __future__ import annotations

import json
import re
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from fedprior.errors import FedpriorError
from fedprior.files import write_text

_AT_TOP = ("pyproject.toml", "LICENSE")
_IN_PACKAGE = ("app.py", "data.py", "task.toml")


def write_project(folder: Path) -> list[Path]:
    """Write a project into a new or empty folder, which names it; returns the files to look at and to change."""
    package = re.sub(r"[^a-z0-9]+", "_", folder.absolute().name.lower()).strip("_")
    if not package or package[0].isdigit():
        raise FedpriorError(f"{folder} cannot name a Python package; choose a name that begins with a letter")
    if folder.exists() and any(folder.iterdir()):
        raise FedpriorError(f"{folder} is not empty; choose a new folder")
    template = resources.files("fedprior.flower") / "template"
    about = {
        "name": package.replace("_", "-"),
        "package": package,
        "version": version("fedprior"),
        "out": json.dumps(str(folder.absolute() / "runs"), ensure_ascii=False),  # a quoted text of TOML, too
    }
    written = []
    for name in (*_AT_TOP, *_IN_PACKAGE):
        text = (template / f"{name}.template").read_text(encoding="utf-8")
        path = folder / name if name in _AT_TOP else folder / package / name
        write_text(path, text.format(**about) if name == "pyproject.toml" else text)
        written.append(path)
    write_text(folder / package / "__init__.py", "")
    return written

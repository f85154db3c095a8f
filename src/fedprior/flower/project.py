"""A Flower project that is ready to run: what `fedprior flower init` writes."""

from __future__ import annotations

import json
import keyword
import re
import sys
from importlib import resources
from importlib.metadata import packages_distributions, version
from pathlib import Path

from fedprior.errors import FedpriorError
from fedprior.files import write_text

_AT_TOP = ("pyproject.toml", "LICENSE")
_IN_PACKAGE = ("app.py", "data.py", "task.toml")


def _names_taken() -> set[str]:
    """The names that a package of the user's own cannot have: of the language and of all packages that are installed."""
    # "test" is part of Python too, and not in its list
    return {*keyword.kwlist, *sys.stdlib_module_names, "test", "fedprior", "flwr", *packages_distributions()}


def write_project(folder: Path) -> list[Path]:
    """Write a project into a new or empty folder, which names it; returns the files to look at and to change."""
    package = re.sub(r"[^a-z0-9]+", "_", folder.absolute().name.lower()).strip("_")
    if not package or package[0].isdigit():
        raise FedpriorError(f"{folder} cannot name a Python package; choose a name that begins with a letter")
    if package in _names_taken():
        raise FedpriorError(
            f"a package called {package!r} would stand in for Python's or another library's own; choose another name for "
            f"{folder}, such as {package}-federation"
        )
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

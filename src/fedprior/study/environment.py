"""Where a run was made: versions and processor, on which its bits depend."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np


def environment() -> dict[str, str]:
    """What the bits of a result depend on besides its settings."""
    return {
        "fedprior": version("fedprior"),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": _processor(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return f"{platform.machine()} {sys.platform}"

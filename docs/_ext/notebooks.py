"""Notebooks are Python files with cells marked by `# %%`, so that they are read, formatted and tested like code.

Those that were never run with the package as it is now are run before Sphinx reads them, several at a time; myst-nb then
finds them in its cache.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jupytext
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from sphinx.errors import ExtensionError

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def read(text: str) -> Any:
    """A notebook from the text of its file, with the kernel that runs it."""
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def digest(*folders: Path) -> str:
    """A name for what files below some folders hold."""
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        if "__pycache__" not in path.parts:
            found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:12]


def pages(docs: Path) -> list[Path]:
    """All notebooks of the site."""
    return sorted([*docs.glob("*-*.py"), *docs.glob("ideas/*.py"), *docs.glob("gallery/*.py")])


def execute(docs: Path, cache_folder: str, timeout: int) -> None:
    """Run the notebooks that are not in the cache, and put them there."""
    cache = get_cache(cache_folder)
    waiting = []
    for path in pages(docs):
        notebook = read(path.read_text(encoding="utf-8"))
        with suppress(KeyError):
            cache.match_cache_notebook(notebook)
            continue
        waiting.append((path, notebook))

    def run(one: tuple[Path, Any]) -> Any:
        path, notebook = one
        with tempfile.TemporaryDirectory() as folder:  # for sockets that are files: they need no network of any kind
            kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
            options = {"timeout": timeout, "allow_errors": False}
            try:
                return single_nb_execution(notebook, cwd=str(path.parent), km=kernel, **options)
            finally:
                run_sync(kernel.shutdown_kernel)(now=True)  # a kernel that was handed over is not ended by itself

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(min(cores, 8)) as pool:
        for (path, notebook), result in zip(waiting, pool.map(run, waiting), strict=True):
            if result.err is not None:
                raise ExtensionError(f"{path} does not run:\n{result.exc_string}")
            bundle = CacheBundleIn(notebook, str(path), data={"execution_seconds": result.time})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def _prepare(app: Sphinx) -> None:
    if app.config.nb_execution_mode == "cache":
        execute(Path(app.srcdir), app.config.nb_execution_cache_path, app.config.nb_execution_timeout)


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx run the notebooks first of all."""
    app.connect("builder-inited", _prepare, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

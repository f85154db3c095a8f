"""One host device per core, chosen before JAX starts, and the compilation cache."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import jax


def configure() -> None:
    """Give JAX one CPU device per core (small operations waste XLA's own threads) and a lasting compilation cache.

    What the user has set is respected; after JAX has started this does nothing. Called when fedprior is imported.
    """
    settings = jax.config.values
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen and settings["jax_num_cpu_devices"] < 1:
        with contextlib.suppress(RuntimeError):  # JAX has already started
            jax.config.update("jax_num_cpu_devices", _cores())
    if settings["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_dir() -> Path:
    """Where decoded data and compiled programs are kept: FEDPRIOR_CACHE, or .cache/fedprior in the home folder."""
    return Path(os.environ.get("FEDPRIOR_CACHE") or Path.home() / ".cache" / "fedprior")

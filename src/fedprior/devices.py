"""One host device per core, chosen before JAX starts, and the compilation cache."""

from __future__ import annotations

import os
from pathlib import Path

import jax


def configure() -> None:
    """Give JAX one CPU device per core (small operations waste XLA's own threads) and a lasting compilation cache.

    What the user has set is respected; after JAX has started this does nothing. Called when fedprior is imported.
    """
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", "") and jax.config.jax_num_cpu_devices < 1:
        try:
            jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
        except (RuntimeError, AttributeError):  # JAX has already started, or no affinity on this system
            pass
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def cache_dir() -> Path:
    """Where decoded data and compiled programs are kept: FEDPRIOR_CACHE, or .cache/fedprior in the home folder."""
    return Path(os.environ.get("FEDPRIOR_CACHE") or Path.home() / ".cache" / "fedprior")

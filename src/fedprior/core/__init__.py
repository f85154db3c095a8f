"""What the author of a method imports: vectors, batches, problems, hyper-parameters, methods. This file sets up JAX."""

from __future__ import annotations

import contextlib
import os
import sys

from fedprior.files import cache_dir


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def configure_jax() -> None:
    """Give JAX one CPU device per core (small operations waste XLA's own threads) and a lasting compilation cache.

    What the user has set is respected, and ``FEDPRIOR_CONFIGURE_JAX=0`` switches it all off. Before JAX is imported this
    sets environment variables, so that it need not be imported for it; later it sets JAX's own settings, and after JAX
    has started it changes nothing. Called when fedprior is imported.
    """
    if os.environ.get("FEDPRIOR_CONFIGURE_JAX", "1").lower() in ("0", "false", "no", "off"):
        return
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    compiled, least_seconds = str(cache_dir() / "compiled"), 0.0  # small programs too: there are many
    if "jax" not in sys.modules:
        if not chosen:
            os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(cores()))
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
            os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(least_seconds))
        return
    import jax

    settings = jax.config.values
    if not chosen and settings["jax_num_cpu_devices"] < 1:
        with contextlib.suppress(RuntimeError):  # JAX has already started
            jax.config.update("jax_num_cpu_devices", cores())
    if settings["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", compiled)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least_seconds)

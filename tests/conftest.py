"""Two host devices whatever the machine has, and a compilation cache that keeps small programs too."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import jax
import pytest

import fedprior  # noqa: F401  (configures JAX)

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # tests compile the same small programs many times

hypothesis.settings.register_profile("the same every time", derandomize=True)
hypothesis.settings.load_profile("the same every time")


@pytest.fixture(autouse=True)
def _few_programs() -> Iterator[None]:
    """Forget compiled programs before their memory maps reach what the system allows a process (65,530): it would crash."""
    yield
    global _tests
    _tests += 1
    if _tests % 10 == 0 and _maps() > 20_000:
        jax.clear_caches()
        gc.collect()


_tests = 0


def _maps() -> int:
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


@pytest.fixture
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture
def real_data(request: pytest.FixtureRequest) -> Path:
    """The folder of real data; tests that ask for it are skipped, visibly, where it is absent."""
    root = os.environ.get("FEDPRIOR_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("FEDPRIOR_DATA names no folder of real data")
    return Path(root)

"""What a rehearsal compiles is what a round runs: nothing is compiled twice, and no number changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from toys import blobs

from fedprior.core.compiling import Compiler
from fedprior.engine.engine import Engine
from fedprior.engine.evaluate import Evaluator
from fedprior.engine.rehearsal import Rehearsal
from fedprior.methods import make

COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """The names of the programs that are compiled, or read from the cache."""
    names: list[str] = []

    def listen(event: str, start: float, end: float, **about: Any) -> None:
        if event == COMPILED:
            names.append(about["fun_name"])

    jax.monitoring.register_event_time_span_listener(listen)
    yield names
    jax.monitoring.unregister_event_time_span_listener(listen)


def engine(name: str, participation: str) -> Engine:
    problem, data = blobs((12, 9, 7, 5, 4), d=3, classes=2, hidden=0)
    return Engine(problem, make(name, R=2).algorithm(), data, batch_size=4, aggregated=3, participation=participation)


@pytest.mark.parametrize(("name", "participation"), [("mh", "all"), ("fedavg", "sampled"), ("scaffold", "sampled")])
def test_a_rehearsed_round_compiles_nothing_and_gives_the_same(
    name: str, participation: str, compiled: list[str]
) -> None:
    plain, rehearsed = engine(name, participation), engine(name, participation)
    evaluator = Evaluator(rehearsed)
    state = rehearsed.init(0)
    with Rehearsal(rehearsed.placement) as rehearse:
        shapes, _ = rehearsed.round(state, rehearse)
        evaluator.on_own.sums(state, rehearse)
        evaluator.on_pooled.sums(state, rehearse)
    assert len(compiled) > 4
    compiled.clear()
    after, _ = rehearsed.step(state)
    evaluator.own(after), evaluator.pooled(after)
    rehearsed.step(after)  # what the merge gave lies where the start did
    assert compiled == []

    expected, _ = plain.step(plain.init(0))
    found, _ = rehearsed.step(rehearsed.init(0))
    for one, other, shape in zip(*map(jax.tree.leaves, (expected, found, shapes)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert (one.shape, one.dtype) == (shape.shape, shape.dtype)


def test_what_cannot_be_traced_or_compiled_is_an_error_of_the_rehearsal() -> None:
    placement = engine("fedavg", "all").placement
    x = jax.device_put(np.ones(2, np.float32), placement.home)

    def wrong(x: jax.Array) -> jax.Array:
        raise ValueError("a mistake in a method")

    with pytest.raises(ValueError, match="a mistake in a method"), Rehearsal(placement) as rehearse:
        rehearse(Compiler()(wrong), x)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such"), Rehearsal(placement) as rehearse:
        rehearse(Compiler({"xla_no_such": "1"})(lambda x: x + 1), x)


AGAIN = """
import json, sys
from collections import Counter
import jax
import fedprior as fp
counts = Counter()
jax.monitoring.register_event_listener(lambda event, **_: counts.update([event.rpartition("/")[2]]))
fp.Study("digits-mclr", ["mh"], local=False, rounds=1, **{"partition.clients": 4, "aggregated": 2}).run(sys.argv[1])
print(json.dumps(counts))
"""


@pytest.mark.slow
def test_a_second_run_compiles_nothing(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    environment["FEDPRIOR_CACHE"] = str(tmp_path / "cache")
    counts = []
    for out in ("first", "second"):
        command = [sys.executable, "-c", AGAIN, str(tmp_path / out)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        counts.append(json.loads(done.stdout))
    assert counts[0]["cache_misses"] > 5
    assert "cache_misses" not in counts[1]
    assert counts[1]["cache_hits"] == counts[1]["compile_requests_use_cache"]

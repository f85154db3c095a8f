"""What was compiled is kept: a second run of the same settings compiles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

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
        command = [sys.executable, "-W", "ignore", "-c", AGAIN, str(tmp_path / out)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        counts.append(Counter(json.loads(done.stdout)))
    assert counts[0]["cache_misses"] > 5
    assert counts[1]["cache_misses"] == 0
    assert counts[1]["cache_hits"] == counts[1]["compile_requests_use_cache"] > 0

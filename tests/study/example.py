"""A study of three settings of one method: in Python, and as a file."""

from __future__ import annotations

from typing import Any

import fedprior as fp

ROWS: dict[str, dict[str, Any]] = {
    "mh": {},
    "mh+AM": {"method": "mh", "beta": 2},
    "mh S=3": {"method": "mh", "aggregated": 3},
}
SETTINGS: dict[str, Any] = {
    "partition.clients": 5,
    **{"aggregated": 2, "rounds": 2, "R": 2, "K": 2, "pooled": "never", "metrics": []},
}
FILE = """
about = "The rows of a table."
tasks = ["digits-mclr"]
seeds = 2

[variants]
mh = {}
"mh+AM" = {method = "mh", beta = 2}
"mh S=3" = {method = "mh", aggregated = 3}

[settings]
rounds = 2
aggregated = 2
R = 2
K = 2
pooled = "never"
metrics = []
partition.clients = 5
"""


def example(rows: Any = ROWS, seeds: Any = 2, **more: Any) -> fp.Study:
    return fp.Study("digits-mclr", rows, seeds=seeds, **{**SETTINGS, **more})

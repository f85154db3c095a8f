"""A task on a table of visits to three hospitals, as its owner has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TASK = """
rounds = 2
batch = 8
pooled = "never"
metrics = []
[data]
file = "data/visits.csv"
label = "diagnosis"
client = "hospital"
ignore = ["patient"]
[model]
name = "mclr"
[method]
R = 2
"""
SITES = ("St. C", "a,b", "007")


def written(folder: Path, task: str = TASK, **changes: str) -> Path:
    """A task beside a folder with a table of sixty visits to three hospitals; ``changes``: of cells, by text."""
    rng = np.random.default_rng(0)
    lines = ["patient,hospital,diagnosis,age,dose,part"]
    for k in range(60):
        ill = k % 2
        numbers = f"{50 + 9 * ill + 5 * rng.normal():.1f},{rng.normal():.3f}"
        lines.append(f'p{k},"{SITES[k % 3]}",{("well", "ill")[ill]},{numbers},{("train", "test")[k % 4 == 0]}')
    text = "\n".join(lines)
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "visits.csv").write_text(text)
    (folder / "mine.toml").write_text(task.replace('"patient"', '"patient", "part"') if "split" not in task else task)
    return folder / "mine.toml"

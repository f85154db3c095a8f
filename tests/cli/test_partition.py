"""fedprior partition: who holds what."""

from __future__ import annotations

import json
from pathlib import Path

from program import fedprior, refused


def test_partition(tmp_path: Path) -> None:
    picture = tmp_path / "new" / "parts.png"
    shown = fedprior("partition", "digits-mclr", "--plot", picture)
    assert (shown.code, shown.err) == (0, "")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    numbers = json.loads(fedprior("partition", "digits-mclr", "--set", "partition.clients=7", "--json").out)
    assert numbers["clients"] == 7
    assert numbers["train"] + numbers["test"] == 1797
    refused(fedprior("partition", "digits-mclr", "--set", "partition.alpha=0", "--json"), "alpha")
    refused(fedprior("partition", "digits-mclr", "--set", "lam=3"), "unknown key 'lam'")

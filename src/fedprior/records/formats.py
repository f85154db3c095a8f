"""How records of older formats are read.

Format 2 is the current one. Format 1 had no number: its settings lay side by side, its tables had the columns accuracy and
loss and no checksums, and the names in its checkpoints were those of dictionaries.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from fedprior.errors import FedpriorError
from fedprior.records.schema import ACCURACY, FORMAT, NLL

_TASK = ("name", "data", "partition", "model", "validation")
_PROTOCOL = ("rounds", "aggregated", "batch", "participation", "selection", "weights", "eval_every", "pooled")
RENAMED_COLUMNS = {"loss": "nll"}  # of format 1


def upgrade(config: dict[str, Any], where: str) -> dict[str, Any]:
    """A configuration of any format as one of the current format."""
    number = config.get("format", 1)
    if not isinstance(config.get("run"), dict) or not isinstance(config.get("environment"), dict):
        raise FedpriorError(f"{where} does not describe a run of fedprior; use another folder")
    if number == FORMAT:
        return _with_revisions(config)
    if not isinstance(number, int) or number < 1:
        raise FedpriorError(
            f"{where} does not describe a run of fedprior: its format is {number!r}; valid: 1 to {FORMAT}"
        )
    if number > FORMAT:
        raise FedpriorError(
            f"{where} is of format {number}, which a newer fedprior wrote; this one reads 1 to {FORMAT}"
        )
    run = dict(config["run"])
    try:
        current: dict[str, Any] = {
            "task": {**{key: run[key] for key in _TASK}, "new_clients": run.get("new_clients", 0.0)},
            "protocol": {**{key: run[key] for key in _PROTOCOL}, "budget": run.get("budget")},
            "variant": {
                "name": run["method"],
                "method": run["method"],
                "settings": run["settings"],
                "wrappers": {
                    **({"beta": run["beta"]} if run["beta"] != 1 else {}),
                    **({"fine_tune": run["fine_tune"]} if run["fine_tune"] else {}),
                },
                "protocol": {},
            },
            "seed": run["seed"],
            "clients": run["clients"],
            "fingerprint": run["fingerprint"],
        }
    except KeyError as error:
        raise FedpriorError(f"{where} does not describe a run of fedprior: {error} is missing") from error
    for key, new in (("newcomers", "newcomers"), ("swept", "numbers_as_data")):
        if key in run:
            current[new] = run[key]
    metrics = [dataclasses.asdict(info) for info in (ACCURACY, NLL)]
    kept = {key: value for key, value in config.items() if key not in ("run", "format")}
    return _with_revisions({"format": FORMAT, "run": current, "metrics": metrics, **kept})


def _with_revisions(config: dict[str, Any]) -> dict[str, Any]:
    """A run from before revisions were recorded is of the first revision of everything."""
    variant = config["run"].get("variant")
    if not isinstance(variant, dict) or "revisions" in variant:
        return config
    first = dict.fromkeys((variant["method"], *variant["wrappers"]), 1)
    return {**config, "run": {**config["run"], "variant": {**variant, "revisions": first}}}


def current_name(name: str) -> str:
    """The name of an array in a checkpoint, from that of any format.

    >>> current_name(".clients['theta'].tree.head.weight"), current_name(".server['net']['phi']['hidden'][0][1]")
    ('clients.theta.tree.head.weight', 'server.net.phi.hidden.0.1')
    """
    parts = re.findall(r"\['([^']*)'\]|\[(?:<flat index )?(\d+)>?\]|\.?([^.\[\]]+)", name)
    return ".".join(a or b or c for a, b, c in parts)

"""What a run's settings must look like before anything is made of them: they may come from elsewhere, or be damaged."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Mapping
from typing import Any

from fedprior.errors import FedpriorError
from fedprior.records.schema import MetricInfo
from fedprior.records.spending import BUDGETS
from fedprior.records.thinning import KEY

MOST = 10**9  # rounds, clients
LARGEST = 1e18  # number of anything that is counted
SEED = 2**63
COST = ("gradients", "hvps", "down", "up", "trained_clients_per_round")
DICTS = ("task", "protocol", "variant", "variant.settings", "variant.wrappers", "variant.protocol", "variant.revisions")
NAMES = ("task.name", "variant.name", "variant.method")
COUNTS = ("protocol.rounds", "protocol.aggregated", "protocol.eval_every")  # the last may be missing


def check_shape(config: Mapping[str, Any], where: str) -> None:
    """Refuse settings of the current format that have the wrong type or an impossible size anywhere that is looked at."""
    run = config["run"]

    def need(key: str, is_valid: bool, value: Any, valid: str) -> None:
        if not is_valid:
            given = reprlib.repr(value)
            raise FedpriorError(f"{where} does not describe a run of fedprior: {key} is {given}, not {valid}")

    for key in DICTS:
        need(f"run.{key}", isinstance(value := _find(run, key), dict), value, "a table of settings")
    for key in NAMES:
        need(f"run.{key}", _is_name(value := _find(run, key)), value, "a name")
    for key in COUNTS:
        value = _find({"protocol": {"eval_every": 1, **run["protocol"]}}, key)
        need(f"run.{key}", _is_whole(value, 1, MOST), value, f"a whole number from 1 to {MOST}")
    need("run.seed", _is_whole(run.get("seed"), -SEED, SEED), run.get("seed"), "a whole number of at most 64 bits")
    revisions = run["variant"]["revisions"]
    counted = all(_is_whole(revision, 1, MOST) for revision in revisions.values())
    need("run.variant.revisions", counted, revisions, f"whole numbers from 1 to {MOST}")
    budget = run["protocol"].get("budget")
    need(
        "run.protocol.budget", budget is None or _is_budget(budget), budget, f"a number of one of: {', '.join(BUDGETS)}"
    )
    ids = run.get("client_ids", [])
    need(
        "run.client_ids", isinstance(ids, list) and all(isinstance(i, int | str) for i in ids), ids, "names or numbers"
    )
    rows = config.get(KEY, 1)
    need(KEY, _is_whole(rows, 1, MOST), rows, f"a whole number from 1 to {MOST}")
    clients = run.get("clients", None if KEY in config else 1)  # of how many clients some are recorded
    need("run.clients", _is_whole(clients, 1, MOST), clients, f"a whole number from 1 to {MOST}")
    metrics = config.get("metrics")
    need("metrics", isinstance(metrics, list) and all(map(_is_metric, metrics)), metrics, "what was measured")
    classes = config.get("class_names", [])
    need("class_names", isinstance(classes, list) and all(isinstance(c, str) for c in classes), classes, "names")
    need("changed", isinstance(config.get("changed", {}), dict), config.get("changed"), "a table of settings")
    cost = config.get("cost")
    whole = cost is None or (
        isinstance(cost, dict)
        and {*COST} <= cost.keys()
        and all(_is_number(value) or (value is None and key not in COST) for key, value in cost.items())
    )
    need("cost", whole, cost, f"numbers: {', '.join(COST)}")


def _find(run: Mapping[str, Any], key: str) -> Any:
    first, _, rest = key.partition(".")
    inner = run.get(first)
    return inner if not rest else inner.get(rest) if isinstance(inner, dict) else None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) < 1000 and not value.isspace()


def _is_budget(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and all(k in BUDGETS and _is_number(x) for k, x in value.items())


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= LARGEST and math.isfinite(value)


def _is_metric(info: Any) -> bool:
    texts = ("name", "unit", "better", "about")
    known = {field.name for field in dataclasses.fields(MetricInfo)}
    return (
        isinstance(info, dict)
        and {"name", "unit", "better"} <= info.keys() <= known
        and all(isinstance(info.get(key, ""), str) for key in texts)
        and isinstance(info.get("per_class", False), bool)
    )

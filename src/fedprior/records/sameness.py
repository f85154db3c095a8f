"""Whether a run may go on where another left off: everything that its numbers depend on must be the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedprior.errors import FedpriorError
from fedprior.records.thinning import KEY

# Keys that the first configurations of this format lacked, and what each of them describes.
SINCE = {"split": "samples for training and for testing", "start": "model and start"}
GIVEN = "a given "  # begins the record of an object: what it is, and (at first without) a digest of what it holds


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """In what two nested settings differ, one text each.

    >>> differences({"a": {"b": 1}}, {"a": {"b": 2}})
    ['a.b: 1 then, 2 now']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            d for k in sorted({*old, *new}) for d in differences(old.get(k), new.get(k), f"{where}.{k}" if where else k)
        ]
    return [] if old == new else [f"{where}: {old!r} then, {new!r} now"]


def start_differences(old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[str]:
    """In what the models of two runs differ at their start; another processor may round differently.

    >>> one = {"shapes": {"weight": [2, 3]}, "scores": [0.5, 1.0]}
    >>> start_differences(one, {**one, "scores": [0.5, 1.00001]}), start_differences(one, {**one, "scores": [0.5, 1.1]})
    ([], ['the model or its start: another activation, other layers or weights'])
    """
    if old is None or new is None:
        return []
    apart = differences(old["shapes"], new["shapes"], "model")
    if apart or (len(old["scores"]) == len(new["scores"]) and np.allclose(old["scores"], new["scores"], 1e-3, 1e-4)):
        return apart
    return ["the model or its start: another activation, other layers or weights"]


def check_same(where: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Refuse another update, other settings, data or start than those recorded; return what else to know as warnings."""
    then, now = (each["run"]["variant"]["revisions"] for each in (old, new))
    if then.keys() == now.keys() and then != now:
        changed = [f"{name}: revision {then[name]} then, {now[name]} now" for name in then if then[name] != now[name]]
        raise FedpriorError(
            f"{where} holds a run of an update that has changed since ({'; '.join(changed)}) and cannot go on with the new "
            "one; start anew with --overwrite (where a command has none, remove that folder), or use another --out"
        )
    rows = [config.get(KEY, "all") for config in (old, new)]
    if rows[0] != rows[1]:
        raise FedpriorError(
            f"{where} holds a run that records {rows[0]} of its clients one by one, and now it is {rows[1]}; "
            f"go on with --set {KEY}={rows[0]}, or use another --out"
        )
    unknown = {key: about for key, about in SINCE.items() if key not in old and key not in old["run"]}
    known = {key: value for key, value in _timeless(new["run"]).items() if key not in unknown}
    before, unchecked = _as_told_now(old, new)
    apart = differences(_timeless(before), known) or start_differences(old.get("start"), new.get("start"))
    if apart:
        raise FedpriorError(f"{where} holds a run of other settings ({'; '.join(apart[:3])}); use another --out")
    elsewhere = differences(old["environment"], new["environment"])
    return [
        *(f"resuming with another {text}" for text in elsewhere),
        *(f"an older version began this run: its {about} cannot be checked" for about in unknown.values()),
        *(f"{text} cannot be checked" for text in unchecked),
    ]


def _as_told_now(old: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A recorded run with the objects of now where nothing tells them from those of then, and what cannot be checked."""
    run, now, unchecked = old["run"], new["run"], list[str]()
    settings, protocol = dict(run["variant"]["settings"]), dict(run["protocol"])
    pythons = {tuple(str(config["environment"].get("python")).split(".")[:2]) for config in (old, new)}
    for key, value in settings.items():
        if _may_be_same(value, given := now["variant"]["settings"].get(key), len(pythons) > 1):
            settings[key] = given
            unchecked.append(f"whether {key} is the object that it was")
    chosen, given = protocol.get("selection"), now["protocol"].get("selection")
    untold = "given_selection" not in old and new.get("given_selection") and not str(chosen).startswith(GIVEN)
    if untold or _may_be_same(chosen, given, len(pythons) > 1):
        protocol["selection"] = given
        unchecked.append("whether the selection of clients is the function that it was")
    return {**run, "protocol": protocol, "variant": {**run["variant"], "settings": settings}}, unchecked


def _may_be_same(then: Any, now: Any, compiled_anew: bool) -> bool:
    """Whether a record tells too little of an object: it has no digest, or another Python compiled a function.

    >>> _may_be_same("a given Mean", "a given Mean 1f", False), _may_be_same("a given Mean 2e", "a given Mean 1f", False)
    (True, False)
    """
    if then == now or not (isinstance(then, str) and then.startswith(GIVEN)):
        return False
    if isinstance(now, list):
        return then in (f"{GIVEN}tuple", f"{GIVEN}list")
    kind, _, digest = str(now).rpartition(" ")
    return bool(digest) and (then == kind or (compiled_anew and then.rpartition(" ")[0] == kind))


def _timeless(run: dict[str, Any]) -> dict[str, Any]:
    """A run's settings without its length, which may be changed: the rounds, the row's own, and how much a budget is of.

    >>> run = {"protocol": {"rounds": 9, "budget": {"gradients": 40}}, "variant": {"protocol": {"rounds": 9}}}
    >>> _timeless(run)
    {'protocol': {'rounds': 0, 'budget': {'gradients': 0}}, 'variant': {'protocol': {}}}
    """
    variant = {**run["variant"], "protocol": _without_length(run["variant"]["protocol"])}
    return {**run, "protocol": {"rounds": 0, **_without_length(run["protocol"])}, "variant": variant}


def _without_length(protocol: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in protocol.items() if key != "rounds"}
    if isinstance(budget := protocol.get("budget"), dict):
        rest["budget"] = dict.fromkeys(budget, 0)
    return rest

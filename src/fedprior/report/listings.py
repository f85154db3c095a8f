"""What there is, laid out as tables: methods with what they cost, tasks, and settings with their sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedprior.report.tables import Table
from fedprior.report.words import work_text


def methods_table(
    costs: Mapping[str, Mapping[str, Any]],
    trains: Mapping[str, str],
    papers: Mapping[str, str],
    *,
    samples: int,
    samples_per_step: int,
) -> Table:
    """What methods cost, by name; it was counted for a client of so many ``samples``."""
    products = " (h: Hessian-vector products)" if any(cost["hvps"] for cost in costs.values()) else ""
    body = []
    for name, cost in costs.items():
        work = (work_text(cost["gradients"], cost["hvps"]), str(cost["forward"]))
        floats = (f"{round(cost[key], 2):g}" for key in ("down", "up", "state"))
        body.append((name, *work, *floats, trains[name], papers[name]))
    return Table(
        "methods: cost per client and round, counted at the defaults",
        f"grads: gradients of the loss on a batch{products}; fwd: other evaluations of the model, on a batch or on "
        f"up to {samples_per_step} samples of a pass over all (counted for a client of {samples}); down, up, kept: numbers "
        "received, sent and kept between rounds, in units of the model's size; trains: who does, unless told otherwise",
        ("method", "grads", "fwd", "down", "up", "kept", "trains", "paper"),
        tuple(body),
        left=1,
        remarks=2,
    )


def tasks_table(tasks: Iterable[tuple[str, int, int | None, int, str]]) -> Table:
    """Tasks, of each its name, rounds, S (None: all clients), batch size and what it is about."""
    body = tuple((name, str(rounds), str(s or "all"), str(batch), about) for name, rounds, s, batch, about in tasks)
    return Table("tasks", "", ("task", "rounds", "S", "batch", "about"), body, left=1, remarks=1)


def sources_table(title: str, head: tuple[str, str], rows: Iterable[tuple[str, Any, str]]) -> Table:
    """Settings with their values and where each of them comes from."""
    body = tuple((key, str(value), source) for key, value, source in rows)
    return Table(title, "", (*head, "where it comes from"), body, left=1, remarks=2)


def settings_table(title: str, rows: Iterable[tuple[str, Any, str, str]]) -> Table:
    """A method's settings: their values, what they mean, and where the values come from."""
    body = tuple((key, str(value), meaning, source) for key, value, meaning, source in rows)
    return Table(title, "", ("setting", "default", "what it means", "where it comes from"), body, left=1, remarks=3)

"""What one round costs the whole federation, from what was counted of one client, and the rounds that a budget allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedprior.errors import FedpriorError

HVP = 2  # what a Hessian-vector product counts for in a budget: it differentiates a gradient, which takes about two of them
BYTES = 4  # of a number that is sent
# What a budget can be of, and how an error names it.
BUDGETS = {
    "gradients": "gradients of a client that trains in every round",
    "total_gradients": "gradients in the whole federation",
    "megabytes": "megabytes sent",
}


@dataclass(frozen=True)
class Spending:
    """What one round takes."""

    clients: int  # that train
    gradients: int  # of all of them
    hvps: int  # Hessian-vector products of all of them
    numbers: float | None  # sent, both ways; None in records from before it was known

    def of(self, kind: str) -> float | None:
        """What a round takes of a budget of this kind."""
        total = self.gradients + HVP * self.hvps
        sent = None if self.numbers is None else self.numbers * BYTES / 1e6
        return {"gradients": total / max(self.clients, 1), "total_gradients": total, "megabytes": sent}[kind]


def spending(cost: Mapping[str, Any], aggregated: int) -> Spending:
    """What a round takes, from a recorded cost: every client that trains receives, and S clients send.

    >>> mh = {"gradients": 140, "hvps": 0, "down": 1.0, "up": 1.0, "parameters": 7850, "trained_clients_per_round": 100}
    >>> spending(mh, aggregated=20)
    Spending(clients=100, gradients=14000, hvps=0, numbers=942000.0)
    """
    clients, size = cost["trained_clients_per_round"], cost.get("parameters")
    numbers = None if size is None else size * (cost["down"] * clients + cost["up"] * aggregated)
    return Spending(clients, cost["gradients"] * clients, cost["hvps"] * clients, numbers)


def megabytes_sent(cost: Mapping[str, Any], aggregated: int, rounds: int) -> float | None:
    """What so many rounds send, both ways; None in records from before it was known.

    >>> mh = {"gradients": 140, "hvps": 0, "down": 1.0, "up": 1.0, "parameters": 7850, "trained_clients_per_round": 100}
    >>> round(megabytes_sent(mh, aggregated=20, rounds=200), 3)
    753.6
    """
    each = spending(cost, aggregated).of("megabytes")
    return None if each is None else each * rounds


def rounds_within(budget: Mapping[str, float], each: Spending, name: str) -> int | None:
    """How many rounds a method has within a budget of one kind; None if it takes nothing of that, as Local sends nothing.

    >>> rounds_within({"gradients": 1400}, Spending(100, 14000, 0, 942000.0), "mh-released")
    10
    """
    ((kind, most),) = budget.items()
    takes, what = each.of(kind), BUDGETS[kind]
    if not takes:
        return None
    if takes > most:
        raise FedpriorError(
            f"a budget of {most:g} {what} is less than one round of {name}, which takes {takes:g}; "
            f"give at least {takes:g}, or leave {name} out"
        )
    return int(most / takes * (1 + 1e-9))  # 24 megabytes of 0.04 each are 600, whatever the division says

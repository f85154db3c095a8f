"""What a round takes of a whole federation, and the rounds that a budget allows, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fedprior.errors import FedpriorError
from fedprior.records.spending import Spending, rounds_within, spending

MH: dict[str, Any] = {
    **{"gradients": 140, "hvps": 0, "down": 1.0, "up": 1.0, "parameters": 250},
    "trained_clients_per_round": 100,
}
FEDAVG = {**MH, "gradients": 20, "trained_clients_per_round": 20}
LOCAL = {**MH, "gradients": 20, "down": 0.0, "up": 0.0}


def test_everyone_who_trains_receives_and_those_aggregated_send() -> None:
    assert spending(MH, 20) == Spending(clients=100, gradients=14_000, hvps=0, numbers=250 * (100 + 20))
    assert spending(FEDAVG, 20) == Spending(clients=20, gradients=400, hvps=0, numbers=250 * (20 + 20))
    assert spending({**MH, "hvps": 20, "down": 2.0, "up": 0.5}, 4) == Spending(100, 14_000, 2000, 250 * (200 + 2))
    assert spending({key: value for key, value in MH.items() if key != "parameters"}, 20).numbers is None


@pytest.mark.parametrize(
    ("budget", "mh", "fedavg", "local"),
    [
        ({"gradients": 28_000}, 200, 1400, 1400),  # the same for each client that trains in all rounds
        ({"total_gradients": 2_800_000}, 200, 7000, 1400),  # FedAvg trains a fifth of the clients
        ({"megabytes": 24.0}, 200, 600, None),  # 4 bytes a number: mh sends 0.12 MB a round, FedAvg 0.04, Local nothing
    ],
)
def test_each_kind_of_budget(budget: dict[str, float], mh: int, fedavg: int, local: int | None) -> None:
    each = [spending(MH, 20), spending(FEDAVG, 20), spending(LOCAL, 20)]
    assert [rounds_within(budget, takes, "row") for takes in each] == [mh, fedavg, local]


def test_rounds_are_whole_and_products_count_as_two_gradients() -> None:
    one = Spending(clients=10, gradients=1200, hvps=0, numbers=0.0)
    assert [rounds_within({"gradients": n}, one, "mh") for n in (120, 239, 240, 12_000)] == [1, 1, 2, 100]
    exact = Spending(clients=10, gradients=1200, hvps=200, numbers=0.0)
    assert rounds_within({"gradients": 1600}, exact, "mh") == 10
    assert rounds_within({"total_gradients": 1600}, exact, "mh") == 1


def test_less_than_a_round_is_refused() -> None:
    for budget, message in (
        (
            {"gradients": 139},
            "139 gradients of a client that trains in every round is less than one round of mh, .* 140",
        ),
        (
            {"total_gradients": 13_999},
            "13999 gradients in the whole federation is less than one .* give at least 14000",
        ),
        ({"megabytes": 0.1}, "0.1 megabytes sent is less than one round of mh, which takes 0.12"),
    ):
        with pytest.raises(FedpriorError, match=message):
            rounds_within(budget, spending(MH, 20), "mh")

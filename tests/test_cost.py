"""What a round costs, against the counts of the method specifications (R = 20, K = 5)."""

from __future__ import annotations

import pytest

from fedprior.cost import Cost, measure
from fedprior.methods import make


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("local", Cost(gradients=20, forward=0, down=0, up=0, state=1)),
        ("fedavg", Cost(gradients=20, forward=0, down=1, up=1, state=0)),
        ("pfedme", Cost(gradients=100, forward=0, down=1, up=1, state=1)),
        ("lg", Cost(gradients=120, forward=0, down=1, up=1, state=1)),
        ("meg", Cost(gradients=100, forward=0, down=1, up=1, state=2)),
        ("mh", Cost(gradients=120, forward=0, down=1, up=1, state=2)),
        ("mh-released", Cost(gradients=140, forward=0, down=1, up=1, state=2)),
    ],
)
def test_defaults(name: str, cost: Cost) -> None:
    assert measure(make(name)) == cost


def test_the_count_follows_the_settings() -> None:
    assert measure(make("mh", R=3, K=2)).gradients == 3 * (2 + 1)
    assert measure(make("pfedme", R=3, K=2)).gradients == 3 * 2
    assert measure(make("local", optimizer="adam")).state == pytest.approx(3, abs=0.5)  # the model and two moments

"""The configuration of a federation: what is refused, and in which words."""

from __future__ import annotations

import pytest

from fedprior.errors import FedpriorError
from fedprior.flower.options import Options


def test_options_are_checked() -> None:
    for config, text in (
        ({"deadline": float("nan")}, "deadline must be a number above 0"),
        ({"deadline": float("inf")}, "deadline must be a number above 0"),
        ({"deadline": 0}, "deadline must be a number above 0"),
        ({"deadline": True}, "deadline = True must be a number"),
        ({"norm-limit": float("nan")}, "norm-limit one of at least 0"),
        ({"norm-limit": -1}, "norm-limit one of at least 0"),
        ({"clients": 0}, "clients must be at least 1"),
        ({"clients": 2.0}, "clients = 2.0 must be a whole number"),
        ({"minimum": -1}, "minimum at least 0"),
        ({"seed": "a"}, "seed = .a. must be a whole number"),
        ({"resume": 1}, "resume = 1 must be true or false"),
        ({"out": 1}, "out = 1 must be text in quotes"),
    ):
        with pytest.raises(FedpriorError, match=text):
            Options.of(config)
    assert Options.of({"deadline": 5, "norm-limit": 3, "of-the-apps-own": 1}).deadline == 5.0

"""A hyper-parameter's line: bounds, names, and when it does nothing."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import pytest

from fedprior.core.hyper import Hyper, hyper, hypers, without_effect
from fedprior.core.method import Method
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.methods.pfedbred import PFedBreD
from fedprior.priors.means import RMD


class Toy(Method):
    free: float = hyper(1.0)
    share: float = hyper(0.5, "a paper", sweep=(0.1, 0.5), least=0, most=1)
    steps: int = hyper(3, least=1)
    step: float | None = hyper(None, above=0, below=2)
    kind: str = hyper("a", choices=("a", "b"))
    maybe: str | int | None = hyper(None, choices=(None, "a", 1))
    thing: str | dict[str, int] = hyper("a", choices=("a",), objects=dict)
    pull: float = hyper(1.0, inert=0)
    extra: float = hyper(1.0, inert=0, needs=("kind = b", lambda m: m.kind == "b"))
    plain: int = 7
    sizes: tuple[int, ...] = (1, 2)
    mood: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"free": float("nan")}, "free = nan is not valid; it must be a finite number$"),
        ({"free": float("inf")}, "free = inf"),
        ({"share": -0.1}, "share = -0.1 is not valid; it must be a finite number of at least 0 and at most 1$"),
        ({"share": 1.1}, "share = 1.1"),
        ({"share": np.float32(2)}, r"share = .*2.0.* is not valid; it must be a finite number"),
        ({"steps": 0}, "steps = 0 is not valid; it must be a whole number of at least 1$"),
        ({"steps": np.int64(0)}, "it must be a whole number of at least 1$"),
        ({"step": 0.0}, "step = 0.0 is not valid; it must be a finite number above 0 and below 2$"),
        ({"step": 2.0}, "step = 2.0"),
        ({"kind": "c"}, "kind = 'c' is not valid; valid: a, b$"),
        ({"kind": None}, "kind = None is not valid; valid: a, b$"),
        ({"kind": {}}, r"kind = \{\} is not valid; valid: a, b$"),
        ({"maybe": "b"}, "maybe = 'b' is not valid; valid: a, 1$"),
        ({"thing": "b"}, "thing = 'b' is not valid; valid: a, or a dict$"),
        ({"thing": 3}, "thing = 3 is not valid"),
        ({"free": "x"}, r"free = 'x' has the wrong type \(str\); it must be float$"),
        ({"free": True}, r"free = True has the wrong type \(bool\); it must be float$"),
        ({"free": None}, r"free = None has the wrong type \(NoneType\); it must be float$"),
        ({"steps": 2.5}, r"steps = 2.5 has the wrong type \(float\); it must be int$"),
        ({"step": "x"}, r"it must be float or none$"),
        ({"share": 2}, "share = 2 is not valid; it must be a finite number of"),  # as the field says, not the value
        ({"plain": 7.5}, r"plain = 7.5 has the wrong type \(float\); it must be int$"),
        ({"sizes": 3}, r"sizes = 3 has the wrong type \(int\); it must be tuple\[int, ...\]$"),
        ({"mood": "c"}, r"mood = 'c' has the wrong type \(str\); it must be 'a' or 'b'$"),
    ],
)
def test_what_is_not_valid_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=f"Toy: .*{message}"):
        Toy(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"share": 0.0},
        {"share": 1},
        {"step": None},
        {"step": 1.9},
        {"maybe": "a"},
        {"maybe": 1},
        {"thing": {}},
        {"pull": 0.0},  # valid, although it does nothing
        {"sizes": (3,)},
        {"mood": "b"},
        {"free": jnp.array(-1.0)},  # an array is for the method itself to check
    ],
)
def test_what_is_valid_is_taken(settings: dict[str, Any]) -> None:
    [(name, value)] = settings.items()
    assert getattr(Toy(**settings), name) is value


def test_what_is_known_of_a_field() -> None:
    about = hypers(Toy)
    assert about == hypers(Toy())
    assert about["share"] == Hyper("a paper", (0.1, 0.5), least=0, most=1)
    assert about["plain"] == about["free"] == Hyper()


def test_what_does_nothing_is_told() -> None:
    assert without_effect(Toy(kind="b")) == {}
    assert without_effect(Toy(pull=0.0)) == {
        "pull": "pull = 0 switches its part off",
        "extra": "extra needs kind = b",
    }
    assert without_effect(Toy(kind="b", extra=0.0)) == {"extra": "extra = 0 switches its part off"}


def test_a_setting_of_a_term_that_the_mean_does_not_have_is_told() -> None:
    for method, expected in (
        (make("lg"), {"eta"}),
        (make("meg"), {"eta_alpha", "gradient", "inner", "overwrite"}),
        (make("mh"), set()),
        (PFedBreD(mean=RMD(lambda problem, w, batch: w @ w)), {"eta", "order"}),
        (make("pfedbred", mean="identity"), {"eta", "eta_alpha", "gradient", "inner", "overwrite"}),
    ):
        assert set(without_effect(method)) == {*expected, "eta_inner"}
    assert without_effect(make("lg", eta=0.3))["eta"] == "eta needs a mean with memory"
    assert without_effect(make("meg", eta_alpha=0.02))["eta_alpha"] == "eta_alpha needs a mean with a loss gradient"
    assert without_effect(make("mh", eta_inner=0.02)) == {"eta_inner": "eta_inner needs an inner step"}
    assert list(without_effect(make("mh", mean="mh-variant"))) == ["order"]  # the released code has none such
    assert without_effect(make("mh", inner=True)) == {}
    only_the_mean = "gradient needs a loss gradient that moves the mean alone"
    for settings in ({"order": "released"}, {"overwrite": True, "inner": True}):
        assert without_effect(make("mh", **settings)) == {"gradient": only_the_mean}
    assert without_effect(make("mh-released", solver="adam", tol=0.1))["solver"] == "solver needs tol = 0"
    assert without_effect(make("mh", eta=0.0, inner=True)) == {"eta": "eta = 0 switches its part off"}


def test_a_subclass_may_say_it_anew_and_checks_its_own() -> None:
    class Narrow(Toy):
        share: float = hyper(0.2, "another paper", least=0, most=0.3)

        def __check_init__(self) -> None:
            if self.steps % 2 == 0:
                raise FedpriorError(f"Narrow: steps = {self.steps} is not valid; it must be odd")

    assert Narrow().share == 0.2
    assert list(hypers(Narrow)) == list(hypers(Toy))
    for settings, message in (
        ({"share": 0.4}, "at most 0.3"),
        ({"steps": 2}, "must be odd"),
        ({"kind": "c"}, "valid: a"),
    ):
        with pytest.raises(FedpriorError, match=message):
            Narrow(**settings)

"""Opening a run again from what it recorded."""

from __future__ import annotations

from pathlib import Path

import fedprior as fp
from fedprior.methods import METHODS, make
from fedprior.records.schema import plain
from fedprior.study.export import _variant
from fedprior.study.given import recorded
from fedprior.study.program import method_for


def test_every_method_is_made_again_from_its_recorded_settings() -> None:
    task = fp.task("digits-mclr")
    for name in METHODS:
        method = method_for(task, fp.Variant.of(name))
        settings = {key: recorded(value) for key, value in vars(method).items()}
        about = {
            "name": name,
            "method": name,
            "settings": settings,
            "wrappers": {"beta": 2.0},
            "protocol": {"batch": 7},
        }
        variant = _variant(Path("run"), plain({"variant": about}))
        assert vars(method_for(task, variant)) == vars(method)
        assert (variant.name, variant.wrappers, variant.protocol) == (name, {"beta": 2.0}, {"batch": 7})
    assert vars(make("mh", lam=1.0)) != vars(make("mh"))

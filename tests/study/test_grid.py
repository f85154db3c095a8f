"""The grid of a sweep: how it is written, and what makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from program import fedprior, refused

from fedprior import methods
from fedprior.core.hyper import hypers
from fedprior.errors import FedpriorError
from fedprior.study.grid import check_grid, lacks, read_grid


def test_values_are_read_as_those_of_settings() -> None:
    assert read_grid(["lambda=0.1,1", "start=w, theta", "inner=true,false"]) == {
        "lam": [0.1, 1],
        "start": ["w", "theta"],
        "inner": [True, False],
    }
    assert read_grid([]) == {}


def test_grids_that_make_no_sense(tmp_path: Path) -> None:
    def sweep(*more: str) -> Any:
        return fedprior("sweep", "digits-mclr", "-m", "fedavg", "-m", "local", "--out", tmp_path / "out", *more)

    refused(
        sweep("--grid", "alhpa=0.1,0.2"), "unknown key 'alhpa' in --grid (did you mean 'alpha'?)", "valid: R, alpha"
    )
    refused(sweep("--grid", "batch=10,20"), "'batch' is the task's", "--set batch=")
    refused(sweep("--grid", "beta=1,2"), "'beta' is a wrapper's", "--set beta=")
    refused(sweep("--grid", "alpha=0.1", "--set", "alpha=0.2"), "'alpha' is in --grid and in --set")
    refused(sweep("--grid", "alpha=0.1", "--grid", "alpha=0.2"), "'alpha' twice")
    refused(sweep("--grid", "alpha=0.1,,0.2"), "'alpha=0.1,,0.2' is not of the form key=value,value,...")
    refused(sweep("--grid", "alpha"), "'alpha' is not of the form")
    refused(sweep("--grid", "alpha=0.1,-1"), "alpha = -1")
    refused(sweep("--grid", "R=1,1.5"), "R = 1.5 has the wrong type")
    refused(sweep("--grid", "chunk=1,2"), "'chunk' is now called 'clients_per_vmap'")
    refused(sweep("--set", "alpha=0.2"), "fedavg declares nothing more to sweep", "--grid")
    refused(sweep("--set", "aplha=0.2"), "unknown key 'aplha' (did you mean 'alpha'?)")
    refused(sweep("--grid", "alpha=0.1", "--set", "lam=2"), "unknown key 'lam'")  # neither of them has it
    refused(fedprior("sweep", "digits-mclr"), "--method")
    refused(fedprior("sweep", "digits-mclr", "-m", "fedavgg"), "did you mean 'fedavg'?")
    refused(sweep("--grid", "alpha=0.1", "--set", "validation=0.001"), "validation = 0.001 leaves no client")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "key", "why"),
    [
        ("lg", "eta", "--grid eta: eta needs a mean with memory, so that all its values would do the same"),
        ("meg", "eta_alpha", "--grid eta_alpha: eta_alpha needs a mean with a loss gradient, so that all its values"),
        ("mh", "eta_inner", "--grid eta_inner: eta_inner needs an inner step"),
    ],
)
def test_a_sweep_over_what_does_nothing_is_refused(name: str, key: str, why: str) -> None:
    assert lacks(methods.make(name), key)
    with pytest.raises(FedpriorError, match=why):
        check_grid([name], {key: [0.1, 0.2]}, {})
    check_grid([name, "mh-released"], {key: [0.1, 0.2]}, {})  # there it does something


def test_what_is_fixed_decides_what_does_something() -> None:
    check_grid(["lg"], {"eta": [0.1, 0.2]}, {"mean": "mh"})
    check_grid(["mh"], {"eta_inner": [0.1, 0.2]}, {"inner": True})
    with pytest.raises(FedpriorError, match="eta needs a mean with memory"):
        check_grid(["mh"], {"eta": [0.1, 0.2]}, {"mean": "lg"})


def test_what_sweeps_try_is_valid() -> None:
    for name, entry in methods.METHODS.items():
        for key, about in hypers(entry.cls).items():
            assert [getattr(methods.make(name, **{key: value}), key) for value in about.sweep] == list(about.sweep)

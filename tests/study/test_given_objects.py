"""Settings that are objects: they are told apart by a digest, and a run goes on only with its own."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedprior as fp
from fedprior.methods.fedavg import FedAvg
from fedprior.methods.fedu import FedU
from fedprior.methods.pfedbred import PFedBreD
from fedprior.priors.means import RMD, find_mean
from fedprior.records.runs import RunFolder
from fedprior.study.given import recorded
from fedprior.study.program import Program
from fedprior.study.recorder import run_trial
from fedprior.study.trial import Trial
from study.small import small_task, stop_after


def ridge(scale: float, power: int = 2) -> Callable[..., Any]:
    return lambda problem, w, batch: scale * (w @ w) ** (power / 2)


def half(x: Any) -> Any:
    return x.sum() / 2


def double(x: Any) -> Any:
    return x.max() / 2


CHAIN: Any = np.eye(5, k=1) + np.eye(5, k=-1)
RING: Any = np.ones((5, 5)) - np.eye(5)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (CHAIN, CHAIN.copy(), RING),
        (jnp.ones(3), jnp.ones(3), jnp.ones(3, int)),
        (jax.random.key(0), jax.random.key(0), jax.random.key(1)),
        (ridge(0.5), ridge(0.5), ridge(0.6)),
        (ridge(0.5), ridge(0.5), ridge(0.5, 3)),
        (RMD(ridge(0.5)), RMD(ridge(0.5)), RMD(ridge(0.6))),
        (jax.jit(half), jax.jit(half), jax.jit(double)),
        (functools.partial(half, x=1), functools.partial(half, x=1), functools.partial(half, x=2)),
        (jnp.tanh, jnp.tanh, jax.nn.relu),
        (find_mean("lg"), find_mean("lg"), find_mean("mh")),
        ({"a": CHAIN, "b": {1, 2}}, {"b": {2, 1}, "a": CHAIN}, {"a": CHAIN, "b": {1, 3}}),
    ],
)
def test_objects_are_told_apart(one: Any, same: Any, other: Any) -> None:
    assert recorded(one).startswith(f"a given {type(one).__name__} ")
    assert recorded(one) == recorded(same) != recorded(other)


def test_what_is_plain_is_recorded_as_it_is() -> None:
    assert recorded((0.1, ("w", None, True))) == [0.1, ["w", None, True]]
    assert recorded((0.1, half)).startswith("a given tuple ")
    loop: list[Any] = [half]
    loop.append(loop)
    assert recorded({"loop": loop}).startswith("a given dict ")


class Decaying(FedAvg):
    alphas: tuple[float, ...] = (0.1, 0.1)


def in_turn(key: Any, t: Any, sizes: Any, s: int) -> Any:
    return (t + jnp.arange(s)) % len(sizes)


def backwards(key: Any, t: Any, sizes: Any, s: int) -> Any:
    return (-t - jnp.arange(s)) % len(sizes)


def trial(method: fp.Method, select: Any = None) -> Trial:
    task = dataclasses.replace(small_task(rounds=3), select=select)
    return Trial(Program(task, fp.Variant.of(method, name="own")), 0)


@pytest.mark.parametrize(
    ("one", "other", "key", "before"),
    [
        (trial(FedU(R=1, graph=CHAIN)), trial(FedU(R=1, graph=RING)), "graph", "a given ndarray"),
        (
            *(trial(PFedBreD(mean=RMD(ridge(scale)), R=1, K=1)) for scale in (0.5, 0.6)),
            *("mean", "a given RMD"),
        ),
        (trial(Decaying(R=1)), trial(Decaying(R=1, alphas=(5.0, 5.0))), "alphas", "a given tuple"),
        (trial(FedAvg(R=1), in_turn), trial(FedAvg(R=1), backwards), "selection", "uniform"),
        (trial(FedAvg(R=1), in_turn), trial(FedAvg(R=1)), "selection", "uniform"),
        (trial(FedAvg(R=1)), trial(FedAvg(R=1), in_turn), "selection", "uniform"),
    ],
)
def test_a_run_goes_on_only_with_its_own_objects(
    tmp_path: Path, one: Trial, other: Trial, key: str, before: str
) -> None:
    run_trial(one, tmp_path, **stop_after(2))
    with pytest.raises(fp.FedpriorError, match=f"holds a run of other settings .*{key}: .* then, .* now"):
        run_trial(other, tmp_path, resume=True)
    with pytest.raises(fp.FedpriorError, match="other settings"):
        RunFolder(tmp_path).check_same(other.config())
    assert RunFolder(tmp_path).check_same(one.config()) == []
    _age(tmp_path, key, before)
    told = RunFolder(tmp_path).check_same(one.config())
    given = one.program.task.select is not None or key != "selection"
    assert told == (
        [
            f"whether {'the selection of clients' if key == 'selection' else key} is the "
            f"{'function' if key == 'selection' else 'object'} that it was cannot be checked"
        ]
        if given
        else []
    )
    result = run_trial(one, tmp_path, resume=True)
    assert (result.finished, result.warnings) == (True, told)
    assert RunFolder(tmp_path).check_same(one.config()) == []  # it is told from now on


def _age(folder: Path, key: str, value: str) -> None:
    """Make a run's record what it was before objects were told apart."""
    config = json.loads((folder / "config.json").read_text())
    run = config["run"]
    (run["protocol"] if key == "selection" else run["variant"]["settings"])[key] = value
    del config["given_selection"]
    (folder / "config.json").write_text(json.dumps(config))


def test_another_python_compiles_functions_anew(tmp_path: Path) -> None:
    run_trial(trial(PFedBreD(mean=RMD(ridge(0.5)), R=1, K=1)), tmp_path, **stop_after(1))
    config = json.loads((tmp_path / "config.json").read_text())
    config["environment"]["python"] = "3.9.1"
    (tmp_path / "config.json").write_text(json.dumps(config))
    told = RunFolder(tmp_path).check_same(trial(PFedBreD(mean=RMD(ridge(0.6)), R=1, K=1)).config())
    assert [text.startswith("resuming with another python") for text in told] == [True, False]
    assert told[1] == "whether mean is the object that it was cannot be checked"

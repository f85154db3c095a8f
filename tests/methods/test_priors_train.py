"""Every prior family trains a network end to end: it stays in its domain, changes the iterates and beats FedAvg."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import fedprior as fp
from fedprior.priors import PRIORS, find_prior

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("priors-train")]  # its fixtures train: once is enough

ROUNDS = 40


@pytest.fixture(scope="module")
def task() -> fp.Task:
    return fp.task("digits-dnn", rounds=ROUNDS, eval_every=ROUNDS, pooled="never")


@pytest.fixture(scope="module")
def gaussian(task: fp.Task) -> fp.Result:
    return fp.run(task, "mh")[0]


@pytest.fixture(scope="module")
def fedavg(task: fp.Task) -> float:
    return fp.run(task, "fedavg")[0].accuracy("global")


@pytest.mark.xdist_group("priors-train")
@pytest.mark.parametrize(
    "name",
    [name for name in PRIORS if name not in ("gaussian", "gaussian-dense")],
)
def test_each_family_trains_a_network(name: str, task: fp.Task, gaussian: fp.Result, fedavg: float) -> None:
    [result] = fp.run(task, "mh", prior=name)
    theta, other = (jax.tree.leaves(r.state.clients.theta) for r in (result, gaussian))
    assert max(float(np.abs(np.array(a) - np.array(b)).max()) for a, b in zip(theta, other, strict=True)) > 1e-3
    means = find_prior(name).to_mean(result.state.clients.theta)
    for leaf in jax.tree.leaves(means):
        assert np.isfinite(np.array(leaf)).all()
        if name in ("bernoulli", "poisson", "exponential"):
            assert (np.array(leaf) > 0).all()
        if name == "bernoulli":
            assert (np.array(leaf) < 1).all()
    assert result.accuracy("personal") > fedavg


@pytest.mark.xdist_group("priors-train")
def test_the_dense_gaussian_trains_a_linear_model_and_refuses_a_network(task: fp.Task) -> None:
    linear = fp.task("digits-mclr", rounds=3, pooled="never")
    [result] = fp.run(linear, fp.Variant.of("mh", prior="gaussian-dense"))
    assert np.isfinite(result.accuracy())
    with pytest.raises(fp.FedpriorError, match="7,510 parameters, and a dense precision is for 2,000 at most"):
        fp.run(task, fp.Variant.of("mh", prior="gaussian-dense"))


@pytest.mark.xdist_group("priors-train")
def test_fine_tuning_changes_the_test_and_not_the_run(task: fp.Task, gaussian: fp.Result) -> None:
    [tuned] = fp.run(task, "mh", fine_tune=1)
    for a, b in zip(*(jax.tree.leaves(r.state.clients) for r in (tuned, gaussian)), strict=True):
        assert np.array_equal(np.array(a), np.array(b))
    assert tuned.value("nll") != gaussian.value("nll")

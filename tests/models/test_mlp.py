"""MCLR and DNN against the PyTorch modules they stand for, on inputs of two axes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fedprior.models.mlp import DNN, MCLR

from .support import KEY, OTHER_KEY, Case, check_against_torch, check_initial_distribution, check_outputs, quick_draws

pytestmark = pytest.mark.xdist_group("models-mlp")  # compiled functions are shared
NAMES = ("mclr", "dnn")


@cache
def given(name: str) -> Case:
    with quick_draws():
        model = MCLR(30, 8, key=KEY) if name == "mclr" else DNN(30, 8, hidden=40, key=KEY)
    rng = np.random.default_rng(2)
    return Case(model, rng.normal(size=(6, 5, 6)).astype(np.float32), rng.integers(0, 8, 6))


def torch_module(name: str) -> Any:
    nn = pytest.importorskip("torch").nn
    if name == "mclr":
        return nn.Sequential(nn.Flatten(), nn.Linear(30, 8))
    return nn.Sequential(nn.Flatten(), nn.Linear(30, 40), nn.LeakyReLU(0.1), nn.Linear(40, 8))


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_head_of_the_features(name: str) -> None:
    check_outputs(given(name))


def test_the_features_of_mclr_are_the_input() -> None:
    np.testing.assert_array_equal(given("mclr").outputs().features, given("mclr").x.reshape(6, 30))


@pytest.mark.parametrize("name", NAMES)
def test_equals_torch(name: str) -> None:
    check_against_torch(given(name), torch_module(name))


@pytest.mark.parametrize("name", NAMES)
def test_initial_distribution_is_pytorchs(name: str) -> None:
    check_initial_distribution(given(name).model)


def test_a_key_decides_the_start_and_layers_differ() -> None:
    with quick_draws():
        one, same, other = (DNN(4, 4, hidden=4, key=key) for key in (KEY, KEY, OTHER_KEY))
    np.testing.assert_array_equal(one.hidden.weight, same.hidden.weight)
    assert not np.array_equal(one.hidden.weight, other.hidden.weight)
    assert not np.array_equal(one.hidden.weight, one.head.weight)
    assert not np.array_equal(one.hidden.weight[0], one.hidden.bias)


def test_the_layer_that_reads_the_input_is_named() -> None:
    """The classifier's fast proximal loop relies on it."""
    assert (MCLR.reads_input, DNN.reads_input) == ("head", "hidden")

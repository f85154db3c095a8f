"""The CNN against PyTorch's convolution and pooling, on images that are not square."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedprior.models.cnn import CNN

from .support import KEY, Case, check_against_torch, check_initial_distribution, check_outputs, quick_draws

pytestmark = pytest.mark.xdist_group("models-cnn")  # compiled functions are shared
IMAGE = (20, 24, 3)  # the flattened maps are [16, 2, 3]: PyTorch's order of them matters


@cache
def given() -> Case:
    with quick_draws():
        model = CNN(IMAGE, 10, key=KEY)
    rng = np.random.default_rng(2)
    return Case(model, rng.normal(size=(6, *IMAGE)).astype(np.float32), rng.integers(0, 10, 6))


@cache
def torch_module() -> Any:
    nn = pytest.importorskip("torch").nn
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(96, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def test_logits_are_the_head_of_the_features() -> None:
    check_outputs(given())


def test_initial_distribution_is_pytorchs() -> None:
    check_initial_distribution(given().model)


def test_equals_torch() -> None:
    check_against_torch(given(), torch_module(), given().x.transpose(0, 3, 1, 2).copy())


def test_equals_torch_on_flat_image_regions() -> None:
    """Equal patches tie in the pooling: all of one image, half of another, and saturated stripes."""
    x = given().x.copy()
    x[0], x[1, :, 12:], x[2, ::4] = 0.7, -1.0, 1.0
    check_against_torch(given()._replace(x=x), torch_module(), x.transpose(0, 3, 1, 2).copy())


@pytest.mark.parametrize("image", [(32, 32, 3), (28, 20, 1), (16, 16, 2)])
def test_image_sizes(image: tuple[int, int, int]) -> None:
    logits = jax.eval_shape(lambda x: CNN(image, 7, key=KEY).logits(x), jnp.ones((2, *image)))
    assert logits.shape == (2, 7)

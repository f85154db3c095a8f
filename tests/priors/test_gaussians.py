"""Gaussian priors: closed forms against automatic differentiation and linear algebra, defaults, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from fedprior.core.vectors import Vector
from fedprior.errors import FedpriorError
from fedprior.priors import find_prior
from fedprior.priors.gaussians import DenseGaussian, DiagonalGaussian, LowRankGaussian

from .support import FAMILIES, LAM, MATRIX, MU, PRECISIONS, C, H, check_closed_forms, close, flat, solve, vector

pytestmark = pytest.mark.xdist_group("priors")  # compiled functions are shared


@pytest.fixture(autouse=True)
def _float64(float64: None) -> None:
    """Everything here is about many digits."""


@pytest.mark.parametrize("name", PRECISIONS)
def test_closed_forms_equal_automatic_differentiation(name: str) -> None:
    check_closed_forms(name)


@pytest.mark.parametrize("name", PRECISIONS)
def test_hessian_products(name: str) -> None:
    x, v = vector([0.4, -1.1, 0.9]), vector([1.0, -2.0, 0.5])
    close(flat(FAMILIES[name].curvature(x, v)), PRECISIONS[name] @ flat(v))


@pytest.mark.parametrize("name", PRECISIONS)
def test_prox_envelope_and_gradient(name: str) -> None:
    """theta = (H + lam P)^-1 (H c + lam P mu); env and its gradient lam P (mu - theta)."""
    p = PRECISIONS[name]
    theta = np.linalg.solve(np.diag(H) + LAM * p, H * C + LAM * p @ MU)
    value = 0.5 * H @ (theta - C) ** 2 + LAM / 2 * (theta - MU) @ p @ (theta - MU)
    ours = solve(name)(vector(MU))
    np.testing.assert_allclose(flat(ours.theta), theta, rtol=1e-10)
    assert float(ours.envelope) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(flat(ours.gradient), LAM * p @ (MU - theta), rtol=1e-9)


def test_only_the_spherical_gaussian_says_that_it_is() -> None:
    """A problem may know a faster proximal loop for it."""
    assert [name for name, prior in FAMILIES.items() if prior.spherical] == ["gaussian"]


LIKE = Vector({"w": np.ones((4, 6)), "b": np.ones(4)})


def test_the_default_diagonal_is_the_fan_in() -> None:
    mirrored = find_prior("gaussian-diagonal").bind(LIKE).mirror(LIKE).tree
    assert float(mirrored["w"].sum() + mirrored["b"].sum()) / LIKE.size == pytest.approx(1.0)
    assert float(mirrored["w"][0, 0]) == pytest.approx(6 * float(mirrored["b"][0]))


@pytest.mark.parametrize("name", ["gaussian-lowrank", "gaussian-dense"])
def test_default_precisions_are_no_stiffer_than_the_spherical_one(name: str) -> None:
    """So that the same steps are stable."""
    prior = find_prior(name).bind(LIKE)
    back = ravel_pytree(LIKE)[1]
    matrix = jax.jit(jax.vmap(lambda row: ravel_pytree(prior.mirror(back(row)))[0]))(jnp.eye(LIKE.size))
    eigenvalues = np.linalg.eigvalsh(matrix)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-7)
    assert eigenvalues[0] > 0.05
    assert eigenvalues[-1] < 1.2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiagonalGaussian(vector([1.0, 0.0, 1.0])), "precision 0 is not valid; it must be above 0"),
        (lambda: DenseGaussian(np.array([[1.0, 2.0], [2.0, 1.0]])), "not positive definite"),
        (lambda: DenseGaussian(np.ones((2, 3))), "must be a symmetric matrix"),
        (lambda: LowRankGaussian(diagonal=0.0), "needs a diagonal above 0"),
        (lambda: DenseGaussian(MATRIX).bind(vector(np.zeros(4))), "precision of dimension 3 for 4 parameters"),
        (lambda: DiagonalGaussian(vector(np.ones(3))).bind(vector(np.zeros(4))), "do not fit"),
        (lambda: LowRankGaussian(vector(np.ones((2, 3)))).bind(vector(np.zeros(4))), "do not fit"),
        (lambda: LowRankGaussian(Vector({"w": np.ones(2)})).bind(Vector({"w": np.ones((3, 2))})), "do not fit"),
        (lambda: LowRankGaussian(LIKE.map(lambda x: np.ones((len(x.shape), *x.shape)))).bind(LIKE), "do not fit"),
        (
            lambda: LowRankGaussian(Vector([np.ones((2, 3))])).bind(Vector({"w": np.ones(3)})),
            r"w \(list, not dict\); make",
        ),
        (lambda: DiagonalGaussian(Vector([np.ones(3)])).bind(Vector({"w": np.ones(3)})), r"w \(list, not dict\); make"),
        (lambda: DenseGaussian().bind(vector(np.zeros(2001))), "2,001 parameters, and a dense precision is for 2,000"),
        (lambda: DiagonalGaussian().mirror(vector(np.zeros(3))), "has no precision yet"),
        (lambda: LowRankGaussian().mirror(vector(np.zeros(3))), "has no factors yet"),
        (lambda: DenseGaussian().mirror(vector(np.zeros(3))), "has no precision yet"),
    ],
)
def test_bad_priors_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(FedpriorError, match=message):
        make()


def test_what_fits_is_taken() -> None:
    for prior in (
        DiagonalGaussian(Vector({"w": np.full((4, 6), 2.0), "b": np.float32(3)})),  # one number for all of an array
        LowRankGaussian(LIKE.map(lambda x: np.ones((3, *x.shape)))),
    ):
        assert prior.bind(LIKE) is prior
        assert float(prior.divergence(LIKE, LIKE)) == 0


def test_the_default_factors_and_matrix_by_hand() -> None:
    """Two sign vectors with |f|^2 = 1/2, beside a diagonal of 1/2; and P_ij = 2^-|i - j| / 3."""
    low_rank, dense = (find_prior(name).bind(LIKE) for name in ("gaussian-lowrank", "gaussian-dense"))
    assert isinstance(low_rank, LowRankGaussian)
    assert low_rank.factors is not None
    assert low_rank.diagonal == 0.5
    lengths = sum(np.sum(np.reshape(f, (2, -1)) ** 2, axis=1) for f in jax.tree.leaves(low_rank.factors))
    np.testing.assert_allclose(lengths, [0.5, 0.5], rtol=1e-6)
    assert isinstance(dense, DenseGaussian)
    assert dense.precision is not None
    np.testing.assert_allclose(dense.precision[1, :4], [1 / 6, 1 / 3, 1 / 6, 1 / 12], rtol=1e-6)

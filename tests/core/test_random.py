"""Keys by purpose, and noise that is a hash."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedprior.core import random
from fedprior.core.random import Purpose, key_for, noise, scatter_bits
from fedprior.core.vectors import Vector

KEY = jax.random.key(0)


def test_every_purpose_round_and_client_has_a_key_of_its_own() -> None:
    parts = [(), (0,), (1,), (0, 1), (1, 0), (1, 1)]
    keys = [key_for(jax.random.key(s), p, *part) for s in (0, 1) for p in Purpose for part in parts]
    seen = {tuple(jax.random.key_data(key).tolist()) for key in keys}
    assert len(seen) == len(keys)


def test_the_numbers_of_purposes_never_change() -> None:
    """A run that was stopped goes on with the same randomness."""
    names = ("INIT", "SERVER", "CLIENT", "SELECT", "BATCHES", "SEND", "LOCAL", "MERGE", "EVALUATE", "JOIN")
    assert {purpose.name: int(purpose) for purpose in Purpose} == {name: k for k, name in enumerate(names)}
    expected = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(KEY, 6), 3), 5)
    assert jnp.array_equal(jax.random.key_data(key_for(KEY, Purpose.LOCAL, 3, 5)), jax.random.key_data(expected))


def test_a_round_and_a_client_may_be_traced() -> None:
    traced = jax.jit(lambda t, i: jax.random.key_data(key_for(KEY, Purpose.SEND, t, i)))
    for t, i in itertools.product(range(2), range(2)):
        assert jnp.array_equal(traced(t, i), jax.random.key_data(key_for(KEY, Purpose.SEND, t, i)))


def test_scattered_bits_are_those_of_murmurhash() -> None:
    def finalizer(v: int) -> int:
        v = (v ^ (v >> 16)) * 0x85EBCA6B % 2**32
        v = (v ^ (v >> 13)) * 0xC2B2AE35 % 2**32
        return v ^ (v >> 16)

    given = [0, 1, 2, 0xDEADBEEF, 0xFFFFFFFF]
    assert scatter_bits(jnp.array(given, jnp.uint32)).tolist() == [finalizer(v) for v in given]


def test_noise_is_standard_normal_and_differs_between_keys_and_entries() -> None:
    like = Vector({"a": jnp.zeros((200, 300)), "b": jnp.zeros(40_000)})
    draw = jax.jit(lambda key: noise(key, like))
    drawn = [draw(jax.random.key(k)) for k in range(3)]
    assert drawn[0].tree["a"].shape == (200, 300)
    flat = np.array([np.concatenate([np.ravel(x) for x in jax.tree.leaves(v)]) for v in drawn])
    for x in flat:
        assert np.isfinite(x).all()
        assert stats.kstest(x, "norm").pvalue > 0.01
        n = len(x)
        assert abs(x.mean()) < 4 / np.sqrt(n)
        assert abs(x.var() - 1) < 4 * np.sqrt(2 / n)
        assert abs(stats.kurtosis(x)) < 4 * np.sqrt(24 / n)
        assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 4 / np.sqrt(n)
        assert len(np.unique(x)) > 0.98 * n
    assert np.abs(np.corrcoef(flat) - np.eye(3)).max() < 4 / np.sqrt(n)
    again = jax.tree.leaves(draw(jax.random.key(0)))
    assert all(np.array_equal(x, y) for x, y in zip(again, jax.tree.leaves(drawn[0]), strict=True))


@pytest.mark.parametrize("double", [False, True])
def test_noise_is_finite_at_the_extreme_bits(monkeypatch: pytest.MonkeyPatch, double: bool) -> None:
    ends = []
    for bits in (0, 0xFFFFFFFF):
        monkeypatch.setattr(random, "scatter_bits", lambda v, bits=bits: jnp.full_like(v, bits))
        with jax.enable_x64(double):
            ends.append(float(noise(KEY, Vector(jnp.zeros(1))).tree[0]))
    assert ends[0] == -ends[1]
    assert ends[1] == pytest.approx(stats.norm.ppf(1 - 2.0**-24), rel=1e-3)

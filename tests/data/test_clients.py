"""One client's view of its samples: batch order, short batches, parts and passes over everything."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import SIZES, federation, view

from fedprior.data.clients import ClientData, federate, shuffled
from fedprior.data.partition import iid
from fedprior.data.sources import from_arrays
from fedprior.errors import FedpriorError

X = np.arange(sum(SIZES), dtype=np.float32)[:, None]
DATA = federation(X, np.zeros(len(X)), SIZES)
START = np.cumsum(SIZES) - SIZES


@jax.jit
def order_of(n: jax.Array, seed: jax.Array) -> jax.Array:
    """Compiled once for all sizes up to 300; places from n on repeat the last one."""
    return shuffled(jnp.minimum(jnp.arange(300), n - 1), n, jnp.full(300, seed, jnp.uint32))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_shuffled_is_a_permutation(n: int, seed: int) -> None:
    assert sorted(order_of(jnp.int32(n), jnp.uint32(seed))[:n].tolist()) == list(range(n))


@pytest.mark.parametrize("n", [5, 21, 100])
def test_every_sample_is_equally_likely_at_every_place(n: int) -> None:
    """Over 40,000 orders no (place, sample) frequency strays more than a tenth of 1/n beyond what chance allows."""
    orders = 40_000
    seeds = jax.random.bits(jax.random.key(0), (orders,), jnp.uint32)
    found = jax.jit(jax.vmap(lambda s: shuffled(jnp.arange(n), jnp.array(n), jnp.full(n, s))))(seeds)
    share = np.stack([np.bincount(np.asarray(found)[:, j], minlength=n) for j in range(n)]) / orders
    assert np.abs(share * n - 1).max() < 0.1 + 4 * np.sqrt(n / orders)


@pytest.mark.parametrize(("i", "batch"), [(0, 8), (1, 8), (2, 8), (3, 8), (4, 8), (4, 40)])
def test_an_epoch_shows_every_sample_once_and_the_next_is_shuffled_anew(i: int, batch: int) -> None:
    n = SIZES[i]
    per_epoch = -(-n // batch)
    picks = np.asarray(jax.jit(lambda: view(DATA, i, batch).draw(3 * per_epoch))()).reshape(3, -1)
    for epoch in picks:
        assert sorted(epoch[epoch >= 0].tolist()) == list(range(START[i], START[i] + n))
    if n > batch:
        assert picks[0].tolist() != picks[1].tolist()


def test_order_is_a_pure_function_of_seed_client_and_step() -> None:
    """Drawing in pieces, or from a later cursor, gives the same batches; another seed gives others."""

    def pieces() -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        data = view(DATA, 3)
        return (
            jnp.concatenate([data.draw(2), data.draw(5)]),
            view(DATA, 3).draw(7),
            view(DATA, 3, cursor=4).draw(3),
            view(DATA, 3, seed=9).draw(7),
        )

    parts, whole, later, other = map(np.asarray, jax.jit(pieces)())
    assert np.array_equal(parts, whole)
    assert np.array_equal(later, whole[4:])
    assert not np.array_equal(other, whole)


def test_a_short_batch_is_masked_and_its_mean_is_over_what_is_there() -> None:
    data = view(DATA, 0)  # 3 samples, batch 8
    batch = jax.jit(lambda: view(DATA, 0).batch(view(DATA, 0).draw(1)[0]))()
    assert float(batch.mask.sum()) == 3
    assert float(jnp.sum(batch.weight * batch.x[:, 0])) == pytest.approx(1.0)  # the mean of samples 0, 1, 2
    assert int(data.size) == 3


def test_drawing_inside_a_compiled_loop_is_refused() -> None:
    def bad() -> jax.Array:
        data = view(DATA, 3)
        return jax.lax.fori_loop(0, 3, lambda _, acc: acc + data.draw(1).sum(), jnp.int32(0))

    with pytest.raises(FedpriorError, match="inside a compiled loop"):
        jax.jit(bad)()


@pytest.mark.parametrize("i", range(5))
def test_split_parts_for_good_and_fold_sees_everything_once(i: int) -> None:
    def both() -> tuple[jax.Array, ...]:
        rest, held = view(DATA, i).split(0.25)
        count = lambda acc, batch: acc.at[batch.x[:, 0].astype(int)].add(batch.mask)  # noqa: E731
        zero = jnp.zeros(len(X))
        return rest.fold(count, zero), held.fold(count, zero), view(DATA, i).fold(count, zero), rest.draw(6), held.size

    rest, held, everything, picks, size = map(np.asarray, jax.jit(both)())
    own = np.zeros(len(X))
    own[START[i] : START[i] + SIZES[i]] = 1
    assert np.array_equal(everything, own)
    assert np.array_equal(rest + held, own)
    assert held.sum() == size == max(1, round(SIZES[i] / 4))
    assert set(picks[picks >= 0].tolist()) <= set(np.flatnonzero(rest).tolist())


def test_federate_lays_samples_out_and_holds_validation_out() -> None:
    rng = np.random.default_rng(0)
    source = from_arrays(rng.normal(size=(60, 2)), rng.integers(0, 3, 60))
    parted = iid(source.y, clients=4)
    whole, held = federate(source, parted), federate(source, parted, validation=0.25)
    assert whole.n_clients == 4
    assert whole.validation is None
    assert held.validation is not None
    assert (np.asarray(held.train.size) + np.asarray(held.validation.size) == np.asarray(whole.train.size)).all()
    i = 2
    start, size = int(whole.test.start[i]), int(whole.test.size[i])
    assert np.array_equal(np.asarray(whole.test.x)[start : start + size], source.x[parted.test[i]])


def test_tokens_get_a_float_mask() -> None:
    words = federation(np.arange(12).reshape(6, 2).astype(np.int32), np.zeros(6), [6])
    batch = ClientData(words.train, 0, 4, jax.random.key(0), 0).batch(jnp.array([0, 1, -1, -1]))
    assert batch.x.dtype == jnp.int32
    assert batch.mask.tolist() == [1.0, 1.0, 0.0, 0.0]

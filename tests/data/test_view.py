"""One client's view of its samples: batch order, short batches, parts and passes over everything."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array

from fedprior.core.batch import SAMPLES_PER_STEP, Batch
from fedprior.data.federation import Samples
from fedprior.data.view import ClientData, shuffled
from fedprior.errors import FedpriorError

SIZES = np.array([3, 9, 16, 21, 40, 1, 2, SAMPLES_PER_STEP, SAMPLES_PER_STEP + 1], np.int32)
START = (np.cumsum(SIZES) - SIZES).astype(np.int32)
TOTAL = int(SIZES.sum())
X = np.arange(TOTAL, dtype=np.float32)[:, None]  # a sample is its own number
SAMPLES = Samples(X, np.zeros(TOTAL, np.int32), START, SIZES)
ONE, TWO = 5, 6  # the clients with one and with two samples


def view(i: int, batch: int = 8, cursor: int = 0, seed: int = 0) -> ClientData:
    return ClientData(SAMPLES, i, batch, jax.random.key(seed), cursor)


def own_samples(i: int) -> list[int]:
    return list(range(START[i], START[i] + SIZES[i]))


def times_seen(seen: Array, batch: Batch) -> Array:
    return seen.at[batch.x[:, 0].astype(int)].add(batch.mask)


@jax.jit
def order_of(n: Array, seed: Array) -> Array:
    """Compiled once for all sizes up to 300; places from n on repeat the last one."""
    return shuffled(jnp.minimum(jnp.arange(300), n - 1), n, jnp.full(300, seed, jnp.uint32))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_shuffled_is_a_permutation(n: int, seed: int) -> None:
    assert sorted(order_of(jnp.int32(n), jnp.uint32(seed))[:n].tolist()) == list(range(n))


@pytest.mark.parametrize("n", [1, 2])
def test_shuffled_is_a_permutation_of_one_or_two(n: int) -> None:
    orders = {tuple(order_of(jnp.int32(n), jnp.uint32(seed))[:n].tolist()) for seed in range(50)}
    assert orders == ({(0,)} if n == 1 else {(0, 1), (1, 0)})


@pytest.mark.parametrize("n", [2, 5, 21, 100])
def test_every_sample_is_equally_likely_at_every_place(n: int) -> None:
    """Over 40,000 orders no (place, sample) frequency strays more than a tenth of 1/n beyond what chance allows."""
    orders = 40_000
    seeds = jax.random.bits(jax.random.key(0), (orders,), jnp.uint32)
    places = jax.jit(jax.vmap(lambda s: shuffled(jnp.arange(n), jnp.array(n), jnp.full(n, s))))(seeds)
    share = np.stack([np.bincount(np.asarray(places)[:, j], minlength=n) for j in range(n)]) / orders
    assert np.abs(share * n - 1).max() < 0.1 + 4 * np.sqrt(n / orders)


@pytest.mark.parametrize(
    ("i", "batch"), [(0, 8), (1, 8), (2, 8), (3, 8), (4, 8), (4, 40), (ONE, 1), (ONE, 8), (TWO, 1), (TWO, 2), (TWO, 8)]
)
def test_an_epoch_shows_every_sample_once_and_the_next_is_shuffled_anew(i: int, batch: int) -> None:
    n = SIZES[i]
    per_epoch = -(-n // batch)
    picks = np.asarray(jax.jit(lambda: view(i, batch).draw(10 * per_epoch))()).reshape(10, -1)
    for epoch in picks:
        assert sorted(epoch[epoch >= 0].tolist()) == own_samples(i)
    assert (len({tuple(epoch) for epoch in picks}) > 1) == (n > 1)
    if n > 8:
        assert picks[0].tolist() != picks[1].tolist()


def test_order_is_a_pure_function_of_seed_client_and_step() -> None:
    """Drawing in pieces, or from a later cursor, gives the same batches; another seed gives others."""

    def pieces() -> tuple[Array, Array, Array, Array]:
        data = view(3)
        return (
            jnp.concatenate([data.draw(2), data.draw(5)]),
            view(3).draw(7),
            view(3, cursor=4).draw(3),
            view(3, seed=9).draw(7),
        )

    parts, whole, later, other = map(np.asarray, jax.jit(pieces)())
    assert np.array_equal(parts, whole)
    assert np.array_equal(later, whole[4:])
    assert not np.array_equal(other, whole)


@pytest.mark.parametrize("i", [0, ONE, TWO])
def test_a_short_batch_is_masked_and_its_mean_is_over_what_is_there(i: int) -> None:
    batch = jax.jit(lambda: view(i).batch(view(i).draw(1)[0]))()
    assert float(batch.mask.sum()) == int(view(i).size) == SIZES[i]
    assert float(jnp.sum(batch.weight * batch.x[:, 0])) == pytest.approx(np.mean(own_samples(i)))


def test_drawing_inside_a_compiled_loop_is_refused() -> None:
    def bad() -> Array:
        data = view(3)
        return jax.lax.fori_loop(0, 3, lambda _, acc: acc + data.draw(1).sum(), jnp.int32(0))

    with pytest.raises(FedpriorError, match="inside a compiled loop"):
        jax.jit(bad)()


@pytest.mark.parametrize("i", range(len(SIZES)))
def test_split_parts_for_good_and_fold_sees_everything_once(i: int) -> None:
    def both() -> tuple[Array, ...]:
        data, nothing = view(i), jnp.zeros(TOTAL)
        rest, held = data.split(0.25)
        seen = [part.fold(times_seen, nothing) for part in (rest, held, data)]
        return *seen, rest.draw(6), held.draw(6), rest.size, held.size

    rest, held, everything, rest_picks, held_picks, rest_size, held_size = map(np.asarray, jax.jit(both)())
    own = np.zeros(TOTAL)
    own[own_samples(i)] = 1
    assert np.array_equal(everything, own)
    assert np.array_equal(rest + held, own)
    assert held.sum() == held_size == max(1, round(SIZES[i] / 4))
    assert rest.sum() == rest_size == SIZES[i] - held_size
    for picks, part in ((rest_picks, rest), (held_picks, held)):
        assert set(picks[picks >= 0].tolist()) <= set(np.flatnonzero(part).tolist())


def test_the_rest_of_a_single_sample_is_empty_and_its_batches_are_filling() -> None:
    """The view must say so, and not search for a sample for ever."""

    def rest() -> tuple[Array, Array]:
        part, _ = view(ONE).split(0.25)
        picks = part.draw(3)
        return picks, part.batch(picks[0]).weight

    picks, weight = jax.jit(rest)()
    assert picks.tolist() == [[-1] * 8] * 3
    assert weight.tolist() == [0.0] * 8


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_a_walk_from_outside_the_range_ends_whatever_the_seed(size: int) -> None:
    seeds = jnp.arange(256, dtype=jnp.uint32)
    for position in (size, size + 1, 1000):
        places = shuffled(jnp.full(256, position), jnp.array(size), seeds)
        assert set(np.asarray(places).tolist()) <= set(range(max(size, 1)))


@pytest.mark.parametrize("size", [0, 1, 2])
def test_every_loop_over_few_samples_ends(size: int) -> None:
    """A federation has no empty client, but a loop must end all the same, and count each sample that is there once."""
    few = Samples(X, np.zeros(TOTAL, np.int32), np.array([4], np.int32), np.array([size], np.int32))

    @jax.jit
    def every() -> tuple[Array, ...]:
        data = ClientData(few, 0, 8, jax.random.key(0), 5)
        rest, held = data.split(0.5)
        counts = [part.fold(times_seen, jnp.zeros(TOTAL)).sum() for part in (data, rest, held)]
        return *counts, *(jnp.sum(part.draw(2) >= 0) for part in (data, rest, held))

    whole, rest, held, *drawn = map(int, every())
    assert whole == size
    assert rest == (size == 2)
    assert drawn == [2 * size, 2 * rest, 2 * held]
    assert held == size - rest


def test_draws_of_a_part_count_as_the_client_s() -> None:
    def draw() -> tuple[Array, ...]:
        data = view(4)
        rest, held = data.split(0.25)
        picks = data.draw(1), rest.draw(2), held.draw(3)
        assert data.drawn == rest.drawn == held.drawn == 6
        return picks

    assert [picks.shape for picks in jax.eval_shape(draw)] == [(1, 8), (2, 8), (3, 8)]


def test_tokens_get_a_float_mask() -> None:
    tokens = np.arange(12, dtype=np.int32).reshape(6, 2)
    words = Samples(tokens, np.zeros(6, np.int32), np.zeros(1, np.int32), np.full(1, 6, np.int32))
    batch = ClientData(words, 0, 4, jax.random.key(0), 0).batch(jnp.array([0, 1, -1, -1]))
    assert batch.x.dtype == jnp.int32
    assert batch.mask.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_neighbours_in_an_order_are_unrelated() -> None:
    """Not only is each place fair: over 40,000 orders of 8, each of the 56 pairs of samples comes first equally often."""
    n, orders = 8, 40_000
    seeds = jax.random.bits(jax.random.key(0), (orders,), jnp.uint32)
    places = jax.jit(jax.vmap(lambda s: shuffled(jnp.arange(n), jnp.array(n), jnp.full(n, s))))(seeds)
    for k in (0, 3):
        first, second = np.asarray(places)[:, k], np.asarray(places)[:, k + 1]
        share = np.bincount(n * first + second, minlength=n * n).reshape(n, n)[~np.eye(n, dtype=bool)] / orders
        assert np.abs(share * n * (n - 1) - 1).max() < 0.2  # chance alone gives a standard deviation of 0.04


def test_the_part_held_out_is_drawn_and_stays() -> None:
    """Ten of forty samples that are not simply the first, the same from any cursor, and others with another key."""

    def held(cursor: int = 0, seed: int = 0) -> list[int]:
        part = jax.jit(lambda: view(4, cursor=cursor, seed=seed).split(0.25)[1].fold(times_seen, jnp.zeros(TOTAL)))()
        return np.flatnonzero(np.asarray(part)).tolist()

    ours = held()
    assert len(ours) == 10
    assert ours != own_samples(4)[:10]
    assert held(cursor=7) == ours
    assert held(seed=9) != ours


def test_a_part_of_a_part_is_its_own() -> None:
    """Of forty samples, ten are held out, and of the thirty others fifteen: three parts without a common sample."""

    def parts() -> list[Array]:
        rest, held = view(4).split(0.25)
        return [part.fold(times_seen, jnp.zeros(TOTAL)) for part in (*rest.split(0.5), held)]

    seen = [np.flatnonzero(np.asarray(part)).tolist() for part in jax.jit(parts)()]
    assert [len(part) for part in seen] == [15, 15, 10]
    assert sorted(i for part in seen for i in part) == own_samples(4)

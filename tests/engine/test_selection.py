"""Who is aggregated: distinct clients, chosen as often as a strategy says."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedprior import registry
from fedprior.engine.selection import SELECTIONS, check_selection, find_selection, is_shipped
from fedprior.errors import FedpriorError


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_give_distinct_clients_and_are_fair(name: str) -> None:
    """Uniform and round-robin choose everyone equally often; by samples chooses the large more often."""
    sizes, s, many = jnp.array([10, 20, 30, 40, 400]), 2, 2000
    key = jax.random.key(0)
    chosen = jax.vmap(lambda t: find_selection(name)(jax.random.fold_in(key, t), t, sizes, s))(jnp.arange(many))
    assert (np.sort(np.asarray(chosen), 1)[:, 0] != np.sort(np.asarray(chosen), 1)[:, 1]).all()
    share = np.bincount(np.asarray(chosen).ravel(), minlength=5) / many
    if name == "samples":
        assert (np.diff(share) > 0).all()
        assert share[-1] > 0.9
    else:
        np.testing.assert_allclose(share, s / 5, atol=0.05)


def test_round_robin_goes_on_where_it_ended() -> None:
    chosen = [find_selection("round-robin")(jax.random.key(0), jnp.int32(t), jnp.ones(5), 2).tolist() for t in range(4)]
    assert chosen == [[0, 1], [2, 3], [4, 0], [1, 2]]


def test_a_selection_is_a_name_or_a_function() -> None:
    mine = lambda key, t, sizes, s: jnp.arange(s)  # noqa: E731
    assert find_selection(mine) is mine
    with pytest.raises(FedpriorError, match=r"unknown selection 'unifrom' \(did you mean 'uniform'"):
        find_selection("unifrom")


def test_a_selection_that_repeats_or_invents_clients_is_refused() -> None:
    sizes = jnp.ones(5)
    check_selection(lambda key, t, sizes, s: jnp.arange(s) + 1, sizes, 4)
    for ids in ([0, 0], [4, 5], [0, 1, 2]):
        with pytest.raises(FedpriorError, match="must give 2 distinct clients of 5; it gave"):
            check_selection(functools.partial(_always, jnp.array(ids)), sizes, 2)


def test_clients_drawn_with_replacement_are_noticed() -> None:
    """Two of ten are seldom the same: one try would not tell."""

    def drawn(key: jax.Array, t: jax.Array, sizes: jax.Array, s: int) -> jax.Array:
        return jax.random.choice(key, sizes.shape[0], (s,))

    check_selection(drawn, jnp.ones(10), 2, tries=1)
    with pytest.raises(FedpriorError, match=r"2 distinct clients of 10; it gave .*: draw without replacement"):
        check_selection(drawn, jnp.ones(10), 2)


def test_a_registered_selection_is_not_one_of_the_package_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ADDED", set())
    monkeypatch.setattr(SELECTIONS, "_entries", dict(SELECTIONS._entries))
    assert is_shipped("uniform")
    assert not is_shipped(find_selection("uniform"))
    SELECTIONS.register("mine", find_selection("uniform"))
    assert not is_shipped("mine")


def _always(ids: jax.Array, key: jax.Array, t: jax.Array, sizes: jax.Array, s: int) -> jax.Array:
    return ids

"""The round loop: who is selected, who trains, what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SIZES, Quadratic, blobs, engine_of, quadratics, rounds

from fedprior.errors import FedpriorError
from fedprior.methods import make

N = len(SIZES)


def test_a_selection_of_the_users_own() -> None:
    problem, data = blobs()
    engine = engine_of(
        problem,
        make("pfedme", R=1, K=1),
        data,
        batch_size=8,
        aggregated=2,
        participation="sampled",
        selection=lambda key, t, sizes, s: jnp.argsort(-sizes)[:s],
    )
    assert np.asarray(rounds(engine, 3).cursor)[:N].tolist() == [0, 0, 0, 3, 3]


def test_a_client_that_is_selected_twice_in_some_later_round_is_noticed() -> None:
    """The weights of the mean would not add up to 1, and the model would shrink."""
    problem, data = blobs()
    engine = engine_of(
        problem,
        make("fedavg", R=1),
        data,
        batch_size=8,
        aggregated=2,
        selection=lambda key, t, sizes, s: jnp.where(t == 100, 0, jnp.arange(s)),
    )
    engine.check()
    state, _ = engine.step(engine.init(0))
    with pytest.raises(FedpriorError, match=r"2 distinct clients of 5; it gave \[0, 0\]: draw without replacement"):
        engine.step(state._replace(round=jnp.int32(100)))


def test_participation_decides_who_trains() -> None:
    problem, data = blobs()
    for mode, trained in (("all", N), ("sampled", 2)):
        engine = engine_of(problem, make("mh-released", R=3, K=1), data, batch_size=8, aggregated=2, participation=mode)
        cursor = np.asarray(rounds(engine, 1).cursor)[:N]
        assert (cursor > 0).sum() == trained
        assert set(cursor.tolist()) <= {0, 6}  # two batches per iteration


def test_engines_of_one_federation_share_its_samples() -> None:
    """Twenty methods on one task must not hold twenty copies of its data."""
    problem, data = blobs()
    first, second = (engine_of(problem, make(name), data, devices=jax.devices()) for name in ("local", "fedavg"))
    assert first.samples.x is second.samples.x
    other = engine_of(problem, make("local"), data, devices=jax.devices()[:1])
    assert jax.tree.leaves(other.samples.x)[0].sharding.device_set == {jax.devices()[0]}


def test_all_and_sampled_agree_where_unsampled_work_is_discarded() -> None:
    """With round 0 from the same start, FedAvg's merge sees the same uploads whoever else trained."""
    problem, data = blobs()
    servers = [
        rounds(engine_of(problem, make("fedavg", R=3), data, batch_size=8, aggregated=2, participation=mode), 1).server
        for mode in ("all", "sampled")
    ]
    for a, b in zip(*map(jax.tree.leaves, servers), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregated": 6}, "aggregated = 6 clients per round, but there are 5; valid: 1 to 5"),
        ({"aggregated": 0}, "valid: 1 to 5"),
        ({"participation": "some"}, "participation 'some' makes no sense for this method; valid: sampled or all"),
        ({"selection": "unifrom"}, "did you mean 'uniform'"),
        ({"weights": "size"}, "unknown weights 'size'"),
        ({"batch_size": 0}, "must be at least 1"),
        (
            {"selection": lambda key, t, sizes, s: jnp.zeros(s, int), "aggregated": 2},
            "must give 2 distinct clients of 5",
        ),
    ],
)
def test_nonsense_is_refused(options: dict[str, object], message: str) -> None:
    problem, data = blobs()
    with pytest.raises(FedpriorError, match=message):
        engine_of(problem, make("fedavg"), data, **options)


def test_idle_places_never_reach_merge() -> None:
    """Three clients on two devices: the fourth place is idle; the mean is over three."""
    data = quadratics(np.array([[1.0], [2.0], [6.0]]), np.ones((3, 1)), [1, 1, 1])
    engine = engine_of(Quadratic(1), make("fedavg", R=1, alpha=1.0), data, batch_size=1, participation="all")
    assert engine.placement.slots == 4
    assert float(rounds(engine, 1).server.tree[0]) == pytest.approx(3.0)

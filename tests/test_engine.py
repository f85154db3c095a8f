"""The round loop: who is selected, who trains, what is refused."""

from __future__ import annotations

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SIZES, Quadratic, blobs, quadratics, rounds

import fedprior
from fedprior.engine import Engine
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.selection import SELECTIONS, find

N = len(SIZES)


@pytest.mark.parametrize("name", SELECTIONS)
def test_selections_give_distinct_clients_and_are_fair(name: str) -> None:
    """Uniform and round-robin choose everyone equally often; by samples chooses the large more often."""
    sizes, s, many = jnp.array([10, 20, 30, 40, 400]), 2, 2000
    key = jax.random.key(0)
    chosen = jax.vmap(lambda t: find(name)(jax.random.fold_in(key, t), t, sizes, s))(jnp.arange(many))
    assert (np.sort(np.asarray(chosen), 1)[:, 0] != np.sort(np.asarray(chosen), 1)[:, 1]).all()
    share = np.bincount(np.asarray(chosen).ravel(), minlength=5) / many
    if name == "samples":
        assert (np.diff(share) > 0).all()
        assert share[-1] > 0.9
    else:
        np.testing.assert_allclose(share, s / 5, atol=0.05)


def test_a_selection_of_the_users_own() -> None:
    problem, data = blobs()
    engine = Engine(
        problem,
        make("pfedme", R=1, K=1),
        data,
        batch_size=8,
        aggregated=2,
        participation="sampled",
        selection=lambda key, t, sizes, s: jnp.argsort(-sizes)[:s],
    )
    assert np.asarray(rounds(engine, 3).cursor)[:N].tolist() == [0, 0, 0, 3, 3]


def test_participation_decides_who_trains() -> None:
    problem, data = blobs()
    for mode, trained in (("all", N), ("sampled", 2)):
        engine = Engine(problem, make("mh-released", R=3, K=1), data, batch_size=8, aggregated=2, participation=mode)
        cursor = np.asarray(rounds(engine, 1).cursor)[:N]
        assert (cursor > 0).sum() == trained
        assert set(cursor.tolist()) <= {0, 6}  # two batches per iteration


def test_engines_of_one_federation_share_its_samples() -> None:
    """Twenty methods on one task must not hold twenty copies of its data."""
    problem, data = blobs()
    first, second = (Engine(problem, make(name), data, devices=jax.devices()) for name in ("local", "fedavg"))
    assert first.samples.x is second.samples.x
    other = Engine(problem, make("local"), data, devices=jax.devices()[:1])
    assert other.samples.x.sharding.device_set == {jax.devices()[0]}


def test_all_and_sampled_agree_where_unsampled_work_is_discarded() -> None:
    """With round 0 from the same start, FedAvg's merge sees the same uploads whoever else trained."""
    problem, data = blobs()
    servers = [
        rounds(Engine(problem, make("fedavg", R=3), data, batch_size=8, aggregated=2, participation=mode), 1).server
        for mode in ("all", "sampled")
    ]
    for a, b in zip(*map(jax.tree.leaves, servers), strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregated": 6}, "aggregated = 6 clients per round, but there are 5; valid: 1 to 5"),
        ({"aggregated": 0}, "valid: 1 to 5"),
        ({"participation": "some"}, "participation 'some' makes no sense for FedAvg; valid: sampled or all"),
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
        Engine(problem, make("fedavg"), data, **options)  # type: ignore[arg-type]


def test_idle_places_never_reach_merge() -> None:
    """Three clients on two devices: the fourth place is idle; the mean is over three."""
    data = quadratics(np.array([[1.0], [2.0], [6.0]]), np.ones((3, 1)), [1, 1, 1])
    engine = Engine(Quadratic(1), make("fedavg", R=1, alpha=1.0), data, batch_size=1, participation="all")
    assert engine.fleet.places == 4
    assert float(rounds(engine, 1).server.tree[0]) == pytest.approx(3.0)


def test_methods_import_only_the_interface() -> None:
    """A method file is mathematics: it may not reach for the engine, data or records."""
    allowed = {
        "fedprior.method",
        "fedprior.methods",  # a method may be another one with a change
        "fedprior.vectors",
        "fedprior.priors",
        "jax",
        "optax",
        "dataclasses",
        "typing",
        "__future__",
    }
    folder = Path(fedprior.__file__).parent / "methods"
    files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert any(name == a or name.startswith(a + ".") for a in allowed), f"{path.name} imports {name}"

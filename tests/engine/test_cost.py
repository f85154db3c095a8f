"""What a round costs, against the counts of the method specifications (R = 20, K = 5)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from toys import blobs

from fedprior import registry
from fedprior.core.batch import SAMPLES_PER_STEP
from fedprior.engine import cost as costs
from fedprior.engine import counts
from fedprior.engine.cost import Cost, count, measure
from fedprior.engine.counts import kept_counts
from fedprior.methods import make
from fedprior.methods.fedavg import FedAvg
from fedprior.priors.means import MEANS


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("local", Cost(gradients=20, forward=0, down=0, up=0, state=1)),
        ("fedavg", Cost(gradients=20, forward=0, down=1, up=1, state=0)),
        ("pfedme", Cost(gradients=100, forward=0, down=1, up=1, state=1)),
        ("lg", Cost(gradients=120, forward=0, down=1, up=1, state=1)),
        ("meg", Cost(gradients=100, forward=0, down=1, up=1, state=2)),
        ("mh", Cost(gradients=120, forward=0, down=1, up=1, state=2)),
        ("mh-released", Cost(gradients=140, forward=0, down=1, up=1, state=2)),
    ],
)
def test_defaults(name: str, cost: Cost) -> None:
    assert measure(make(name)) == replace(cost, parameters=79510)


def test_the_count_follows_the_settings() -> None:
    assert measure(make("mh", R=3, K=2)).gradients == 3 * (2 + 1)
    assert measure(make("pfedme", R=3, K=2)).gradients == 3 * 2
    problem, data = blobs()
    adam = measure(make("local", optimizer="adam"), problem, data)
    assert adam.state == 3 + 1 / 18  # the model and two moments, and the number of steps


@pytest.mark.slow
def test_exact_gradients_take_products_with_the_hessian() -> None:
    """One for each time that mu's gradient is differentiated: once, or twice after an inner step; never for meg."""
    for name, inner, products in (("mh", False, 3), ("lg", False, 3), ("mh", True, 6), ("meg", False, 0)):
        assert measure(make(name, R=3, K=2, gradient="exact", inner=inner)).hvps == products
        assert measure(make(name, R=3, K=2, inner=inner)).hvps == 0


class Asking(FedAvg):
    """Asks its problem in every way there is."""

    def local(self, problem: Any, client: Any, down: Any, data: Any, key: Any) -> Any:
        batch = data.batch(data.draw(1)[0])
        hessian = jax.jvp(lambda w: problem.grad(w, batch), (down,), (down,))[1]  # 1 gradient, 1 product
        models = jax.tree.map(lambda x: jnp.stack([x, x, x]), down)
        many = jax.vmap(lambda w: problem.grad(w, batch))(models)  # 3 gradients
        weighed = jax.grad(lambda w: jnp.sum(problem.losses(w, batch) ** 2))(down)  # 1 gradient
        loss = jax.vmap(lambda w: problem.loss(w, batch))(models)  # 3 forward passes
        passes = data.fold(lambda acc, chunk: acc + jnp.sum(problem.features(down, chunk.x)), 0.0)  # 1 chunk: 1
        head = problem.with_head(down, problem.head(problem.grad(down, batch)))  # 1 gradient
        used = [hessian, jax.tree.map(lambda x: x[0], many), weighed, head]
        up = sum((vector * loss[0] * passes for vector in used), 0.0 * down)
        return client, problem.head(up), {}


def test_every_way_to_ask_is_counted() -> None:
    cost = Cost(gradients=6, forward=4, down=1, up=1010 / 79510, state=0, hvps=1, parameters=79510)
    assert measure(Asking()) == cost
    assert SAMPLES_PER_STEP == 128  # as `Cost` says


@pytest.mark.parametrize("name", ["fedfomo", "fedem", "fedpac", "mh", pytest.param("pfedhn", marks=pytest.mark.slow)])
def test_what_is_read_from_a_program_is_what_it_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = make(name, R=3).algorithm()
    read = count(algorithm, 9)

    def refuse(*_: Any, **__: Any) -> None:
        raise costs._UnknownTurns

    monkeypatch.setattr(costs, "_read", refuse)
    assert count(algorithm, 9) == read


class Choosing(FedAvg):
    """Asks as often as its numbers say."""

    def local(self, problem: Any, client: Any, down: Any, data: Any, key: Any) -> Any:
        batch, ask = data.batch(data.draw(1)[0]), lambda w: problem.grad(w, batch)
        down = lax.while_loop(lambda w: jnp.abs(w.norm()) < 0, ask, ask(down))  # 1 gradient before, none in it
        down = lax.cond(data.size > 0, ask, lambda w: w, down)  # 1 gradient
        return client, lax.fori_loop(0, data.size // 20, lambda _, w: ask(w), down), {}  # 40 samples: 2 gradients


def test_a_program_that_does_not_tell_is_run() -> None:
    assert measure(Choosing()).gradients == 4


def test_what_was_counted_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path))
    counted: list[int] = []

    def count() -> dict[str, int]:
        counted.append(1)
        return {"gradients": 7, "forward": 0, "hvps": 0}

    method = make("fedavg", R=3)
    for _ in range(2):
        assert kept_counts(method, 5, count)["gradients"] == 7
    assert len(counted) == 1
    kept_counts(make("fedavg", R=4), 5, count)
    kept_counts(method, 6, count)
    assert len(counted) == 3
    for path in (tmp_path / "counts").iterdir():
        path.write_text("{")  # damaged
    kept_counts(method, 5, count)
    assert len(counted) == 4
    for _ in range(2):  # a class of the user's own may change
        kept_counts(Asking(), 5, count)
    assert len(counted) == 6
    monkeypatch.setenv("FEDPRIOR_CACHE", "/proc/nowhere")
    kept_counts(method, 5, count)
    assert len(counted) == 7


def test_counts_of_a_mean_of_the_users_own_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is all that the settings say of it, and what it stands for may change between two runs."""
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path))
    monkeypatch.setattr(registry, "ADDED", set())
    monkeypatch.setattr(MEANS, "_entries", dict(MEANS._entries))
    for kept, mean in ((True, "mh"), (False, "mine")):
        MEANS.register("mine", MEANS.find("mh"), replace=True)
        kept_counts(make("mh", mean=mean), 5, lambda: {"gradients": 1})
        assert kept_counts(make("mh", mean=mean), 5, lambda: {"gradients": 2}) == {"gradients": 1 if kept else 2}


def test_counts_are_those_of_this_very_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRIOR_CACHE", str(tmp_path))
    kept_counts(make("fedavg"), 5, lambda: {"gradients": 1})
    monkeypatch.setattr(counts, "_package", lambda: "another")
    assert kept_counts(make("fedavg"), 5, lambda: {"gradients": 2}) == {"gradients": 2}

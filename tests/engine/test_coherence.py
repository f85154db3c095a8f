"""The coherence of known vectors, and that looking at a run's changes no bit of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from toys import blobs, engine_of

import fedprior as fp
from fedprior.engine.coherence import CoherenceWatch, coherence, log_determinant
from fedprior.engine.engine import Engine
from fedprior.methods import make
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status


def gram(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors @ vectors.T)


def test_of_orthogonal_and_of_equal_vectors() -> None:
    assert coherence(gram(np.diag([1.0, 2.0, 0.5]))) == 0
    assert coherence(gram(np.ones((2, 3)))) == pytest.approx(1, abs=1e-3)  # what single precision can tell from 1
    assert log_determinant(coherence(gram(np.ones((2, 3)))), 2) < -14


@pytest.mark.parametrize("degrees", [90, 60, 30, 5, 120])
def test_of_two_vectors_at_an_angle(degrees: float) -> None:
    """det C = 1 - cos^2 = sin^2, and its square root is what is left of 1."""
    angle = np.radians(degrees)
    gce = coherence(gram(np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])))
    assert gce == pytest.approx(1 - np.sin(angle), abs=1e-6)
    assert -np.expm1(log_determinant(gce, 2)) == pytest.approx(np.cos(angle) ** 2, abs=1e-6)


def test_lengths_signs_and_a_vector_of_length_zero_do_not_count() -> None:
    v = np.random.default_rng(0).normal(size=(6, 40))
    assert coherence(gram(v * np.array([[1e-3, 5.0, -1.0, 2.0, 1.0, 100.0]]).T)) == pytest.approx(coherence(gram(v)))
    still = np.concatenate([v, np.zeros((1, 40))])
    assert log_determinant(coherence(gram(still)), 7) == pytest.approx(log_determinant(coherence(gram(v)), 6))


def test_a_hundred_alike_vectors_do_not_underflow() -> None:
    """All cosines are c: the eigenvalues are 1 - c, N - 1 times, and 1 + (N - 1) c."""
    n, c = 100, 0.999
    alike = np.full((n, n), c) + (1 - c) * np.eye(n)
    assert np.linalg.det(alike) < 1e-290
    expected = (n - 1) * np.log(1 - c) + np.log(1 + (n - 1) * c)
    assert log_determinant(coherence(alike), n) == pytest.approx(expected, rel=1e-9)


def test_a_watched_step_gives_the_same_bits_and_the_vectors_from_theta_to_w() -> None:
    problem, data = blobs(hidden=4)
    method = make("meg", R=3, K=2)  # its memory is the local model, so that w_i can be read from the state
    engine, other = (engine_of(problem, method, data, batch_size=8, aggregated=2) for _ in range(2))
    watch = CoherenceWatch(
        other, lambda change: Engine(problem, change(method.algorithm()), data, batch_size=8, aggregated=2)
    )
    watch.check()
    plain, seen = engine.init(0), other.init(0)
    for _ in range(3):
        plain, _ = engine.step(plain)
        seen, _ = watch.step(seen)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(seen), strict=True):
        np.testing.assert_array_equal(a, b)
    clients = jax.device_get(plain.clients)
    pull = (clients.memory - clients.theta).map(lambda x: x[: data.n_clients].reshape(data.n_clients, -1))
    vectors = np.concatenate(jax.tree.leaves(pull), axis=1)
    assert 0 < watch.gce() < 1
    assert watch.gce() == pytest.approx(coherence(gram(vectors.astype(np.float64))), rel=1e-4)


@pytest.mark.parametrize(
    ("row", "settings", "why"),
    [
        ("fedem:M=2", {"participation": "all"}, "does not have exactly one of each"),
        ("perfedavg", {"participation": "all"}, "made for evaluation"),
        ("mh", {"participation": "sampled"}, "only the sampled ones train"),
    ],
)
def test_what_has_no_such_vectors_is_refused(row: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(fp.FedpriorError, match=why):
        _ = fp.Study("digits-mclr", [row], local=False, gce=True, **settings).programs


def test_it_is_recorded_and_a_run_goes_on_with_it(tmp_path: Path) -> None:
    def study(**settings: Any) -> fp.Study:
        return fp.Study("digits-mclr", ["mh:R=2,K=2"], local=False, rounds=4, eval_every=2, **settings)

    whole, broken = study(gce=True), study(gce=True)
    (result,) = whole.run(tmp_path / "whole").runs
    rows = [row for row in result.record.rows if "gce" in row.values]
    assert {(row.round, row.model, row.data) for row in rows} == {(2, "personal", "own"), (4, "personal", "own")}
    assert len({(row.round, row.values["gce"]) for row in rows}) == 2  # the same in all averages
    assert not any("gce" in row.values for row in result.record.clients)
    seen: list[int] = []
    broken.programs[0] = whole.programs[0]  # compiled already
    broken.run(
        tmp_path / "broken",
        watch=lambda cell, progress: seen.append(0 if progress is None else progress.round),
        should_stop=lambda: bool(seen) and seen[-1] == 2,
    )
    folders = [next((tmp_path / name).rglob("config.json")).parent for name in ("whole", "broken")]
    assert RunFolder(folders[1]).status == (Status.STOPPED, 3)
    broken.run(tmp_path / "broken", resume=True)
    tables = [(folder / "metrics.csv").read_text() for folder in folders]
    assert tables[0] == tables[1]
    assert "gce" in tables[0].partition("\n")[0]

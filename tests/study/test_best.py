"""The state of the best validation round: kept through stops, kills and damage, and its models can be had."""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from program import kept

import fedprior as fp
from fedprior import files
from fedprior.study.recorder import run_trial
from fedprior.study.trial import Trial
from study.small import run as run_small
from study.small import small_program, stop_after

pytestmark = [pytest.mark.bits, pytest.mark.xdist_group("resume")]  # which has compiled these programs

# With this seed the first round is the best on validation until the fifth: 30, 25, 30, 30, 35, 35 %.
run = functools.partial(run_small, seed=3, validation=0.2)
BEST = "best-on-validation"


def bests(folder: Path) -> list[int]:
    return sorted(int(path.stem[5:]) for path in (folder / "checkpoints").glob("best-*.safetensors"))


def weights(result: fp.Result, choice: str, client: int = 1) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result.personal_model(client, round=choice))]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, fp.Result]:
    folder = tmp_path_factory.mktemp("alone")
    return folder, run(folder)


def test_the_model_is_that_of_a_run_that_ends_there(alone: tuple[Path, fp.Result]) -> None:
    folder, result = alone
    assert bests(folder) == [5]
    short, memory, resumed = run(None, rounds=5), run(None), run(folder, resume=True)
    for one in (result, memory, resumed):
        assert same(weights(one, BEST), weights(short, "last"))
        assert not same(weights(one, BEST), weights(one, "last"))
        predictor = one.predictor(1, round=BEST)
        assert (predictor.about["round"], predictor.about["chosen"]) == (5, BEST)
    own = next(row for row in result.record.clients if row[:4] == (5, "personal", "own", 1))
    assert predictor.about["test_accuracy"] == own.values["accuracy"]
    assert same(*([np.asarray(m.weight)] for m in (result.global_model(BEST), short.global_model())))


def test_it_is_written_with_the_next_checkpoint(alone: tuple[Path, fp.Result], tmp_path: Path) -> None:
    """The state is copied when it is met: the rounds after it use its memory again."""
    run_trial(Trial(small_program(validation=0.2), 3), tmp_path, checkpoint_seconds=1e9)
    name = "checkpoints/best-00000005.safetensors"
    assert (tmp_path / name).read_bytes() == (alone[0] / name).read_bytes()
    assert [path.name for path in (tmp_path / "checkpoints").glob("round-*")] == ["round-00000006.safetensors"]


def test_a_run_that_goes_back_finds_it_again(alone: tuple[Path, fp.Result], tmp_path: Path) -> None:
    run(tmp_path, **stop_after(5))
    assert bests(tmp_path) == [1, 5]  # for rounds 4 and 5, to which it may have to go back
    (tmp_path / "checkpoints" / "round-00000005.safetensors").write_bytes(b"")
    seen: list[tuple[int, list[int]]] = []
    result = run(tmp_path, resume=True, watch=lambda p: seen.append((p.round, bests(tmp_path))))
    assert seen == [(4, [1]), (5, [1, 5]), (6, [5])]
    assert kept(tmp_path) == kept(alone[0])
    assert same(weights(result, BEST), weights(alone[1], BEST))


@pytest.mark.parametrize("name", ["best-00000005", "round-00000005", "round-00000006"])
@pytest.mark.parametrize("where", ["written", "renamed"])
def test_a_kill_at_any_moment_changes_nothing(
    alone: tuple[Path, fp.Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, name: str
) -> None:
    class Killed(BaseException):
        pass

    def moment(at: str, path: Path) -> None:
        if (at, path.stem) == (where, name):
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(files, "moment", moment)
        with pytest.raises(Killed):
            run(tmp_path)
    run(tmp_path, resume=True)
    assert kept(tmp_path) == kept(alone[0])


def test_what_was_not_kept_is_told(alone: tuple[Path, fp.Result], tmp_path: Path) -> None:
    result = run(tmp_path)
    (tmp_path / "checkpoints" / "best-00000005.safetensors").unlink()  # as older versions left it
    with pytest.raises(
        fp.FedpriorError, match=r"keeps no state of round 5, which is best on validation: .*--overwrite"
    ):
        result.personal_model(1, round=BEST)
    with pytest.raises(fp.FedpriorError, match="unknown round 'first'"):
        result.global_model("first")
    with pytest.raises(
        fp.FedpriorError, match=r"has no round that is best on validation; give the task validation = 0.2"
    ):
        run_small(None, rounds=2).save(tmp_path / "model", client=1, round=BEST)


def test_a_longer_run_forgets_a_best_round_that_it_does_not_evaluate(tmp_path: Path) -> None:
    run(tmp_path / "long", rounds=6, eval_every=4)
    run(tmp_path / "short", rounds=3, eval_every=4)
    assert bests(tmp_path / "short") == [3]
    run(tmp_path / "short", rounds=6, eval_every=4, resume=True)
    assert kept(tmp_path / "short") == kept(tmp_path / "long")
    assert bests(tmp_path / "long") == [4, 6]

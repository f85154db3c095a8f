"""What people give: NumPy's numbers, seeds of all kinds, models that are none, and a function that watches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedprior as fp
from fedprior.study.cells import Cell
from fedprior.study.trial import Progress
from study.small import small_task

FIVE = np.float32(5)


@pytest.mark.parametrize("seeds", [0, -1, True, 1.5, "3", None, [], [1.5], [1, 1], np.array([[0, 1]])])
def test_seeds_that_make_no_sense_are_told(seeds: Any) -> None:
    with pytest.raises(fp.FedpriorError, match=r"^seeds = .*; give a number of at least 1, or different seeds$"):
        fp.run(small_task(), "local", seeds=seeds)


@pytest.mark.parametrize("seed", [-1, 2**32, 2**64])
def test_seeds_that_would_be_another_or_none_are_told(seed: int) -> None:
    with pytest.raises(fp.FedpriorError, match=rf"{seed} is no seed; valid: whole numbers from 0 to 4294967295$"):
        fp.Study(small_task(), ["local"], seeds=[0, seed])
    assert fp.Study(small_task(), ["local"], seeds=[2**32 - 1]).seeds == [2**32 - 1]


def test_seeds_may_be_numpy_s() -> None:
    cases: list[tuple[Any, list[int]]] = [
        *((np.int64(2), [0, 1]), (np.array([3, 5]), [3, 5]), ([np.int32(4)], [4]), (range(2), [0, 1])),
    ]
    for given, seeds in cases:
        study = fp.Study(small_task(), ["local"], seeds=given)
        assert study.seeds == seeds
        assert {type(seed) for seed in study.seeds} == {int}


def test_settings_may_be_numpy_s() -> None:
    task = fp.task(
        "digits-mclr", rounds=np.int64(2), lam=FIVE, validation=np.float64(0.2), **{"partition.clients": np.int64(5)}
    )
    assert (task.protocol.rounds, task.settings.partition["clients"], task.defaults["lam"]) == (2, 5, 5.0)
    assert fp.Variant.of("mh", lam=FIVE, beta=np.float64(2), rounds=np.int64(3)).name == "mh lam=5 beta=2 rounds=3"
    assert type(fp.make("mh", lam=FIVE, R=np.int64(2)).lam) is float  # type: ignore[attr-defined]
    for study in (
        fp.Study(small_task(), ["mh"], lam=FIVE, rounds=np.int64(2)),
        fp.Study(small_task(), {"mh": {"lam": FIVE, "rounds": np.int64(2), "beta": np.float32(2)}}),
    ):
        program = study.programs[-1]
        assert (program.method.lam, program.rounds) == (5.0, 2)  # type: ignore[attr-defined]
        assert {type(value) for value in vars(program.method).values()} <= {int, float, str, bool, type(None)}
    with pytest.raises(fp.FedpriorError, match="rounds: input should be a valid integer"):
        small_task().with_protocol(rounds=np.float64(2.5))


def test_models_that_are_none_are_told_in_one_line() -> None:
    torch = pytest.importorskip("torch")
    x, y = np.zeros((20, 3)), np.arange(20) % 2
    for model, message in (
        (torch.nn.Linear(3, 2), r"the model is a torch\.nn\.modules\.linear\.Linear; give an Equinox module"),
        (lambda key: torch.nn.Linear(3, 2), r"the model that is built is a torch\.nn\S+; it must be an Equinox module"),
        (lambda key: lambda x: x, "the model that is built is a builtins.function"),
        (lambda: None, "what builds the model must be a function of a key, and this one is not: too many"),
    ):
        with pytest.raises(fp.FedpriorError, match=message) as error:
            fp.task_from_arrays(x, y, y, model)  # type: ignore[arg-type]
        assert "\n" not in str(error.value)


def test_a_run_is_watched_round_by_round_and_its_result_is_short(tmp_path: Path) -> None:
    seen: list[tuple[int, Progress]] = []

    def watch(cell: Cell, progress: Progress | None) -> None:
        assert progress is not None
        seen.append((cell.seed, progress))

    results = fp.run(small_task(rounds=2), "local:R=1", seeds=2, watch=watch, out=tmp_path)
    for result in results:
        mine = [progress for seed, progress in seen if seed == result.seed]
        assert [progress.round for progress in mine] == [0, 1, 2]
        assert [row for progress in mine for row in progress.rows] == list(result.record.rows)
        assert repr(result) == f"Result('local R=1', seed {result.seed}: finished, round 2)"
    assert not hasattr(results[0], "scores")  # it held the rounds of one call; the record holds all of them
    (longer,) = fp.run(small_task(rounds=3), "local:R=1", out=tmp_path, resume=True)
    assert {row.round for row in longer.record.clients} == {1, 2, 3}

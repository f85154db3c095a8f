"""Which states are kept besides the newest ones: the best on validation up to each of those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedprior.records import best
from fedprior.records.runs import MemoryRun, Run, RunFolder
from fedprior.records.schema import Row


def row(
    t: int, accuracy: float | None, model: str = "personal", data: str = "validation", average: str = "weighted"
) -> Row:
    return Row(t, model, data, average, {"nll": 1.0} if accuracy is None else {"accuracy": accuracy})


def test_rounds_are_chosen_by_the_personal_models_on_validation() -> None:
    rows = [row(1, 50.0), row(2, 70.0), row(2, 99.0, average="mean"), row(3, 99.0, data="own"), row(4, 70.0)]
    rows += [row(5, 99.0, model="global"), row(6, None), row(7, float("nan"))]
    values = best.on_validation(rows)
    assert values == {1: 50.0, 2: 70.0, 4: 70.0}
    assert best.first_best(values) == 2  # the first of two
    assert best.first_best(values, higher_is_better=False) == 1


def folder(path: Path, bests: list[int], newest: list[int]) -> RunFolder:
    (path / "checkpoints").mkdir()
    for kind, rounds in (("best", bests), ("round", newest)):
        for t in rounds:
            (path / "checkpoints" / f"{kind}-{t:08d}.safetensors").touch()
    return RunFolder(path)


@pytest.mark.parametrize(
    ("newest", "kept"),
    [
        ([8, 9], [7]),
        ([6, 9], [3, 7]),  # should the run go back to round 6, round 3 is the best
        ([2, 4], [1, 3]),
        ([5], [3]),
        ([], []),  # it starts anew
    ],
)
def test_what_is_kept_is_the_best_up_to_each_newest_state(tmp_path: Path, newest: list[int], kept: list[int]) -> None:
    values = {1: 50.0, 2: 40.0, 3: 60.0, 4: 60.0, 7: 61.0, 8: 20.0, 9: 61.0}
    run = folder(tmp_path, [1, 2, 3, 4, 7], newest)
    run.drop_best({t: value for t, value in values.items() if t <= max(newest, default=0)})
    left = sorted(int(path.stem[5:]) for path in (tmp_path / "checkpoints").glob("best-*"))
    assert left == kept
    assert len(run.checkpoints) == len(newest)


def test_a_state_is_found_again_in_a_folder_and_in_memory(tmp_path: Path) -> None:
    runs: tuple[Run, ...] = RunFolder(tmp_path), MemoryRun()
    for run in runs:
        arrays = best.copied({"w": np.arange(3.0)})
        run.keep_best(arrays, 4)
        found = run.best_state(4)
        assert found is not None
        assert found["w"].tolist() == [0, 1, 2]
        assert run.best_state(5) is None
    (tmp_path / "checkpoints" / "best-00000004.safetensors").write_bytes(b"cut")
    assert RunFolder(tmp_path).best_state(4) is None


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    run, copy = folder(tmp_path, [1], [2]), tmp_path / "checkpoints" / "best-00000001 (copy).safetensors"
    copy.touch()
    run.drop_best({2: 50.0})
    assert [path.name for path in (tmp_path / "checkpoints").glob("best-*")] == [copy.name]


def test_states_are_in_the_order_of_their_rounds_however_many_digits_these_have(tmp_path: Path) -> None:
    run = folder(tmp_path, [], [99_999_999, 100_000_000])
    assert [path.stem for path in run.checkpoints] == ["round-99999999", "round-100000000"]

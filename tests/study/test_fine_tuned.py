"""FT scored beside the personal models: it changes no training, and is what a run of its own would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedprior as fp
from fedprior.errors import FedpriorError
from fedprior.records.runs import RunFolder
from fedprior.records.schema import RunRecord
from fedprior.study.cells import Cell
from fedprior.study.trial import Progress
from study.small import small_task

ROWS: dict[str, dict[str, Any]] = {
    "both": {"method": "meg", "score_fine_tuned": 2},
    "tuned": {"method": "meg", "fine_tune": 2},
    "plain": {"method": "meg"},
}


def scores(record: RunRecord, model: str, data: str = "own") -> list[Any]:
    clients = [(row.round, row.client, row.values) for row in record.clients if row[1:3] == (model, data)]
    return [[(row.round, row.average, row.values) for row in record.rows if row[1:3] == (model, data)], clients]


@pytest.mark.bits
def test_it_is_what_a_run_with_ft_would_give(tmp_path: Path) -> None:
    study = fp.Study(small_task(rounds=3, validation=0.2), ROWS, local=False, R=2, K=2)
    runs = {result.name: result.record for result in study.run(tmp_path).runs}
    for data in ("own", "validation"):
        assert scores(runs["both"], "fine-tuned", data) == scores(runs["tuned"], "personal", data)
        assert scores(runs["both"], "personal", data) == scores(runs["plain"], "personal", data)
        assert scores(runs["both"], "fine-tuned", data) != scores(runs["both"], "personal", data)
        assert len(scores(runs["both"], "fine-tuned", data)[1]) == 3 * 5
    summary = fp.Results.read(tmp_path).summary()["arrays"]["both"]["metrics"]["accuracy"]
    assert summary["fine-tuned"]["own"]["weighted"]["last"] is not None
    assert "score_fine_tuned" not in runs["plain"].config["run"]["protocol"]  # runs of before are the same


def test_twice_is_refused() -> None:
    with pytest.raises(FedpriorError, match="leave one of them out"):
        fp.Study(small_task(), {"x": {"method": "meg", "fine_tune": 1, "score_fine_tuned": 1}}, local=False).programs  # noqa: B018


def test_without_models_a_finished_cell_is_not_opened(tmp_path: Path) -> None:
    study = fp.Study(small_task(rounds=3), ["fedavg:R=1"], local=False)
    first = study.run(tmp_path, models=False)
    assert (len(first.records), first.runs) == (1, [])
    (cell,) = study.cells(tmp_path)
    assert cell.folder is not None
    for state in RunFolder(cell.folder).checkpoints:
        state.write_bytes(b"")  # would be an error, or run again
    told: list[Any] = []
    again = study.run(tmp_path, resume=True, models=False, watch=lambda cell, progress: told.append(progress))
    assert [record.rows for record in again.records] == [record.rows for record in first.records]
    assert [progress.round for progress in told] == [3]
    assert (
        not fp.Study(small_task(rounds=3), ["fedavg:R=1"], local=False)
        .run(tmp_path, resume=True, models=False)
        .diverged
    )


def test_without_models_too_overwriting_begins_anew(tmp_path: Path) -> None:
    study = fp.Study(small_task(rounds=2), ["fedavg:R=1"], local=False)
    study.run(tmp_path, models=False)
    told: list[int] = []

    def watch(cell: Cell, progress: Progress | None) -> None:
        assert progress is not None
        told.append(progress.round)

    study.run(tmp_path, overwrite=True, models=False, watch=watch)
    assert told == [0, 1, 2]


def test_the_step_of_what_is_scored_is_recorded_and_must_stay(tmp_path: Path) -> None:
    task = small_task(rounds=1)

    def study(**settings: Any) -> fp.Study:
        return fp.Study(task, ["fedavg:R=1"], local=False, score_fine_tuned=1, **settings)

    def wrappers(**settings: Any) -> Any:
        return next(study(**settings).trials()).config()["run"]["variant"]["wrappers"]

    assert wrappers(fine_tune_step=0.5) == {"fine_tune_step": 0.5}
    assert study(fine_tune_step=0.5).remarks() == []
    usual = getattr(study().programs[0].method, "alpha")  # noqa: B009
    assert wrappers() == wrappers(fine_tune_step=usual) == {}  # as records of before have it
    study(fine_tune_step=0.5).run(tmp_path)
    with pytest.raises(FedpriorError, match=r"variant\.wrappers\.fine_tune_step: 0\.5 then, 0\.001 now"):
        study(fine_tune_step=0.001).run(tmp_path, resume=True)
    with pytest.raises(FedpriorError, match=r"variant\.wrappers\.fine_tune_step: 0\.5 then, None now"):
        study().run(tmp_path, resume=True)
    assert study(fine_tune_step=0.5).run(tmp_path, resume=True).runs[0].finished

"""Digests of cells stand in for them: nothing is trained twice, and tables are the same without the cells."""

from __future__ import annotations

import dataclasses
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest

import fedprior as fp
from fedprior.errors import FedpriorError
from fedprior.records.schema import Status
from fedprior.reproduce.paper.kept import Kept
from fedprior.reproduce.paper.run import plan, train
from fedprior.study.cells import Cell
from fedprior.study.results import Results
from fedprior.study.study import Study

ROWS: dict[str, dict[str, object]] = {"fedavg": {}, "lost": {"method": "fedavg", "alpha": 1e30}}


def study(rows: dict[str, dict[str, object]] = ROWS, rounds: int = 2, seeds: int = 1) -> Study:
    return fp.Study("digits-mclr", rows, local=False, seeds=seeds, rounds=rounds, eval_every=1)


def trained(given: Study, out: Path, **options: Any) -> tuple[Results, list[str], list[str]]:
    """What came of it, which cells were trained, and what was said."""
    begun, said = set[str](), list[str]()

    def watch(cell: Cell, progress: fp.study.trial.Progress | None) -> None:
        if progress is None or progress.rows:
            begun.add(str(cell))

    results = train([given], out / "cells", watch=watch, warn=said.append, kept=Kept(out / "records"), **options)
    assert results is not None
    return results, sorted(begun), said


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both rows were trained."""
    out = tmp_path_factory.mktemp("done")
    results, begun, _ = trained(study(), out)
    assert [record.status for record in results.records] == [Status.FINISHED, Status.DIVERGED]
    assert len(begun) == 2
    return out


@pytest.fixture
def elsewhere(done: Path, tmp_path: Path) -> Path:
    """The same without the cells."""
    shutil.copytree(done / "records", tmp_path / "records")
    return tmp_path


def test_nothing_is_trained_where_digests_are(done: Path, elsewhere: Path) -> None:
    first, _, _ = trained(study(), done)
    again, _, said = trained(study(), elsewhere)
    assert not list(elsewhere.glob("cells/*/*/*"))
    assert not said
    assert [(r.variant, r.status, r.round) for r in again.records] == [
        (r.variant, r.status, r.round) for r in first.records
    ]
    ours, theirs = ([row for row in r.records[0].rows if row.round == 2] for r in (again, first))
    assert ours == theirs
    assert len(again.diverged) == len(first.diverged) == 1
    assert [cell.status for cell in plan([study()], elsewhere / "cells", Kept(elsewhere / "records")).cells] == [
        Status.FINISHED,
        Status.DIVERGED,
    ]
    assert plan([study()], elsewhere / "cells", Kept(elsewhere / "records")).seconds_left == 0


def test_only_what_is_new_is_trained(elsewhere: Path) -> None:
    rows = {**ROWS, "slower": {"method": "fedavg", "alpha": 0.001}}
    results, _, _ = trained(study(rows), elsewhere)
    assert [path.name for path in elsewhere.glob("cells/*/*")] == ["slower"]
    assert {record.variant for record in results.records} == set(rows)
    more, _, _ = trained(study({"fedavg": {}}, seeds=2), elsewhere)
    assert sorted(record.seed for record in more.records) == [0, 1]
    assert [path.name for path in elsewhere.glob("cells/digits-mclr/fedavg/*")] == ["1"]
    assert sorted(Kept(elsewhere / "records").read("digits-mclr", "fedavg")) == [0, 1]


def test_models_are_not_kept(elsewhere: Path) -> None:
    results, _, _ = trained(study({"fedavg": {}}), elsewhere, models=True)
    assert results.records[0].where == str(elsewhere / "cells" / "digits-mclr" / "fedavg" / "0")


def test_other_settings_are_trained_anew_and_told(elsewhere: Path) -> None:
    _, _, said = trained(study({"fedavg": {"alpha": 0.02}}), elsewhere)
    assert len(said) == 1
    assert "digits-mclr, fedavg, seed 0 is trained anew" in said[0]
    assert "alpha" in said[0]
    assert str(Kept(elsewhere / "records").path("digits-mclr", "fedavg")) in said[0]
    assert "--out" not in said[0]  # there is nothing to be done about it
    assert "--overwrite" not in said[0]
    kept = Kept(elsewhere / "records").read("digits-mclr", "fedavg")[0]
    assert kept.config["run"]["variant"]["settings"]["alpha"] == 0.02


def test_other_versions_are_told_once(elsewhere: Path) -> None:
    kept = Kept(elsewhere / "records")
    old = [
        dataclasses.replace(record, config={**record.config, "environment": {"jax": "0.1"}})
        for row in ROWS
        for record in kept.read("digits-mclr", row).values()
    ]
    kept.keep(old)
    _, begun, said = trained(study(), elsewhere)
    assert begun == ["digits-mclr, lost, seed 0"]  # of which it is told that it diverged
    (told,) = said
    assert told.startswith(f"{kept.folder}: 2 runs of digits-mclr stand in for cells: made with another ")
    assert "another jax: '0.1' then, " in told
    assert "resuming" not in told


def test_the_records_of_a_row_are_read_once(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, files = Kept.read, list[str]()

    def counted(self: Kept, task: str, row: str) -> Any:
        files.append(row)
        return read(self, task, row)

    monkeypatch.setattr(Kept, "read", counted)
    Kept(elsewhere / "records").matching(study(seeds=3).cells(), lambda text: None)
    assert files == [*ROWS]


def test_a_cell_that_is_known_to_have_diverged_is_called_so(elsewhere: Path) -> None:
    told: list[str] = []

    def watch(cell: Cell, progress: fp.study.trial.Progress | None) -> None:
        told.extend([] if progress is not None else [cell.ended])

    train([study()], elsewhere / "cells", watch=watch, warn=told.append, kept=Kept(elsewhere / "records"))
    assert told == ["diverged"]


def test_a_longer_run_stays(elsewhere: Path) -> None:
    trained(study({"fedavg": {}}, rounds=1), elsewhere)
    assert Kept(elsewhere / "records").read("digits-mclr", "fedavg")[0].round == 2


def test_a_damaged_file_is_told(elsewhere: Path) -> None:
    kept = Kept(elsewhere / "records")
    path = kept.path("digits-mclr", "fedavg")
    whole = path.read_bytes()
    for content in (whole[:-20], b"nonsense", lzma.compress(b"{}"), lzma.compress(b"[3]"), lzma.compress(b"[")):
        path.write_bytes(content)
        with pytest.raises(FedpriorError, match=r"fedavg\.json\.xz"):
            kept.read("digits-mclr", "fedavg")

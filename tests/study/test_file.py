"""Studies that are read from files."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedprior as fp
from fedprior.study.file import read_study
from study.example import FILE, SETTINGS, example


def test_a_study_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "rows.toml").write_text(FILE)
    study = read_study(tmp_path / "rows.toml")
    assert [v.plain() for v in study.rows] == [v.plain() for v in example().rows]
    assert (study.seeds, study.settings) == ([0, 1], SETTINGS)
    changed = read_study(tmp_path / "rows.toml", seeds=3, changes={"rounds": 9, "lam": 2})
    assert (changed.seeds, changed.settings) == ([0, 1, 2], {**SETTINGS, "rounds": 9, "lam": 2})


def test_task_files_lie_beside_the_study_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(
        'data = {source = "digits"}\npartition = {kind = "iid", clients = 3}\nmodel = {name = "mclr"}\n'
    )
    (tmp_path / "study.toml").write_text(
        'tasks = ["mine.toml", "digits-mclr"]\nvariants.mh = {lambda = 3}\nlocal = false'
    )
    monkeypatch.chdir("/")
    study = read_study(tmp_path / "study.toml")
    assert [task.name for task in study.tasks] == ["mine", "digits-mclr"]
    assert [variant.settings for variant in study.variants] == [{"lam": 3}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks = []\nvariants.mh = {}", "study 'x': tasks: list should have at least 1 item"),
        ('tasks = ["digits-mclr"]', "study 'x': 'variants' is missing"),
        ('tasks = ["digits-mclr"]\nvariants = {}', "variants: dictionary should have at least 1 item"),
        ('tasks = ["digits-mclr"]\nvariants.mh = 3', r"variants\.mh: input should be a valid dictionary"),
        ('task = ["digits-mclr"]\nvariants.mh = {}', "'task' .*did you mean 'tasks'|'tasks' is missing"),
        ('tasks = ["digits-mclr"]\nvariants.mh = {}\nround = 3', r"unknown key 'round' in study 'x'"),
        ("tasks = [", r"study .*x\.toml is not valid TOML"),
    ],
)
def test_study_files_that_make_no_sense(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(fp.FedpriorError, match=message):
        read_study(tmp_path / "x.toml")
    with pytest.raises(fp.FedpriorError, match=r"cannot read study file .*none\.toml"):
        read_study(tmp_path / "none.toml")

"""A task file that names a file of the user's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from program import contents
from visits import SITES, TASK, written

import fedprior as fp
from fedprior.study.file import read_study
from fedprior.study.settings import read
from fedprior.study.task import open_task


def test_a_table_is_a_task(tmp_path: Path) -> None:
    task = fp.task(str(written(tmp_path)))
    federation = task.federation
    assert (task.name, federation.ids, federation.classes) == ("mine", SITES, ("ill", "well"))
    assert (federation.train.size.tolist(), federation.test.size.tolist()) == ([15] * 3, [5] * 3)
    assert task.settings.partition == {"kind": "natural", "test_fraction": 0.25}
    assert federation.preparation.columns == ("age", "dose")
    train = np.asarray(federation.train.x)
    assert train.mean(0) == pytest.approx([0, 0], abs=1e-5)
    assert train.std(0) == pytest.approx([1, 1], abs=1e-5)
    plain = fp.task(str(written(tmp_path)), **{"data.normalize": "none"})
    assert np.array_equal(federation.preparation(np.asarray(plain.federation.test.x)), federation.test.x)
    assert plain.federation.preparation.stages == ()
    assert plain.federation.fingerprint != federation.fingerprint


def test_another_process_opens_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    content = fp.task("mine.toml").content
    assert content is not None
    assert content["data"]["file"] == str(tmp_path / "data" / "visits.csv")
    here = {"name": "here", **{key: content[key] for key in ("partition", "model")}}
    data = {**content["data"], "file": "data/visits.csv"}  # relative to where the program runs
    (tmp_path / "elsewhere").mkdir()
    inline = fp.task({**here, "data": data})
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert inline.content is not None
    for given in (content, inline.content):
        assert np.array_equal(open_task(read(given)).federation.train.x, inline.federation.train.x)
    study = tmp_path / "study.toml"
    study.write_text('tasks = ["mine.toml"]\n[variants]\nlocal = {}\n')
    assert read_study(study).tasks[0].federation.ids == SITES


def test_a_column_of_the_file_can_be_named_on_the_command_line(tmp_path: Path) -> None:
    """What is assumed where nothing is said gives way to it."""
    named = read(str(written(tmp_path)), {"data.split": "part", "data.ignore": ["patient"]})
    assert named.task.partition == {"kind": "natural"}
    path = tmp_path / "dealt.toml"
    path.write_text(TASK.replace('client = "hospital"\n', ""))
    assert read(str(path), {"data.client": "hospital"}).task.partition == {"kind": "natural", "test_fraction": 0.25}


SPLIT = TASK.replace("ignore", 'split = "part"\nignore')


def test_the_split_column_says_what_is_tested(tmp_path: Path) -> None:
    federation = fp.task(str(written(tmp_path, SPLIT))).federation
    assert federation.test.size.sum() == 15
    task = fp.task(str(written(tmp_path, SPLIT, **{"St. C": "new"})), new_clients=0.4)
    assert task.newcomers is not None
    assert task.newcomers.preparation is task.federation.preparation


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("file =", 'source = "digits"\nfile =', "task 'mine': data.source and data.file both say which data; choose one"),
        ('file = "data/visits.csv"', 'source = "digits"', "data.label, data.client, data.ignore: these name columns"),
        ('file = "data/visits.csv"', "", "task 'mine': 'data.source' is missing; name a source, or a file of your own"),
        ('label = "diagnosis"', "", "task 'mine': 'data.label' is missing; name the column"),
        ('label = "diagnosis"', 'label = "diagnosys"', "unknown column 'diagnosys' of visits.csv (did you mean 'diagnosis'"),
        ('client = "hospital"', 'client = "diagnosis"', "column 'diagnosis' is data.label and data.client; name"),
        ("ignore =", 'features = ["age", "diagnosis"]\nignore =', "column 'diagnosis' is data.label and data.features"),
        ("ignore =", 'features = ["age", "age"]\nignore =', "column 'age' is twice in data.features"),
        ("ignore =", "features = []\nignore =", "task 'mine': data.features: list should have at least 1 item"),
        ("ignore =", "ignored =", "unknown key 'data.ignored' in task 'mine' (did you mean 'data.ignore'?)"),
        ("ignore =", 'normalize = "pixel"\nignore =', "unknown normalization 'pixel' of a file; valid: none, standard"),
        ('client = "hospital"', "", "task 'mine': name the column of clients as data.client, or say how to deal"),
        ("visits.csv", "visit.csv", "visit.csv: No such file or directory"),
        ("data/visits.csv", "data", "data is of no kind that can be read; valid: .csv"),
        ("[model]", '[partition]\nkind = "iid"\nclients = 2\n[model]', None),
        ('client = "hospital"', '[partition]\nkind = "natural"', "needs data.client, the column of clients"),
    ],
)  # fmt: skip
def test_what_contradicts_itself(old: str, new: str, message: str | None, tmp_path: Path) -> None:
    task = TASK.replace(old, new)
    path = written(tmp_path, task if "file =" in task else f'{task}\n[partition]\nkind = "iid"\nclients = 2\n')
    if message is None:
        assert fp.task(str(path)).federation.n_clients == 2
        return
    with pytest.raises(fp.FedpriorError) as error:
        fp.task(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ('kind = "iid"\nclients = 2', 'partition.kind = "iid" ignores data.split; leave one of them out'),
        ("test_fraction = 0.5", "data.split and partition.test_fraction both say what is for testing"),
    ],
)
def test_two_splits(partition: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"{SPLIT}\n[partition]\n{partition}\n")
    with pytest.raises(fp.FedpriorError) as error:
        fp.task(str(path))
    assert message in str(error.value)


def test_a_run_goes_on_wherever_the_file_is(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    out = tmp_path / "runs"
    fp.run(fp.task(path), "local", out=out)
    config = out / "mine" / "local" / "0" / "config.json"
    assert json.loads(config.read_text())["data_file"] == str(tmp_path / "data" / "visits.csv")
    before = contents(out)
    moved = tmp_path / "moved.csv"
    (tmp_path / "data" / "visits.csv").rename(moved)
    fp.run(fp.task(path, **{"data.file": str(moved)}), "local", out=out, resume=True)
    assert contents(out) == before
    options: dict[str, Any] = {"data.file": str(moved)}
    for changes, message in (
        ({"data.normalize": "none"}, "data.normalize: None then, 'none' now"),
        ({"data.features": ["dose", "age"], "data.ignore": []}, "data.features"),
    ):
        with pytest.raises(fp.FedpriorError, match=message):
            fp.run(fp.task(path, **options, **changes), "local", out=out, resume=True)
    moved.write_text(moved.read_text().replace("p7,", "p70,").replace("49.", "48."))
    with pytest.raises(fp.FedpriorError, match=r"other settings .fingerprint: "):
        fp.run(fp.task(path, **options), "local", out=out, resume=True)


def test_arrays_are_scaled_if_that_is_asked_for() -> None:
    rng = np.random.default_rng(0)
    x, y, who = rng.normal(7, 3, (40, 2)), np.arange(40) % 2, np.arange(40) % 4
    model = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    plain = fp.task_from_arrays(x, y, who, model)
    scaled = fp.task_from_arrays(x, y, who, model, normalize="standard")
    assert np.array_equal(
        scaled.federation.preparation(np.asarray(plain.federation.train.x)), scaled.federation.train.x
    )
    assert np.asarray(scaled.federation.train.x).mean() == pytest.approx(0, abs=1e-6)
    assert plain.settings.data.model_dump() == {"source": "arrays", "normalize": None}
    with pytest.raises(fp.FedpriorError, match="unknown normalization 'unit' of arrays; valid: none, standard"):
        fp.task_from_arrays(x, y, who, model, normalize="unit")

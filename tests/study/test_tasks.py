"""The paper's eight tasks end to end on real data: two rounds each, evaluated, recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedprior as fp
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Status
from fedprior.study.settings import read

TASKS = {  # task: clients, training samples where the split is exactly known, parameters
    "mnist-mclr": (100, 44_383, 7_850),
    "mnist-dnn": (100, 44_383, 79_510),
    "fmnist-mclr": (100, None, 7_850),
    "fmnist-dnn": (100, None, 79_510),
    "femnist-mclr": (105, 14_708, 48_670),
    "femnist-dnn": (105, 14_708, 84_762),
    "cifar10-cnn": (20, 40_923, 62_006),
    "sent140-lstm": (10, None, None),
}


QUICK = ("mnist-mclr",)  # the rest with the slow tests


@pytest.mark.data
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TASKS]
)
def test_two_rounds_on_real_data(name: str, real_data: Path, tmp_path: Path) -> None:
    source = read(name).task.data.source
    if not (real_data / source).is_dir():
        pytest.skip(f"{source} is not in the folder named by FEDPRIOR_DATA")
    task = fp.task(name, rounds=2, pooled="never", R=2)
    clients, samples, parameters = TASKS[name]
    assert task.federation.n_clients == clients
    assert samples is None or len(task.federation.train.y) == samples
    (result,) = fp.run(task, "mh", out=tmp_path)
    assert int(result.state.round) == 2
    assert parameters is None or result.state.server.size == parameters
    accuracy = [row.values["accuracy"] for row in result.record.rows if row[1:4] == ("personal", "own", "weighted")]
    assert all(np.isfinite(value) for row in result.record.rows for value in row.values.values())
    assert accuracy[-1] > 100 / task.federation.n_classes / 2  # no worse than half of chance
    assert RunFolder(tmp_path / name / "mh" / "0").status == (Status.FINISHED, 2)

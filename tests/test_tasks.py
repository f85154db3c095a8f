"""The paper's eight tasks end to end on real data: two rounds each, evaluated, recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedprior.experiment import configure, open_task
from fedprior.run import Trial

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
    experiment, methods = configure(name, ["mh"], {"rounds": 2, "pooled": "never", "R": 2})
    if not (real_data / experiment.data.source).is_dir():
        pytest.skip(f"{experiment.data.source} is not in the folder named by FEDPRIOR_DATA")
    task = open_task(experiment)
    clients, samples, parameters = TASKS[name]
    assert task.federation.n_clients == clients
    assert samples is None or len(task.federation.train.y) == samples
    result = Trial(task, methods["mh"], "mh").run(0, tmp_path / "run")
    assert int(result.state.round) == 2
    assert parameters is None or result.state.server.size == parameters
    accuracy = [row[4] for row in result.rows if row[1:4] == ("personal", "own", "weighted")]
    assert all(np.isfinite(accuracy))
    assert accuracy[-1] > 100 / task.federation.n_classes / 2  # no worse than half of chance
    assert result.folder is not None
    assert result.folder.status["status"] == "finished"

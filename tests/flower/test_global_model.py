"""The global model of a deployed run, out of its server's records; and how such a run is said to stand."""

from __future__ import annotations

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("flwr")

from program import fedprior, refused

import fedprior as fp
from fedprior.flower.programs import Programs
from fedprior.records import checkpoint
from fedprior.records.lock import hold
from fedprior.records.schema import Status
from flower.example import Deployment, Stop, killing, samples, simulated


@pytest.mark.slow
def test_the_global_model_is_the_one_that_was_scored(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "fedavg", rounds=2, model="dnn")
    run = deployment.run()
    done = fedprior("export", run.path, "-o", tmp_path / "g.safetensors")
    assert done.code == 0, done.err
    model = fp.load(tmp_path / "g.safetensors")
    parts = [samples(k) for k in range(4)]
    x, y, is_test = (np.concatenate(part) for part in zip(*parts, strict=True))
    right = 100 * np.mean(model.predict(x[is_test]) == y[is_test])
    assert model.about["test_accuracy"] == pytest.approx(right)
    assert model.about["test_samples"] == is_test.sum()
    assert (model.about["of"], model.about["round"], model.client) == ("global", 2, None)
    arrays, _ = deployment.server(run)
    trial, _ = simulated("fedavg", rounds=2, model="dnn")
    state = checkpoint.unpack(arrays, {"state": Programs(trial.program, 4).like["state"]})["state"]
    w = Programs(trial.program, 4).shared(state)
    assert w is not None
    log_p = np.log(model.predict_proba(x[:3]))
    logits = np.asarray(trial.program.task.problem.logits(w, jnp.asarray(x[:3])))
    assert np.allclose(log_p, logits - np.log(np.sum(np.exp(logits), 1, keepdims=True)), atol=1e-5)

    for options in (("--client", "b"), ("--all",)):
        text = refused(
            fedprior("export", run.path, *options, "-o", tmp_path / "other"), "personal models stay on their sites"
        )
        assert "state-dir" in text
    refused(fedprior("export", run.path, "--round", "best-on-validation", "-o", tmp_path / "x"), "newest global model")
    from fedprior.study.export import open_run

    with pytest.raises(fp.FedpriorError, match="holds a deployed run, whose samples are elsewhere; `fedprior export"):
        open_run(run.path)


def test_a_method_without_a_global_model_says_where_models_are(tmp_path: Path) -> None:
    run = Deployment(tmp_path, "local", rounds=1).run()
    refused(fedprior("export", run.path, "-o", tmp_path / "g"), "local has no global model", "state-dir")
    path = run.path / "config.json"
    config = json.loads(path.read_text())
    for deployed in ({"minimum": 1}, {**config["deployed"], "sites": {"shape": [0], "classes": ["ill", "well"]}}):
        path.write_text(json.dumps({**config, "deployed": deployed}))
        refused(fedprior("export", run.path, "-o", tmp_path / "g"), "[sites] of the recorded task: ")


def test_how_a_deployed_run_stands(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "local")
    nodes = deployment.nodes()
    nodes[1].tamper = killing(2)
    with pytest.raises(Stop):
        deployment.run(nodes)
    run = deployment.records
    assert run.status == (Status.RUNNING, 0)
    (about,) = json.loads(fedprior("runs", tmp_path / "runs", "--json").out)
    assert (about["status"], about["round"]) == ("interrupted", 2)
    assert about["note"] == "`fedprior flower resume` goes on with it"
    shown = " ".join(fedprior("flower", "status", run.path).out.split())
    assert "interrupted, round 2 of 3" in shown
    assert "`fedprior flower resume` goes on with it" in shown
    with hold(run.path):
        shown = " ".join(fedprior("flower", "status", run.path).out.split())
    assert "running, round 2 of 3" in shown

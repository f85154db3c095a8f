"""The global model out of a deployed run's records, which its server keeps: what `fedprior export` saves of one."""

from __future__ import annotations

from typing import Any

from fedprior.core.method import single
from fedprior.errors import FedpriorError
from fedprior.flower.kept import newest
from fedprior.flower.ledger import Ledger
from fedprior.flower.options import Options
from fedprior.flower.programs import Programs
from fedprior.flower.spec import Spec, recorded_spec
from fedprior.methods import METHODS
from fedprior.models.saved import Predictor
from fedprior.records import checkpoint
from fedprior.records.runs import RunFolder
from fedprior.study.environment import environment
from fedprior.study.variant import Variant


def deployed(options: Options, spec: Spec) -> dict[str, Any]:
    """What a deployed run records besides what a simulation does: how it is run, and what its sites have in common."""
    return {
        "norm_limit": options.norm_limit,
        "minimum": options.minimum,
        "deadline": options.deadline,
        "sites": spec.sites.model_dump(),
        "own_model": spec.built is None,
    }


def global_predictor(run: RunFolder) -> Predictor:
    """The global model after the round of the newest checkpoint, ready to predict and to be saved."""
    config, arrays = run.config, newest(run)
    recorded, about = config["run"], config["deployed"]
    if arrays is None:
        raise FedpriorError(f"{run.path} has no model yet; its first round is not done")
    if not isinstance(about, dict):
        raise FedpriorError(f"{run.path} is of an older fedprior, which did not record how to build its model again")
    variant = recorded["variant"]
    if about.get("own_model") or variant["method"] not in METHODS:
        what = "a model" if about.get("own_model") else "a method"
        raise FedpriorError(
            f"{run.path} has {what} of your own, which only your program can build; its arrays are in {run.checkpoints[-1]}"
        )
    spec, ledger = recorded_spec(config), Ledger.from_array(arrays.pop("ledger"))
    row = Variant(
        variant["name"], variant["method"], variant["settings"], variant["wrappers"], _changed(variant["protocol"])
    )
    programs = Programs(spec.program(spec.unseen(ledger.names, ledger.sizes, ""), row), len(ledger.names))
    state = checkpoint.unpack(arrays, {"state": programs.like["state"]})["state"]
    if (shared := programs.shared(state)) is None:
        raise FedpriorError(
            f"{variant['name']} has no global model; each site finds its own in the folder that its state-dir names"
        )
    t = int(state.round)
    scored = [row for row in run.rows("metrics.csv") if row[:4] == (t, "global", "own", "weighted")]
    return spec.predictor(
        programs.problem,
        single(shared),
        None,
        {
            "task": recorded["task"]["name"],
            "row": variant["name"],
            "method": variant["method"],
            "seed": recorded["seed"],
            "round": t,
            "chosen": "last",
            "of": "global",
            "model": recorded["task"]["model"]["name"],
            "versions": {name: version for name, version in environment().items() if name != "machine"},
            "test_samples": sum(row.samples for row in run.clients_of([t]) if row[1:3] == ("global", "own")),
            "test_accuracy": scored[0].values["accuracy"] if scored else None,
        },
    )


def _changed(protocol: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in protocol.items() if value is not None}

"""Why does the released lg not reach the paper's number on Fashion-MNIST? Each switch turned by itself.

    python experiments/why_lg.py switches --seeds 3 --out runs/why-lg
    python experiments/why_lg.py draws --seeds 1 --out runs/why-lg

`switches`: rows of one split; `draws`: a few rows on several draws of the split, whose sizes the released generator leaves
to an unseeded generator; `inputs`: other scalings and numbers of classes; `longer`: 800 rounds; `mnist`: the same two step
sizes where the labels are those of the released generator. Resumable. Prints markdown: own test, weighted by samples, last
round and best on test of the evaluated rounds (every fifth); mean ± standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from jax import Array

import fedprior as fp
from fedprior.analysis.series import series_of
from fedprior.core.batch import Data
from fedprior.core.method import Mixture, single
from fedprior.core.problem import Problem
from fedprior.core.vectors import Vector
from fedprior.methods.pfedbred import Client, PFedBreD

Rows = dict[str, dict[str, Any]]


class ScoresLocal(PFedBreD):
    """Trains as pFedBreD does, and takes for a client's personal model its local one, w_iR instead of theta_i."""

    @property
    def _remembers(self) -> bool:
        return True

    def personal_model(self, problem: Problem, client: Client, down: Vector, data: Data, key: Array) -> Mixture:
        """w_iR, which lies in the memory."""
        assert client.memory is not None
        return single(client.memory)


def lg(**changes: Any) -> dict[str, Any]:
    return {"method": "lg-released", **changes}


def both(name: str, **changes: Any) -> Rows:
    """A change with the released step size of 0.05 and with the paper's of 0.01."""
    return {f"{name}, 0.05": lg(**changes), f"{name}, 0.01": lg(eta_alpha=0.01, **changes)}


SWITCHES: Rows = {
    **both("lg", score_fine_tuned=1),
    **{f"lg, {eta}": lg(eta_alpha=eta) for eta in (0.0, 0.001, 0.003, 0.02)},
    **both("start w", start="w"),
    **both("start theta", start="theta"),
    **both("two batches", batches=2),
    **both("w overwritten", overwrite=True),
    **both("gradient through mu", gradient="exact"),
    **both("lam 30", lam=30.0),
    **both("lam 60", lam=60.0),
    "scored w_iR, 0.05": {"method": "lg-scores-local"},
    "scored w_iR, 0.01": {"method": "lg-scores-local", "eta_alpha": 0.01},
    "lg, paper's order": {"method": "lg"},
    "pfedme": {"method": "pfedme-released"},
    "meg": {"method": "meg-released"},
    "mh": {"method": "mh-released"},
    "local": {"method": "local"},
}
FEW: Rows = {
    **{name: SWITCHES[name] for name in ("pfedme", "mh", "local")},
    "lg, 0.05": lg(),
    "lg, 0.01": lg(eta_alpha=0.01),
    "fedavg": {"method": "fedavg"},
}
STUDIES: dict[str, list[tuple[str, Rows, dict[str, Any]]]] = {
    "switches": [("fmnist-mclr", SWITCHES, {})],
    "draws": [("fmnist-mclr", FEW, {"partition.python_seed": k}) for k in range(4)],
    "inputs": [
        *[("fmnist-mclr", FEW, {"data.normalize": how}) for how in ("unit", "half", "pixel")],
        ("fmnist-mclr", FEW, {"partition.labels_per_client": 3}),
    ],
    "longer": [("fmnist-mclr", {name: FEW[name] for name in ("lg, 0.05", "lg, 0.01", "pfedme")}, {"rounds": 800})],
    "mnist": [("mnist-mclr", FEW, {"partition.labels": "released"})],
}


def curves(run: Any, model: str) -> np.ndarray:
    """Accuracy in percent at the evaluated rounds."""
    return np.array(list(series_of(run.record, "accuracy")[model, "own", "weighted"].values()))


def shown(values: list[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread}"


def markdown(results: fp.Results, rows: Rows) -> str:
    lines = ["| row | personal, last | personal, best on test | global, last | seeds |", "|---|---:|---:|---:|---:|"]
    for name in rows:
        runs = [run for run in results.runs if run.name == name]
        if not runs:
            lines.append(f"| {name} | diverged | diverged | - | 0 |")
            continue
        personal = [curves(run, "personal") for run in runs]
        shared = "-" if name == "local" else shown([run.accuracy("global") for run in runs])
        last, best = shown([c[-1] for c in personal]), shown([c.max() for c in personal])
        lines.append(f"| {name} | {last} | {best} | {shared} | {len(runs)} |")
        if rows[name].get("score_fine_tuned"):
            tuned = [curves(run, "fine-tuned") for run in runs]
            last, best = shown([c[-1] for c in tuned]), shown([c.max() for c in tuned])
            lines.append(f"| {name}, and FT | {last} | {best} | - | {len(runs)} |")
    return "\n".join(lines)


def watch(cell: Any, progress: Any) -> None:
    if progress is None or progress.round == progress.rounds:
        print(f"{cell}: {'diverged' if progress is None else f'{progress.accuracy:.2f}'}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/why-lg"))
    options = parser.parse_args()
    fp.register("lg-scores-local", ScoresLocal, mean="lg", order="released")
    for task, rows, changes in STUDIES[options.study]:
        name = " ".join(f"{key}={value}" for key, value in changes.items())
        settings: dict[str, Any] = {"eval_every": 5, "pooled": "never", **changes}
        study = fp.Study(task, rows, seeds=options.seeds, local=False, **settings)
        folder = options.out / options.study / name.replace(".", "-").replace(" ", "-")
        print(f"\n### {task} {name}\n\n{markdown(study.run(folder, resume=True, watch=watch), rows)}", flush=True)


if __name__ == "__main__":
    main()

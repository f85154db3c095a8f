"""Which switch carries mh's gain? Each switch of the released mh turned by itself, against pFedMe.

    python experiments/why_mh.py --tasks mnist-mclr fmnist-mclr digits-dnn --seeds 5 --out runs/why-mh

Resumable: finished runs are reused, a stopped one goes on. Prints one markdown table per task: personal and global models,
own test, weighted, last round; mean ± standard deviation over seeds, and the paired difference of the personal models from
the released mh's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedprior.experiment import configure, method_for, open_task
from fedprior.run import Trial

VARIANTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "local": ("local", {}, "no federation"),
    "pfedme": ("pfedme-released", {}, "identity mean: no loss step, no memory"),
    "pfedme-doubled": ("pfedme-released", {"R": 40}, "twice the local iterations"),
    "meg": ("meg-released", {}, "memory only"),
    "mh": ("mh-released", {}, "the released mh: loss step on w, after an inner step, own batch; memory"),
    "mh-no-memory": ("mh-released", {"eta": 0.0}, "eta = 0: no memory"),
    "mh-no-overwrite": ("mh-released", {"overwrite": False}, "the loss step moves mu only, not w"),
    "mh-no-inner": ("mh-released", {"inner": False}, "plain gradient instead of the one after an inner step"),
    "mh-one-batch": ("mh-released", {"batches": 1}, "one batch for everything"),
    "mh-start-theta": ("mh-released", {"start": "theta"}, "the proximal loop starts at the last theta"),
    "mh-start-mu": ("mh-released", {"start": "mu"}, "the proximal loop starts at mu"),
    "mh-paper": ("mh", {}, "the paper's equations: moves mu only, starts at theta, one batch, plain gradient"),
    "mh-paper-no-memory": ("mh", {"eta": 0.0}, "the paper's equations without the memory"),
}


def run_task(name: str, seeds: int, rounds: int | None, out: Path) -> None:
    experiment, _ = configure(name, [], {"pooled": "never", "eval_every": 10, **({"rounds": rounds} if rounds else {})})
    task = open_task(experiment)
    found: dict[str, dict[str, list[float]]] = {}
    for variant, (method, settings, _) in VARIANTS.items():
        trial = Trial(task, method_for(experiment, method, settings), variant)
        found[variant] = {"personal": [], "global": []}
        for seed in range(seeds):
            result = trial.run(seed, out / name / variant / str(seed), resume=True)
            found[variant]["personal"].append(result.accuracy("personal"))
            if variant != "local":
                found[variant]["global"].append(result.accuracy("global"))
            print(f"{name} {variant} seed {seed}: {found[variant]['personal'][-1]:.2f}", file=sys.stderr, flush=True)
    print(f"\n### {name}: {experiment.rounds} rounds, {seeds} seeds\n")
    print("| variant | what differs | personal | global | personal, minus mh |\n|---|---|---:|---:|---:|")
    reference = np.array(found["mh"]["personal"])
    for variant, (_, _, what) in VARIANTS.items():
        personal, shared = np.array(found[variant]["personal"]), found[variant]["global"]
        gap = personal - reference
        cells = (
            _cell(personal),
            _cell(np.array(shared)) if shared else "-",
            "0" if variant == "mh" else _cell(gap, "+"),
        )
        print(f"| {variant} | {what} | {' | '.join(cells)} |", flush=True)


def _cell(values: np.ndarray, sign: str = "") -> str:
    spread = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    return f"{values.mean():{sign}.2f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["mnist-mclr", "fmnist-mclr", "digits-dnn"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=None, help="default: the task's")
    parser.add_argument("--out", type=Path, default=Path("runs/why-mh"))
    options = parser.parse_args()
    for task in options.tasks:
        run_task(task, options.seeds, options.rounds, options.out)


if __name__ == "__main__":
    main()

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

import fedprior as fp

# A row's name -> what it changes, and what differs in words.
VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "local": ({}, "no federation"),
    "pfedme": ({"method": "pfedme-released"}, "identity mean: no loss step, no memory"),
    "pfedme-doubled": ({"method": "pfedme-released", "R": 40}, "twice the local iterations"),
    "meg": ({"method": "meg-released"}, "memory only"),
    "mh": ({"method": "mh-released"}, "the released mh: loss step on w, after an inner step, own batch; memory"),
    "mh-no-memory": ({"method": "mh-released", "eta": 0.0}, "eta = 0: no memory"),
    "mh-no-overwrite": ({"method": "mh-released", "overwrite": False}, "the loss step moves mu only, not w"),
    "mh-no-inner": (
        {"method": "mh-released", "inner": False},
        "plain gradient instead of the one after an inner step",
    ),
    "mh-one-batch": ({"method": "mh-released", "batches": 1}, "one batch for everything"),
    "mh-start-theta": ({"method": "mh-released", "start": "theta"}, "the proximal loop starts at the last theta"),
    "mh-start-mu": ({"method": "mh-released", "start": "mu"}, "the proximal loop starts at mu"),
    "mh-paper": (
        {"method": "mh"},
        "the paper's equations: moves mu only, starts at theta, one batch, plain gradient",
    ),
    "mh-paper-no-memory": ({"method": "mh", "eta": 0.0}, "the paper's equations without the memory"),
}


def run(task: str, seeds: int, rounds: int | None, out: Path) -> fp.Results:
    settings: dict[str, Any] = {"pooled": "never", "eval_every": 10} | ({"rounds": rounds} if rounds else {})
    study = fp.Study(task, {name: changes for name, (changes, _) in VARIANTS.items()}, seeds=seeds, **settings)

    def watch(cell: Any, progress: Any) -> None:
        if progress is not None and progress.round == progress.rounds:
            print(f"{cell}: {progress.accuracy:.2f}", file=sys.stderr, flush=True)

    results = study.run(out, resume=True, watch=watch)
    if results.diverged:
        raise SystemExit("\n".join(results.diverged))
    return results


def markdown(task: str, results: fp.Results) -> str:
    rounds, seeds = results["mh"][0].record.round, len(results["mh"])
    lines = [
        f"### {task}: {rounds} rounds, {seeds} seeds\n",
        "| variant | what differs | personal | global | personal, minus mh |",
        "|---|---|---:|---:|---:|",
    ]
    reference = np.array([run.accuracy() for run in results["mh"]])
    for variant, (_, what) in VARIANTS.items():
        personal = np.array([run.accuracy() for run in results[variant]])
        shared = "-" if variant == "local" else _cell(np.array([run.accuracy("global") for run in results[variant]]))
        gap = "0" if variant == "mh" else _cell(personal - reference, "+")
        lines.append(f"| {variant} | {what} | {_cell(personal)} | {shared} | {gap} |")
    return "\n".join(lines)


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
        print(f"\n{markdown(task, run(task, options.seeds, options.rounds, options.out))}", flush=True)


if __name__ == "__main__":
    main()

"""All methods on a task: sweep what no paper tells, train with what validation chose, print the page for docs/results.

    python experiments/tables.py mnist-mclr --seeds 3 --out runs/tables > mnist-mclr-all.md

Every step is a command of the program, printed with the results. Resumable: finished cells and runs are reused.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from fedprior.methods import METHODS, make
from fedprior.sweep import written

# Settings that neither PRIOR nor its released code tells (or, for FedProx, Reptile and FedU, that PRIOR does not use).
TUNED = (
    "fedprox",
    "reptile",
    "ditto",
    "fedamp",
    "heurfedamp",
    "fedfomo",
    "fedem",
    "pfedbayes",
    "fedpac",
    "pfedhn",
    "fedu",
)


def fedprior(*words: str) -> str:
    """Run a command of the program, its progress shown, and return what it printed."""
    print("$ fedprior", shlex.join(words), file=sys.stderr, flush=True)
    program = [sys.executable, "-c", "from fedprior.cli import main; main()", *words]
    return subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout


def sweep(task: str, names: list[str], rounds: int, slow_rounds: int, out: Path) -> dict[str, dict[str, Any]]:
    """Method -> its cells and the chosen setting; pFedBayes, far slower than the others, with fewer rounds."""
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        length = slow_rounds if name == "pfedbayes" else rounds
        words = ("sweep", task, "-m", name, "--rounds", str(length), "--out", str(out / "sweeps"), "--json")
        found |= json.loads(fedprior(*words))["methods"]
    return found


def train(task: str, name: str, setting: dict[str, Any], seeds: int, out: Path) -> str:
    """The command that trains a method with its setting, having run it."""
    chosen = [word for key, value in setting.items() for word in ("--set", f"{key}={written(value)}")]
    words = ["run", task, "-m", name, "--no-local", "--seeds", str(seeds), "--set", "eval_every=10", *chosen]
    fedprior(*words, "--out", str(out / "runs"), "--resume")
    return shlex.join(["fedprior", *words])


def settings_and_costs(task: str, names: list[str], swept: dict[str, dict[str, Any]], out: Path) -> list[str]:
    lines = [
        "| method | chosen on validation (of) | gradients | Hessian products | forward passes | down | up | kept |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in names:
        cost = json.loads((out / "runs" / task / name / "0" / "config.json").read_text())["cost"]
        chosen = swept[name]["chosen"] if name in swept else {}
        tried = {key: ", ".join(f"{value:g}" for value in make(name).ranges[key]) for key in chosen}
        text = "; ".join(f"{key} = {written(value)} ({tried[key]})" for key, value in chosen.items()) or "-"
        numbers = [f"{cost[key]:.4g}" for key in ("gradients", "hvps", "forward", "down", "up", "state")]
        lines.append(f"| {name} | {text} | {' | '.join(numbers)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sweep-rounds", type=int, default=100)
    parser.add_argument("--slow-sweep-rounds", type=int, default=50, help="of pFedBayes")
    parser.add_argument("--leave-out", nargs="*", default=["pfedbred"], choices=METHODS, help="methods not to run")
    parser.add_argument("--out", type=Path, default=Path("runs/tables"))
    options = parser.parse_args()
    names = [name for name in METHODS if name not in options.leave_out]
    tuned = [name for name in TUNED if name in names]
    swept = sweep(options.task, tuned, options.sweep_rounds, options.slow_sweep_rounds, options.out)
    commands = [train(options.task, n, swept.get(n, {}).get("chosen") or {}, options.seeds, options.out) for n in names]
    print(fedprior("table", str(options.out / "runs" / options.task), "--format", "markdown"))
    print("\n".join(settings_and_costs(options.task, names, swept, options.out)))
    print("\n```sh", *commands, "```", sep="\n")


if __name__ == "__main__":
    main()

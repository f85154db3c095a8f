"""All methods on a task: sweep what no paper tells, train with what validation chose, print the page for docs/results.

    python experiments/tables.py mnist-mclr --seeds 3 --out runs/tables > mnist-mclr-all.md

The page ends with the commands that give the same numbers. Resumable: finished cells and runs are reused.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

import fedprior as fp
from fedprior.analysis.choice import choose
from fedprior.core.hyper import hypers
from fedprior.methods import METHODS
from fedprior.report.tables import render
from fedprior.study.settings import format_value
from fedprior.study.sweep import open_sweep

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
Settings = dict[str, Any]


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def sweep(task: str, name: str, rounds: int, out: Path) -> Settings:
    """What validation chooses among the values that a method declares; nothing if all of them diverge."""
    tell(f"sweeping {name}")
    cells = open_sweep(task, [name], [], 1, {"rounds": rounds})
    cells.try_all(out / "sweeps", warn=tell)
    best = choose(cells.outcomes(name))
    return {} if best is None else best.setting


def train(task: str, chosen: dict[str, Settings], seeds: int, rounds: int | None, out: Path) -> fp.Results:
    """Every method with its setting, on all training samples."""
    rows = {name: {"method": name, **setting} for name, setting in chosen.items()}
    length: Settings = {} if rounds is None else {"rounds": rounds}
    study = fp.Study(task, rows, seeds=seeds, local=False, eval_every=10, **length)

    def watch(cell: Any, progress: Any) -> None:
        if progress is None or progress.round == progress.rounds:
            tell(f"{cell}: {'diverged' if progress is None else f'{progress.accuracy:.2f}'}")

    return study.run(out / "runs", resume=True, watch=watch, warn=tell)


def settings_and_costs(chosen: dict[str, Settings], results: fp.Results) -> list[str]:
    lines = [
        "| method | chosen on validation (of) | gradients | Hessian products | forward passes | down | up | kept |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    costs = {record.variant: record.config["cost"] for record in results.records}
    for name, cost in costs.items():
        about = hypers(METHODS.find(name).cls)
        tried = {key: ", ".join(f"{value:g}" for value in about[key].sweep) for key in chosen[name]}
        text = "; ".join(f"{key} = {format_value(value)} ({tried[key]})" for key, value in chosen[name].items()) or "-"
        numbers = [f"{cost[key]:.4g}" for key in ("gradients", "hvps", "forward", "down", "up", "state")]
        lines.append(f"| {name} | {text} | {' | '.join(numbers)} |")
    return lines


def command(task: str, name: str, setting: Settings, seeds: int, rounds: int | None) -> str:
    """The command that gives the same numbers as one row."""
    words = ["fedprior", "run", task, "-m", name, "--no-local", "--seeds", str(seeds)]
    words += [] if rounds is None else ["--rounds", str(rounds)]
    words += ["--set", "eval_every=10"]
    return shlex.join(
        [*words, *(w for key, value in setting.items() for w in ("--set", f"{key}={format_value(value)}"))]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=None, help="default: the task's")
    parser.add_argument("--sweep-rounds", type=int, default=100)
    parser.add_argument("--slow-sweep-rounds", type=int, default=50, help="of pFedBayes, far slower than the others")
    parser.add_argument("--leave-out", nargs="*", default=["pfedbred"], choices=METHODS, help="methods not to run")
    parser.add_argument("--out", type=Path, default=Path("runs/tables"))
    options = parser.parse_args()
    chosen: dict[str, Settings] = {}
    for name in (name for name in METHODS if name not in options.leave_out):
        length = options.slow_sweep_rounds if name == "pfedbayes" else options.sweep_rounds
        chosen[name] = sweep(options.task, name, length, options.out) if name in TUNED else {}
    results = train(options.task, chosen, options.seeds, options.rounds, options.out)
    print(render(results.table(), "markdown"), end="\n\n")
    print("\n".join(settings_and_costs(chosen, results)))
    commands = [command(options.task, name, own, options.seeds, options.rounds) for name, own in chosen.items()]
    print("\n```sh", *commands, "```", sep="\n")


if __name__ == "__main__":
    main()

"""All methods on a task, by two protocols that are never mixed, as the page for docs/results.

    python experiments/tables.py mnist-mclr --seeds 3 --out runs/tables > mnist-mclr-all.md

1. published: every method at the paper's or its own published settings;
2. tuned: every method with the best of 3 x 3 settings on validation samples (step size and one more, or nine step sizes
   where there is no other), the window moved on until the best is not at its end.

The page ends with the commands that give the same numbers. Resumable: finished cells and runs are reused.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fedprior as fp
from fedprior.analysis.choice import Candidate
from fedprior.errors import FedpriorError
from fedprior.report.comparison import comparison_tables
from fedprior.report.tables import render
from fedprior.reproduce.paper.tuning import AXES, PULLED, Axis
from fedprior.study.assignment import format_value
from fedprior.study.sweep import open_sweep

Settings = dict[str, Any]


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Tuning:
    """What was tried of a method, and what came of it."""

    tried: dict[tuple[Any, ...], float | None] = field(default_factory=dict)  # None: diverged
    chosen: tuple[Any, ...] | None = None
    at_end: list[str] = field(default_factory=list)  # keys whose best value is the last that is possible

    def settings(self, axes: Sequence[Axis]) -> Settings:
        values = self.chosen or ()
        return {key: value for axis, value in zip(axes, values, strict=bool(values)) for key in axis.keys}


def validation(candidate: Candidate) -> float | None:
    number = candidate.score()
    return None if number is None else number["mean"]


def tune(task: str, name: str, rounds: int, seeds: int, out: Path) -> Tuning:
    """The best setting on validation samples; the window moves on while the best is at its end."""
    axes, tuning = AXES[name], Tuning()
    shifts = [0] * len(axes)
    while True:
        windows = [axis.window(shift) for axis, shift in zip(axes, shifts, strict=True)]
        new = [cell for cell in itertools.product(*windows) if cell not in tuning.tried]
        for fixed in dict.fromkeys(cell[:-1] for cell in new):
            values = [cell[-1] for cell in new if cell[:-1] == fixed]
            tuning.tried |= {
                (*fixed, value): score for value, score in _cells(task, name, axes, fixed, values, rounds, seeds, out)
            }
        scored = {cell: score for cell, score in tuning.tried.items() if score is not None}
        if not scored:
            tell(f"{name}: every setting diverged")
            return tuning
        tuning.chosen = max(scored, key=lambda cell: scored[cell])
        moved = [
            _towards(axis, window, value) for axis, window, value in zip(axes, windows, tuning.chosen, strict=True)
        ]
        before = list(shifts)
        for k, (axis, way) in enumerate(zip(axes, moved, strict=True)):
            wider = axis.window(shifts[k] + way)
            if way and len(wider) == axis.width and wider != windows[k] and _possible(task, name, axis, wider):
                shifts[k] += way
        if shifts == before:
            tuning.at_end = [axis.keys[0] for axis, way in zip(axes, moved, strict=True) if way]
            tell(f"{name}: {tuning.settings(axes)} of {len(tuning.tried)}, validation {scored[tuning.chosen]:.2f}")
            return tuning


def _towards(axis: Axis, window: Sequence[Any], value: Any) -> int:
    return -1 if value <= window[0] else 1 if value >= window[-1] else 0


def _possible(task: str, name: str, axis: Axis, values: Sequence[Any]) -> bool:
    """Whether all values are valid for the method on this task."""
    try:
        open_sweep(task, [name], [f"{axis.keys[0]}={','.join(map(format_value, values))}"], 1, {"rounds": 1}).programs  # noqa: B018
    except FedpriorError:
        return False
    return True


def _cells(
    task: str,
    name: str,
    axes: Sequence[Axis],
    fixed: tuple[Any, ...],
    values: list[Any],
    rounds: int,
    seeds: int,
    out: Path,
) -> list[tuple[Any, float | None]]:
    """What validation says of each value of the last axis, the others being fixed."""
    settings: Settings = {key: value for axis, value in zip(axes, fixed, strict=False) for key in axis.keys}
    (last,) = axes[-1].keys
    tell(f"{name} {settings or ''} {last} = {', '.join(map(format_value, values))}")
    sweep = open_sweep(
        task, [name], [f"{last}={','.join(map(format_value, values))}"], seeds, {"rounds": rounds, **settings}
    )
    sweep.try_all(out / "sweeps", warn=tell)
    return [(candidate.setting[last], validation(candidate)) for candidate in sweep.outcomes(name)]


def train(task: str, chosen: Mapping[str, Settings], seeds: int, out: Path) -> fp.Results:
    """Every method with its setting, on all training samples, for the task's own number of rounds."""
    rows = {name: {"method": name, **setting} for name, setting in chosen.items()}
    study = fp.Study(task, rows, seeds=seeds, local=False, eval_every=10)

    def watch(cell: Any, progress: Any) -> None:
        if progress is None or progress.round == progress.rounds:
            tell(f"{cell}: {'diverged' if progress is None else f'{progress.accuracy:.2f}'}")

    results = study.run(out, resume=True, watch=watch, warn=tell)
    for text in results.diverged:
        tell(text)
    return results


def tables(results: fp.Results) -> str:
    """The table of a protocol, each row's paired difference from Local, and how evenly it serves clients."""
    return render([results.table(), *comparison_tables(results.compare())], "markdown")


def settings_table(tunings: Mapping[str, Tuning]) -> list[str]:
    lines = [
        "| method | chosen on validation | settings tried | diverged | at an end that cannot be moved |",
        "|---|---|---:|---:|---|",
    ]
    for name, tuning in tunings.items():
        text = ", ".join(f"{key} = {format_value(value)}" for key, value in tuning.settings(AXES[name]).items())
        diverged = sum(score is None for score in tuning.tried.values())
        lines.append(f"| {name} | {text} | {len(tuning.tried)} | {diverged} | {', '.join(tuning.at_end) or '-'} |")
    return lines


def command(task: str, name: str, setting: Settings, seeds: int) -> str:
    """The command that gives the same numbers as one row."""
    row = f"{name}:{','.join(f'{key}={format_value(value)}' for key, value in setting.items())}" if setting else name
    return shlex.join(
        ["fedprior", "run", task, "-m", row, "--no-local", "--seeds", str(seeds), "--set", "eval_every=10"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--methods", nargs="*", default=list(AXES), choices=AXES)
    parser.add_argument("--seeds", type=int, default=3, help="of the final runs")
    parser.add_argument("--trial-seeds", type=int, default=3, help="of each setting that is tried")
    parser.add_argument("--trial-rounds", type=int, default=100)
    parser.add_argument("--slow-trial-rounds", type=int, default=50, help="of pFedBayes, far slower than the others")
    parser.add_argument("--proximal-trial-rounds", type=int, help="of pFedMe and pFedBreD; without it as of the others")
    parser.add_argument("--only", choices=("published", "tuned"), default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/tables"))
    options = parser.parse_args()
    task, pages = options.task, list[str]()
    study = fp.Study(task, options.methods, local=False, optional=options.methods)
    allowed = [program.variant.name for program in study.programs]  # FedPAC, say, needs hidden layers
    for (_, row), why in study.left_out.items():
        tell(f"{row}: {why}")
    if options.only != "tuned":
        published = train(task, {name: {} for name in allowed}, options.seeds, options.out / "published")
        pages += ["## Everyone at published settings\n", tables(published)]
    if options.only != "published":
        tunings = {}
        for name in allowed:
            slow = {"pfedbayes": options.slow_trial_rounds}
            if options.proximal_trial_rounds is not None:
                slow |= {name: options.proximal_trial_rounds for name, axes in AXES.items() if axes is PULLED}
            rounds = slow.get(name, options.trial_rounds)
            tunings[name] = tune(task, name, rounds, options.trial_seeds, options.out)
        chosen = {name: tuning.settings(AXES[name]) for name, tuning in tunings.items() if tuning.chosen}
        tuned = train(task, chosen, options.seeds, options.out / "tuned")
        pages += ["\n## Everyone tuned\n", tables(tuned), "", *settings_table(tunings)]
        pages += ["\n```sh", *(command(task, name, own, options.seeds) for name, own in chosen.items()), "```"]
    print("\n".join(pages))


if __name__ == "__main__":
    main()

"""What the reproduced runs say of the paper's claims: every row of a task against Local and against pFedMe, seed by seed.

    python experiments/verdict.py reproduction/records --tasks mnist-mclr-released fmnist-mclr
    python experiments/verdict.py reproduction/records --against mh-released

Reads the digests that `fedprior reproduce` keeps in OUT/records and prints markdown: own test samples, weighted by samples.
`last` is the last round, `flattery` by how much the best round on test exceeds it, and the columns that name a row are
differences at the last round: their mean over the seeds that both have and Student's 95 % interval. `equal gradients`: the
accuracy when the federation has taken as many gradients as the cheapest row takes in its whole run. `diverged` counts seeds,
which are in no mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedprior.analysis.compare import Interval
from fedprior.analysis.series import series_of
from fedprior.analysis.summary import over_seeds
from fedprior.records.schema import RunRecord, Status
from fedprior.reproduce.paper.kept import ENDING, Kept
from fedprior.reproduce.paper.writing import shown_number

MODELS = {"personal": "P", "global": "G", "fine-tuned": "FT"}
Curve = dict[int, float]


class Scored(NamedTuple):
    """One model of a row: its curve for each seed, and what a round costs the federation in gradients.

    A row of which every seed diverged stands once, without a model and without curves.
    """

    row: str
    model: str
    curves: Mapping[int, Curve]
    gradients: float
    diverged: int = 0  # seeds

    @property
    def name(self) -> str:
        """As the table calls it."""
        return f"{self.row}, {MODELS[self.model]}" if self.curves else self.row

    @property
    def last(self) -> dict[int, float]:
        """The accuracy at the last round, by seed."""
        return {seed: curve[max(curve)] for seed, curve in self.curves.items()}

    @property
    def flattery(self) -> dict[int, float]:
        """By how much the best round on test exceeds the last, by seed."""
        return {seed: max(curve.values()) - curve[max(curve)] for seed, curve in self.curves.items()}

    @property
    def spent(self) -> float:
        """Gradients of the federation in the whole run."""
        return self.gradients * min(max(curve) for curve in self.curves.values())

    def after(self, gradients: float) -> dict[int, float]:
        """The accuracy when so many gradients were taken, by seed; a row whose first round takes more has none."""
        at = int(gradients // self.gradients)
        return {seed: curve[at] for seed, curve in self.curves.items() if at in curve}

    def minus(self, other: Scored) -> str:
        """The difference at the last round."""
        ours, theirs = self.last, other.last
        interval = Interval.of(ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys()))
        if interval.low is None or interval.high is None:
            return f"{interval.mean:+.2f}"
        return f"{interval.mean:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}]"


def scored(row: str, seeds: Mapping[int, RunRecord]) -> list[Scored]:
    """The models of a row that were scored on own test samples."""
    diverged = sum(record.status is Status.DIVERGED for record in seeds.values())
    done = {seed: record for seed, record in seeds.items() if record.status is Status.FINISHED}
    if not done:
        return [Scored(row, "", {}, 0.0, diverged)] if diverged else []
    cost = next(iter(done.values())).config["cost"]
    each = float(cost["gradients"] or 0) * cost["trained_clients_per_round"]
    series = {seed: series_of(record) for seed, record in done.items()}
    found = []
    for model in MODELS:
        curves = {seed: of[key] for seed, of in series.items() if (key := (model, "own", "weighted")) in of}
        if curves:
            found.append(Scored(row, model, curves, each, diverged))
    twice = {one.model: one for one in found}
    if "global" in twice and "personal" in twice and twice["global"].curves == twice["personal"].curves:
        found.remove(twice["personal"])  # a method whose personal models are the global one
    return found


def read(folder: Path, task: str) -> list[Scored]:
    """All rows of a task."""
    rows = sorted(path.name.removesuffix(ENDING) for path in (folder / task).glob(f"*{ENDING}"))
    return [one for row in rows for one in scored(row, Kept(folder).read(task, row))]


def table(rows: list[Scored], against: list[str]) -> str:
    """The rows as markdown, the best first."""
    references = [one for name in against for one in rows if (one.row, one.model) == (name, "personal")]
    least = min((one.spent for one in rows if one.gradients), default=0.0)
    heads = [
        "row",
        "seeds",
        "diverged",
        "last",
        "flattery",
        *(f"minus {one.row}" for one in references),
        "equal gradients",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for one in sorted(rows, key=lambda one: -float(np.mean([*one.last.values()])) if one.curves else np.inf):
        if not one.curves:
            lines.append("| " + " | ".join([one.name, "0", str(one.diverged), *["-"] * (len(heads) - 3)]) + " |")
            continue
        after = one.after(least) if one.gradients else {}
        cells = [one.name, str(len(one.curves)), str(one.diverged), shown_number(over_seeds(one.last))]
        cells += [f"{np.mean([*one.flattery.values()]):.2f}", *(one.minus(other) for other in references)]
        cells.append(shown_number(over_seeds(after) if after else None))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + f"\n\nequal gradients: after {least:,.0f} of the federation"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, help="the folder `records` of an output folder of `fedprior reproduce`")
    parser.add_argument("--tasks", nargs="+", help="default: all that are there")
    parser.add_argument("--against", nargs="+", default=["local", "pfedme-released"], help="the rows to compare with")
    options = parser.parse_args()
    tasks = options.tasks or sorted(path.name for path in options.records.iterdir() if path.is_dir())
    for task in tasks:
        if rows := read(options.records, task):
            print(f"## {task}\n\n{table(rows, options.against)}\n")


if __name__ == "__main__":
    main()

"""Which part of a run is spent on evaluation and on records, at each task's own `eval_every` or another.

    python benchmarks/evaluation.py                       # the tasks whose data is at hand; JSON on stdout
    python benchmarks/evaluation.py --tasks mnist-mclr    # one of them
    python benchmarks/evaluation.py --every 1             # as `fedprior reproduce` evaluates, which is after each round

`evaluation` is the time of evaluations over that of training, evaluation and records together, and `records` that of
records, from some rounds of a real run after the first evaluation, which compiles. `pooled_in_rounds` is what the last
round's evaluation of every personal model on everyone's test samples takes, in rounds of training; a run has it once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fedprior as fp
from fedprior.errors import FedpriorError
from fedprior.study.recorder import run_trial
from fedprior.study.trial import Trial

TASKS = (
    *("digits-mclr", "digits-dnn", "mnist-mclr", "mnist-dnn", "fmnist-mclr", "fmnist-dnn"),
    *("femnist-mclr", "femnist-dnn", "cifar10-cnn", "sent140-lstm"),
)


def shares(task: fp.Task, method: str, evaluations: int, every: int | None = None) -> dict[str, Any]:
    """The parts of a run's time, of which the rounds up to the first evaluation are left out."""
    every = every or task.protocol.eval_every
    rounds = (evaluations + 1) * every
    study = fp.Study(task, [method], local=False, rounds=rounds, eval_every=every, pooled="never")
    (program,) = study.programs
    moments: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        run = run_trial(
            Trial(program, 0), Path(folder) / "run", watch=lambda progress: moments.append(time.perf_counter())
        )
        times = [one for one in run.record.times if one.round > every]
    whole = moments[-1] - moments[every]  # the first moment is that of round 0
    training, evaluation = sum(one.train_seconds for one in times), sum(one.evaluation_seconds for one in times)
    state = run.state
    seconds = []
    for _ in range(2):  # the first one compiles
        begun = time.perf_counter()
        program.evaluator.pooled(state)
        seconds.append(time.perf_counter() - begun)
    return {
        "evaluation": round(evaluation / whole, 3),
        "records": round(1 - (training + evaluation) / whole, 3),
        "pooled_in_rounds": round(seconds[-1] / statistics.median(one.train_seconds for one in times), 1),
        "eval_every": every,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--methods", nargs="+", default=["fedavg", "mh-released"])
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--every", type=int, help="rounds between evaluations; without it, each task's own")
    options = parser.parse_args()
    results = {}
    for name in options.tasks:
        try:
            task = fp.task(name)
        except FedpriorError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        results[name] = {method: shares(task, method, options.evaluations, options.every) for method in options.methods}
        print(name, json.dumps(results[name]), file=sys.stderr, flush=True)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

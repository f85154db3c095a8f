"""What each method costs beyond its gradients: time per gradient evaluation relative to FedAvg, in the same run.

    python benchmarks/methods.py                       # all methods, DNN, 100 clients; one JSON object on stdout
    python benchmarks/methods.py --methods fedamp fedem --repeats 9
    python benchmarks/methods.py --memory              # FedAMP's peak memory with 1,000 clients
    python benchmarks/methods.py --parts               # what a step of pFedBayes consists of, relative to its gradient

`ratio` is the time of a round per gradient evaluation of a training client over FedAvg's, both with every client training
(or every client sampled), each the median of rounds timed in turn with FedAvg's. Gradients are counted by running.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from fedprior import models
from fedprior.core.batch import Batch
from fedprior.core.compiling import Compiler
from fedprior.core.random import noise
from fedprior.data.federation import Federation, Samples
from fedprior.engine.cost import measure
from fedprior.engine.engine import Engine
from fedprior.engine.round import State
from fedprior.methods import METHODS, make
from fedprior.methods.pfedbayes import deviation
from fedprior.models.classifier import Classifier


def federation(clients: int, samples: int = 440) -> Federation:
    """Random samples of MNIST's shape; the paper's clients have 444 on average."""
    rng = np.random.default_rng(0)
    size = rng.integers(samples // 4, 2 * samples - samples // 4, clients).astype(np.int32)
    n = int(size.sum())
    x, y = rng.normal(size=(n, 784)).astype(np.float32), rng.integers(0, 10, n).astype(np.int32)
    held = Samples(x, y, (np.cumsum(size) - size).astype(np.int32), size)
    return Federation(held, held, None, 10, "benchmark")


def engine(name: str, data: Federation, aggregated: int | None = None) -> Engine:
    problem = Classifier(lambda key: models.build("dnn", {}, (784,), 10, None, key), 10)
    # Without `aggregated`, every client trains, in either mode.
    return Engine(problem, make(name).algorithm(), data, aggregated=aggregated)


def rounds(e: Engine, state: State, count: int = 1) -> tuple[State, float]:
    start = time.perf_counter()
    for _ in range(count):
        state, _ = e.step(state)
    jax.block_until_ready(state)
    return state, (time.perf_counter() - start) / count


def compare(names: list[str], clients: int, repeats: int) -> dict[str, Any]:
    data = federation(clients)
    base = engine("fedavg", data)
    base_state, _ = rounds(base, base.init(0))
    gradients = {name: measure(make(name), base.problem, data).gradients for name in ["fedavg", *names]}
    ratios = {}
    for name in names:
        e = engine(name, data)
        state, _ = rounds(e, e.init(0))
        times: dict[str, list[float]] = {"fedavg": [], name: []}
        for _ in range(repeats):
            base_state, seconds = rounds(base, base_state, 3)
            times["fedavg"].append(seconds / gradients["fedavg"])
            state, seconds = rounds(e, state)
            times[name].append(seconds / gradients[name])
        ratio = statistics.median(times[name]) / statistics.median(times["fedavg"])
        ratios[name] = {"gradients": gradients[name], "ratio": round(ratio, 2)}
        print(name, json.dumps(ratios[name]), file=sys.stderr, flush=True)
        del e, state
    return ratios


def memory(name: str, clients: int) -> dict[str, Any]:
    """Peak memory of a few rounds beyond the data, in units of the clients' stacked models; S = N / 5 as in the paper."""
    few = engine(name, federation(10, 40), 2)
    rounds(few, few.init(0), 3)  # what compiling takes is no matter of the clients
    data = federation(clients, 40)
    e = engine(name, data, clients // 5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rounds(e, e.init(0), 3)
    stacked = 4 * clients * e.problem.init(jax.random.key(0)).size
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "clients": clients,
        "stacked_mb": round(stacked / 1e6),
        "peak_over_stacked": round((peak - before) / stacked, 2),
    }


def seconds_of(step: Callable[[Array, Any], Any], start: Any, turns: int = 200) -> float:
    """Of one turn of a compiled loop on one device: the least of several measurements."""
    loop = Compiler()(lambda start: lax.fori_loop(0, turns, step, start))
    jax.block_until_ready(loop(start))
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        jax.block_until_ready(loop(start))
        times.append(time.perf_counter() - begun)
    return min(times) / turns


def parts(batch_size: int = 20) -> dict[str, Any]:
    """The parts of one step of pFedBayes on the DNN, one core, relative to its gradient; and what memory alone would take.

    Its state is read and written in each step: m and rho, and two numbers of Adam's for each of them.
    """
    problem = Classifier(lambda key: models.build("dnn", {}, (784,), 10, None, key), 10)
    key, rng = jax.random.key(0), np.random.default_rng(0)
    w = problem.init(key)
    x = jnp.asarray(rng.normal(size=(batch_size, 784)), jnp.float32)
    batch = Batch(x, jnp.asarray(rng.integers(0, 10, batch_size)), jnp.ones(batch_size))
    adam, both = optax.adam(1e-3), (w, w)

    def adam_step(_: Array, carry: Any) -> Any:
        w, memory = carry
        update, memory = adam.update(w, memory, w)
        return optax.apply_updates(w, update), memory

    gradient = seconds_of(lambda _, w: w - 0.01 * problem.grad(w, batch), w)
    times = {
        "noise": seconds_of(lambda k, w: 0.5 * w + noise(jax.random.fold_in(key, k), w), w),
        "softplus and its slope": seconds_of(lambda _, w: sum(deviation(w), 0.5 * w), w),
        "Adam for m and rho": seconds_of(adam_step, (both, adam.init(both))),
    }
    state = 6 * 4 * w.size
    held = jnp.zeros(state // 4)
    moved = seconds_of(lambda k, x: lax.optimization_barrier(0.5 * x + k), held)  # turns that cannot be joined
    return {
        **{name: round(seconds / gradient, 2) for name, seconds in times.items()},
        "reading and writing the state": round(moved / gradient, 2),
        "state_megabytes": round(state / 1e6, 2),
        "gigabytes_per_second": round(2 * state / moved / 1e9, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[name for name in METHODS if name != "fedavg"])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="measure FedAMP's memory with 1,000 clients instead")
    parser.add_argument("--parts", action="store_true", help="measure the parts of a step of pFedBayes instead")
    parser.add_argument("--memory-of", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        print(json.dumps(memory(options.memory_of, 1000)))
    elif options.parts:
        print(json.dumps(parts(), indent=1))
    elif options.memory:
        alone = [sys.executable, os.path.abspath(__file__), "--memory-of", "fedamp"]
        print(
            json.dumps({"fedamp": json.loads(subprocess.run(alone, capture_output=True, check=True).stdout)}, indent=1)
        )
    else:
        print(json.dumps(compare(options.methods, options.clients, options.repeats), indent=1))


if __name__ == "__main__":
    main()

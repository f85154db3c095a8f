"""Time and memory of a round of a method (pFedBreD-mh, DNN) with 100, 1,000 and 10,000 clients.

    python benchmarks/scale.py                      # one JSON object on stdout; about ten minutes and 10 GB for 10,000
    python benchmarks/scale.py --clients 100 1000
    python benchmarks/scale.py --model mclr --features 64 --clients 100 100000 --repeats 1 --method local

Each size runs in a process of its own, so that its peak memory is its own. The time per client-round is measured in turn
with that of 100 clients in the same process, because machines are noisy: `time_ratio` is the median of the former over
that of the latter. `memory_ratio` is (peak - base - data) / state, where base is the process after import and compilation
for 100 clients, data the training arrays, and state the stacked states of all clients.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np

from fedprior import models
from fedprior.data.federation import Federation, Samples
from fedprior.engine.engine import Engine
from fedprior.engine.round import State
from fedprior.methods import make
from fedprior.models.classifier import Classifier

PER_CLIENT, R = 20, 20  # samples of a client; local iterations


def federation(clients: int, features: int) -> Federation:
    rng = np.random.default_rng(0)
    n = clients * PER_CLIENT
    x = rng.normal(size=(n, features)).astype(np.float32)
    y = rng.integers(0, 10, n).astype(np.int32)
    samples = Samples(x, y, np.arange(0, n, PER_CLIENT, dtype=np.int32), np.full(clients, PER_CLIENT, np.int32))
    return Federation(samples, samples, None, 10, "benchmark")


def engine_for(fed: Federation, model: str, method: str) -> Engine:
    inputs = fed.train.x.shape[1:]
    problem = Classifier(lambda key: models.build(model, {}, inputs, 10, None, key), 10)
    return Engine(problem, make(method, R=R).algorithm(), fed, aggregated=fed.n_clients // 10)


def timed(engine: Engine, state: State) -> tuple[State, float]:
    start = time.perf_counter()
    state, _ = engine.step(state)
    jax.block_until_ready(state)
    return state, (time.perf_counter() - start) / engine.federation.n_clients


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(clients: int, repeats: int, features: int, model: str, method: str) -> dict[str, Any]:
    small = engine_for(federation(100, features), model, method)
    small_state, _ = small.step(small.init(0))
    jax.block_until_ready(small_state)
    base = peak_bytes()
    fed = federation(clients, features)
    engine = engine_for(fed, model, method)
    state = engine.init(0)
    state, _ = timed(engine, state)  # compiles
    here, there = [], []
    for _ in range(repeats):
        for _ in range(max(1, min(20, clients // 100))):  # as many small rounds as take about as long
            small_state, seconds = timed(small, small_state)
            there.append(seconds)
        state, seconds = timed(engine, state)
        here.append(seconds)
    data = fed.train.x.nbytes + fed.train.y.nbytes
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(state.clients))
    return {
        "us_per_client_round": round(1e6 * min(here)),
        "time_ratio": round(float(np.median(here) / np.median(there)), 3),
        "data_gb": round(data / 1e9, 3),
        "state_gb": round(held / 1e9, 3),
        "peak_gb": round((peak_bytes() - base) / 1e9, 3),
        "memory_ratio": round((peak_bytes() - base - data) / held, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", default="dnn")
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--method", default="mh-released")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # measure in this process
    options = parser.parse_args()
    if options.here:
        chosen = options.features, options.model, options.method
        print(json.dumps(measure(options.clients[0], options.repeats, *chosen)))
        return
    results = {}
    for clients in options.clients:
        print(f"{clients} clients ...", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--here", "--clients", str(clients), "--repeats", str(options.repeats)]
        command += ["--features", str(options.features), "--model", options.model, "--method", options.method]
        results[clients] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

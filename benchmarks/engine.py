"""One round of pFedBreD-mh in fedprior against a lean PyTorch loop doing the same mathematics, in the same run.

    python benchmarks/engine.py                     # everything, one JSON object on stdout
    python benchmarks/engine.py --models mclr dnn --repeats 9

Both sides start from the same parameters, take the same batches (R = 20 iterations of two batches, K = 5 proximal steps:
140 gradients per client) and must end at the same numbers, or the benchmark fails. They are timed in turn, so that a noisy
machine disturbs both. `ratio` is the one-process PyTorch loop's median time over fedprior's (`ratio_best`: of the
fastest rounds); `ratio_processes` compares with one PyTorch process per core. `executed_share` is the share of the machine's
measured matrix-product peak (all cores) that fedprior's rounds reach with the flops that they execute, and `model_share`
with those that the PyTorch model needs: where a layer reads the input, the K steps on one batch execute fewer of them
(see `Classifier.proximal_steps`), and a CNN's pooling is paid for with more. `lstm-400`: at the task's own batch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import Any

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import flops
import jax
import jax.numpy as jnp
import torch
import torch_reference as reference

from fedprior import models
from fedprior.core.vectors import Tree
from fedprior.data.federation import Federation, Samples
from fedprior.data.view import ClientData
from fedprior.engine.engine import Engine
from fedprior.engine.round import State, client_round, keys_for, message
from fedprior.methods import make
from fedprior.models.classifier import Classifier

CLIENTS = {"mclr": 100, "dnn": 100, "cnn": 20, "lstm": 10}
# The model and the batch of each case
CASES = {"mclr": ("mclr", 20), "dnn": ("dnn", 20), "cnn": ("cnn", 20), "lstm": ("lstm", 100), "lstm-400": ("lstm", 400)}
R, K = 20, 5


def federation(name: str, batch: int, seed: int = 0) -> tuple[Federation, np.ndarray | None]:
    """Random samples of the paper's shapes; whole batches only, since the PyTorch loop knows no short ones."""
    rng = np.random.default_rng(seed)
    clients = CLIENTS[name]
    size = batch * rng.integers(2, 40 if name != "lstm" else 8, clients)
    n, classes = int(size.sum()), 2 if name == "lstm" else 10
    vectors = rng.normal(size=(5000, 100)).astype(np.float32) if name == "lstm" else None
    shape = {"cnn": (32, 32, 3), "lstm": (25,)}.get(name, (784,))
    x = (
        rng.integers(0, 5000, (n, *shape)).astype(np.int32)
        if name == "lstm"
        else rng.normal(size=(n, *shape)).astype(np.float32)
    )
    y = rng.integers(0, classes, n).astype(np.int32)
    samples = Samples(x, y, (np.cumsum(size) - size).astype(np.int32), size.astype(np.int32))
    return Federation(samples, samples, None, classes, "benchmark", vectors), vectors


def picks(engine: Engine, state: State) -> np.ndarray:
    """The batches of the coming round [N, R, 2, B]."""
    seed, samples = jnp.asarray(np.array(state.seed)), engine.federation.train

    def of(i: jax.Array, cursor: jax.Array) -> jax.Array:
        order = keys_for(seed, jnp.int32(0), i).order  # the same in every round
        return ClientData(samples, i, engine.batch_size, order, cursor).draw(2 * R)

    n = engine.federation.n_clients
    drawn = jax.jit(jax.vmap(of))(np.arange(n), np.array(state.cursor)[:n])
    return np.asarray(drawn).reshape(n, R, 2, -1)


def states_of(state: State, clients: int) -> Tree:
    """The clients' states without idle slots, on the host."""
    return jax.tree.map(lambda x: np.asarray(x)[:clients], jax.device_get(state.clients))


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in jax.tree.leaves(tree)]


def sgemm_peak(repeats: int = 5, n: int = 2048) -> float:
    """Flops per second of a large matrix product on all cores, by the library that is fastest on this CPU."""
    torch.set_num_threads(os.cpu_count() or 1)
    a, b = np.random.default_rng(0).normal(size=(2, n, n)).astype(np.float32)
    product = jax.jit(jnp.dot)
    here, there = (torch.tensor(a), torch.tensor(b)), jax.device_put((a, b))
    libraries = (lambda: here[0] @ here[1], lambda: a @ b, lambda: jax.block_until_ready(product(*there)))
    best = float("inf")
    for multiply in libraries * repeats:
        start = time.perf_counter()
        multiply()
        best = min(best, time.perf_counter() - start)
    torch.set_num_threads(1)
    return 2 * n**3 / best


def client_flops(engine: Engine, state: State) -> int:
    """Flops of the matrix products that fedprior executes for one client in a round."""
    algorithm, host = engine.algorithm, jax.device_get(state)
    client, cursor = jax.tree.map(lambda x: x[0], (host.clients, host.cursor))

    def work(samples: Samples, client: Tree, cursor: jax.Array, down: Tree) -> Any:
        keys = keys_for(jnp.asarray(host.seed), jnp.int32(0), jnp.int32(0))
        return client_round(
            engine.problem, algorithm, samples, jnp.int32(0), engine.batch_size, client, cursor, down, keys
        )

    down = message(algorithm, algorithm.outbox(host.server), jnp.asarray(host.seed), jnp.int32(0), jnp.int32(0))
    return flops.executed(work, engine.federation.train, client, cursor, down)


def compare(case: str, repeats: int, processes: bool) -> dict[str, Any]:
    name, batch = CASES[case]
    fed, vectors = federation(name, batch)
    shape, classes = fed.train.x.shape[1:], fed.n_classes
    problem = Classifier(lambda key: models.build(name, {}, shape, classes, vectors, key), classes)
    hyper = reference.Hyper()
    method = make("mh-released", R=R, K=K, lam=hyper.lam, alpha=hyper.alpha, alpha_m=hyper.alpha_m, eta=hyper.eta)
    clients = fed.n_clients
    engine = Engine(problem, method.algorithm(), fed, batch_size=batch, aggregated=max(1, clients // 5))
    state, _ = engine.step(engine.init(0))  # compiles, and moves theta and the memory away from the start

    params, held = leaves(state.server), states_of(state, clients)
    arguments = (
        name,
        params,
        leaves(held.theta),
        leaves(held.memory),
        np.asarray(fed.train.x),
        np.asarray(fed.train.y),
        picks(engine, state),
        hyper,
        vectors,
    )
    w, theta = reference.round_mh(*arguments)
    state, _ = engine.step(state)
    ours = states_of(state, clients)
    apart = max(
        float(np.abs(a - b).max())
        for ours_, theirs in ((ours.theta, theta), (ours.memory, w))
        for a, b in zip(leaves(ours_), theirs, strict=True)
    )
    if apart > 1e-3:
        raise SystemExit(f"{case}: the two sides differ by {apart:g}")

    job = reference.prepare(*arguments)
    times: dict[str, list[float]] = {"fedprior": [], "torch": []}
    for _ in range(repeats):
        start = time.perf_counter()
        job.run(range(clients))
        times["torch"].append(time.perf_counter() - start)
        start = time.perf_counter()
        state, _ = engine.step(state)
        jax.block_until_ready(state)
        times["fedprior"].append(time.perf_counter() - start)
    middle, best = ({k: f(v) for k, v in times.items()} for f in (statistics.median, min))
    gradients = clients * R * (2 + K)
    needed = gradients * flops.of_gradient(name, params, np.asarray(fed.train.x)[:batch], vectors)
    done, peak = clients * client_flops(engine, state), sgemm_peak() * best["fedprior"]
    numbers = {
        "clients": clients,
        "ratio": round(middle["torch"] / middle["fedprior"], 2),
        "ratio_best": round(best["torch"] / best["fedprior"], 2),
        "executed_share": round(done / peak, 3),
        "model_share": round(needed / peak, 3),
        "us_per_gradient": round(1e6 * best["fedprior"] / gradients, 1),
        "largest_difference": float(f"{apart:.1e}"),
    }
    if processes:
        spread = min(reference.time_round(*arguments, processes=os.cpu_count() or 1, repeats=min(repeats, 3)))
        numbers["ratio_processes"] = round(spread / best["fedprior"], 2)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--one-process", action="store_true", help="skip the comparison with one process per core")
    options = parser.parse_args()
    results = {}
    for name in options.models:
        results[name] = compare(name, options.repeats, not options.one_process)
        print(name, json.dumps(results[name]), file=sys.stderr, flush=True)  # as it comes: LSTM alone takes minutes
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

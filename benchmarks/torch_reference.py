"""One round of pFedBreD-mh as a lean PyTorch loop over clients: the yardstick of the speed benchmark.

The order is that of the authors' released code. Per client, with the global model w, its own theta- and memory m, for
R local iterations on two batches B1, B2 of 20 samples:

    u     = w - meta grad f(w; B1)
    w     = w - meta grad f(u; B2)
    mu    = w - eta (m - theta-)
    theta = w, then K times  theta <- theta - alpha [grad f(theta; B2) + lam (theta - mu)]
    w     = w - alpha_m lam (mu - theta)

which is R (2 + K) = 140 gradients for R = 20, K = 5. It is meant to be as fast as plain PyTorch is: one thread per
process, the data as one tensor indexed by given batches, no loader, no optimizer, no module, and every update in place.
Each of w, u, theta, mu is one flat buffer whose slices are the parameters, so that an update that needs no gradient is
one call (lists of parameters and `torch._foreach` throughout: the same time within 2 %).

Parameters are the leaves of a `fedprior` model in their order, without frozen arrays; both sides use the same layout,
so `to_torch` and `from_torch` only change the container. Run as a program, it prints the time of a round:

    python benchmarks/torch_reference.py --model cnn --clients 4 --processes 1 2
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Ints = np.ndarray[Any, np.dtype[np.integer[Any]]]
Tensors = list[torch.Tensor]
Forward = Callable[[Sequence[torch.Tensor], torch.Tensor], torch.Tensor]  # parameters, inputs [B, ...] -> logits [B, C]


@dataclass(frozen=True)
class Hyper:
    """The hyper-parameters of a round; the defaults are the paper's for MNIST with MCLR."""

    alpha: float = 0.01
    alpha_m: float = 0.01
    lam: float = 15.0
    eta: float = 0.05
    meta: float = 0.01
    K: int = 5


def to_torch(name: str, leaves: Sequence[Any]) -> Tensors:
    """Copy the leaves of a `fedprior` model into tensors; `name` fixes how many there must be."""
    if len(leaves) not in COUNTS[name]:
        raise ValueError(f"model '{name}' has {COUNTS[name]} parameters, not {len(leaves)}")
    return [torch.tensor(np.asarray(leaf)) for leaf in leaves]


def from_torch(name: str, tensors: Sequence[torch.Tensor]) -> list[Floats]:
    """Copy tensors into arrays in the order of the `fedprior` model's leaves."""
    if len(tensors) not in COUNTS[name]:
        raise ValueError(f"model '{name}' has {COUNTS[name]} parameters, not {len(tensors)}")
    return [tensor.detach().numpy().copy() for tensor in tensors]


def mclr(p: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return F.linear(x.flatten(1), p[0], p[1])


def dnn(p: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return F.linear(F.leaky_relu(F.linear(x.flatten(1), p[0], p[1]), 0.1), p[2], p[3])


def cnn(p: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    h = F.max_pool2d(F.relu(F.conv2d(x, p[0], p[1])), 2)  # x [B, C, H, W]: see `inputs`
    h = F.max_pool2d(F.relu(F.conv2d(h, p[2], p[3])), 2).flatten(1)
    h = F.relu(F.linear(h, p[4], p[5]))
    return F.linear(F.relu(F.linear(h, p[6], p[7])), p[8], p[9])


def lstm(vectors: torch.Tensor) -> Forward:
    """Close over the frozen vectors [V, d]; 12 parameters: the paper's one direction, 20: the released code's two."""

    def forward(p: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        cells, (hidden_w, hidden_b, head_w, head_b) = list(p[:-4]), p[-4:]
        both = len(p) == 20
        zero = torch.zeros(2 * (1 + both), len(x), cells[1].shape[1])
        # The kernel behind torch.nn.LSTM; after the weights: biases, layers, dropout, train, bidirectional, batch first
        outputs, final, _ = torch._VF.lstm(vectors[x], (zero, zero), cells, True, 2, 0.0, True, both, True)
        read = torch.cat([outputs[:, -1], final[3], final[2]], 1) if both else outputs[:, -1]
        return F.linear(F.leaky_relu(F.linear(read, hidden_w, hidden_b), 0.1), head_w, head_b)

    return forward


COUNTS: dict[str, tuple[int, ...]] = {"mclr": (2,), "dnn": (4,), "cnn": (10,), "lstm": (12, 20)}
FORWARDS: dict[str, Forward] = {"mclr": mclr, "dnn": dnn, "cnn": cnn}


def forward(name: str, vectors: Floats | None = None) -> Forward:
    """The model's logits as a function of parameters and inputs."""
    if name != "lstm":
        return FORWARDS[name]
    if vectors is None:
        raise ValueError("the LSTM needs word vectors")
    return lstm(torch.tensor(np.asarray(vectors)))


def inputs(name: str, x: Floats | Ints) -> torch.Tensor:
    """Samples as `fedprior` stores them -> as PyTorch wants them: images [n, C, H, W], word indices as int64.

    The images keep their memory order (PyTorch's channels_last), which is 1.06 times as fast as copying them.
    """
    if name == "cnn":
        return torch.tensor(x).permute(0, 3, 1, 2)
    return torch.tensor(x, dtype=torch.int64 if name == "lstm" else None)


class Flat:
    """Parameters as slices of one buffer: `flat` for arithmetic, `parts` (the same memory) to differentiate by."""

    def __init__(self, like: Sequence[torch.Tensor]) -> None:
        self.flat = torch.cat([tensor.flatten() for tensor in like])
        pieces = torch.split_with_sizes(self.flat, [tensor.numel() for tensor in like])
        self.parts = [a.view(b.shape).detach().requires_grad_() for a, b in zip(pieces, like, strict=True)]


@dataclass(frozen=True)
class Round:
    """Everything a round needs, prepared before the clock starts."""

    forward: Forward
    params: Tensors
    thetas: torch.Tensor  # [N, D]
    memories: torch.Tensor  # [N, D]
    x: torch.Tensor  # [n, ...]
    y: torch.Tensor  # [n]
    indices: torch.Tensor  # [N, R, 2, B]
    hyper: Hyper

    def run(self, clients: range) -> tuple[torch.Tensor, torch.Tensor]:
        """Train these clients one after the other; return their w and theta, each [N, D]."""
        h, x, y = self.hyper, self.x, self.y
        start, w, u, theta = (Flat(self.params) for _ in range(4))
        mu = torch.empty_like(w.flat)
        ws, thetas = torch.empty(len(clients), len(mu)), torch.empty(len(clients), len(mu))

        def gradient(at: Flat, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with torch.enable_grad():
                return torch.autograd.grad(F.cross_entropy(self.forward(at.parts, inputs), labels), at.parts)

        with torch.no_grad():
            for row, i in enumerate(clients):
                w.flat.copy_(start.flat)
                theta.flat.copy_(self.thetas[i])
                for first, second in self.indices[i]:
                    x2, y2 = x[second], y[second]
                    u.flat.copy_(w.flat)
                    torch._foreach_add_(u.parts, gradient(w, x[first], y[first]), alpha=-h.meta)
                    torch._foreach_add_(w.parts, gradient(u, x2, y2), alpha=-h.meta)
                    torch.sub(theta.flat, self.memories[i], out=mu).mul_(h.eta).add_(w.flat)
                    theta.flat.copy_(w.flat)
                    for _ in range(h.K):
                        g = gradient(theta, x2, y2)
                        theta.flat.lerp_(mu, h.alpha * h.lam)
                        torch._foreach_add_(theta.parts, g, alpha=-h.alpha)
                    w.flat.add_(mu.sub_(theta.flat), alpha=-h.alpha_m * h.lam)
                ws[row], thetas[row] = w.flat, theta.flat
        return ws, thetas


def prepare(
    name: str,
    params: Sequence[Any],
    thetas: Sequence[Any],
    memories: Sequence[Any],
    x: Floats | Ints,
    y: Ints,
    indices: Ints,
    hyper: Hyper,
    vectors: Floats | None = None,
) -> Round:
    """Arrays of a `fedprior` run -> a round: params are leaves [...], thetas and memories leaves [N, ...]."""
    torch.set_num_threads(1)

    def rows(leaves: Sequence[Any]) -> torch.Tensor:
        return torch.cat([tensor.flatten(1) for tensor in to_torch(name, leaves)], 1)

    labels, batches = torch.tensor(y, dtype=torch.int64), torch.tensor(indices, dtype=torch.int64)
    start = to_torch(name, params)
    return Round(forward(name, vectors), start, rows(thetas), rows(memories), inputs(name, x), labels, batches, hyper)


def round_mh(
    name: str,
    params: Sequence[Any],
    thetas: Sequence[Any],
    memories: Sequence[Any],
    x: Floats | Ints,
    y: Ints,
    indices: Ints,
    hyper: Hyper,
    vectors: Floats | None = None,
) -> tuple[list[Floats], list[Floats]]:
    """One round of all clients, those of `indices` [N, R, 2, B], in this process.

    Returns each client's local model w and personal model theta as leaves [N, ...]. The memory of the next round is w.
    """
    job = prepare(name, params, thetas, memories, x, y, indices, hyper, vectors)

    def leaves(rows: torch.Tensor) -> list[Floats]:  # [N, D]
        pieces = torch.split_with_sizes(rows, [p.numel() for p in job.params], 1)
        return from_torch(name, [a.reshape(-1, *p.shape) for a, p in zip(pieces, job.params, strict=True)])

    w, theta = job.run(range(len(indices)))
    return leaves(w), leaves(theta)


def _work(arguments: tuple[Any, ...], clients: range, repeats: int, barrier: Any) -> None:
    try:
        job = prepare(*arguments)
        job.run(clients[:1])  # the first calls of a process are slow
        for _ in range(repeats):
            barrier.wait()
            job.run(clients)
            barrier.wait()
    except BaseException:
        barrier.abort()  # or the others would wait forever
        raise


def time_round(
    name: str,
    params: Sequence[Any],
    thetas: Sequence[Any],
    memories: Sequence[Any],
    x: Floats | Ints,
    y: Ints,
    indices: Ints,
    hyper: Hyper,
    vectors: Floats | None = None,
    *,
    processes: int = 1,
    repeats: int = 3,
) -> list[float]:
    """Seconds of each of `repeats` rounds, the clients dealt in equal ranges to single-threaded processes.

    Preparing data and starting processes are not in the time; results stay in the processes, which flatters PyTorch.
    Call it under `if __name__ == "__main__"`, since the processes are spawned.
    """
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes + 1)
    arguments = (name, [np.asarray(a) for a in params], [np.asarray(a) for a in thetas],
                 [np.asarray(a) for a in memories], x, y, indices, hyper, vectors)  # fmt: skip
    share = math.ceil(len(indices) / processes)
    ranges = [range(k * share, min((k + 1) * share, len(indices))) for k in range(processes)]
    workers = [context.Process(target=_work, args=(arguments, r, repeats, barrier)) for r in ranges]
    for worker in workers:
        worker.start()
    seconds = []
    for _ in range(repeats):
        barrier.wait()
        begin = time.perf_counter()
        barrier.wait()
        seconds.append(time.perf_counter() - begin)
    for worker in workers:
        worker.join()
    return seconds


SHAPES: dict[str, list[tuple[int, ...]]] = {
    "mclr": [(10, 784), (10,)],
    "dnn": [(100, 784), (100,), (10, 100), (10,)],
    "cnn": [(6, 3, 5, 5), (6,), (16, 6, 5, 5), (16,), (120, 400), (120,), (84, 120), (84,), (10, 84), (10,)],
    "lstm": [(200, 100), (200, 50), (200,), (200,), (200, 50), (200, 50), (200,), (200,),
             (100, 50), (100,), (2, 100), (2,)],
}  # fmt: skip


def example(name: str, clients: int, iterations: int = 20, seed: int = 0) -> tuple[Any, ...]:
    """Random arguments of `round_mh` in the sizes of the paper's tasks (the LSTM's batch is 100, the others' 20)."""
    rng = np.random.default_rng(seed)
    samples, batch = 2000, 100 if name == "lstm" else 20
    shape = {"mclr": (784,), "dnn": (784,), "cnn": (32, 32, 3), "lstm": (25,)}[name]
    vectors = None
    x: Any = rng.normal(size=(samples, *shape)).astype(np.float32)
    if name == "lstm":
        vectors = rng.normal(scale=0.4, size=(5000, 100)).astype(np.float32)
        x = rng.integers(0, len(vectors), (samples, *shape)).astype(np.int32)
    y = rng.integers(0, SHAPES[name][-1][0], samples).astype(np.int32)
    params = [rng.uniform(-1, 1, s).astype(np.float32) / np.float32(math.sqrt(math.prod(s[1:]))) for s in SHAPES[name]]
    thetas = [np.stack([p] * clients) for p in params]
    indices = rng.integers(0, samples, (clients, iterations, 2, batch)).astype(np.int32)
    return name, params, thetas, thetas, x, y, indices, Hyper(), vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", choices=sorted(COUNTS), default="mclr")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--processes", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    arguments = example(options.model, options.clients)
    gradients = options.clients * 140
    for processes in options.processes:
        seconds = min(time_round(*arguments, processes=processes, repeats=options.repeats))
        each = seconds / gradients * 1e6
        print(f"{options.model}: {processes} process(es), {seconds:.3f} s, {each:.0f} us per gradient")


if __name__ == "__main__":
    main()

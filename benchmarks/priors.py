"""Cost of each prior, mean and gradient, per gradient evaluation, relative to the spherical Gaussian with the identity mean.

    python benchmarks/priors.py                     # one JSON object on stdout

The reference takes its proximal steps one gradient at a time, as every other prior does. (The spherical Gaussian has a
shortcut where a linear layer reads the input, `Classifier.proximal_steps`; `prior gaussian` and the means below use it.)
DNN (79,510 parameters), 20 clients, batch 20, R = 20, K = 5; the dense Gaussian on a linear model of 650 parameters
against the spherical one there. All are compiled first and then timed in turn, so that a noisy machine disturbs all alike;
a figure is the median over rounds of time per gradient over the reference's in the same turn. `exact` is compared per
round with `first_order`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import jax
import numpy as np

from fedprior import models
from fedprior.core.method import Method
from fedprior.data.federation import Federation, Samples
from fedprior.engine.cost import measure
from fedprior.engine.engine import Engine
from fedprior.engine.round import State
from fedprior.methods import make
from fedprior.models.classifier import Classifier
from fedprior.priors import PRIORS
from fedprior.priors.gaussians import Gaussian
from fedprior.priors.means import MEANS

CLIENTS, PER_CLIENT = 20, 60


class Plain(Gaussian):
    """The spherical Gaussian without its shortcut (which is for the very class)."""


def federation(size: int) -> Federation:
    rng = np.random.default_rng(0)
    n = CLIENTS * PER_CLIENT
    x, y = rng.normal(size=(n, size)).astype(np.float32), rng.integers(0, 10, n).astype(np.int32)
    samples = Samples(x, y, np.arange(0, n, PER_CLIENT, dtype=np.int32), np.full(CLIENTS, PER_CLIENT, np.int32))
    return Federation(samples, samples, None, 10, "benchmark")


class Timed:
    """A method ready to be timed, one round at a time."""

    def __init__(self, method: Method, model: str, size: int):
        problem = Classifier(lambda key: models.build(model, {}, (size,), 10, None, key), 10)
        data = federation(size)
        self.engine = Engine(problem, method.algorithm(), data, aggregated=4)
        self.state: State = self.engine.step(self.engine.init(0))[0]
        self.gradients = measure(method, problem, data).gradients
        self.seconds: list[float] = []

    def round(self) -> None:
        start = time.perf_counter()
        self.state, _ = self.engine.step(self.state)
        jax.block_until_ready(self.state)
        self.seconds.append(time.perf_counter() - start)

    def against(self, other: Timed, per_gradient: bool = True) -> float:
        scale = other.gradients / self.gradients if per_gradient else 1.0
        return round(scale * statistics.median(a / b for a, b in zip(self.seconds, other.seconds, strict=True)), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    steps: dict[str, Any] = {"alpha": 0.001, "alpha_m": 0.001}  # small: the numbers must stay finite, nothing else
    timed = {"reference": Timed(make("pfedbred", mean="identity", prior=Plain(), **steps), "dnn", 784)}
    timed |= {
        f"prior {p}": Timed(make("pfedbred", mean="identity", prior=p, **steps), "dnn", 784)
        for p in PRIORS
        if "dense" not in p
    }
    timed |= {f"mean {m}": Timed(make("pfedbred", mean=m, **steps), "dnn", 784) for m in MEANS if m != "identity"}
    timed |= {
        f"exact {m}": Timed(make("pfedbred", mean=m, gradient="exact", **steps), "dnn", 784) for m in ("lg", "mh")
    }
    timed |= {
        f"{p if isinstance(p, str) else 'plain'} (650)": Timed(
            make("pfedbred", mean="identity", prior=p, **steps), "mclr", 64
        )
        for p in (Plain(), "gaussian-dense")
    }
    for _ in range(options.repeats):
        for each in timed.values():
            each.round()
    reference = timed["reference"]
    ratios = {
        "per_gradient": {k: t.against(reference) for k, t in timed.items() if k.startswith(("prior", "mean"))},
        "exact_per_round": {
            m: timed[f"exact {m}"].against(timed[f"mean {m}"], per_gradient=False) for m in ("lg", "mh")
        },
        "dense_per_gradient": timed["gaussian-dense (650)"].against(timed["plain (650)"]),
    }
    print(json.dumps(ratios, indent=1))


if __name__ == "__main__":
    main()

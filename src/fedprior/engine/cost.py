"""What a method costs a client in a round, counted in the program that it runs, not by formula."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Jaxpr, jaxprs_in_params

from fedprior.core.batch import Batch
from fedprior.core.compiling import Compiler
from fedprior.core.method import Algorithm, Method
from fedprior.core.problem import Problem
from fedprior.core.vectors import Scalar, Tree, Vector
from fedprior.data.federation import Federation, Samples
from fedprior.data.view import ClientData
from fedprior.engine.counts import kept_counts
from fedprior.models.classifier import Classifier
from fedprior.models.mlp import DNN

SAMPLES = 40  # of the client whose round is run


@dataclass(frozen=True)
class Cost:
    """Per client and round, for a client of 40 samples with batches of 20.

    A forward pass is one evaluation of the model or its loss that no gradient is taken of: on a batch, or on a chunk (of up
    to 128 samples, so that this client's are one) of a pass over all samples. Floats are in units of the model's size D.
    """

    gradients: int  # of the loss on a batch
    forward: int
    down: float  # D received
    up: float  # D sent
    state: float  # D kept between rounds
    hvps: int = 0  # Hessian-vector products: derivatives of a gradient along a direction
    parameters: int = 0  # D


# -- a problem that counts ---------------------------------------------------------------------------------------------


def _count(counter: Counter[str], what: str, w: Vector) -> None:
    """Count when the program runs; a number of w goes along, so that each of the models of a ``jax.vmap`` is counted."""
    jax.debug.callback(lambda _: counter.update([what]), jnp.ravel(jax.tree.leaves(w)[0])[0])


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _asked(counter: Counter[str], what: str, derivative: str, w: Vector) -> Vector:
    """w itself; counts ``what`` where a function of w is evaluated, and its ``derivative`` where it is differentiated."""
    _count(counter, what, w)
    return w


@_asked.defjvp
def _differentiated(
    counter: Counter[str], what: str, derivative: str, at: tuple[Vector], along: tuple[Vector]
) -> tuple[Vector, Vector]:
    if what != "forward":  # a forward pass is part of the gradient that is taken of it
        _count(counter, what, at[0])
    _count(counter, derivative, at[0])
    return at[0], along[0]


class CountingClassifier(Classifier):
    """A classifier that counts how often it is asked, inside compiled loops too."""

    counter: Counter[str] = eqx.field(static=True)

    def __init__(self, classifier: Classifier, counter: Counter[str]):
        for name, value in vars(classifier).items():
            setattr(self, name, value)
        self.counter = counter

    def grad(self, w: Vector, batch: Batch) -> Vector:
        """Count a gradient; any vector will do for its value, and compiling a real one would take most of the time."""
        return _asked(self.counter, "gradients", "hvps", w)

    def proximal_steps(self, mu: Vector, start: Vector, batch: Batch, lam: Scalar, alpha: Scalar, K: int) -> Vector:
        """Step by step, so that each gradient is counted."""
        return Problem.proximal_steps(self, mu, start, batch, lam, alpha, K)

    def logits(self, w: Vector, x: Array) -> Array:
        """Count a forward pass (also that of a loss), or a gradient where one is taken."""
        return super().logits(_asked(self.counter, "forward", "gradients", w), x)

    def features(self, w: Vector, x: Array) -> Array:
        """Count a forward pass, or a gradient where one is taken."""
        return super().features(_asked(self.counter, "forward", "gradients", w), x)


# -- a client's round --------------------------------------------------------------------------------------------------


def _network(inputs: int, hidden: int, classes: int) -> Classifier:
    return Classifier(lambda key: DNN(inputs, classes, hidden=hidden, key=key), classes)


def _samples(x: np.ndarray) -> Samples:
    """One client's samples."""
    n = len(x)
    return Samples(x, np.zeros(n, np.int32), np.zeros(1, np.int32), np.full(1, n, np.int32))


def _begin(algorithm: Algorithm, problem: Problem, n_clients: int) -> tuple[Vector, Tree, Tree]:
    """A model, a client's state and what it receives at the beginning of its first round."""
    key = jax.random.key(0)
    w0 = problem.init(key)
    server = algorithm.server(problem, w0, n_clients, key)
    return w0, algorithm.client(w0, key), algorithm.send(algorithm.outbox(server), jnp.int32(0), key)


class _FewSamples(ClientData):
    """A client whose samples, or any part of them, are one chunk: so many turns are known before the program runs."""

    _chunks = 1


def _work(algorithm: Algorithm, problem: Problem, client: Tree, down: Tree, samples: Samples) -> tuple[Tree, Tree]:
    """The client's state after its round, and what it sends."""
    key = jax.random.key(0)
    data = _FewSamples(samples, 0, SAMPLES // 2, key, 0)
    return algorithm.local(problem, client, down, data, key)[:2]


class _UnknownTurns(Exception):
    """How often a part of a program is run depends on its numbers."""


def _read(program: Jaxpr, times: int) -> None:
    """Call what the program would call, as often as it would: to run it, it would have to be compiled."""
    for equation in program.eqns:
        if not equation.effects:  # nothing in it is counted
            continue
        if equation.primitive.name == "debug_callback":
            for _ in range(times):
                equation.params["callback"](*(np.zeros(x.aval.shape) for x in equation.invars))  # type: ignore[attr-defined]
        elif equation.primitive.name == "scan":
            _read(equation.params["jaxpr"].jaxpr, times * equation.params["length"])
        elif equation.primitive.name in ("jit", "pjit", "closed_call", "custom_jvp_call", "checkpoint"):
            for inner in jaxprs_in_params(equation.params):
                _read(inner, times)
        else:  # a loop that ends by itself, a choice
            raise _UnknownTurns


def count(algorithm: Algorithm, n_clients: int) -> dict[str, int]:
    """How often one client's round on a toy problem asks for gradients, forward passes and Hessian products.

    They are read from the traced program where that tells; else it is compiled and run, which takes far longer.
    """
    toy, few, counter = _network(3, 2, 2), _samples(np.ones((SAMPLES, 3), np.float32)), Counter[str]()

    def counting(client: Tree, down: Tree) -> tuple[Tree, Tree]:
        return _work(algorithm, CountingClassifier(toy, counter), client, down, few)

    _, client, down = jax.eval_shape(lambda: _begin(algorithm, toy, n_clients))
    try:
        _read(jax.make_jaxpr(counting)(client, down).jaxpr, times=1)
    except _UnknownTurns:
        counter.clear()
        _, client, down = _begin(algorithm, toy, n_clients)
        jax.block_until_ready(Compiler()(counting)(client, down))
        jax.effects_barrier()
    return {what: counter[what] for what in ("gradients", "forward", "hvps")}


def measure(method: Method, problem: Problem | None = None, federation: Federation | None = None) -> Cost:
    """Count what one client's round on a toy problem asks for; floats are those of the given problem and number of clients.

    Without a problem: the paper's DNN for MNIST and 100 clients. A loop that ends by itself (``tol``) takes as many turns
    as it does on the toy problem, which is then compiled and run; so what was counted is kept.

    >>> from fedprior.methods import make
    >>> measure(make("fedavg", R=3))
    Cost(gradients=3, forward=0, down=1.0, up=1.0, state=0.0, hvps=0, parameters=79510)
    """
    algorithm, n_clients = method.algorithm(), federation.n_clients if federation else 100
    counted = kept_counts(method, n_clients, lambda: count(algorithm, n_clients))
    parts = messages(algorithm, problem, federation)
    size = parts.parameters
    received, kept, sent = (sum(numbers.values()) for numbers in (parts.down, parts.state, parts.up))
    return Cost(**counted, down=received / size, up=sent / size, state=kept / size, parameters=size)


class Messages(NamedTuple):
    """What one client receives, sends and keeps between rounds: the names of the parts, and how many numbers each has."""

    down: dict[str, int]
    up: dict[str, int]
    state: dict[str, int]
    parameters: int  # D, of one model


def messages(algorithm: Algorithm, problem: Problem | None = None, federation: Federation | None = None) -> Messages:
    """Which numbers travel in a round, part by part, without running anything; what has no name is called a
    "model" if it is one (or several of them), and "numbers" if not.

    Without a problem: the paper's DNN for MNIST and 100 clients.

    >>> from fedprior.methods import make
    >>> messages(make("scaffold").algorithm()).up
    {'w': 79510, 'c': 79510}
    """
    n_clients = federation.n_clients if federation else 100
    real = problem or _network(784, 100, 10)
    x = np.array(federation.train.x[:SAMPLES]) if federation else np.ones((SAMPLES, 784), np.float32)
    begun = jax.eval_shape(lambda: _begin(algorithm, real, n_clients))
    ended = jax.eval_shape(lambda client, down: _work(algorithm, real, client, down, _samples(x)), *begun[1:])
    (size,) = _parts(begun[0]).values()
    return Messages(_parts(begun[2]), _parts(ended[1]), _parts(ended[0]), size)


def _parts(tree: Tree) -> dict[str, int]:
    """How many numbers each part of a message has; a part without any is left out."""
    named = tree._asdict() if hasattr(tree, "_asdict") else {"model" if isinstance(tree, Vector) else "numbers": tree}
    sizes = {name: sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(part)) for name, part in named.items()}
    return {name: size for name, size in sizes.items() if size}

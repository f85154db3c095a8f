"""The interface of a method: a few pure functions for one client and one server, and nothing else.

A method is a frozen dataclass whose fields are its hyper-parameters, named as in its paper. It never mentions the client
axis, devices, or how it is executed; state is passed in and returned.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
from jax import Array

from fedprior.errors import FedpriorError as FedpriorError
from fedprior.problem import Batch as Batch
from fedprior.problem import Problem as Problem
from fedprior.vectors import OPTIMIZERS, Tree, Vector, stack_one, weighted_mean

Info = dict[str, Array]  # scalar diagnostics of one client's round; never part of any state
Mixture = tuple[Array, Vector]  # weights [M] and models [M, ...]: a personal model is a mixture of M


class Data(Protocol):
    """One client's own samples, the same object in simulation and on a deployed client."""

    size: Array  # how many samples there are

    def draw(self, count: int) -> Array:
        """Pick the next ``count`` batches, epoch-wise shuffled and going on across rounds: picks [count, B]."""

    def batch(self, pick: Array) -> Batch:
        """Fetch the samples of one pick [B]."""

    def split(self, fraction: float) -> tuple[Data, Data]:
        """Part the samples for good: (the rest, a fixed ``fraction`` of them)."""

    def fold(self, f: Any, start: Any) -> Any:
        """Run ``acc = f(acc, batch)`` over all samples, once each, in masked chunks."""


@dataclasses.dataclass(frozen=True)
class Method:
    """Base of all methods: a server that holds one global model ``w``, and clients without lasting state."""

    participation: ClassVar[tuple[str, ...]] = ("sampled", "all")  # the modes that make sense, the default first
    paper: ClassVar[str] = ""  # the citation
    sources: ClassVar[dict[str, str]] = {}  # where each default comes from
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {}  # what a sweep should try

    def check(self, problem: Problem, w0: Vector) -> None:
        """Refuse a problem that the method is not defined for; called once, before anything is compiled."""

    def client(self, w0: Vector, key: Array) -> Tree:
        """One client's lasting private state."""
        return ()

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """The server's state."""
        return w0

    def outbox(self, server: Tree) -> Tree:
        """The part of the server's state that ``send`` reads; the rest stays on the server's own device."""
        return server

    def send(self, server: Tree, i: Array | None, key: Array) -> Tree:
        """What client i receives (i = None: a newcomer), from the server's outbox."""
        return server

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """One client's work in a round -> its new state, its upload, diagnostics."""
        raise NotImplementedError

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """The server's work in a round: uploads [S, ...] of clients ids [S], weights [S] summing to one.

        Where a method says nothing else, their weighted mean, as in FedAvg.
        """
        return weighted_mean(ups, weights)

    def global_model(self, server: Tree) -> Vector | None:
        """G: the one model for all, or None where the method has none."""
        return server

    def with_global_model(self, server: Tree, w: Vector) -> Tree:
        """Return the server state with its global model replaced (how server relaxation acts)."""
        return w

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """P: this client's own model, as a mixture of weights [M] and models [M, ...]."""
        raise NotImplementedError

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """State of a client never seen in training, from what ``send(server, None)`` gives and its own data."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        for name, valid, condition in self.rules():
            if not condition:
                raise FedpriorError(f"{type(self).__name__}: {name} = {getattr(self, name)!r} is not valid; {valid}")

    def rules(self) -> list[tuple[str, str, bool]]:
        """What must hold: (field, what is valid, whether it holds). Covers the names shared by most methods."""
        found = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("R", "K"):
                found.append((field.name, "it counts steps: a whole number of at least 1", value >= 1))
            elif field.name == "optimizer" and isinstance(value, str):
                found.append((field.name, f"valid: {', '.join(OPTIMIZERS)}", value in OPTIMIZERS))
            elif field.name in ("lam", "mu", "eta", "eta_alpha", "alpha", "alpha_m") and value is not None:
                found.append((field.name, "it must be a finite number of at least 0", 0 <= value < float("inf")))
        return found

    def idle(self) -> list[str]:
        """Say which valid settings do nothing (the command line warns about them)."""
        return [
            f"{name} = 0" for name in ("alpha", "alpha_m", "lam", "eta", "eta_alpha") if getattr(self, name, 1) == 0
        ]


def single(w: Vector) -> Mixture:
    """A personal model that is one model."""
    return jnp.ones((1,)), stack_one(w)

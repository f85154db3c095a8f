"""Tricks that compose with any method: a wrapper changes one function and passes the others on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax

from fedprior.errors import FedpriorError
from fedprior.method import Data, Info, Method, Mixture, Problem
from fedprior.vectors import Tree, Vector


@dataclass(frozen=True)
class Wrapped(Method):
    """A method that does what its base does."""

    base: Method

    @property
    def participation(self) -> tuple[str, ...]:  # type: ignore[override]
        """As the base."""
        return self.base.participation

    def check(self, problem: Problem, w0: Vector) -> None:
        """As the base."""
        self.base.check(problem, w0)

    def client(self, w0: Vector, key: Array) -> Tree:
        """As the base."""
        return self.base.client(w0, key)

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """As the base."""
        return self.base.server(problem, w0, n_clients, key)

    def outbox(self, server: Tree) -> Tree:
        """As the base."""
        return self.base.outbox(server)

    def send(self, server: Tree, i: Array | None, key: Array) -> Tree:
        """As the base."""
        return self.base.send(server, i, key)

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """As the base."""
        return self.base.local(problem, client, down, data, key)

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """As the base."""
        return self.base.merge(server, ups, weights, ids, key)

    def global_model(self, server: Tree) -> Vector | None:
        """As the base."""
        return self.base.global_model(server)

    def with_global_model(self, server: Tree, w: Vector) -> Tree:
        """As the base."""
        return self.base.with_global_model(server, w)

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """As the base."""
        return self.base.personal_model(problem, client, down, data, key)

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """As the base."""
        return self.base.join(problem, down, data, key)

    def idle(self) -> list[str]:
        """As the base."""
        return self.base.idle()


@dataclass(frozen=True)
class Relaxed(Wrapped):
    """Server relaxation: w <- (1 - beta) w + beta merge(w); beta = 2 is the paper's aggregation momentum (AM).

    Algorithm 1, line 12 of the paper, after Karimireddy et al. 2020 and Dinh et al. 2020.
    """

    beta: float = 1.0

    def rules(self) -> list[tuple[str, str, bool]]:
        """Zero would freeze the server."""
        return [
            ("beta", "it must be a finite number above 0 (0 would freeze the server)", 0 < self.beta < float("inf"))
        ]

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """Merge, then move the global model beta times as far."""
        merged = self.base.merge(server, ups, weights, ids, key)
        old, new = self.base.global_model(server), self.base.global_model(merged)
        if old is None or new is None:
            raise FedpriorError(f"beta acts on a global model, and {type(self.base).__name__} has none; leave beta out")
        return self.base.with_global_model(merged, (1 - self.beta) * old + self.beta * new)


@dataclass(frozen=True)
class FineTuned(Wrapped):
    """FT: for the test, the personal model takes one more gradient step on a fresh training batch; the step is not kept.

    "Fine-tuning single personalized model one more step for local test" (the paper, appendix; its code was not
    released). No proximal term. In a mixture each component takes its step, weights fixed.
    """

    steps: int = 1
    alpha: float = 0.01

    def rules(self) -> list[tuple[str, str, bool]]:
        """At least one step."""
        return [("steps", "it counts steps: a whole number of at least 1", self.steps >= 1)]

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """The base's personal model, a few steps further."""
        weights, models = self.base.personal_model(problem, client, down, data, key)
        picks = data.draw(self.steps)

        def tune(w: Vector) -> Vector:
            return lax.scan(lambda w, pick: (w - self.alpha * problem.grad(w, data.batch(pick)), None), w, picks)[0]

        return weights, lax.map(tune, models)


@dataclass(frozen=True)
class Swept(Wrapped):
    """The base with some of its numbers as data: a program compiled once runs every setting of them.

    The setting [k] (values of ``names``) is part of the server's state and goes to the clients with what they receive.
    The base must not branch on it in Python. ``dress`` puts tricks around the base, which may take over such a number.
    """

    names: tuple[str, ...] = ()
    dress: Callable[[Method], Method] = lambda method: method

    def at(self, setting: Array) -> Method:
        """The base at a setting."""
        method = copy.copy(self.base)  # dataclasses.replace would check the values, and a traced one has none yet
        for k, name in enumerate(self.names):
            object.__setattr__(method, name, setting[k])
        return self.dress(method)

    def with_setting(self, server: Tree, setting: Array) -> Tree:
        """The server's state around the base's own."""
        return {"server": server, "setting": setting}

    def client(self, w0: Vector, key: Array) -> Tree:
        """As the base, at its own setting."""
        return self.dress(self.base).client(w0, key)

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """As the base, at its own setting."""
        setting = jnp.array([getattr(self.base, name) for name in self.names], float)
        return self.with_setting(self.dress(self.base).server(problem, w0, n_clients, key), setting)

    def outbox(self, server: Tree) -> Tree:
        """The base's, and the setting."""
        setting = server["setting"]
        return self.with_setting(self.at(setting).outbox(server["server"]), setting)

    def send(self, server: Tree, i: Array | None, key: Array) -> Tree:
        """What the base sends, and the setting."""
        setting = server["setting"]
        return {"down": self.at(setting).send(server["server"], i, key), "setting": setting}

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """As the base at the setting."""
        return self.at(down["setting"]).local(problem, client, down["down"], data, key)

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """As the base at the setting."""
        setting = server["setting"]
        return self.with_setting(self.at(setting).merge(server["server"], ups, weights, ids, key), setting)

    def global_model(self, server: Tree) -> Vector | None:
        """As the base at the setting."""
        return self.at(server["setting"]).global_model(server["server"])

    def with_global_model(self, server: Tree, w: Vector) -> Tree:
        """As the base at the setting."""
        setting = server["setting"]
        return self.with_setting(self.at(setting).with_global_model(server["server"], w), setting)

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """As the base at the setting."""
        return self.at(down["setting"]).personal_model(problem, client, down["down"], data, key)

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """As the base at the setting."""
        return self.at(down["setting"]).join(problem, down["down"], data, key)

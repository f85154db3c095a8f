"""The interface of a method: a few pure functions for one client and one server, and nothing else.

A :class:`Method` is what an author writes: an Equinox module whose fields are its hyper-parameters, named as in its paper.
It never mentions the client axis, devices, or how it is executed; state is passed in and returned. An :class:`Algorithm` is
what the engine runs: the same functions as a tuple, which wrappers take and give back with a function replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from fedprior.core.batch import Data
from fedprior.core.hyper import hypers
from fedprior.core.kinds import kinds
from fedprior.core.problem import Problem
from fedprior.core.vectors import Tree, Vector, stack_one, weighted_mean
from fedprior.errors import FedpriorError

Info = dict[str, Array]  # scalar diagnostics of one client's round; never part of any state
Mixture = tuple[Array, Vector]  # weights [M] and models [M, ...]: a personal model is a mixture of M


class Algorithm(NamedTuple):
    """The functions of a method (see :class:`Method` for what each does), and whom it lets train."""

    participation: tuple[str, ...]
    check: Callable[[Problem, Vector], None]
    client: Callable[[Vector, Array], Tree]
    server: Callable[[Problem, Vector, int, Array], Tree]
    outbox: Callable[[Tree], Tree]
    send: Callable[[Tree, Array | None, Array], Tree]
    local: Callable[[Problem, Tree, Tree, Data, Array], tuple[Tree, Tree, Info]]
    merge: Callable[[Tree, Tree, Array, Array, Array], Tree]
    global_model: Callable[[Tree], Vector | None]
    with_global_model: Callable[[Tree, Vector], Tree]
    personal_model: Callable[[Problem, Tree, Tree, Data, Array], Mixture]
    join: Callable[[Problem, Tree, Data, Array], Tree]


class Method(eqx.Module):
    """Base of all methods: a server that holds one global model ``w``, and clients without lasting state."""

    participation: ClassVar[tuple[str, ...]] = ("sampled", "all")  # the modes that make sense, the default first
    paper: ClassVar[str] = ""  # the citation
    cites: ClassVar[str] = ""  # its key in methods/references.bib
    objective: ClassVar[str] = ""  # what is solved, as LaTeX; the module's docstring has the steps that solve it
    revision: ClassVar[int] = 1  # raised when the update changes: a run of another revision is not resumed
    no_return: ClassVar[str] = ""  # why a client whose state is lost cannot come back as a newcomer; "": it can
    weighted: ClassVar[bool] = True  # whether ``merge`` looks at its weights: the protocol's, by samples or uniform
    wrapper_defaults: ClassVar[Mapping[str, Any]] = {}  # settings of wrappers that fit this method better than theirs

    def __check_init__(self) -> None:
        for name, about in hypers(self).items():
            if (wrong := about.wrong(value := getattr(self, name), kinds(type(self))[name])) is not None:
                raise FedpriorError(f"{type(self).__name__}: {name} = {value!r} {wrong}")

    def in_force(self) -> dict[str, Any]:
        """The settings by name, each None replaced by the value that it stands for."""
        return {name: getattr(self, name) for name in hypers(self)}

    def check(self, problem: Problem, w0: Vector) -> None:
        """Refuse a problem that the method is not defined for; called once, before anything is compiled."""

    def client(self, w0: Vector, key: Array) -> Tree:
        """One client's lasting private state."""
        return ()

    def server(self, problem: Problem, w0: Vector, n_clients: int, key: Array) -> Tree:
        """The server's state; ``problem.init(key)`` gives further starting points."""
        return w0

    def outbox(self, server: Tree) -> Tree:
        """The part of the server's state that ``send`` reads; the rest stays on the server's own device."""
        return server

    def send(self, outbox: Tree, i: Array | None, key: Array) -> Tree:
        """What client i receives (i = None: a newcomer)."""
        return outbox

    def local(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> tuple[Tree, Tree, Info]:
        """One client's work in a round -> its new state, its upload, diagnostics."""
        raise NotImplementedError

    def merge(self, server: Tree, ups: Tree, weights: Array, ids: Array, key: Array) -> Tree:
        """The server's work in a round: uploads [S, ...] of clients ids [S], weights [S] summing to one.

        Where a method says nothing else, their weighted mean, as in FedAvg.
        """
        return weighted_mean(ups, weights)

    def global_model(self, server: Tree) -> Vector | None:
        """G: the one model for all, or None where the method has none. By default the server's state, if it is a model."""
        return server if isinstance(server, Vector) else None

    def with_global_model(self, server: Tree, w: Vector) -> Tree:
        """The server's state with its global model replaced (how server relaxation acts)."""
        if not isinstance(server, Vector):
            raise FedpriorError(
                f"{type(self).__name__}: the server holds more than its global model ({type(server).__name__}), and "
                "nothing says how that model is replaced there; write with_global_model(server, w) beside global_model"
            )
        return w

    def personal_model(self, problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        """P: this client's own model, as a mixture of weights [M] and models [M, ...]."""
        raise NotImplementedError

    def join(self, problem: Problem, down: Tree, data: Data, key: Array) -> Tree:
        """State of a client never seen in training, from what ``send(outbox, None)`` gives and its own data.

        By default one round of its own, from the state of a client that starts at the model it received. A method whose
        clients receive more than a model writes its own.
        """
        return self.local(problem, self.client(down, key), down, data, key)[0]

    def algorithm(self) -> Algorithm:
        """The functions of this method as a tuple."""
        return Algorithm(*(getattr(self, name) for name in Algorithm._fields))


def single(w: Vector) -> Mixture:
    """A personal model that is one model."""
    return jnp.ones((1,)), stack_one(w)


def at_values(method: Method, values: dict[str, Any]) -> Method:
    """The method with some of its numbers replaced, unchecked: they may be traced, and have no value yet."""
    if not values:
        return method
    return eqx.tree_at(lambda m: [getattr(m, name) for name in values], method, list(values.values()))

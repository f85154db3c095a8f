"""A site whose state is lost for good comes back as a newcomer: when its owner says so, and where the method allows it.

The owner says it of the one state that is lost (`allow`). The site then asks the server, which sends what it would send to a
newcomer, and the site makes its state of that and of its own samples, as newcomers do in a simulation (``join``). The server
goes on with all that it knows of the client. So a method whose server rests on what the lost state held says that nobody can
come back (``no_return``).
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedprior.core.vectors import Tree
from fedprior.data.federation import Samples
from fedprior.data.view import ClientData
from fedprior.engine.round import State, client_join, join_keys, server_start, welcome
from fedprior.errors import FedpriorError
from fedprior.flower.programs import Programs, seed_data
from fedprior.flower.state import STATE, StateLost, Store, as_file_name, keeping


class Newcomers:
    """What the server and a site run when the site comes back."""

    def __init__(self, programs: Programs):
        self.programs, self.algorithm = programs, programs.algorithm
        self._state = programs.like["client"]["client"]

    @property
    def has_state(self) -> bool:
        """Whether clients keep anything; where they do not, only the order of a site's batches starts again."""
        return bool(jax.tree.leaves(self._state))

    @cached_property
    def refusal(self) -> str:
        """Why a client cannot come back; "": it can."""
        if why := self.programs.program.method.no_return:
            return why
        if self.has_state and _shapes(self._like[1]) != _shapes(self._state):
            return "the state of the method's newcomers is not like that of its clients"
        return ""

    @property
    def like(self) -> Tree:
        """The shapes and types of what a newcomer receives."""
        return self._like[0] if self.has_state else ()

    @cached_property
    def _like(self) -> tuple[Tree, Tree]:
        train = self.programs.program.task.federation.train
        one = Samples(train.x, train.y, jnp.asarray(train.start)[:1], jnp.asarray(train.size)[:1])

        def once(seed: Array) -> tuple[Tree, Tree]:
            zero = jnp.zeros((), jnp.int32)
            _, server = server_start(self.programs.problem, self.algorithm, seed, self.programs.n_clients)
            down = welcome(self.algorithm, self.algorithm.outbox(server), join_keys(seed, zero, zero))
            return down, self._joined(self.programs.problem, one, down, seed, zero, zero)

        return jax.eval_shape(once, seed_data(0))

    def _joined(self, problem: Any, samples: Samples, down: Tree, seed: Array, t: Array, i: Array) -> Tree:
        keys = join_keys(seed, t, i)
        data = ClientData(samples, 0, self.programs.batch_size, keys.order, 0)
        return client_join(problem, self.algorithm, down, data, keys)

    # -- the server's ----------------------------------------------------------------------------------------------------

    def down(self, state: State, i: int) -> Tree:
        """What client i receives to begin anew."""
        return self._welcome(self.algorithm.outbox(state.server), state.seed, state.round, np.int32(i))

    @cached_property
    def _welcome(self) -> Any:
        if not self.has_state:
            return lambda outbox, seed, t, i: ()
        return self.programs.compiler(lambda outbox, seed, t, i: welcome(self.algorithm, outbox, join_keys(seed, t, i)))

    # -- a site's --------------------------------------------------------------------------------------------------------

    @cached_property
    def start(self) -> Any:
        """(samples, what it received, seed, t, i) -> the state and cursor with which client i begins anew after round t."""
        if not self.has_state:
            return lambda samples, down, seed, t, i: self.programs.client_start(seed, i)
        join = self.programs.with_problem(self._joined)
        return lambda *given: (join(*given), np.zeros((), np.int32))


def _shapes(tree: Tree) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def allow(path: Path) -> Path:
    """Let the site whose lost state was in the file begin anew, by a file beside it; what is not lost is left alone."""
    path = path.absolute()
    name, client, experiment = path.stem, unquote(path.parent.name), path.parent.parent.name
    parts = (r"[0-9a-f]{8}-[0-9a-f]{16}", experiment), (r"[0-9]{8}-[0-9a-f]{16}", name), (re.escape(STATE), path.suffix)
    if not all(re.fullmatch(*part) for part in parts) or as_file_name(client) != path.parent.name:
        raise FedpriorError(
            f"{path} is not the file of a site's state; give the one that the site's log says is lost, as it stands there"
        )
    store = Store(path.parents[2], experiment, client)
    try:
        store.arrays(name)
    except StateLost:
        pass
    else:
        raise FedpriorError(
            f"{path} is there and whole, so that nothing is lost; if it cannot be used, move it away first"
        )
    there = next(folder for folder in path.parents if folder.exists())
    if hasattr(os, "geteuid") and there.stat().st_uid != os.geteuid():
        raise FedpriorError(
            f"{there} belongs to another user; give this command as the one whose SuperNode writes there (sudo -u ...)"
        )
    with keeping(marker := store.marker(name)):
        store.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        marker.touch(mode=0o600)
    return marker

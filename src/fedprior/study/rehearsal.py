"""Which numbers of a method a program can take as data: those whose values are not needed to trace a round."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fedprior.core.vectors import Tree
from fedprior.data.federation import Samples
from fedprior.engine.round import State, client_model, client_round, keys_for, message, server_round
from fedprior.study.program import Program, method_for
from fedprior.study.task import Task
from fedprior.study.variant import Variant


def traceable(task: Task, variant: Variant) -> tuple[str, ...]:
    """The numbers among a method's fields that a program can take as data, since no Python code asks for their value."""
    method = method_for(task, variant)
    numbers = tuple(name for name, value in vars(method).items() if isinstance(value, float))
    if _traces(task, variant, numbers):
        return numbers
    single = tuple(name for name in numbers if _traces(task, variant, (name,)))
    return single if _traces(task, variant, single) else ()


def _traces(task: Task, variant: Variant, names: tuple[str, ...]) -> bool:
    """Whether a round and the personal model can be built without knowing the values of the named fields."""
    program = Program(task, variant, data=names)
    p, n = program.protocol, task.federation.n_clients

    def rehearse(values: Tree, train: Samples, key: jax.Array) -> Any:
        i, w0, a = jnp.int32(0), task.problem.init(key), program.algorithm_at(values)
        state = State(i, jax.random.key_data(key), a.server(task.problem, w0, n, key), (), (), values)
        down = message(a, a.outbox(state.server), state.seed, i, i)
        keys = keys_for(state.seed, i, i)
        client, _, up, _ = client_round(task.problem, a, train, i, p.batch, a.client(w0, key), i, down, keys)
        ids = jnp.arange(p.aggregated or n)
        ups = jax.tree.map(lambda x: jnp.stack([x] * len(ids)), up)
        server = server_round(a, state, ups, ids, jnp.asarray(train.size)[ids], p.weights)
        down = message(a, a.outbox(server), state.seed, i, i)
        return client_model(task.problem, a, train, i, p.batch, client, down, keys.order, key)

    values = {name: jnp.zeros(()) for name in names}
    try:
        jax.eval_shape(rehearse, values, Samples(*task.federation.train), jax.random.key(0))
    except TypeError:  # JAX's errors about values that are not known yet, and about types that they do not fit
        return False
    return True

"""What an engine refuses before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax

from fedprior.engine.round import WEIGHTS
from fedprior.engine.selection import check_selection, is_shipped
from fedprior.errors import FedpriorError, unknown

if TYPE_CHECKING:
    from fedprior.engine.engine import Engine


def check(engine: Engine) -> None:
    """Refuse what makes no sense, before the programs of a round are compiled."""
    n, modes = engine.federation.n_clients, engine.algorithm.participation
    if not 1 <= engine.aggregated <= n:
        raise FedpriorError(f"aggregated = {engine.aggregated} clients per round, but there are {n}; valid: 1 to {n}")
    if engine.participation not in modes:
        valid = " or ".join(modes)
        raise FedpriorError(f"participation '{engine.participation}' makes no sense for this method; valid: {valid}")
    if engine.weights not in WEIGHTS:
        raise unknown("weights", engine.weights, WEIGHTS)
    if engine.batch_size < 1 or engine.clients_per_vmap < 1:
        given = f"batch size {engine.batch_size} and clients_per_vmap {engine.clients_per_vmap}"
        raise FedpriorError(f"{given} must be at least 1")
    key = jax.random.key(0)
    engine.algorithm.check(engine.problem, engine.start_model(key))

    def choose(key: jax.Array, t: jax.Array, sizes: jax.Array, s: int) -> jax.Array:
        seed, t = jax.device_put((jax.random.key_data(key), t), engine.placement.devices[0])
        return engine.choose(seed, t, sizes)

    check_selection(choose, engine.sizes, engine.aggregated, tries=1 if is_shipped(engine.selection) else 64)
    engine.host_template()  # does the method's state fit N clients?

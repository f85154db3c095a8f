"""Programs that are compiled side by side before they are needed: their round is gone through with shapes for arrays."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import jax
from jax.sharding import NamedSharding

from fedprior.engine.placement import Placement

Run = Callable[..., Any]  # (program, *what it is given) -> what it gives
THREADS = 2  # one program takes most of the time; the others are done beside it


def run_now(program: Callable[..., Any], *given: Any) -> Any:
    """Run a program, and compile it before if nobody has."""
    return program(*given)


class Rehearsal:
    """Takes the place of `run_now`: traces and lowers programs in order, and has them compiled in threads meanwhile.

    Where a program would give arrays, its shapes come back. At the end of the ``with`` block everything is compiled, and the
    programs are found so when they are called; what the compiler refuses is raised there, as it would be then.
    """

    def __init__(self, placement: Placement):
        self._placement = placement
        self._pool = ThreadPoolExecutor(THREADS, "compile")
        self._compiled: list[Future[Any]] = []

    def __call__(self, program: Any, *given: Any) -> Any:
        """The shapes of what a program gives: in blocks if it runs on every device, and else on the first."""
        lowered = program.lower(*given)
        self._compiled.append(self._pool.submit(lowered.compile))
        everywhere = any(isinstance(leaf.sharding, NamedSharding) for leaf in jax.tree.leaves(given))
        where = self._placement.split if everywhere else self._placement.home
        return jax.tree.map(lambda shape: self._placement.shape_at(shape, where), lowered.out_info)

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown(wait=error is None, cancel_futures=error is not None)
        if error is None:
            for done in self._compiled:
                done.result()

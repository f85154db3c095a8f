"""FT: for the test, the personal model takes a few more gradient steps on training batches, which are not kept.

"Fine-tuning single personalized model one more step for local test" (PRIOR, appendix; its code was not released). There
is no proximal term. In a mixture each component takes its steps, and the weights stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax import Array, lax

from fedprior.core.batch import Data
from fedprior.core.hyper import Hyper
from fedprior.core.method import Algorithm, Method, Mixture
from fedprior.core.problem import Problem
from fedprior.core.vectors import Scalar, Tree, Vector
from fedprior.errors import FedpriorError
from fedprior.wrappers import Wrapper


def fine_tune(a: Algorithm, steps: int = 1, alpha: Scalar = 0.01) -> Algorithm:
    """The personal model, ``steps`` steps of size ``alpha`` further."""
    if (wrong := Hyper(least=1).wrong(steps, int)) is not None:
        raise FedpriorError(f"fine_tune = {steps!r} {wrong}")

    def personal_model(problem: Problem, client: Tree, down: Tree, data: Data, key: Array) -> Mixture:
        weights, models = a.personal_model(problem, client, down, data, key)
        picks = data.draw(steps)

        def tune(w: Vector) -> Vector:
            return lax.scan(lambda w, pick: (w - alpha * problem.grad(w, data.batch(pick)), None), w, picks)[0]

        return weights, lax.map(tune, models)

    return a._replace(personal_model=personal_model)


def step_of(settings: Mapping[str, Any], method: Method) -> Scalar:
    """The size of the steps: as set, or else the method's usual one."""
    own: Scalar = getattr(method, "alpha", 0.01)
    given: Scalar = {**method.wrapper_defaults, **settings}.get("fine_tune_step", own)
    return given


def _apply(algorithm: Algorithm, settings: Mapping[str, Any], method: Method) -> Algorithm:
    return fine_tune(algorithm, settings["fine_tune"], step_of(settings, method))


FINE_TUNING = Wrapper(
    kind=int,
    default=0,
    about=Hyper(
        "0: none; PRIOR's FT: 1 step", least=0, inert=0, meaning="more steps of the personal model before it is tested"
    ),
    apply=_apply,
)
STEP = Wrapper(
    kind=float,
    default=None,
    about=Hyper(
        "the method's own step size alpha, unless the method says otherwise; without one: 0.01",
        above=0,
        meaning="size of those steps",
    ),
    apply=None,
    part_of="fine_tune",
)

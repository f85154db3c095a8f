"""Fine-tuning: steps by hand, for each component of a mixture, of which nothing is kept."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import InTurn, Quadratic, assert_close, blobs, engine_of, rounds, states_of, vector

from fedprior.core.method import Algorithm
from fedprior.core.vectors import Vector
from fedprior.engine.engine import Engine
from fedprior.engine.evaluate import Evaluator
from fedprior.errors import FedpriorError
from fedprior.methods import make
from fedprior.wrappers.fine_tuning import fine_tune

# f(w) = h/2 (w - c)^2 with (c, h) of three batches: slopes 2 (w - 1), 2 (w - 7) and w
BATCHES = np.array([[1.0, 2.0], [7.0, 2.0], [0.0, 1.0]])
KEY = jax.random.key(0)


def model(algorithm: Algorithm, client: Any, down: Any) -> tuple[Any, Any]:
    """The personal model on those batches, in their order."""
    compiled = jax.jit(lambda c, d: algorithm.personal_model(Quadratic(1), c, d, InTurn(BATCHES), KEY))
    return compiled(client, down)


@pytest.mark.usefixtures("float64")
def test_steps_by_hand() -> None:
    """3 - .1 * 4 = 2.6, then 2.6 + .1 * 8.8 = 3.48; the weight of the only component stays."""
    plain = make("fedavg").algorithm()
    for steps, expected in ((1, 2.6), (2, 3.48)):
        weights, models = model(fine_tune(plain, steps, 0.1), (), vector(3.0))
        assert weights.tolist() == [1.0]
        assert_close(models, Vector(np.array([[expected]])))


@pytest.mark.usefixtures("float64")
def test_it_takes_the_batches_after_those_of_the_method() -> None:
    """Reptile adapts on the first batch, to 3 - .1 * 4 = 2.6; the step of fine-tuning is on the second: 3.48."""
    _, models = model(fine_tune(make("reptile", alpha=0.1, adapt=1).algorithm(), 1, 0.1), (), vector(3.0))
    assert_close(models, Vector(np.array([[3.48]])))


@pytest.mark.usefixtures("float64")
def test_each_component_of_a_mixture_takes_its_step_and_the_weights_stay() -> None:
    """3 - .1 * 2 * 2 = 2.6 and -4 + .1 * 2 * 5 = -3, on one and the same batch."""
    shares, learners = jnp.array([0.3, 0.7]), Vector(jnp.array([[3.0], [-4.0]]))
    weights, models = model(fine_tune(make("fedem", M=2).algorithm(), 1, 0.1), shares, learners)
    assert weights.tolist() == shares.tolist()
    assert_close(models, Vector(np.array([[2.6], [-3.0]])))


@pytest.mark.slow
def test_it_changes_the_test_and_not_the_run() -> None:
    problem, data = blobs()
    method = make("mh", R=2, alpha=0.1)
    plain = engine_of(problem, method, data, batch_size=8)
    tuned = Engine(problem, fine_tune(method.algorithm(), 1, 0.1), data, batch_size=8)
    a, b = rounds(plain, 2), rounds(tuned, 2)
    for x, y in zip(*(jax.tree.leaves((s.server, states_of(s, 5))) for s in (a, b)), strict=True):
        assert np.array_equal(x, y)
    models = [Evaluator(engine).personal_model(state, 3)[1] for engine, state in ((plain, a), (tuned, b))]
    assert float((models[0] - models[1]).norm()) > 1e-3


def test_it_replaces_nothing_but_the_personal_model() -> None:
    for name in ("fedavg", "pfedme"):
        plain = make(name).algorithm()
        tuned = fine_tune(plain)
        assert tuned.personal_model != plain.personal_model
        assert tuned._replace(personal_model=plain.personal_model) == plain


@pytest.mark.parametrize("steps", [0, -1])
def test_there_must_be_a_step(steps: int) -> None:
    with pytest.raises(FedpriorError, match=f"fine_tune = {steps} .* it must be a whole number of at least 1"):
        fine_tune(make("fedavg").algorithm(), steps)

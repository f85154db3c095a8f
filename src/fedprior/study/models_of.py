"""The models of a run: whose, of which round, as modules or ready to be saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprior.errors import FedpriorError, unknown
from fedprior.records import best
from fedprior.records.schema import NEWCOMERS, ClientId

if TYPE_CHECKING:
    from fedprior.core.method import Mixture
    from fedprior.data.federation import Federation
    from fedprior.engine.round import State
    from fedprior.models.saved import Predictor
    from fedprior.study.results import Result
    from fedprior.study.task import Task

ROUNDS = ("last", best.CHOICE)


def state_of(result: Result, choice: str) -> State:
    """The state of the round that is meant."""
    from fedprior.records import checkpoint

    if choice not in ROUNDS:
        raise unknown("round", str(choice), ROUNDS)
    if choice == "last":
        return result.state
    last = int(result.state.round)
    values = {t: value for t, value in best.on_validation(result.record.rows).items() if t <= last}
    if (t := best.first_best(values)) is None:
        raise FedpriorError(
            f"{result.name} has no round that is best on validation; give the task validation = 0.2, say"
        )
    if t == last:
        return result.state
    arrays = result.run.best_state(t)
    if arrays is None:
        raise FedpriorError(
            f"{result.run.where} keeps no state of round {t}, which is best on validation: it is damaged, or was written by "
            "an older version; run it again with --overwrite"
        )
    engine = result.trial.program.engine
    return engine.placement.from_host(checkpoint.unpack(arrays, engine.host_template(result.trial.values or ())))


def global_mixture(result: Result, state: State) -> Mixture | None:
    """The global model, or None where the method has none."""
    import jax

    from fedprior.core.method import single

    algorithm = result.trial.program.engine.algorithm_at(state.values)
    w = algorithm.global_model(jax.device_get(state.server))
    return None if w is None else single(w)


def personal_mixture(result: Result, state: State, client: ClientId) -> Mixture:
    """One client's personal model; a client that was held out of training joins for it, as it does to be scored."""
    whose, k = find_client(result.trial.program.task, client)
    evaluator, joined = result.trial.program.evaluator, whose is result.trial.program.task.newcomers
    return evaluator.newcomer_model(state, k) if joined else evaluator.personal_model(state, k)


def find_client(task: Task, client: ClientId) -> tuple[Federation, int]:
    """Among whom a client is, those who trained or the newcomers, and its place there."""
    groups = [task.federation, *([] if task.newcomers is None else [task.newcomers])]
    for group in groups:
        if client in group.ids:
            return group, group.ids.index(client)
    known = [one for group in groups for one in group.ids]
    listed = ", ".join(map(repr, known[:10])) + (f", ... ({len(known)} in all)" if len(known) > 10 else "")
    raise FedpriorError(f"client {client!r} does not exist; valid: {listed}")


def modules(result: Result, mixture: Mixture) -> list[Any]:
    """The models of a mixture as Equinox modules."""
    from fedprior.core.vectors import row

    problem = result.trial.program.task.problem
    return [problem.model(row(mixture[1], m)) for m in range(len(mixture[0]))]


def predictor(result: Result, state: State, client: ClientId | None, choice: str) -> Predictor:
    """A model of the run with all that it takes to use it elsewhere."""
    import jax

    from fedprior.core.vectors import row
    from fedprior.models.saved import Predictor, output_names

    task = result.trial.program.task
    if client is not None:
        whose, k = find_client(task, client)
        client = whose.ids[k]  # NumPy's numbers are equal to Python's, and not plain
    mixture = global_mixture(result, state) if client is None else personal_mixture(result, state, client)
    if mixture is None:
        raise FedpriorError(f"{result.name} has no global model; name the client whose model is meant")
    x = task.federation.train.x
    one = jax.ShapeDtypeStruct((1, *x.shape[1:]), x.dtype)
    outputs = jax.eval_shape(lambda m, x: task.problem.logits(row(m, 0), x), mixture[1], one).shape[-1]
    return Predictor(
        problem=task.problem,
        mixture=mixture,
        preparation=task.federation.preparation,
        x_shape=x.shape[1:],
        classes=output_names(task.federation.classes, outputs),
        client=client,
        about=_about(result, int(state.round), client, choice),
        built=_built(task),
    )


def _built(task: Task) -> Any:
    """What a registered model is built from; None for a model of the user's own."""
    from fedprior.models.file import Built

    if task.content is None:
        return None
    options = {key: value for key, value in task.settings.model.items() if key != "name"}
    vectors = task.federation.vectors
    return Built(
        name=task.settings.model["name"], options=options, vectors=None if vectors is None else list(vectors.shape)
    )


def _about(result: Result, t: int, client: ClientId | None, choice: str) -> dict[str, Any]:
    """How the model was trained, and what it scored on the test samples that are its own."""
    from fedprior.study.environment import environment

    trial, task, record = result.trial, result.trial.program.task, result.record
    model, samples, scored = "global", int(task.federation.test.size.sum()), list[dict[str, float]]()
    if client is None:
        scored = [row.values for row in record.rows if row[:4] == (t, "global", "own", "weighted")]
    else:
        whose, k = find_client(task, client)
        model, samples = NEWCOMERS[0] if whose is task.newcomers else "personal", int(whose.test.size[k])
        scored = [row.values for row in record.clients if row[:4] == (t, model, "own", client)]
    return {
        "task": task.name,
        "row": result.name,
        "method": trial.program.variant.method_name,
        "seed": trial.seed,
        "round": t,
        "chosen": choice,
        "of": model,
        "model": task.settings.model["name"],
        "versions": {name: version for name, version in environment().items() if name != "machine"},
        "test_samples": samples,
        "test_accuracy": scored[0]["accuracy"] if scored else None,  # None: not recorded, of this round or this client
    }

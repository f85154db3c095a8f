"""One variant compiled on one task. Some of its numbers may be data, so that one program serves many settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedprior import methods
from fedprior.core.compiling import Compiler, CompilerOptions, check_options
from fedprior.core.method import Algorithm, Info, Method, at_values
from fedprior.engine.coherence import CoherenceWatch
from fedprior.engine.cost import Cost, measure
from fedprior.engine.engine import Engine
from fedprior.engine.evaluate import Evaluator
from fedprior.engine.metrics import measured
from fedprior.engine.round import State
from fedprior.errors import FedpriorError, unknown
from fedprior.records.spending import rounds_within, spending
from fedprior.records.thinning import ClientRows, automatic
from fedprior.study.settings import Protocol, change_protocol
from fedprior.study.task import Task
from fedprior.study.variant import Variant, differ, name_of
from fedprior.wrappers import WRAPPERS, in_force, wrap
from fedprior.wrappers.fine_tuning import step_of

MOST_POOLED = 10**9  # predictions of personal models on the pooled test, beyond which they are made only on request


def method_for(task: Task, variant: Variant) -> Method:
    """The variant's method, with the task's hyper-parameters where it has them and the variant's own above those.

    What a name stands for (mh: mean = mh) is not for the task to change, only for the variant.
    """
    if not isinstance(variant.method, str):
        _check_given(task, variant.method)
        return variant.method
    known = methods.all_keys()
    for key in task.defaults:
        if key not in known:
            raise unknown(f"key in [method] of task '{task.name}'", key, known)
    has, preset = methods.keys(variant.method), methods.METHODS.find(variant.method).preset
    shared = {key: value for key, value in task.defaults.items() if key in has and key not in preset}
    return methods.make(variant.method, **{**shared, **variant.settings})


def _check_given(task: Task, method: Method) -> None:
    """Refuse an object of a registered method that would run with a default where its name runs with the task's value."""
    if (name := name_of(method)) not in methods.METHODS:
        return  # a class of the user's own is run as it is
    usual = method_for(task, Variant.of(name))
    for key in (key for key in task.defaults if key in methods.keys(name)):
        value, default = (
            getattr(method, key),
            methods.METHODS.find(name).preset.get(key, getattr(type(method), key, None)),
        )
        if not differ(value, default) and differ(value, getattr(usual, key)):
            raise FedpriorError(
                f"the given {type(method).__name__} has {key} = {value!r}, its default, where task '{task.name}' has "
                f"{getattr(usual, key)!r}; give the method by its name, '{name}', which takes the task's settings, with "
                f"what you change: fp.Variant.of('{name}', {key}={value!r})"
            )


def has_global_model(task: Task, method: Method) -> bool:
    """Whether a method keeps one model for all."""

    def model(key: jax.Array) -> Any:
        w0 = task.problem.init(key)
        return method.global_model(method.server(task.problem, w0, task.federation.n_clients, key))

    return jax.eval_shape(model, jax.random.key(0)) is not None


class Program:
    """One variant compiled on one task, on first use; ``data`` names the numbers of its method that are data.

    ``only_validation``: whether the test is left alone, as in a sweep. ``compiler``: that of the run that goes on.
    """

    def __init__(
        self,
        task: Task,
        variant: Variant,
        *,
        data: tuple[str, ...] = (),
        only_validation: bool = False,
        compiler: Compiler = Compiler(),  # noqa: B008  (it is frozen)
    ):
        self.task, self.variant, self.data, self.only_validation = task, variant, data, only_validation
        self._compiler = compiler
        self._otherwise: dict[tuple[tuple[str, str], ...], Program] = {}

    def compiled_with(self, options: CompilerOptions) -> Program:
        """The same program compiled with the options that a run recorded, so that the run keeps its bits."""
        if options == self._compiler.options:
            return self
        key = tuple(sorted(options.items()))
        if key not in self._otherwise:
            check_options(options)
            self._otherwise[key] = Program(
                self.task,
                self.variant,
                data=self.data,
                only_validation=self.only_validation,
                compiler=Compiler(options),
            )
        return self._otherwise[key]

    @cached_property
    def method(self) -> Method:
        """The method with all its settings."""
        return method_for(self.task, self.variant)

    @cached_property
    def changed(self) -> dict[str, Any]:
        """The settings in which the method differs from what its name stands for on this task."""
        if not isinstance(self.variant.method, str):
            return {}
        usual = vars(method_for(self.task, Variant.of(self.variant.method)))
        return {key: value for key, value in vars(self.method).items() if differ(value, usual[key])}

    @cached_property
    def protocol(self) -> Protocol:
        """The task's protocol with the variant's changes."""
        return change_protocol(self.task.protocol, self.variant.protocol, f"'{self.variant.name}'")

    def algorithm_at(self, values: Mapping[str, Any]) -> Algorithm:
        """The method's functions, with wrappers around them, at values of the numbers that are data."""
        method = at_values(self.method, dict(values))
        return wrap(method.algorithm(), self.variant.wrappers, method)

    def fine_tuned_at(self, values: Mapping[str, Any]) -> Algorithm:
        """The same with the steps of FT that are scored besides: the algorithm of the row with fine_tune = that many."""
        method = at_values(self.method, dict(values))
        return wrap(method.algorithm(), self.scored_wrappers, method)

    @property
    def scored_wrappers(self) -> dict[str, Any]:
        """The row's settings of wrappers, and with them the steps of FT that are scored besides, if any."""
        steps = self.protocol.score_fine_tuned
        return {**self.variant.wrappers, **({"fine_tune": steps} if steps else {})}

    def recorded_wrappers(self, method: Method) -> dict[str, Any]:
        """Those in force; of FT that is scored besides, the size of its steps, unless it is the usual one.

        The usual one was never recorded, and runs of before must go on.
        """
        step = step_of(self.variant.wrappers, method)
        scored = self.protocol.score_fine_tuned and step != step_of({}, method)
        return {**in_force(self.variant.wrappers, method), **({"fine_tune_step": step} if scored else {})}

    @cached_property
    def engine(self) -> Engine:
        """The engine that runs it."""
        return self._engine_with(lambda algorithm: algorithm)

    def _engine_with(self, change: Callable[[Algorithm], Algorithm]) -> Engine:
        p = self.protocol
        return Engine(
            self.task.problem,
            change(self.algorithm_at({})),
            self.task.federation,
            batch_size=self.batch_size,
            aggregated=p.aggregated,
            participation=p.participation,
            selection=self.task.select or p.selection,
            weights=p.weights,
            clients_per_vmap=p.clients_per_vmap,
            at=(lambda values: change(self.algorithm_at(values))) if self.data else None,
            compiler=self._compiler,
        )

    @cached_property
    def coherence_watch(self) -> CoherenceWatch | None:
        """What looks at the clients' envelope gradients on the way, where that is asked for."""
        return CoherenceWatch(self.engine, self._engine_with) if self.protocol.gce else None

    def step(self, state: State) -> tuple[State, Info]:
        """One round, as of :meth:`Engine.step`."""
        return (self.engine if self.coherence_watch is None else self.coherence_watch).step(state)

    @cached_property
    def batch_size(self) -> int:
        """The length of a batch: the protocol's, or the largest client's if that is less; the rest would be filling."""
        everyone = [self.task.federation, *([] if self.task.newcomers is None else [self.task.newcomers])]
        return min(self.protocol.batch, max(1, *(int(np.max(held.train.size)) for held in everyone)))

    @cached_property
    def cost(self) -> Cost:
        """What a client's round takes, counted."""
        return measure(self.method, self.task.problem, self.task.federation)

    @property
    def recorded_cost(self) -> dict[str, Any]:
        """What a client's round takes, and how many clients train."""
        clients, trains = self.task.federation.n_clients, self.engine.participation
        trained = clients if trains == "all" else self.engine.aggregated
        return {**dataclasses.asdict(self.cost), "trained_clients_per_round": trained}

    @cached_property
    def pooled(self) -> str:
        """When the personal models see the pooled test: not of themselves where N models on N clients' samples take long."""
        n, held = self.task.federation.n_clients, self.task.federation.test
        return self.protocol.pooled or ("last" if n * int(np.sum(held.size)) <= MOST_POOLED else "never")

    @cached_property
    def client_rows(self) -> ClientRows:
        """How many clients are recorded one by one."""
        everyone = [self.task.federation, *([] if self.task.newcomers is None else [self.task.newcomers])]
        largest = max(whose.n_clients for whose in everyone)
        rows = self.protocol.client_rows or automatic(largest)
        return rows if rows != "all" and rows < largest else "all"

    @cached_property
    def rounds(self) -> int:
        """How many rounds a run has: as many as the budget allows, or else the protocol's."""
        return self.rounds_by_budget or self.protocol.rounds

    @cached_property
    def rounds_by_budget(self) -> int | None:
        """How many rounds the budget allows; None without a budget, or if a round takes nothing of it."""
        if (budget := self.protocol.budget) is None:
            return None
        each = spending(self.recorded_cost, self.engine.aggregated)
        return rounds_within(budget.model_dump(), each, self.variant.name)

    @cached_property
    def evaluator(self) -> Evaluator:
        """Scores on the test."""
        tuned = self.fine_tuned_at if self.protocol.score_fine_tuned else None
        return Evaluator(self.engine, newcomers=self.task.newcomers, metrics=self.protocol.metrics, tuned=tuned)

    @property
    def is_tested(self) -> bool:
        """Whether the clients' models are scored on test samples."""
        return not self.only_validation and self.task.federation.is_tested

    @property
    def is_scored(self) -> bool:
        """Whether every evaluation gives numbers; where nothing is held out, none does."""
        return self.is_tested or self.validator is not None

    @property
    def newcomers_tested(self) -> bool:
        """Whether clients join at the end and are scored on test samples."""
        return not self.only_validation and self.task.newcomers is not None and self.task.newcomers.is_tested

    @cached_property
    def validator(self) -> Evaluator | None:
        """Scores on the validation samples, where there are any."""
        held = self.task.federation.validation
        if held is None or not np.sum(held.size):
            return None
        tuned = self.fine_tuned_at if self.protocol.score_fine_tuned else None
        return Evaluator(self.engine, "validation", metrics=self.protocol.metrics, tuned=tuned)

    def check_method(self) -> None:
        """Refuse a model that the method is not defined for: nothing else of the method need work on it."""
        self.engine.algorithm.check(self.task.problem, self.engine.start_model(jax.random.key(0)))

    def check(self) -> None:
        """Refuse what makes no sense, before anything is compiled or written."""
        self.check_method()
        name = type(self.method).__name__
        for key in in_force(self.variant.wrappers, self.method):
            if WRAPPERS.find(key).needs_global_model and not has_global_model(self.task, self.method):
                raise FedpriorError(
                    f"{key} acts on a global model, and {name} has none; leave {key} out, or give it to the rows that have "
                    f"one: -m fedavg:{key}=..."
                )
        modes, mode = self.method.participation, self.protocol.participation
        if mode is not None and mode not in modes:
            valid = " or ".join(modes)
            raise FedpriorError(f"participation '{mode}' makes no sense for {name}; valid: {valid}")
        if self.protocol.score_fine_tuned and "fine_tune" in in_force(self.variant.wrappers, self.method):
            raise FedpriorError(
                f"'{self.variant.name}' is fine-tuned before every test; score_fine_tuned adds that to a row without it: "
                "leave one of them out"
            )
        measured(self.protocol.metrics)
        assert self.rounds  # refuses a budget that is less than one round
        self.engine.check()
        if self.coherence_watch is not None:
            if not self.is_tested:
                raise FedpriorError("gce is recorded beside test scores, and nothing is tested here; leave gce out")
            self.coherence_watch.check()

    def values(self, method: Method) -> dict[str, jax.Array]:
        """The numbers that are data, as another method of the same class has them."""
        return {name: jnp.asarray(getattr(method, name), float) for name in self.data}

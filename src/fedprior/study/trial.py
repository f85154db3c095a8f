"""A trial: a program at given values and a seed. It is a generator of rounds; recording and progress watch it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedprior.core.method import Info, Method
from fedprior.core.random import Purpose, key_for
from fedprior.data.federation import Federation
from fedprior.engine.coherence import GCE
from fedprior.engine.round import State
from fedprior.engine.score import Score
from fedprior.errors import FedpriorError
from fedprior.records import thinning
from fedprior.records.schedule import Schedule
from fedprior.records.schema import (
    AVERAGES,
    FORMAT,
    NEWCOMERS,
    ClientId,
    ClientRow,
    LabelCounts,
    MetricInfo,
    Row,
    Times,
)
from fedprior.study.environment import environment
from fedprior.study.given import described, recorded
from fedprior.study.program import Program
from fedprior.study.settings import NOT_RECORDED
from fedprior.wrappers import WRAPPERS, in_force

PROBED = 4  # training samples on which the model at its start is recorded
Scores = dict[tuple[str, str], Score]  # (model, data) -> every client's own


class Diverged(FedpriorError):
    """A run whose numbers are no longer finite; its records are kept."""

    def __init__(self, message: str, at: int):
        super().__init__(message)
        self.round = at


class Round(NamedTuple):
    """What a round gave."""

    number: int
    state: State  # until the next round, which reuses its memory
    info: Info
    scores: Scores | None  # None: it was not evaluated
    train_seconds: float
    evaluation_seconds: float
    overall: Mapping[str, float] = {}  # numbers of all clients together, of which none has one of its own


@dataclass
class Trial:
    """A program at the values of ``method`` (None: the program's own) and a seed."""

    program: Program
    seed: int
    method: Method | None = None
    values: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.method = self.program.method if self.method is None else self.method
        self.values = self.program.values(self.method)

    def compiled_as(self, config: Mapping[str, Any]) -> Trial:
        """The trial compiled as the run with this configuration was; runs of older versions used the compiler's defaults."""
        program = self.program.compiled_with(config.get("compiler_options", {}))
        return self if program is self.program else Trial(program, self.seed, self.method)

    def init(self) -> State:
        """The state before the first round."""
        return self.program.engine.init(self.seed, self.values or ())

    def rounds(self, state: State) -> Iterator[Round]:
        """The rounds after ``state``; raises `Diverged` when numbers are no longer finite."""
        for t in range(int(state.round) + 1, self.program.rounds + 1):
            begun = time.perf_counter()
            state, info = self.program.step(state)
            finite = all(np.isfinite(float(value)) for value in info.values())
            between = time.perf_counter()
            scores = self.evaluate(state, t) if finite and self.schedule.is_due(t) else None
            if scores is not None and not scores:  # no loss would tell
                finite = is_finite(self.program.engine.placement.to_host(state))
            if not finite or not all(score.is_finite for score in (scores or {}).values()):
                raise Diverged(self._diagnosis(t), t)
            watch = self.program.coherence_watch if scores else None
            overall = {} if watch is None else {GCE.name: watch.gce()}
            yield Round(t, state, info, scores, between - begun, time.perf_counter() - between, overall)

    # -- when what is evaluated ----------------------------------------------------------------------------------------

    @property
    def schedule(self) -> Schedule:
        """When what is evaluated."""
        program = self.program
        return Schedule(program.rounds, program.protocol.eval_every, program.pooled, program.is_scored)

    def evaluate(self, state: State, t: int) -> Scores:
        """All scores of round t."""
        program = self.program
        scores: Scores = {}
        if program.is_tested:
            scores |= {(model, "own"): score for model, score in program.evaluator.own(state).items()}
            if self.schedule.is_pooled(t):
                scores |= {(model, "pooled"): score for model, score in program.evaluator.pooled(state).items()}
        if program.validator is not None:
            scores |= {(model, "validation"): score for model, score in program.validator.own(state).items()}
        if program.newcomers_tested and t == program.rounds:
            scores |= {(model, "own"): score for model, score in program.evaluator.newcomers(state).items()}
        return scores

    def _diagnosis(self, t: int) -> str:
        """What diverged, and what to try."""
        settings = vars(self.method)
        steps = [name for name in ("alpha", "alpha_m", "eta_alpha", "eta", "lam") if name in settings]
        alpha, lam = settings.get("alpha", 0), settings.get("lam", 0)
        hint = f"try a smaller {' or '.join(steps)}" if steps else "try smaller steps"
        if isinstance(lam, float) and alpha * lam > 1:
            hint = f"alpha * lam = {alpha * lam:g} is above 1, so the proximal loop overshoots: {hint}"
        return f"{self.program.variant.name} diverged in round {t}: its numbers are no longer finite; {hint}"

    # -- what is recorded ----------------------------------------------------------------------------------------------

    @cached_property
    def start(self) -> dict[str, Any]:
        """What tells this run's model and its start from others: names and shapes of its arrays, and what it first says."""
        # A copy: JAX remembers what it was given here, and a view of a few samples would keep all of them in memory.
        engine, x = self.program.engine, np.array(self.program.task.federation.train.x[:PROBED])
        w0 = engine.start_model(key_for(jax.random.key(self.seed), Purpose.INIT))
        arrays, _ = jax.tree.flatten_with_path(w0.tree)
        shapes = {jax.tree_util.keystr(path, simple=True, separator="."): list(array.shape) for path, array in arrays}
        problem_arrays = eqx.filter(engine.problem, eqx.is_array)
        scores = engine.compiler(lambda arrays, w, x: engine.rebuild(arrays).logits(w, x))(problem_arrays, w0, x)
        return {"shapes": shapes, "scores": np.asarray(scores, float).ravel()[:64].tolist()}

    def config(self) -> dict[str, Any]:
        """The resolved settings as they are recorded."""
        program, task, variant = self.program, self.program.task, self.program.variant
        engine, newcomers = program.engine, task.newcomers
        protocol = {
            **program.protocol.model_dump(exclude=NOT_RECORDED | program.protocol.unsaid),
            "rounds": program.rounds,
            "pooled": program.pooled,
            "aggregated": engine.aggregated,
            "participation": engine.participation,
            **({} if task.select is None else {"selection": described("selection", task.select)}),
        }
        config = {
            "format": FORMAT,
            "run": {
                "task": task.settings.model_dump(exclude={"about": True, "data": {"file"}}),
                "protocol": protocol,
                "variant": {
                    "name": variant.name,
                    "method": variant.method_name,
                    "settings": {name: recorded(value) for name, value in vars(self.method).items()},
                    "wrappers": program.recorded_wrappers(self.method or program.method),
                    "protocol": {key: value for key, value in variant.protocol.items() if key not in NOT_RECORDED},
                    "revisions": self._revisions(),
                },
                **({} if newcomers is None else {"newcomers": list(newcomers.ids)}),
                **({"numbers_as_data": list(program.data)} if program.data else {}),
                "seed": self.seed,
                "clients": task.federation.n_clients,
                "fingerprint": task.federation.fingerprint,
                "split": task.federation.split,
                **({} if task.federation.names is None else {"client_ids": list(task.partition.ids)}),
            },
            "given_selection": task.select is not None,
            "start": self.start,
            "changed": {key: recorded(getattr(self.method, key)) for key in program.changed},
            "metrics": [dataclasses.asdict(info) for info in self._measured],
            "environment": environment(),
            "compiler_options": dict(engine.compiler.options),
            "cost": program.recorded_cost,
        }
        if program.client_rows != "all":
            config[thinning.KEY] = program.client_rows
        if task.settings.data.file is not None:  # it may be moved: what it holds is what counts
            config["data_file"] = task.settings.data.file
        if not (program.is_tested or program.newcomers_tested or program.only_validation):
            config["tested"] = False
        if not program.is_scored:
            config["scored"] = False
        if any(metric.info.per_class for metric in program.evaluator.metrics.values()):
            config["class_names"] = [str(name) for name in task.federation.classes]
        return config

    def label_counts(self) -> LabelCounts | None:
        """How many samples of each class every recorded client has, newcomers too; None if that is to be left out."""
        task = self.program.task
        if not self.program.protocol.record_labels:
            return None
        clients: dict[ClientId, dict[str, list[int]]] = {}
        for whose in (task.federation, *([] if task.newcomers is None else [task.newcomers])):
            ids, kept = self._recorded(whose)
            for part in ("train", "test", "validation"):
                if (samples := getattr(whose, part)) is None:
                    continue
                owner = np.repeat(np.arange(whose.n_clients), samples.size)
                flat = np.bincount(
                    owner * whose.n_classes + np.asarray(samples.y), minlength=whose.n_clients * whose.n_classes
                )
                for k, counts in zip(kept, flat.reshape(whose.n_clients, -1)[kept].tolist(), strict=True):
                    clients.setdefault(ids[k], {})[part] = counts
        return LabelCounts(task.federation.classes, clients)

    @property
    def _measured(self) -> list[MetricInfo]:
        of_clients = [metric.info for metric in self.program.evaluator.metrics.values()]
        return [*of_clients, *([] if self.program.coherence_watch is None else [GCE])]

    def _revisions(self) -> dict[str, int]:
        """Which update of the method, and of each wrapper around it, the run is of."""
        variant, method = self.program.variant, self.program.method
        around = {key: WRAPPERS.find(key).revision for key in in_force(variant.wrappers, method)}
        return {variant.method_name: method.revision, **around}

    def rows(self, t: int, scores: Scores, overall: Mapping[str, float] | None = None) -> list[Row]:
        """The rows of metrics.csv for one round; ``overall`` numbers stand with every average of the personal models."""
        rows: list[Row] = []
        for (model, data), score in scores.items():
            by_average = score.averages()
            if (model, data) == ("personal", "own"):
                by_average = {average: {**values, **(overall or {})} for average, values in by_average.items()}
            rows += [Row(t, model, data, average, values) for average, values in by_average.items()]
            if (model, data) == ("global", "own"):  # one model on the union of all samples: what `weighted` is
                rows += [Row(t, model, "pooled", average, dict(by_average["weighted"])) for average in AVERAGES]
        return rows

    def client_rows(self, t: int, scores: Scores) -> list[ClientRow]:
        """The rows of clients.csv for one round."""
        rows: list[ClientRow] = []
        for (model, data), score in scores.items():
            whose = self.program.task.newcomers if model in NEWCOMERS else self.program.task.federation
            assert whose is not None
            ids, kept = self._recorded(whose)
            columns = {name: values[kept].tolist() for name, values in score.columns().items()}
            for k, (place, count) in enumerate(zip(kept, score.count[kept].tolist(), strict=True)):
                if count > 0:
                    values = {name: column[k] for name, column in columns.items() if column[k] == column[k]}
                    rows.append(ClientRow(t, model, data, ids[place], count, values))
        return rows

    def _recorded(self, whose: Federation) -> tuple[tuple[ClientId, ...], np.ndarray]:
        """What the clients are called, and the places of those that are recorded one by one."""
        ids = whose.ids
        return ids, thinning.recorded(ids, self.program.client_rows)

    def times(self, done: Round) -> Times:
        """The row of times.csv for one round."""
        return Times(done.number, round(done.train_seconds, 6), round(done.evaluation_seconds, 6))


def is_finite(state: State) -> bool:
    """Whether all numbers that clients and server keep are finite."""
    kept = jax.tree.leaves((state.clients, state.server))
    return all(bool(jnp.isfinite(x).all()) for x in kept if jnp.issubdtype(x.dtype, jnp.floating))


class Progress(NamedTuple):
    """What a watcher is told after each round."""

    round: int
    rounds: int
    accuracy: float | None  # percent, of the personal models (weighted, own test), at the last evaluation
    seconds: float  # of training in this call
    rows: tuple[Row, ...] = ()  # what evaluations gave since the last call; empty where there was none


Watch = Callable[[Progress], None]

"""A run: rounds of a method with evaluation, records, checkpoints and resume."""

from __future__ import annotations

import dataclasses
import functools
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

import fedprior
from fedprior.cost import measure, rounds_within
from fedprior.engine import Engine, State
from fedprior.errors import FedpriorError
from fedprior.evaluate import NEWCOMERS, Evaluator, Score, averages
from fedprior.experiment import Task, method_for
from fedprior.method import Method
from fedprior.records import RunFolder
from fedprior.tricks import FineTuned, Relaxed
from fedprior.vectors import Vector, row

CHECKPOINT_SECONDS = 30.0
PERSONAL_POOLED = ("personal", "pooled")


class Diverged(FedpriorError):
    """A run whose numbers left the finite; its records are kept."""


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after each round."""

    round: int
    rounds: int
    accuracy: float | None  # percent, of the personal models (weighted, own test), at the last evaluation
    seconds: float  # of training in this call


@dataclass
class Result:
    """A run's outcome: its metrics, every client's own values, and the models."""

    task: Task
    method: Method
    name: str
    seed: int
    state: State
    engine: Engine
    rows: list[tuple[Any, ...]] = field(default_factory=list)  # of metrics.csv
    scores: dict[tuple[int, str, str], Score] = field(default_factory=dict)  # (round, model, data) -> per client
    folder: RunFolder | None = None
    finished: bool = True
    warnings: list[str] = field(default_factory=list)

    def accuracy(self, model: str = "personal", data: str = "own", average: str = "weighted") -> float:
        """Test accuracy in percent at the last evaluated round."""
        found = [r[4] for r in self.rows if r[1:4] == (model, data, average)]
        if not found:
            raise FedpriorError(f"{self.name} has no '{model}' model evaluated on '{data}' ({average})")
        return cast(float, found[-1])

    def global_model(self) -> Any:
        """The global model as an Equinox module, or None where the method has none."""
        w = self.method.global_model(jax.device_get(self.state.server))
        return None if w is None else self.task.problem.model(w)

    def personal_model(self, client: int) -> tuple[np.ndarray, list[Any]]:
        """One client's personal model as mixture weights [M] and M Equinox modules (M = 1 for most methods)."""
        numbers, newcomers = self.task.federation.numbers, self.task.newcomers
        if newcomers is not None and client in newcomers.numbers:
            raise FedpriorError(f"client {client} was held out of training and has no lasting model")
        if client not in numbers:
            raise FedpriorError(f"client {client} does not exist; valid: 0 to {numbers[-1]}")
        weights, models = Evaluator(self.engine).personal_model(self.state, int(np.searchsorted(numbers, client)))
        return np.asarray(weights), [self.task.problem.model(row(models, m)) for m in range(len(weights))]


def environment() -> dict[str, str]:
    """What the bits of a result depend on besides its settings."""
    return {
        "fedprior": fedprior.__version__,
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": _processor(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return f"{platform.machine()} {sys.platform}"


class Trial:
    """One method on one task, compiled once and run with as many seeds as wanted."""

    def __init__(self, task: Task, method: Method, name: str | None = None):
        self.task, self.name = task, name or type(method).__name__.lower()
        e = task.experiment
        self.settings = {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}
        self.beta = e.beta if e.beta != 1 and self._has_global_model(method) else 1.0
        self.method = self.dressed(method)
        self.engine = Engine(
            task.problem,
            self.method,
            task.federation,
            batch_size=e.batch,
            aggregated=e.aggregated,
            participation=e.participation,
            selection=task.select or e.selection,
            weights=e.weights,
            chunk=e.chunk,
        )
        self.cost = functools.cache(functools.partial(measure, method, task.problem, task.federation))
        self.rounds = rounds_within(e.budget.gradients, self.cost(), self.name) if e.budget else e.rounds
        self.evaluator = Evaluator(self.engine, newcomers=task.newcomers)
        self.validator = Evaluator(self.engine, "validation") if e.validation else None

    def dressed(self, method: Method) -> Method:
        """The method with the tricks that the experiment asks for."""
        tricked = Relaxed(method, self.beta) if self.beta != 1 else method
        steps = self.task.experiment.fine_tune
        return FineTuned(tricked, steps, getattr(method, "alpha", 0.01)) if steps else tricked

    def start(self, seed: int) -> State:
        """The state before the first round."""
        return self.engine.init(seed)

    def _has_global_model(self, method: Method) -> bool:
        def model(key: jax.Array) -> Vector | None:
            w0 = self.task.problem.init(key)
            return method.global_model(method.server(self.task.problem, w0, self.task.federation.n_clients, key))

        return jax.eval_shape(model, jax.random.key(0)) is not None

    def config(self, seed: int) -> dict[str, Any]:
        """The resolved settings as they are recorded."""
        plain = (str, int, float, bool, type(None))
        settings = {k: v if isinstance(v, plain) else f"a given {type(v).__name__}" for k, v in self.settings.items()}
        e, newcomers = self.task.experiment, self.task.newcomers
        unused = {name for name in ("budget", "new_clients") if not getattr(e, name)}  # as in runs from before them
        clients, s, trains = self.task.federation.n_clients, self.engine.aggregated, self.engine.participation
        return {
            "run": {
                **e.model_dump(exclude={"about", "why", "method", "chunk", *unused}),
                **({} if newcomers is None else {"newcomers": newcomers.numbers.tolist()}),
                "rounds": self.rounds,
                "method": self.name,
                "settings": settings,
                "beta": self.beta,
                "participation": trains,
                "aggregated": s,
                "clients": clients,
                "seed": seed,
                "fingerprint": self.task.federation.fingerprint,
            },
            "environment": environment(),
            "cost": {**dataclasses.asdict(self.cost()), "trained_clients_per_round": clients if trains == "all" else s},
        }

    def run(
        self,
        seed: int,
        folder: Path | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
        watch: Callable[[Progress], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> Result:
        """Run to the last round (or until ``should_stop`` says so after a round), recording into ``folder`` if given.

        ``resume`` goes on from the folder's newest checkpoint if there is one; ``overwrite`` replaces a run that is there.
        """
        rounds, n = self.rounds, self.task.federation.n_clients
        state = self.start(seed)
        result = Result(self.task, self.method, self.name, seed, state, self.engine)
        record = result.folder = RunFolder(folder) if folder is not None else None
        if record is not None:
            if record.exists and not (resume or overwrite):
                raise FedpriorError(
                    f"{record.path} already holds a run; --resume goes on with it, --overwrite replaces it"
                )
            if record.exists and resume:
                state, result.rows, result.warnings = self._resume(record, seed, state)
            else:
                record.begin(self.config(seed))
        started, saved, trained = int(state.round), time.monotonic(), 0.0
        accuracy = next((r[4] for r in reversed(result.rows) if r[1:4] == ("personal", "own", "weighted")), None)
        watch(Progress(started, rounds, accuracy, 0.0))
        result.state = state
        for t in range(started + 1, rounds + 1):
            begun = time.perf_counter()
            state, info = self.engine.step(state)
            result.state = state
            finite = all(np.isfinite(float(value)) for value in info.values())
            between = time.perf_counter()
            trained += between - begun
            due = self._due(t)
            if due and finite:
                scores = self._evaluate(state, t)
                finite = all(np.isfinite(score.loss).all() for score in scores.values())
            if not finite:
                self._give_up(record, t)
            if due:
                rows = self._rows(t, scores)
                accuracy = next((r[4] for r in rows if r[1:4] == ("personal", "own", "weighted")), None)
                result.rows += rows
                result.scores.update(scores)
            last = t == rounds
            stopping = not last and should_stop()
            if record is not None:
                if due:
                    record.append("metrics.csv", rows)
                    record.append("clients.csv", self._client_rows(scores))
                record.append("times.csv", [(t, round(between - begun, 6), round(time.perf_counter() - between, 6))])
                if last or stopping or time.monotonic() - saved >= checkpoint_seconds:
                    record.save(state, n)
                    saved = time.monotonic()
            watch(Progress(t, rounds, accuracy, trained))
            if stopping:
                result.finished = False
                break
        if record is not None:
            record.set_status("finished" if result.finished else "stopped", int(state.round))
        return result

    def _resume(self, record: RunFolder, seed: int, start: State) -> tuple[State, list[tuple[Any, ...]], list[str]]:
        """Where the run in the folder goes on (it may be made longer), its rows so far, and what to warn about."""
        warnings = [f"resuming with another {w}" for w in record.check_same(self.config(seed))]
        found, damaged = record.restore(start, self.task.federation.n_clients)
        state = start if found is None else found
        at, rounds, before = int(state.round), self.rounds, record.config["run"]["rounds"]
        if rounds != before:
            if at >= rounds:
                raise FedpriorError(
                    f"{record.path} is at round {at} of {before} already and cannot end at rounds = {rounds}; "
                    f"give more rounds than {at}, or start anew with --overwrite"
                )
            record.extend(rounds)
        # Rows that a run of this length would not have: a shorter one's last round may be no evaluation of this one.
        record.rewind(at, self._wanted)
        rows: list[tuple[Any, ...]] = [
            (int(r["round"]), r["model"], r["data"], r["average"], float(r["accuracy"]), float(r["loss"]))
            for r in record.rows("metrics.csv")
        ]
        missing = [t for t in range(1, at + 1) if self._due(t) and t not in {row[0] for row in rows}]
        if missing:
            raise FedpriorError(
                f"{record.path / 'metrics.csv'} has lost round {missing[0]}; start anew with --overwrite"
            )
        if at < rounds:
            record.set_status("running", at)
        return state, rows, warnings + [f"checkpoint {name} is damaged; going on from round {at}" for name in damaged]

    def _due(self, t: int) -> bool:
        """Whether round t is evaluated."""
        return t % self.task.experiment.eval_every == 0 or t == self.rounds

    def _pooled_due(self, t: int) -> bool:
        """Whether the personal models see the pooled test after round t."""
        when = self.task.experiment.pooled
        return self._due(t) and (when == "every" or (when == "last" and t == self.rounds))

    def _wanted(self, t: int, model: str, data: str) -> bool:
        """Whether a run of this length has such a score of round t."""
        if model in NEWCOMERS:
            return t == self.rounds
        return self._pooled_due(t) if (model, data) == PERSONAL_POOLED else self._due(t)

    def _evaluate(self, state: State, t: int) -> dict[tuple[int, str, str], Score]:
        scores = {(t, model, "own"): score for model, score in self.evaluator.own(state).items()}
        if self._pooled_due(t):
            scores |= {(t, model, "pooled"): score for model, score in self.evaluator.pooled(state).items()}
        if self.validator is not None:
            scores |= {(t, model, "validation"): score for model, score in self.validator.own(state).items()}
        if self.task.newcomers is not None and t == self.rounds:
            scores |= {(t, model, "own"): score for model, score in self.evaluator.newcomers(state).items()}
        return scores

    def _rows(self, t: int, scores: dict[tuple[int, str, str], Score]) -> list[tuple[Any, ...]]:
        """The rows of metrics.csv for one round."""
        rows: list[tuple[Any, ...]] = []
        for (_, model, data), score in scores.items():
            accuracy = averages(score.accuracy, score.count)
            loss = averages(score.mean_loss, score.count, worst_is_low=False)
            rows += [(t, model, data, average, accuracy[average], loss[average]) for average in accuracy]
            if (model, data) == (
                "global",
                "own",
            ):  # one model on the union of all samples: its weighted mean over clients
                pooled = (accuracy["weighted"], loss["weighted"])
                rows += [(t, "global", "pooled", average, *pooled) for average in accuracy]
        return rows

    def _client_rows(self, scores: dict[tuple[int, str, str], Score]) -> list[tuple[Any, ...]]:
        """The rows of clients.csv for one round."""
        found: list[tuple[Any, ...]] = []
        for (t, model, data), score in scores.items():
            whose = self.task.newcomers if model in NEWCOMERS else self.task.federation
            assert whose is not None
            columns = (whose.numbers, score.accuracy, score.mean_loss, score.count)
            values = zip(*(column.tolist() for column in columns), strict=True)
            found += [(t, model, data, *each) for each in values if each[-1] > 0]
        return found

    def _give_up(self, record: RunFolder | None, t: int) -> None:
        steps = [k for k in ("alpha", "alpha_m", "eta_alpha", "eta", "lam") if k in self.settings]
        alpha, lam = self.settings.get("alpha", 0), self.settings.get("lam", 0)
        hint = f"try a smaller {' or '.join(steps)}" if steps else "try smaller steps"
        if isinstance(lam, float) and alpha * lam > 1:
            hint = f"alpha * lam = {alpha * lam:g} is above 1, so the proximal loop overshoots: {hint}"
        if record is not None:
            record.set_status("diverged", t)
        raise Diverged(f"{self.name} diverged in round {t}: its numbers are no longer finite; {hint}")


def run(
    task: Task,
    method: Method | str,
    *,
    seeds: int | list[int] = 1,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> list[Result]:
    """Run one method with several seeds; ``method`` is a registered name (with the task's settings) or a Method.

    ``out``: keep records in ``out/<task>/<method>/<seed>``.
    """
    name = method if isinstance(method, str) else type(method).__name__.lower()
    trial = Trial(task, method_for(task.experiment, method) if isinstance(method, str) else method, name)
    chosen = list(range(seeds)) if isinstance(seeds, int) else seeds
    return [
        trial.run(
            seed,
            Path(out) / task.experiment.name / name / str(seed) if out is not None else None,
            resume=resume,
            overwrite=overwrite,
        )
        for seed in chosen
    ]

"""Running a trial with its records: begin or resume, watch each round, and leave a run that can go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from fedprior.engine.round import State
from fedprior.errors import FedpriorError
from fedprior.records import best
from fedprior.records.lock import hold
from fedprior.records.provenance import now
from fedprior.records.reading import check_resumable, column_names
from fedprior.records.runs import MemoryRun, Run, RunFolder
from fedprior.records.schema import Row, Session, Status
from fedprior.records.thinning import KEY
from fedprior.study.results import Result
from fedprior.study.trial import Diverged, Progress, Round, Trial, Watch

CHECKPOINT_SECONDS = 30.0


class Recorder:
    """Watches the rounds of a trial and records them; a state is kept now and then, and at the end.

    With validation samples, so is the state of the best round: it is written with the next of those states, since a run that
    is killed before goes back behind it and meets it again.
    """

    def __init__(
        self, trial: Trial, run: Run, checkpoint_seconds: float = CHECKPOINT_SECONDS, before: Sequence[Row] = ()
    ):
        self.trial, self.run, self.checkpoint_seconds = trial, run, checkpoint_seconds
        self._saved = time.monotonic()
        self._on_validation = best.on_validation(before)
        self._best: tuple[best.Arrays, int] | None = None  # not written yet

    def watch(self, done: Round, keep: bool) -> list[Row]:
        """Record a round; ``keep``: whether its state must be kept now. Returns the averages over clients."""
        t, scores = done.number, done.scores or {}
        rows = self.trial.rows(t, scores, done.overall)
        self.run.append(rows, self.trial.client_rows(t, scores), self.trial.times(done))
        self._on_validation |= best.on_validation(rows)
        to_host = self.trial.program.engine.placement.to_host
        if t == best.first_best(self._on_validation):
            self._best = best.copied(to_host(done.state)), t
        if keep or time.monotonic() - self._saved >= self.checkpoint_seconds:
            if self._best is not None:
                self.run.keep_best(*self._best)
                self._best = None
            self.run.save(to_host(done.state), t)
            self.run.drop_best(self._on_validation)
            self._saved = time.monotonic()
        return rows


def run_trial(
    trial: Trial,
    folder: Path | None = None,
    *,
    resume: bool = False,
    overwrite: bool = False,
    watch: Watch = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    command: str | None = None,
) -> Result:
    """Run to the last round (or until ``should_stop`` says so after a round), recording into ``folder`` if given.

    ``resume`` goes on from the folder's newest checkpoint if there is one; ``overwrite`` replaces a run that is there.
    Meanwhile no other process may work in the folder. ``command`` is the command line, to be recorded.
    """
    if folder is None:
        return _run(trial, MemoryRun(), resume, watch, should_stop, checkpoint_seconds, command)
    run = RunFolder(folder)
    run.check_plain()
    with hold(folder):
        if run.exists:
            check_vacant(run, resume, overwrite)
        return _run(trial, run, resume, watch, should_stop, checkpoint_seconds, command)


def _run(
    trial: Trial,
    run: MemoryRun | RunFolder,
    resume: bool,
    watch: Watch,
    should_stop: Callable[[], bool],
    checkpoint_seconds: float,
    command: str | None,
) -> Result:
    rounds, warnings = trial.program.rounds, list[str]()
    if isinstance(run, RunFolder) and run.exists and resume:
        trial = trial.compiled_as(run.config)
        state, warnings = resume_run(trial, run, trial.init())
    else:
        state = trial.init()
        run.begin(trial.config())
    session = Session(now(), None, command, version("fedprior"))
    labels = trial.label_counts()
    if int(state.round) < rounds:
        run.sign(session, labels)
    result = Result(trial, state, run, warnings=warnings)
    before = run.record().rows
    accuracy = last_accuracy(before)
    watch(Progress(int(state.round), rounds, accuracy, 0.0))
    recorder, trained = Recorder(trial, run, checkpoint_seconds, before), 0.0
    try:
        for done in trial.rounds(state):
            stopping = done.number < rounds and should_stop()
            rows = recorder.watch(done, keep=stopping or done.number == rounds)
            result.state = done.state
            trained, accuracy = trained + done.train_seconds, last_accuracy(rows, accuracy)
            watch(Progress(done.number, rounds, accuracy, trained, tuple(rows)))
            if stopping:
                break
    except Diverged as error:
        run.set_status(Status.DIVERGED, error.round)
        run.sign(session._replace(ended=now()), labels)
        raise
    at = int(result.state.round)
    status = Status.FINISHED if at >= rounds else Status.STOPPED
    if not isinstance(run, RunFolder) or run.status != (status, at):  # a finished run that is reused is not touched
        run.set_status(status, at)
        run.sign(session._replace(ended=now()), labels)
    return result


def check_vacant(run: RunFolder, resume: bool, overwrite: bool) -> None:
    """Refuse to touch a run that is there, unless it is known what is meant."""
    if not (resume or overwrite):
        raise FedpriorError(f"{run.path} already holds a run; --resume goes on with it, --overwrite replaces it")


def last_accuracy(rows: Sequence[Row], before: float | None = None) -> float | None:
    """The accuracy of the personal models (weighted, own test) at the last evaluation among the rows, or ``before``."""
    wanted = ("personal", "own", "weighted")
    return next((row.values["accuracy"] for row in reversed(rows) if row[1:4] == wanted), before)


def resume_run(trial: Trial, run: RunFolder, start: State) -> tuple[State, list[str]]:
    """Where the run in the folder goes on (it may be made longer), and what to warn about."""
    config = trial.config()
    warnings = run.check_same(config)
    engine = trial.program.engine
    host, damaged = run.restore(engine.host_template(trial.values or ()))
    state = start if host is None else engine.placement.from_host(host)
    if host is None and not damaged and run.scan("times.csv").rows:
        warnings.append("no checkpoint is left; beginning again from round 0")
    at, rounds, before = int(state.round), trial.program.rounds, run.config["run"]["protocol"]["rounds"]
    if rounds != before and at >= rounds:
        raise FedpriorError(
            f"{run.path} is at round {at} of {before} already and cannot end at rounds = {rounds}; "
            f"give more rounds than {at}, choose another --out, or start anew with --overwrite"
        )
    lost = check_resumable(run.path, run.standing.clients, trial.schedule, at, KEY in config)
    if run.status == (Status.FINISHED, rounds) and at == rounds == before and not lost:
        return state, warnings
    if at < rounds:  # first of all: if it is killed in between, the tables may go further, but not less far
        run.set_status(Status.RUNNING, at)
    run.update(config)
    # Rows that a run of this length would not have go: a shorter one's last round may be no evaluation of this one.
    run.rewind(at, column_names(config), trial.schedule.is_wanted)
    run.drop_best(best.on_validation(run.rows("metrics.csv")))
    warnings += [f"checkpoint {name} is damaged; going on from round {at}" for name in damaged]
    return state, warnings + [f"{text}, which is not needed and goes" for text in lost]

"""The server of a deployed federation: rounds, records like those of a simulation, and one checkpoint to go on from.

Simulation scores round t with what is sent after its merge, which is what round t + 1 trains with. So the scores of round t
ride on the messages of round t + 1, clients that are not drawn get messages that only score, and a last phase only scores.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedprior.engine.round import State
from fedprior.engine.score import Score
from fedprior.errors import FedpriorError
from fedprior.files import digest, write_json
from fedprior.flower.bookkeeping import Ledger, Options
from fedprior.flower.exchange import Exchange, Reply, far_from_the_others
from fedprior.flower.messages import Order, Presence
from fedprior.flower.programs import Programs, seed_data
from fedprior.flower.roster import Patience, await_nodes, greet
from fedprior.flower.spec import Spec, open_spec
from fedprior.flower.wire import to_record
from fedprior.models.classifier import ModelBuilder
from fedprior.records import checkpoint
from fedprior.records.lock import hold
from fedprior.records.provenance import now
from fedprior.records.reading import column_names
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Session, Status, Times
from fedprior.study.trial import Scores, Trial

log = logging.getLogger("flwr")


def server_app(task: Path | str, model: ModelBuilder | None = None) -> ServerApp:
    """The ServerApp of a federation."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        serve(grid, open_spec(task, model), Options.of(context.run_config))

    return app


def serve(grid: Grid, spec: Spec, options: Options, patience: Patience | None = None) -> RunFolder:
    """Run a federation to its last round."""
    patience = replace(patience or Patience(), deadline=options.deadline)
    from fedprior.study.variant import Variant

    folder = Path(options.out) / spec.file.task.name / Variant.parse(options.row).name / str(options.seed)
    run = RunFolder(folder)
    run.check_plain()
    with hold(folder):
        if run.exists and not options.resume:
            raise FedpriorError(f"{folder} already holds a run; resume it (resume=true), or choose another out")
        nodes = await_nodes(grid, options.clients, patience)
        present = greet(grid, spec, nodes, patience)
        kept = _newest(run) if run.exists else None
        if kept is None:
            ledger = _enrol(present, spec, options)
        else:
            ledger = Ledger.from_array(kept.pop("ledger"))
            _recognise(ledger, present)
        server = Server(grid, spec, options, patience, run, ledger)
        server.run_all(kept)
    return run


def _newest(run: RunFolder) -> dict[str, np.ndarray] | None:
    for path in reversed(run.checkpoints):
        if (arrays := checkpoint.read(path)) is not None:
            return arrays
        log.warning("fedprior: checkpoint %s is damaged and passed over", path.name)
    return None


def _enrol(present: dict[str, Presence], spec: Spec, options: Options) -> Ledger:
    if len(present) < options.clients:
        there = ", ".join(map(repr, sorted(present))) or "none"
        raise FedpriorError(
            f"{options.clients} clients are to take part, and {len(present)} can (there: {there}); see the log"
        )
    names = sorted(present)
    return Ledger(
        experiment=f"{digest(spec.file.task.name)[:8]}-{secrets.token_hex(8)}",
        names=names,
        sizes=[(present[name].train, present[name].test) for name in names],
        fingerprints=[present[name].fingerprint for name in names],
        accepted=[""] * len(names),
    )


def _recognise(ledger: Ledger, present: dict[str, Presence]) -> None:
    for name, fingerprint in zip(ledger.names, ledger.fingerprints, strict=True):
        if name in present and present[name].fingerprint != fingerprint:
            raise FedpriorError(
                f"client {name!r} has other samples than when the run began; bring them back, or start a new run"
            )


class Server:
    """The rounds of one run."""

    def __init__(self, grid: Grid, spec: Spec, options: Options, patience: Patience, run: RunFolder, ledger: Ledger):
        self.options, self.run, self.ledger = options, run, ledger
        federation = spec.unseen(ledger.names, ledger.sizes, digest(*ledger.fingerprints))
        self.trial = Trial(spec.program(federation, options.row), options.seed)
        self.trial.program.check()
        self.programs = Programs(self.trial.program, len(ledger.names))
        self.sizes = np.array([size for size, _ in ledger.sizes], np.int32)
        self.exchange = Exchange(grid, self.programs.like, patience)
        self.exchange.rejected.update(ledger.rejected)

    def run_all(self, kept: dict[str, np.ndarray] | None) -> None:
        """Go through all rounds, from the beginning or from what a checkpoint kept."""
        config, rounds = {**self.trial.config(), "deployed": True}, self.trial.program.rounds
        session = Session(now(), None, None, version("fedprior"))
        if kept is None:
            state = self.programs.start(seed_data(self.options.seed))
            self.run.begin(config)
            self._save(state)
        else:
            self.run.check_same(config)
            state = checkpoint.unpack(kept, {"state": self.programs.like["state"]})["state"]
            # The scores of this round are asked for again: they ride on the messages of the next.
            self.run.rewind(int(state.round), column_names(config), lambda t, model, data: t < int(state.round))
            self.run.set_status(Status.RUNNING, int(state.round))
        self.run.sign(session, None)  # which labels a site has is its own affair
        while True:
            begun, t = time.perf_counter(), int(state.round)
            ids = np.asarray(self.programs.choose(state, self.sizes)) if t < rounds else np.array([], np.int32)
            replies = self._ask(state, ids, is_last=t == rounds)
            self._record(t, replies)
            if t == rounds:
                break
            state = self._merge(state, ids, replies)
            self.run.append([], [], Times(t + 1, round(time.perf_counter() - begun, 6), 0.0))
            self._save(state)
        self.run.set_status(Status.FINISHED, rounds)
        self.run.sign(session._replace(ended=now()), None)

    def _ask(self, state: State, ids: np.ndarray, is_last: bool) -> dict[str, Reply]:
        t, shared = int(state.round), self.programs.shared(state)
        score = t > 0 and self.trial.schedule.is_due(t)
        orders: dict[str, tuple[Order, Callable[[], RecordDict]]] = {}
        for i, name in enumerate(self.ledger.names):
            drawn = i in ids
            train = not is_last and (drawn or self.programs.trains_all)
            if not (train or score):
                continue

            def arrays(i: int = i, score: bool = score) -> RecordDict:
                content = RecordDict({"down": to_record(self.programs.down(state, i))})
                if score and shared is not None:
                    content["shared"] = to_record(shared)
                return content

            order = Order(
                experiment=self.ledger.experiment,
                client=name,
                index=i,
                clients=len(self.ledger.names),
                seed=self.options.seed,
                round=t,
                score=score,
                train=train,
                upload=train and drawn,
                begin=self.ledger.accepted[i],
                save="",
                secret="",
            )
            orders[name] = (order, arrays)
        replies = self.exchange(orders)
        for name in orders.keys() - replies.keys():
            self.ledger.absent[name] = self.ledger.absent.get(name, 0) + 1
        self.ledger.rejected = dict(self.exchange.rejected)
        return replies

    def _record(self, t: int, replies: dict[str, Reply]) -> None:
        """The scores of round t, of those that sent them."""
        if t == 0:
            return
        scores: Scores = {}
        if scored := {name: reply.sums for name, reply in replies.items() if reply.sums is not None}:
            count = np.array(
                [
                    test if name in scored else 0
                    for name, (_, test) in zip(self.ledger.names, self.ledger.sizes, strict=True)
                ]
            )
            nothing = jax.tree.map(lambda like: np.zeros(like.shape, like.dtype), self.programs.like["sums"])
            rows = [scored.get(name, nothing) for name in self.ledger.names]
            stacked = jax.tree.map(lambda *x: _exact(np.stack(x)), *rows)
            classes = tuple(map(str, self.trial.program.task.federation.classes))
            scores = {(model, "own"): Score(sums, count, classes) for model, sums in stacked.items()}
        rows_of = (self.trial.rows(t, scores), self.trial.client_rows(t, scores))
        self.run.append(*rows_of, None)
        said = [f"{row.values['accuracy']:.2f} %" for row in rows_of[0] if row[1:4] == ("personal", "own", "weighted")]
        log.info("fedprior: round %d of %d %s", t, self.trial.program.rounds, " ".join(said))
        write_json(self.run.path / "federation.json", {"round": t, **vars(self.ledger)})

    def _merge(self, state: State, ids: np.ndarray, replies: dict[str, Reply]) -> State:
        """The state after the round, from the uploads that arrived."""
        names = self.ledger.names
        ups = {names[i]: replies[names[i]].up for i in ids if names[i] in replies}
        if self.options.norm_limit:
            for name in far_from_the_others(ups, self.options.norm_limit):
                log.error(
                    "fedprior: round %d, client %r is left out: its upload is far from the others'",
                    state.round + 1,
                    name,
                )
                self.exchange.rejected[name] += 1
                del ups[name], replies[name]
        if len(ups) < self.options.minimum:
            self.run.set_status(Status.STOPPED, int(state.round))
            raise FedpriorError(
                f"round {int(state.round) + 1} has {len(ups)} valid replies of {len(ids)}; needed: {self.options.minimum}; "
                "see the log, mend the sites, and resume"
            )
        for name, reply in replies.items():
            if reply.saved is not None:
                self.ledger.accepted[names.index(name)] = reply.saved
        if not ups:
            return state._replace(round=state.round + 1)
        there = np.array([i for i in ids if names[i] in ups], np.int32)
        stacked = jax.tree.map(lambda *x: np.stack(x), *(ups[names[i]] for i in there))
        return jax.device_get(self.programs.merge(state, stacked, there, self.sizes))

    def _save(self, state: State) -> None:
        """Model, round and the clients' accepted states in one file, which is either the old one or the whole new one."""
        self.run.save({"state": state, "ledger": self.ledger.to_array()}, int(state.round))


def _exact(sums: np.ndarray) -> np.ndarray:
    return sums if np.issubdtype(sums.dtype, np.integer) else sums.astype(np.float64)

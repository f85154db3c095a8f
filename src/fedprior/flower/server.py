"""The server of a deployed federation: rounds, records like those of a simulation, and one checkpoint to go on from.

Simulation scores round t with what is sent after its merge, which is what round t + 1 trains with. So the scores of round t
ride on the messages of round t + 1, clients that are not drawn get messages that only score, and a last phase only scores.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedprior.engine.round import State
from fedprior.errors import FedpriorError
from fedprior.files import digest, write_json
from fedprior.flower.exchange import Exchange, Reply
from fedprior.flower.global_model import deployed
from fedprior.flower.judge import far_from_the_others, impossible, norm_of, scores_of
from fedprior.flower.kept import check_may_go_on, newest
from fedprior.flower.ledger import Ledger, enrol, recognise
from fedprior.flower.messages import Order
from fedprior.flower.options import Options
from fedprior.flower.programs import Programs, seed_data
from fedprior.flower.rejoin import Newcomers
from fedprior.flower.roster import Patience, gather
from fedprior.flower.spec import Spec, open_spec
from fedprior.flower.wire import to_record
from fedprior.models.classifier import ModelBuilder
from fedprior.records import checkpoint
from fedprior.records.lock import hold
from fedprior.records.provenance import now
from fedprior.records.reading import column_names
from fedprior.records.runs import RunFolder
from fedprior.records.schema import Session, Status, Times
from fedprior.study.trial import Trial, is_finite
from fedprior.study.variant import Variant

log = logging.getLogger("flwr")


def server_app(task: Path | str, model: ModelBuilder | None = None) -> ServerApp:
    """The ServerApp of a federation."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(grid, open_spec(task, model), Options.of(context.run_config))
        except FedpriorError as error:
            log.error("fedprior: %s", error)  # in one line, above the report that Flower makes of it
            raise

    return app


def serve(grid: Grid, spec: Spec, options: Options, patience: Patience | None = None) -> RunFolder:
    """Run a federation to its last round."""
    patience = replace(patience or Patience(), deadline=options.deadline)
    folder = Path(options.out).expanduser() / spec.file.task.name / Variant.parse(options.row).name / str(options.seed)
    run = RunFolder(folder)
    run.check_plain()
    with hold(folder, patience.handover if options.resume else 0.0):
        if options.resume and not run.exists:
            raise FedpriorError(f"{folder} holds no run to go on with; are out, row and seed those of the stopped run?")
        if run.exists and not options.resume:
            raise FedpriorError(f"{folder} already holds a run; resume it (resume=true), or choose another out")
        kept = newest(run)
        if kept is None:
            ledger = enrol(gather(grid, spec, options.clients, patience), spec.file.task.name, options.clients)
            server = Server(grid, spec, options, patience, run, ledger)
        else:
            ledger = Ledger.from_array(kept.pop("ledger"))
            server = Server(grid, spec, options, patience, run, ledger)
            state, rounds = server.state_of(kept), server.trial.program.rounds
            if int(state.round) == rounds and run.status == (Status.FINISHED, rounds):
                log.info("fedprior: %s is finished already, and is left as it is", folder)
                return run
            recognise(ledger, gather(grid, spec, options.clients, patience))
        try:
            server.run_all(server.begin() if kept is None else server.go_on(state))
        except FedpriorError:
            if run.checkpoints:
                log.error("fedprior: the run has stopped, and what is done is kept; mend the cause, and resume it")
            raise
    return run


class Server:
    """The rounds of one run."""

    def __init__(self, grid: Grid, spec: Spec, options: Options, patience: Patience, run: RunFolder, ledger: Ledger):
        self.options, self.run, self.ledger, self.digest = options, run, ledger, spec.digest
        federation = spec.unseen(ledger.names, ledger.sizes, digest(*ledger.fingerprints))
        self.trial = Trial(spec.program(federation, options.row), options.seed)
        self.trial.program.check()
        self.programs = Programs(self.trial.program, len(ledger.names))
        self.sizes = np.array([size for size, _ in ledger.sizes], np.int32)
        self.newcomers = Newcomers(self.programs)
        self.exchange = Exchange(grid, self.programs.like, patience, lambda: self.newcomers.refusal)
        self.exchange.rejected.update(ledger.rejected)
        self.exchange.lost.update(ledger.lost)
        if options.minimum > (drawn := self.programs.aggregated):
            raise FedpriorError(
                f"minimum = {options.minimum} replies can never arrive, since {drawn} of the {len(ledger.names)} clients "
                f"are drawn in a round; valid: 0 to {drawn}"
            )
        self.config: dict[str, Any] = {**self.trial.config(), "deployed": deployed(options, spec)}
        self.session = Session(now(), None, None, version("fedprior"))
        self.scored: int | None = None  # a round of which the scores are there, though they are asked for again

    def begin(self) -> State:
        """The state before the first round, in records of its own."""
        state = self.programs.start(seed_data(self.options.seed))
        self.run.begin(self.config)
        self._save(state)
        return state

    def state_of(self, kept: dict[str, np.ndarray]) -> State:
        """The state that a checkpoint kept; one that this run cannot go on from is refused."""
        state: State = checkpoint.unpack(kept, {"state": self.programs.like["state"]})["state"]
        for text in check_may_go_on(self.run, self.config, int(state.round)):
            log.warning("fedprior: %s", text)
        return state

    def go_on(self, state: State) -> State:
        """The same state, with the records cut back to it; the run may be made longer.

        The scores of this round are asked for again: they ride on the messages of the next. Where the run had ended here,
        those that are there are whole, and stay until the new ones arrive.
        """
        at, due = int(state.round), self.trial.schedule.is_wanted
        self.scored = at if self.run.status == (Status.FINISHED, at) else None
        last = at if self.scored == at else at - 1
        self.run.update(self.config)
        self.run.rewind(at, column_names(self.config), lambda t, model, data: t <= last and due(t, model, data))
        self.run.set_status(Status.RUNNING, at)
        return state

    def run_all(self, state: State) -> None:
        """Go through all rounds after this state."""
        rounds = self.trial.program.rounds
        self.run.sign(self.session, None)  # which labels a site has is its own affair
        while True:
            begun, t = time.perf_counter(), int(state.round)
            ids = np.asarray(self.programs.choose(state, self.sizes)) if t < rounds else np.array([], np.int32)
            orders = self._orders(state, ids, is_last=t == rounds)
            replies = self.exchange(orders)
            merged = self._merge(state, ids, replies)
            for name in orders.keys() - replies.keys():
                self.ledger.absent[name] = self.ledger.absent.get(name, 0) + 1
            self._record(t, replies)
            if t == rounds:
                if self._accept(replies, t):  # a client came back for the last scores
                    self._save(state)
                break
            self._require(t, sum(reply.up is not None for reply in replies.values()), len(ids))
            self.ledger.before = list(self.ledger.accepted)  # not in the last phase, which replaces a checkpoint
            self._accept(replies, t)
            state = merged
            self.run.append([], [], Times(t + 1, round(time.perf_counter() - begun, 6), 0.0))
            self._save(state)
        self._end(Status.FINISHED, rounds)

    def _orders(
        self, state: State, ids: np.ndarray, is_last: bool
    ) -> dict[str, tuple[Order, Callable[[Order], RecordDict]]]:
        """What every client is to do, and the arrays that it needs for that."""
        t, shared = int(state.round), self.programs.shared(state)
        score = t > 0 and self.trial.schedule.is_due(t)
        orders: dict[str, tuple[Order, Callable[[Order], RecordDict]]] = {}
        for i, name in enumerate(self.ledger.names):
            drawn = i in ids
            train = not is_last and (drawn or self.programs.trains_all)
            if not (train or score):
                continue

            def arrays(order: Order) -> RecordDict:
                content = RecordDict({"down": to_record(self.programs.down(state, order.index))})
                if order.score and shared is not None:
                    content["shared"] = to_record(shared)
                if order.join:
                    content["welcome"] = to_record(self.newcomers.down(state, order.index))
                return content

            order = Order(
                digest=self.digest,
                version=version("fedprior"),
                fingerprint=self.ledger.fingerprints[i],
                experiment=self.ledger.experiment,
                client=name,
                index=i,
                clients=len(self.ledger.names),
                batch=self.programs.batch_size,
                seed=self.options.seed,
                round=t,
                score=score,
                train=train,
                upload=train and drawn,
                begin=self.ledger.accepted[i],
                join=False,
                keep=self.ledger.before[i] if self.ledger.before else "",
                save="",
                secret="",
            )
            orders[name] = (order, arrays)
        return orders

    def _record(self, t: int, replies: dict[str, Reply]) -> None:
        """The scores of round t, of those that sent them."""
        if t == 0:
            return
        scored = {name: reply.sums for name, reply in replies.items() if reply.sums is not None}
        if t == self.scored:  # those that are there are of the same models, and perhaps of more clients
            if not {row.client for row in self.run.clients_of([t])} <= scored.keys():
                return
            self.run.rewind(t, column_names(self.config), lambda at, model, data: at < t)
        count = {name: test for name, (_, test) in zip(self.ledger.names, self.ledger.sizes, strict=True)}
        classes = tuple(map(str, self.trial.program.task.federation.classes))
        scores = scores_of(scored, count, self.programs.like["sums"], classes)
        rows_of = (self.trial.rows(t, scores), self.trial.client_rows(t, scores))
        self.run.append(*rows_of, None)
        said = [f"{row.values['accuracy']:.2f} %" for row in rows_of[0] if row[1:4] == ("personal", "own", "weighted")]
        log.info("fedprior: round %d of %d %s", t, self.trial.program.rounds, " ".join(said))

    def _merge(self, state: State, ids: np.ndarray, replies: dict[str, Reply]) -> State:
        """The state after the round, from the uploads that arrived; replies that cannot be used are taken out."""
        names, t = self.ledger.names, int(state.round) + 1

        def leave_out(name: str, why: str) -> None:
            self.exchange.leave_out(name, t, why)
            del replies[name]
            ups.pop(name, None)

        ups = {names[i]: replies[names[i]].up for i in ids if names[i] in replies}
        for name, (_, samples) in zip(names, self.ledger.sizes, strict=True):
            if name in replies and (why := impossible(replies[name].sums or {}, samples)):
                leave_out(name, why)
        if self.options.norm_limit:
            for name in far_from_the_others(ups, self.options.norm_limit):
                leave_out(name, "its upload is far from the others'")
        merged = self._merged(state, ids, ups)
        while ups and not is_finite(merged):  # finite numbers can be too large to be added up
            leave_out(max(ups, key=lambda name: norm_of(ups[name])), "its upload is too large to be merged")
            merged = self._merged(state, ids, ups)
        return merged

    def _require(self, t: int, valid: int, drawn: int) -> None:
        """Stop the run if fewer of the drawn clients than are needed sent what can be used."""
        if valid < self.options.minimum:
            self._end(Status.STOPPED, t)
            raise FedpriorError(
                f"round {t + 1} has {valid} valid replies of {drawn}; needed: {self.options.minimum}; "
                "see the log, mend the sites, and resume"
            )

    def _merged(self, state: State, ids: np.ndarray, ups: Mapping[str, Any]) -> State:
        if not ups:
            return state._replace(round=state.round + 1)
        there = np.array([i for i in ids if self.ledger.names[i] in ups], np.int32)
        stacked = jax.tree.map(lambda *x: np.stack(x), *(ups[self.ledger.names[i]] for i in there))
        return jax.device_get(self.programs.merge(state, stacked, there, self.sizes))

    def _accept(self, replies: dict[str, Reply], t: int) -> bool:
        """Let clients go on from the states that they made; whether any of them came back as a newcomer."""
        for name, reply in replies.items():
            if reply.saved is not None:
                self.ledger.accepted[self.ledger.names.index(name)] = reply.saved
            if reply.rejoined:
                self.ledger.rejoined.setdefault(name, []).append(t)
        return any(reply.rejoined for reply in replies.values())

    def _save(self, state: State) -> None:
        """Model, round and the clients' accepted states in one file, which is either the old one or the whole new one."""
        self._count()
        self.run.save({"state": state, "ledger": self.ledger.to_array()}, int(state.round))
        self._note(int(state.round))

    def _end(self, status: Status, t: int) -> None:
        self._note(t)
        self.run.set_status(status, t)
        self.run.sign(self.session._replace(ended=now()), None)

    def _note(self, t: int) -> None:
        """How the federation stands after round t, for `fedprior flower status`."""
        self._count()
        write_json(self.run.path / "federation.json", {"round": t, **vars(self.ledger)})

    def _count(self) -> None:
        self.ledger.rejected, self.ledger.lost = dict(self.exchange.rejected), sorted(self.exchange.lost)

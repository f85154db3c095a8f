"""A site: it answers hello with what it has, and orders with scores, an upload, and its new state on its own disk."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedprior.core.method import Mixture
from fedprior.errors import FedpriorError, first_line
from fedprior.flower.messages import Greeting, Order, Presence, Receipt, Shareable
from fedprior.flower.options import Options
from fedprior.flower.programs import Programs, seed_data
from fedprior.flower.rejoin import Newcomers
from fedprior.flower.site import Site, load_site
from fedprior.flower.spec import Spec, open_spec
from fedprior.flower.state import StateLost, Store, keeping
from fedprior.flower.wire import from_record, to_record
from fedprior.models.classifier import ModelBuilder

Load = Callable[[Mapping[str, Any]], Any]  # the node's configuration -> (x, y) or (x, y, is_test)
log = logging.getLogger("flwr")


def client_app(task: Path | str, load: Load, model: ModelBuilder | None = None) -> ClientApp:
    """The ClientApp of a site, whose samples ``load`` gives."""
    app, sites = ClientApp(), _Sites(task, load, model)

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        greeting = Greeting.from_content(message.content, "hello")
        try:
            site = sites.of(context)
            site.check(greeting.version, greeting.digest)
            presence = Presence(*site.samples.sizes, site.samples.fingerprint, "", greeting.secret)
        except Exception as error:  # whatever goes wrong, what it says is for the site's own log
            presence = Presence(0, 0, "", _told(error), greeting.secret)
        return Message(RecordDict({"presence": presence.to_record()}), reply_to=message)

    @app.train("round")
    def work(message: Message, context: Context) -> Message:
        order = Order.from_content(message.content, "order")
        content, receipt = RecordDict(), Receipt(order.secret, "", lost=False, rejoin=False)
        try:
            for name, tree in sites.of(context).obey(order, message.content).items():
                content[name] = to_record(tree)
        except Exception as error:
            lost, rejoin = isinstance(error, StateLost), isinstance(error, StateLost) and error.may_rejoin
            content, receipt = RecordDict(), Receipt(order.secret, _told(error), lost, rejoin)
        content["receipt"] = receipt.to_record()
        return Message(content, reply_to=message)

    return app


def _told(error: Exception) -> str:
    """What the server is told of an error, which is logged here: never a path or a value of a sample."""
    if isinstance(error, FedpriorError):
        log.error("fedprior: %s", error)
    else:
        log.error("fedprior: %s", first_line(error), exc_info=error)
    if isinstance(error, Shareable):
        return str(error)
    what = "its state is lost" if isinstance(error, StateLost) else "it could not do what was asked"
    return f"{what}; its own log says why, and what its owner can do"


def state_folder(node_config: Mapping[str, Any]) -> Path:
    """Where a site keeps its states: ``state-dir`` of its node's configuration, or a folder in the home of its user."""
    given = node_config.get("state-dir") or Path.home() / ".local" / "state" / "fedprior"
    return Path(str(given)).expanduser().absolute()


class _Sites:
    """The site of a node, opened when it is first needed and kept while the process lives."""

    def __init__(self, task: Path | str, load: Load, model: ModelBuilder | None):
        self._task, self._load, self._model = task, load, model
        self._open: dict[tuple[int, str], LocalSite] = {}

    def of(self, context: Context) -> LocalSite:
        key = (context.node_id, Options.of(context.run_config).row)
        if key not in self._open:
            spec = open_spec(self._task, self._model)
            samples = load_site(lambda: self._load(context.node_config), spec.sites)
            self._open[key] = LocalSite(spec, samples, key[1], state_folder(context.node_config))
        return self._open[key]


class LocalSite:
    """A site with its samples, its method and its states."""

    def __init__(self, spec: Spec, samples: Site, row: str, folder: Path):
        self.spec, self.samples, self.row, self.folder = spec, samples, row, folder
        # by the number of clients, on which what travels may depend, and the length of a batch
        self._programs: dict[tuple[int, int], Programs] = {}

    def check(self, release: str, digest: str, fingerprint: str | None = None) -> None:
        """Refuse a server that runs another version or another task, or that knows this site by other samples."""
        if release != (here := version("fedprior")):
            raise Shareable(f"the server runs fedprior {release[:50]}, this site {here}; install the same version")
        if digest != self.spec.digest:
            raise Shareable("the server's task file is not this site's; start the run anew, so that both have one app")
        if fingerprint is not None and fingerprint != self.samples.fingerprint:
            raise Shareable(
                "this site's samples are not those with which it began; bring them back, and it takes part again"
            )

    def programs(self, order: Order) -> Programs:
        """What this site runs as one of so many clients, with batches of this length."""
        key = (order.clients, order.batch)
        if key not in self._programs:
            federation = self.spec.federation(["this"], self.samples.train, self.samples.test, self.samples.fingerprint)
            program = self.spec.program(federation, self.row)
            if not 1 <= order.batch <= (most := program.protocol.batch):
                raise Shareable(f"the server asks for batches of {order.batch} samples; the task says 1 to {most}")
            self._programs[key] = Programs(program, *key)
        return self._programs[key]

    def obey(self, order: Order, content: RecordDict) -> dict[str, Any]:
        """Score and train as ordered; what is to be sent, by name."""
        self.check(order.version, order.digest, order.fingerprint)
        programs = self.programs(order)
        like = programs.like
        store = Store(self.folder, order.experiment, order.client)
        seed, t, i = seed_data(order.seed), np.int32(order.round), np.int32(order.index)
        down = from_record(_arrays(content, "down"), like["down"], "what the server sent")
        client, cursor = self._begin(order, content, programs, store)
        train, test = self.samples.train, self.samples.test
        reply: dict[str, Any] = {}
        if order.score:
            shared = like["shared"]
            if shared is not None:
                shared = from_record(_arrays(content, "shared"), shared, "the server's global model")
            reply["sums"] = programs.score(train, test, client, down, shared, seed, t, i)
            self._keep_model(store.model, order, programs.model(train, client, down, seed, t, i))
        if order.train:
            client, cursor, up, info = programs.local(train, client, cursor, down, seed, t, i)
            reply["info"] = info
            if order.upload:
                reply["up"] = up
        if order.save:
            store.write(order.save, {"client": client, "cursor": cursor})
        store.sweep(order.keep)
        return reply

    def _begin(self, order: Order, content: RecordDict, programs: Programs, store: Store) -> tuple[Any, Any]:
        """The state and cursor to go on from; one that is lost is never made anew, unless the site's owner has said so."""
        seed, t, i = seed_data(order.seed), np.int32(order.round), np.int32(order.index)
        if not order.begin:
            return programs.client_start(seed, i)
        newcomers = Newcomers(programs)
        if order.join:
            if not store.may_rejoin(order.begin):
                raise Shareable("it was told to begin anew, which its owner has not asked for")
            log.warning("fedprior: the state %s is lost, and this site begins anew, as a newcomer", order.begin)
            down = from_record(_arrays(content, "welcome"), newcomers.like, "what the server sent")
            return newcomers.start(self.samples.train, down, seed, t, i)
        try:
            own = store.read(order.begin, programs.like["client"])
        except StateLost as lost:
            agreed = store.may_rejoin(order.begin) and not newcomers.refusal
            if newcomers.refusal:
                way_out = f"without it the site cannot come back into this run ({newcomers.refusal})"
            elif agreed:
                way_out = "as its owner has said, the site asks to begin anew"
            else:
                command = f"fedprior flower rejoin {shlex.quote(str(store.path(order.begin)))}"
                way_out = f"if it is lost for good, `{command}` lets the site come back as a newcomer"
            error = StateLost(f"{lost}; {way_out}")
            error.may_rejoin = agreed
            raise error from lost
        return own["client"], own["cursor"]

    def _keep_model(self, path: Path, order: Order, mixture: Mixture) -> None:
        """Write the personal model after a round where its owner finds it: ready for `fp.load` and ``fedprior predict``."""
        about = {
            "task": self.spec.file.task.name,
            "row": self.row,
            "seed": order.seed,
            "round": order.round,
            "versions": {"fedprior": version("fedprior")},
        }
        predictor = self.spec.predictor(self.programs(order).problem, mixture, order.client, about)
        with keeping(path):
            predictor.save(path, mode=0o600)


def _arrays(content: RecordDict, key: str) -> ArrayRecord:
    record = content.get(key)
    if not isinstance(record, ArrayRecord):
        raise Shareable(f"a message without '{key}'; is another version of fedprior at work there?")
    return record

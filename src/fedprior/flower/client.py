"""A site: it answers hello with what it has, and orders with scores, an upload, and its new state on its own disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedprior.core.method import Mixture
from fedprior.data.preparation import Preparation
from fedprior.errors import FedpriorError, first_line
from fedprior.flower.messages import HELLO, ROUND, Greeting, Order, Presence, Receipt
from fedprior.flower.programs import Programs, seed_data
from fedprior.flower.site import Site, open_site
from fedprior.flower.spec import Spec, open_spec
from fedprior.flower.state import StateLost, Store, as_file_name
from fedprior.flower.wire import from_record, to_record
from fedprior.models.classifier import ModelBuilder
from fedprior.models.saved import Predictor, output_names

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
            site.check(greeting)
            presence = Presence(*site.samples.sizes, site.samples.fingerprint, "", greeting.secret)
        except FedpriorError as error:
            log.error("fedprior: %s", error)
            presence = Presence(0, 0, "", str(error), greeting.secret)
        return Message(RecordDict({"presence": presence.to_record()}), reply_to=message)

    @app.train("round")
    def work(message: Message, context: Context) -> Message:
        order = Order.from_content(message.content, "order")
        content, problem, lost = RecordDict(), "", False
        try:
            for name, tree in sites.of(context).obey(order, message.content).items():
                content[name] = to_record(tree)
        except FedpriorError as error:
            log.error("fedprior: %s", error)
            content, problem, lost = RecordDict(), str(error), isinstance(error, StateLost)
        content["receipt"] = Receipt(order.secret, problem, lost).to_record()
        return Message(content, reply_to=message)

    return app


def state_folder(node_config: Mapping[str, Any]) -> Path:
    """Where a site keeps its states: ``state-dir`` of its node's configuration, or a folder in the home of its user."""
    return Path(str(node_config.get("state-dir") or Path.home() / ".local" / "state" / "fedprior"))


class _Sites:
    """The site of a node, opened when it is first needed and kept while the process lives."""

    def __init__(self, task: Path | str, load: Load, model: ModelBuilder | None):
        self._task, self._load, self._model = task, load, model
        self._open: dict[tuple[int, str], LocalSite] = {}

    def of(self, context: Context) -> LocalSite:
        key = (context.node_id, str(context.run_config["row"]))
        if key not in self._open:
            spec = open_spec(self._task, self._model)
            try:
                given = self._load(context.node_config)
            except FedpriorError:
                raise
            except Exception as error:  # whatever the owner's function raises
                raise FedpriorError(f"this site's data cannot be loaded: {first_line(error)}") from error
            samples = open_site(given, spec.sites)
            self._open[key] = LocalSite(spec, samples, key[1], state_folder(context.node_config))
        return self._open[key]


class LocalSite:
    """A site with its samples, its method and its states."""

    def __init__(self, spec: Spec, samples: Site, row: str, folder: Path):
        self.spec, self.samples, self.row, self.folder = spec, samples, row, folder
        self._programs: dict[int, Programs] = {}  # by the number of clients, on which what travels may depend

    def check(self, greeting: Greeting) -> None:
        """Refuse a server that runs another task or another version."""
        if greeting.version != (here := version("fedprior")):
            raise FedpriorError(
                f"the server runs fedprior {greeting.version}, this site {here}; install the same version"
            )
        if greeting.digest != self.spec.digest:
            raise FedpriorError(
                "the server's task file is not this site's; start the run anew, so that both have one app"
            )

    def programs(self, n_clients: int) -> Programs:
        """What this site runs as one of so many clients."""
        if n_clients not in self._programs:
            federation = self.spec.federation(["this"], self.samples.train, self.samples.test, self.samples.fingerprint)
            self._programs[n_clients] = Programs(self.spec.program(federation, self.row), n_clients)
        return self._programs[n_clients]

    def obey(self, order: Order, content: RecordDict) -> dict[str, Any]:
        """Score and train as ordered; what is to be sent, by name."""
        programs = self.programs(order.clients)
        like = programs.like
        store = Store(self.folder, order.experiment, order.client)
        seed, t, i = seed_data(order.seed), np.int32(order.round), np.int32(order.index)
        down = from_record(_arrays(content, "down"), like["down"], "what the server sent")
        if order.begin:
            own = store.read(order.begin, like["client"])
            client, cursor = own["client"], own["cursor"]
        else:
            client, cursor = programs.client_start(seed, i)
        train, test = self.samples.train, self.samples.test
        reply: dict[str, Any] = {}
        if order.score:
            shared = like["shared"]
            if shared is not None:
                shared = from_record(_arrays(content, "shared"), shared, "the server's global model")
            reply["sums"] = programs.score(train, test, client, down, shared, seed, t, i)
            self._keep_model(order, programs.model(train, client, down, seed, t, i))
        if order.train:
            client, cursor, up, info = programs.local(train, client, cursor, down, seed, t, i)
            store.write(order.save, {"client": client, "cursor": cursor})
            reply["info"] = info
            if order.upload:
                reply["up"] = up
        store.sweep(order.begin)
        return reply

    def _keep_model(self, order: Order, mixture: Mixture) -> None:
        """Write the personal model after a round where its owner finds it: ready for `fp.load` and ``fedprior predict``."""
        problem, sites = self.programs(order.clients).problem, self.spec.sites
        predictor = Predictor(
            problem,
            mixture,
            Preparation(shape=tuple(sites.shape)),
            tuple(sites.shape),
            output_names(sites.classes, len(sites.classes)),
            order.client,
            {
                "task": self.spec.file.task.name,
                "row": self.row,
                "seed": order.seed,
                "round": order.round,
                "versions": {"fedprior": version("fedprior")},
            },
            self.spec.built,
        )
        path = predictor.save(self.folder / f"{as_file_name(order.client)}-{order.experiment}.safetensors")
        path.chmod(0o600)


def _arrays(content: RecordDict, key: str) -> ArrayRecord:
    record = content.get(key)
    if not isinstance(record, ArrayRecord):
        raise FedpriorError(f"a message without '{key}'; is another version of fedprior at work there?")
    return record


__all__ = ["HELLO", "ROUND", "LocalSite", "client_app", "state_folder"]

"""Who takes part: nodes by the names under which their keys were registered, and what each site has.

A client is never who it says it is. Flower authenticates a node by its key, and its name is the one that the federation's
owner gave to that key.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedprior.errors import FedpriorError
from fedprior.flower.messages import HELLO, Greeting, Presence
from fedprior.flower.spec import Spec

log = logging.getLogger("flwr")


@dataclass(frozen=True)
class Patience:
    """How long is waited for replies, and how often is looked for them, in seconds."""

    deadline: float = 600.0
    poll: float = 0.5
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Address(NamedTuple):
    """Where a client is reached: a node that was started anew has the same number, and knows of no earlier message."""

    node: int
    since: str


def nodes_by_name(grid: Grid) -> dict[str, Address]:
    """The nodes that are there, by their registered names."""
    found: dict[str, Address] = {}
    for node in grid.get_nodes():
        if not node.name:
            raise FedpriorError(
                f"node {node.node_id} has no name, so that nobody can say whose it is; register its key with "
                "`flwr supernode register KEY --name NAME`, and run the SuperLink with --enable-supernode-auth"
            )
        if node.name in found:
            raise FedpriorError(f"two nodes are called {node.name!r}; unregister one of them")
        found[node.name] = Address(node.node_id, node.last_activated_at)
    return found


def await_nodes(grid: Grid, wanted: int, patience: Patience) -> dict[str, Address]:
    """The nodes by name, as soon as there are as many as are wanted, or at the deadline."""
    end = patience.clock() + patience.deadline
    while True:
        found = nodes_by_name(grid)
        if len(found) >= wanted or patience.clock() >= end:
            return found
        patience.sleep(patience.poll)


def greet(grid: Grid, spec: Spec, nodes: Mapping[str, Address], patience: Patience) -> dict[str, Presence]:
    """What each site has, by client; a site that cannot take part is named in the log, and is not there."""
    asked: dict[str, tuple[str, str]] = {}  # message -> client, secret
    messages, whose = [], []
    for name, (node, _) in nodes.items():
        secret = secrets.token_hex(16)
        greeting = Greeting(name, spec.digest, version("fedprior"), secret)
        messages.append(
            Message(RecordDict({"hello": greeting.to_record()}), node, HELLO, ttl=max(patience.deadline, 1.0))
        )
        whose.append((name, secret))
    for number, about in zip(grid.push_messages(messages), whose, strict=True):
        asked[str(number)] = about
    present: dict[str, Presence] = {}
    end = patience.clock() + patience.deadline
    while asked:
        for reply in grid.pull_messages(list(asked)):
            if reply.metadata.reply_to_message_id in asked:
                _welcome(*asked.pop(reply.metadata.reply_to_message_id), reply, present)
        if not asked or patience.clock() >= end:
            break
        patience.sleep(patience.poll)
    for name, _ in asked.values():
        log.warning("fedprior: client %r did not answer in time", name)
    return present


def _welcome(name: str, secret: str, reply: Message, present: dict[str, Presence]) -> None:
    try:
        if reply.has_error():
            raise FedpriorError(reply.error.reason or "its app failed")
        presence = Presence.from_content(reply.content, "presence")
        if presence.secret != secret:
            raise FedpriorError("its reply does not hold the secret of the message")
        if presence.problem:
            raise FedpriorError(presence.problem)
        if min(presence.train, presence.test) < 1 or max(presence.train, presence.test) >= 2**31:
            raise FedpriorError(f"it says that it has {presence.train} and {presence.test} samples")
    except FedpriorError as error:
        log.error("fedprior: client %r cannot take part: %s", name, str(error)[:500])
        return
    present[name] = presence

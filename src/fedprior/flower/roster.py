"""Who takes part: nodes by the names under which their keys were registered, and what each site has.

A client is never who it says it is. Flower authenticates a node by its key, and its name is the one that the federation's
owner gave to that key.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedprior.errors import FedpriorError, first_line, printable
from fedprior.flower.messages import HELLO, Greeting, Presence
from fedprior.flower.spec import Spec

log = logging.getLogger("flwr")


@dataclass(frozen=True)
class Patience:
    """How long is waited for replies, and how often is looked for them, in seconds."""

    deadline: float = 600.0
    poll: float = 0.5
    handover: float = 60.0  # for the records of a stopped server, whose process may take a while to notice and to end
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Address(NamedTuple):
    """Where a client is reached: a node that was started anew has the same number, and knows of no earlier message."""

    node: int
    since: str


class Around(NamedTuple):
    """Nodes by their registered names, and what is wrong with others, of which nobody can say whose they are."""

    nodes: dict[str, Address]
    problems: list[str]


def look_around(grid: Grid) -> Around:
    """The nodes that are there."""
    found: dict[str, Address] = {}
    problems, twice = [], set()
    for node in grid.get_nodes():
        if not node.name:
            problems.append(
                f"node {node.node_id} has no name, so that nobody can say whose it is; register its key with "
                "`flwr supernode register KEY --name NAME`, and run the SuperLink with --enable-supernode-auth"
            )
        elif node.name in found:
            problems.append(f"two nodes are called {node.name!r}; unregister one of them")
            twice.add(node.name)
        else:
            found[node.name] = Address(node.node_id, node.last_activated_at)
    return Around({name: address for name, address in found.items() if name not in twice}, problems)


def push(grid: Grid, message: Message) -> str:
    """Send one message: its number, or "" where Flower does not take it."""
    numbers = list(grid.push_messages([message]))  # a message that is too large gets none at all
    return str(numbers[0]) if numbers and numbers[0] is not None else ""


def pull(grid: Grid, number: str) -> list[Message]:
    """The reply to a message, if it is there.

    One at a time: what a stranger sent may be impossible to unpack, and would take the others' replies with it.
    """
    try:
        return list(grid.pull_messages([number]))
    except Exception as error:  # whatever a stranger's bytes bring about
        raise FedpriorError(f"its reply cannot be unpacked ({first_line(error)})") from error


def gather(grid: Grid, spec: Spec, wanted: int, patience: Patience) -> dict[str, Presence]:
    """What each site has, by client, as soon as so many are there and have answered, or at the deadline.

    A site that cannot take part is named in the log, and is not among them.
    """
    end = patience.clock() + patience.deadline
    present: dict[str, Presence] = {}
    known: dict[str, Address] = {}
    asked: dict[str, tuple[str, str]] = {}  # client -> message, secret
    said: set[Address] = set()  # of nodes that could not be asked
    while True:
        nodes, problems = look_around(grid)
        if problems:
            raise FedpriorError(problems[0])
        for name, address in nodes.items():
            if known.get(name) != address:
                secret = secrets.token_hex(16)
                greeting = Greeting(spec.digest, version("fedprior"), secret)
                content, ttl = RecordDict({"hello": greeting.to_record()}), max(end - patience.clock(), 1.0)
                if number := push(grid, Message(content, address.node, HELLO, ttl=ttl)):
                    known[name], asked[name] = address, (number, secret)
                elif address not in said:
                    said.add(address)
                    log.warning("fedprior: client %r could not be asked, and is asked again; is its node gone?", name)
        for name, (number, secret) in list(asked.items()):
            try:
                for reply in pull(grid, number):
                    del asked[name]
                    present[name] = _presence(secret, reply)
            except FedpriorError as error:
                asked.pop(name, None)
                log.error("fedprior: client %r cannot take part: %s", name, printable(str(error)[:500]))
        unasked = any(known.get(name) != address for name, address in nodes.items())
        if (len(nodes) >= wanted and not asked and not unasked) or patience.clock() >= end:
            break
        patience.sleep(patience.poll)
    for name in asked:
        log.warning("fedprior: client %r did not answer in time", name)
    return present


def _presence(secret: str, reply: Message) -> Presence:
    """What a site's answer says, if it can be believed."""
    if reply.has_error():
        raise FedpriorError(reply.error.reason or "its app failed")
    presence = Presence.from_content(reply.content, "presence")
    if not secrets.compare_digest(presence.secret.encode(), secret.encode()):
        raise FedpriorError("its reply does not hold the secret of the message")
    if presence.problem:
        raise FedpriorError(presence.problem)
    if min(presence.train, presence.test) < 1 or max(presence.train, presence.test) >= 2**31:
        raise FedpriorError(f"it says that it has {presence.train} and {presence.test} samples")
    if not re.fullmatch(r"[0-9a-f]{64}", presence.fingerprint):
        raise FedpriorError("what it calls the fingerprint of its samples is none")
    return presence

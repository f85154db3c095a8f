"""A round's messages: sent, waited for within a bound, sent again to a node that came back, and checked on arrival."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedprior.errors import FedpriorError
from fedprior.flower.messages import ROUND, Order, Receipt
from fedprior.flower.roster import Address, Patience, nodes_by_name
from fedprior.flower.wire import from_record

log = logging.getLogger("flwr")
ATTEMPTS = 3  # at one order of one client, where its node fails or comes back under another number


@dataclass(frozen=True)
class Reply:
    """What a client was found to have done."""

    saved: str | None  # the name of its new state; None: it did not train
    info: Any = None
    up: Any = None
    sums: Any = None


@dataclass
class Pending:
    """An order that is under way."""

    order: Order
    arrays: Callable[[], RecordDict]
    sent_to: Address | None = None
    attempts: int = 0


@dataclass
class Exchange:
    """Sends orders to clients and collects what they answer."""

    grid: Grid
    like: Mapping[str, Any]  # the shapes and types of up, info, sums
    patience: Patience
    rejected: Counter[str] = field(default_factory=Counter)  # by client
    lost: set[str] = field(default_factory=set)  # clients whose state is lost

    def __call__(self, orders: Mapping[str, tuple[Order, Callable[[], RecordDict]]]) -> dict[str, Reply]:
        """The replies of all clients that answered well before the deadline."""
        waiting = {name: Pending(order, arrays) for name, (order, arrays) in orders.items()}
        asked: dict[str, tuple[str, Order]] = {}  # message -> client and the order as it was sent
        replies: dict[str, Reply] = {}
        end = self.patience.clock() + self.patience.deadline
        while waiting:
            self._push(waiting, asked, end)
            for message in self.grid.pull_messages(list(asked)):
                about = asked.pop(message.metadata.reply_to_message_id, None)
                if about is not None and about[0] in waiting:
                    self._arrived(*about, message, waiting, replies)
            if not waiting or self.patience.clock() >= end:
                break
            self.patience.sleep(self.patience.poll)
        for name in waiting:
            log.warning("fedprior: client %r did not answer in time", name)
        return replies

    def _push(self, waiting: dict[str, Pending], asked: dict[str, tuple[str, Order]], end: float) -> None:
        """Send what was not sent yet, or was sent to a node that is no longer the client's."""
        nodes = nodes_by_name(self.grid)
        for name, pending in waiting.items():
            address = nodes.get(name)
            if address is None:
                pending.sent_to = None  # gone: what was sent to it is lost, and is sent again when it is back
            if address is None or address == pending.sent_to or pending.attempts >= ATTEMPTS:
                continue
            # Every message has a secret and a state name of its own: an answer to an earlier one cannot pass for it.
            token = secrets.token_hex(8)
            order = dataclasses.replace(
                pending.order,
                secret=secrets.token_hex(16),
                save=f"{pending.order.round + 1:08d}-{token}" if pending.order.train else "",
            )
            content = pending.arrays()
            content["order"] = order.to_record()
            ttl = max(end - self.patience.clock(), 1.0)
            (number,) = self.grid.push_messages(
                [Message(content, address.node, ROUND, ttl=ttl, group_id=str(order.round))]
            )
            pending.sent_to, pending.attempts = address, pending.attempts + 1
            if number is not None:
                asked[str(number)] = (name, order)

    def _arrived(
        self, name: str, order: Order, message: Message, waiting: dict[str, Pending], replies: dict[str, Reply]
    ) -> None:
        if message.has_error():
            log.warning("fedprior: the app of client %r failed: %s", name, (message.error.reason or "")[:500])
            waiting[name].sent_to = None  # it is tried again, a bounded number of times
            if waiting[name].attempts >= ATTEMPTS:
                del waiting[name]
                self.rejected[name] += 1
            return
        del waiting[name]
        try:
            replies[name] = self._checked(name, order, message.content)
        except FedpriorError as error:
            self.rejected[name] += 1
            log.error("fedprior: round %d, client %r is left out: %s", order.round + 1, name, str(error)[:500])

    def _checked(self, name: str, order: Order, content: RecordDict) -> Reply:
        """What a reply holds, if it is what was asked for."""
        receipt = Receipt.from_content(content, "receipt")
        if not secrets.compare_digest(receipt.secret.encode(), order.secret.encode()):
            raise FedpriorError("its reply does not hold the secret of the message")
        if receipt.problem:
            if receipt.lost:
                self.lost.add(name)
            raise FedpriorError(receipt.problem)
        wanted = {"sums": order.score, "info": order.train, "up": order.upload}
        odd = set(content) ^ {"receipt", *(key for key, is_asked in wanted.items() if is_asked)}
        if odd:
            raise FedpriorError(f"its reply lacks {min(odd)!r}, or holds it unasked")
        trees = {
            key: from_record(_arrays(content, key), self.like[key], f"its {key}")
            for key, is_asked in wanted.items()
            if is_asked
        }
        return Reply(order.save if order.train else None, **trees)


def far_from_the_others(ups: Mapping[str, Any], times: float, least: int = 5) -> list[str]:
    """The clients whose upload has a norm more than so many times the cohort's median; none if there are few replies."""
    if len(ups) < least:
        return []
    norms = {
        name: float(np.sqrt(sum(np.sum(np.square(np.asarray(x, float))) for x in jax.tree.leaves(up))))
        for name, up in ups.items()
    }
    middle = float(np.median(list(norms.values())))
    return [name for name, norm in norms.items() if norm > times * middle]


def _arrays(content: RecordDict, key: str) -> ArrayRecord:
    record = content[key]
    if not isinstance(record, ArrayRecord):
        raise FedpriorError(f"its {key} is no record of arrays")
    return record

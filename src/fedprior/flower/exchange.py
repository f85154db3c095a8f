"""A round's messages: sent, waited for within a bound, sent again to a node that came back, and checked on arrival."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedprior.errors import FedpriorError, first_line, printable
from fedprior.flower.messages import ROUND, Order, Receipt
from fedprior.flower.roster import Address, Patience, look_around, pull, push
from fedprior.flower.wire import from_record

log = logging.getLogger("flwr")
ATTEMPTS = 3  # at one order of one client, where its node fails or comes back under another number


@dataclass(frozen=True)
class Reply:
    """What a client was found to have done."""

    saved: str | None  # the name of its new state; None: it made none
    rejoined: bool = False  # whether it began as a newcomer
    info: Any = None
    up: Any = None
    sums: Any = None


@dataclass
class Pending:
    """An order that is under way."""

    order: Order
    arrays: Callable[[Order], RecordDict]
    sent_to: Address | None = None
    attempts: int = 0


@dataclass
class Exchange:
    """Sends orders to clients and collects what they answer."""

    grid: Grid
    like: Mapping[str, Any]  # the shapes and types of up, info, sums
    patience: Patience
    refusal: Callable[[], str]  # why a client whose state is lost cannot come back; "": it can
    rejected: Counter[str] = field(default_factory=Counter)  # by client
    lost: set[str] = field(default_factory=set)  # clients whose state is lost
    said: set[str] = field(default_factory=set)  # what is wrong with nodes that are no clients

    def __call__(self, orders: Mapping[str, tuple[Order, Callable[[Order], RecordDict]]]) -> dict[str, Reply]:
        """The replies of all clients that answered well before the deadline."""
        waiting = {name: Pending(order, arrays) for name, (order, arrays) in orders.items()}
        asked: dict[str, tuple[str, Order]] = {}  # message -> client and the order as it was sent
        replies: dict[str, Reply] = {}
        end = self.patience.clock() + self.patience.deadline
        while waiting:
            self._push(waiting, asked, end)
            for number, (name, order) in list(asked.items()):
                if name not in waiting:
                    continue
                try:
                    for message in pull(self.grid, number)[:1]:
                        del asked[number]
                        if (reply := self._arrived(name, order, message, waiting[name])) is not None:
                            replies[name] = reply
                            del waiting[name]
                except Exception as error:  # whatever a stranger's bytes bring about: the others go on
                    asked.pop(number, None)
                    del waiting[name]
                    self.leave_out(
                        name, order.round + 1, str(error) if isinstance(error, FedpriorError) else first_line(error)
                    )
            if not waiting or self.patience.clock() >= end:
                break
            self.patience.sleep(self.patience.poll)
        for name in waiting:
            log.warning("fedprior: client %r did not answer in time", name)
        return replies

    def leave_out(self, name: str, t: int, why: str) -> None:
        """Say and count that what a client sent in round t is not used."""
        self.rejected[name] += 1
        log.error("fedprior: round %d, client %r is left out: %s", t, name, printable(why[:500]))

    def _push(self, waiting: dict[str, Pending], asked: dict[str, tuple[str, Order]], end: float) -> None:
        """Send what was not sent yet, or was sent to a node that is no longer the client's."""
        nodes, problems = look_around(self.grid)
        for problem in set(problems) - self.said:  # of a node that is no client's: the others go on
            self.said.add(problem)
            log.error("fedprior: %s", problem)
        for name, pending in list(waiting.items()):
            address = nodes.get(name)
            if address is None:
                pending.sent_to = None  # gone: what was sent to it is lost, and is sent again when it is back
            if address is None or address == pending.sent_to or pending.attempts >= ATTEMPTS:
                continue
            # Every message has a secret and a state name of its own: an answer to an earlier one cannot pass for it.
            saves, token = pending.order.train or pending.order.join, secrets.token_hex(8)
            order = dataclasses.replace(
                pending.order,
                secret=secrets.token_hex(16),
                save=f"{pending.order.round + 1:08d}-{token}" if saves else "",
            )
            content = pending.arrays(order)
            content["order"] = order.to_record()
            ttl = max(end - self.patience.clock(), 1.0)
            number = push(self.grid, Message(content, address.node, ROUND, ttl=ttl, group_id=str(order.round)))
            pending.sent_to, pending.attempts = address, pending.attempts + 1
            if number:
                asked[number] = (name, order)
            else:  # another try would be as large
                del waiting[name]
                self.leave_out(
                    name,
                    order.round + 1,
                    "the SuperLink did not take the message to it; is it too large, or the node gone?",
                )

    def _arrived(self, name: str, order: Order, message: Message, pending: Pending) -> Reply | None:
        """What a client did; None: it is asked again, a bounded number of times."""
        if message.has_error():
            why = f"its app failed: {message.error.reason}"
            if pending.attempts >= ATTEMPTS:
                raise FedpriorError(why)
            log.warning("fedprior: client %r is asked again: %s", name, printable(why[:500]))
            pending.sent_to = None
            return None
        receipt = Receipt.from_content(message.content, "receipt")
        if not secrets.compare_digest(receipt.secret.encode(), order.secret.encode()):
            raise FedpriorError("its reply does not hold the secret of the message")
        if receipt.lost:
            self.lost.add(name)
        if receipt.lost and receipt.rejoin and order.begin and not order.join:
            if why := self.refusal():
                raise FedpriorError(f"its state is lost, and it cannot come back as a newcomer: {why}")
            log.warning("fedprior: client %r has lost its state, and its owner lets it begin anew", name)
            pending.order, pending.sent_to = dataclasses.replace(pending.order, join=True), None
            pending.attempts = min(pending.attempts, ATTEMPTS - 1)
            return None
        if receipt.problem:
            raise FedpriorError(receipt.problem)
        return self._checked(name, order, message.content)

    def _checked(self, name: str, order: Order, content: RecordDict) -> Reply:
        """What a reply holds, if it is what was asked for."""
        wanted = {"sums": order.score, "info": order.train, "up": order.upload}
        odd = set(content) ^ {"receipt", *(key for key, is_asked in wanted.items() if is_asked)}
        if odd:
            raise FedpriorError(f"its reply lacks {min(odd)!r}, or holds it unasked")
        trees = {
            key: from_record(_arrays(content, key), self.like[key], f"its {key}")
            for key, is_asked in wanted.items()
            if is_asked
        }
        self.lost.discard(name)
        return Reply(order.save or None, rejoined=order.join, **trees)


def _arrays(content: RecordDict, key: str) -> ArrayRecord:
    record = content[key]
    if not isinstance(record, ArrayRecord):
        raise FedpriorError(f"its {key} is no record of arrays")
    return record

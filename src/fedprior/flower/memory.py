"""A Grid in memory, on Flower's own serialization: nodes are ClientApps in this process. For tests and for trying out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

Tamper = Callable[[Message, Message], Message | None]  # (what was asked, the reply) -> what arrives; None: it is lost


@dataclass
class Node:
    """A site that is reached through memory."""

    name: str
    app: ClientApp
    node_config: dict[str, Any] = field(default_factory=dict)
    tamper: Tamper = lambda asked, reply: reply


class MemoryGrid(Grid):
    """Pushing a message runs its receiver at once; its reply is there to be pulled."""

    def __init__(self, nodes: Iterable[Node], run_config: dict[str, Any]):
        self.nodes, self.run_config = dict(enumerate(nodes, start=1)), run_config
        self._replies: dict[str, Message] = {}
        self._numbers = itertools.count(1)
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 0

    def set_run(self, run: Run) -> None:
        """There is one run only."""

    @property
    def run(self) -> Run:
        """Nothing asks for it."""
        raise NotImplementedError

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """As Flower's own, which is deprecated in favour of the constructor."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """The nodes that are there."""
        return list(self.nodes)

    def get_nodes(self) -> list[NodeInfo]:
        """The nodes with the names under which they were registered."""
        return [NodeInfo(node_id=number, name=node.name) for number, node in self.nodes.items()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let each receiver work, on what would have come over a wire."""
        numbers = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = number = str(next(self._numbers))
            numbers.append(number)
            arrived = over_the_wire(message)
            node = self.nodes.get(arrived.metadata.dst_node_id)
            if node is None:
                continue
            context = Context(1, arrived.metadata.dst_node_id, node.node_config, RecordDict(), dict(self.run_config))
            try:
                reply = node.app(arrived, context)
            except Exception as error:  # as Flower does
                reply = Message(Error(0, f"{type(error).__name__}: {error}"), reply_to=arrived)
            changed = node.tamper(arrived, reply)
            if changed is not None:
                self._replies[number] = over_the_wire(changed)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The replies to these messages that have not been pulled yet."""
        return [self._replies.pop(number) for number in message_ids if number in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Push and pull."""
        return self.pull_messages(self.push_messages(messages))


def over_the_wire(message: Message) -> Message:
    """The message as it arrives."""
    return message_from_proto(ProtoMessage.FromString(message_to_proto(message).SerializeToString()))

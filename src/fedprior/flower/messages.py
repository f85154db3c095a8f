"""What the server asks of a site and what it is told, beside arrays: typed, and checked on arrival."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from flwr.app import ConfigRecord, RecordDict

from fedprior.errors import FedpriorError

T = TypeVar("T", bound="Fields")
HELLO, ROUND = "query.hello", "train.round"  # the types of messages


class Shareable(FedpriorError):
    """An error that may be told to the other side in full: it holds nothing of a site's samples and of its disk."""


@dataclass(frozen=True)
class Fields:
    """Plain values that travel as a record."""

    def to_record(self) -> ConfigRecord:
        """As Flower's record."""
        return ConfigRecord(dataclasses.asdict(self))

    @classmethod
    def from_content(cls, content: RecordDict, key: str) -> Self:
        """The values in a message; missing, odd or ill-typed ones are refused."""
        record = content.get(key)
        fields = {field.name: field.type for field in dataclasses.fields(cls)}
        if not isinstance(record, ConfigRecord) or set(record) != set(fields):
            raise Shareable(f"a message without what '{key}' must hold; is another version of fedprior at work there?")
        kinds: dict[str, Any] = {"str": str, "int": int, "bool": bool}
        for name, kind in fields.items():
            if type(record[name]) is not kinds[str(kind)]:
                raise Shareable(f"'{name}' in '{key}' of a message is a {type(record[name]).__name__}, not a {kind}")
        return cls(**record)


@dataclass(frozen=True)
class Greeting(Fields):
    """The server's hello."""

    digest: str  # of the task
    version: str  # of fedprior
    secret: str


@dataclass(frozen=True)
class Presence(Fields):
    """A site's answer to hello."""

    train: int  # samples
    test: int
    fingerprint: str
    problem: str  # what keeps the site from taking part; "": nothing
    secret: str


@dataclass(frozen=True)
class Order(Fields):
    """What a site is to do: score its model of the last round, train, or both."""

    digest: str  # of the task
    version: str  # of fedprior
    fingerprint: str  # of the samples with which the site began
    experiment: str
    client: str
    index: int  # the client's number, on which its randomness depends
    clients: int  # how many there are
    batch: int  # the length of a batch, the same for all
    seed: int
    round: int  # rounds done
    score: bool
    train: bool
    upload: bool
    begin: str  # the state to go on from; "": the client's first
    join: bool  # whether that state is lost, and the site is to begin as a newcomer
    keep: str  # the oldest state that may be asked for again
    save: str  # the name of the state after this round
    secret: str  # random, and repeated in the reply: nobody else knows it


@dataclass(frozen=True)
class Receipt(Fields):
    """What a site says beside arrays."""

    secret: str
    problem: str  # why it could not do what was asked; "": nothing
    lost: bool  # whether that is because its state is lost
    rejoin: bool  # whether its owner wants it to begin as a newcomer then

"""Replies of a broken or hostile client: rejected, named and counted, and nothing else is changed by them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from fedprior.flower.exchange import far_from_the_others
from fedprior.flower.memory import Tamper
from fedprior.flower.messages import Order
from fedprior.flower.roster import Patience
from fedprior.flower.wire import BadRecord, from_record, to_record
from fedprior.records import checkpoint
from flower.example import NAMES, Deployment, same_arrays

UP = "tree.head.weight"


def _up(change: Callable[[np.ndarray], Any]) -> Callable[[RecordDict], None]:
    def act(content: RecordDict) -> None:
        record = content["up"]
        assert isinstance(record, ArrayRecord)
        array = change(record[UP].numpy())
        content["up"] = ArrayRecord({**record, UP: array if isinstance(array, Array) else Array(array)})

    return act


def _receipt(**values: Any) -> Callable[[RecordDict], None]:
    def act(content: RecordDict) -> None:
        record = content["receipt"]
        assert isinstance(record, ConfigRecord)
        content["receipt"] = ConfigRecord({**record, **values})

    return act


def _without(key: str) -> Callable[[RecordDict], None]:
    return lambda content: content.__delitem__(key)


def _renamed(content: RecordDict) -> None:
    record = content["up"]
    assert isinstance(record, ArrayRecord)
    content["up"] = ArrayRecord({f"{name}.": array for name, array in record.items()})


def _vast(given: np.ndarray) -> Array:
    """A few bytes that say they are 4 terabytes."""
    honest = Array(given)
    text = honest.data.replace(b"(3, 6)", b"(1000000, 1000000)")
    return Array(dtype="float32", shape=(3, 6), stype="numpy.ndarray", data=text[: len(honest.data)])


BAD: dict[str, Callable[[RecordDict], None]] = {
    "nan": _up(lambda x: x * np.nan),
    "infinite": _up(lambda x: np.full_like(x, np.inf)),
    "shape": _up(lambda x: x[:, :-1]),
    "flat": _up(np.ravel),
    "type": _up(lambda x: x.astype(np.float64)),
    "whole numbers": _up(lambda x: x.astype(np.int32)),
    "objects": _up(lambda x: Array("float32", x.shape, "numpy.ndarray", b"\x80\x04N." * 30)),
    "empty": _up(lambda x: Array("float32", x.shape, "numpy.ndarray", b"")),
    "vast": _up(_vast),
    "names": _renamed,
    "secret": _receipt(secret="0" * 32),
    "no secret": _receipt(secret=""),
    "odd receipt": _receipt(more=1),
    "a receipt of another type": _receipt(secret=7),
    "no upload": _without("up"),
    "no receipt": _without("receipt"),
    "no diagnostics": _without("info"),
    "an upload of plain values": lambda content: content.__setitem__("up", ConfigRecord({"a": 1})),
    "more than was asked": lambda content: content.__setitem__("more", ConfigRecord({"a": 1})),
}


def at_once() -> Patience:
    """Patience that is soon at its end, without waiting."""
    ticks = itertools.count()
    return Patience(poll=0.0, clock=lambda: float(next(ticks)), sleep=lambda seconds: None)


def ends(folder: Path, tamper: Tamper, rounds: int) -> tuple[dict[str, np.ndarray], dict[str, int], list[Any]]:
    """The server's last state, the rejections it counted, and the recorded rows, with a tampered second client."""
    deployment = Deployment(folder, "fedavg", rounds=rounds, deadline=20.0)
    nodes = [deployment.node(k) for k in range(len(NAMES))]
    nodes[1].tamper = tamper
    run = deployment.run(nodes, at_once())
    arrays, ledger = deployment.server(run)
    return arrays, ledger.rejected, run.rows("metrics.csv")


@pytest.mark.slow
def test_bad_replies_are_as_if_they_were_missing(tmp_path: Path) -> None:
    kinds, rounds = list(BAD), 100
    seen: set[str] = set()

    def hostile(asked: Message, reply: Message) -> Message:
        if "order" not in asked.content or not (order := Order.from_content(asked.content, "order")).upload:
            return reply
        kind = kinds[order.round % len(kinds)]
        seen.add(kind)
        content = RecordDict(dict(reply.content))
        BAD[kind](content)
        return Message(content, reply_to=asked)

    def silent(asked: Message, reply: Message) -> Message | None:
        uploads = "order" in asked.content and Order.from_content(asked.content, "order").upload
        return None if uploads else reply

    arrays, rejected, rows = ends(tmp_path / "hostile", hostile, rounds)
    missing, nobody, expected = ends(tmp_path / "missing", silent, rounds)
    assert seen == set(BAD)
    same_arrays(arrays, missing)
    assert rows == expected
    assert set(rejected) == {NAMES[1]}
    assert rejected[NAMES[1]] > len(BAD)
    assert nobody == {}


@pytest.mark.slow
def test_an_app_that_fails_is_tried_a_bounded_number_of_times(tmp_path: Path) -> None:
    times = itertools.count()

    def fail(asked: Message, reply: Message) -> Message:
        if "order" in asked.content and Order.from_content(asked.content, "order").upload:
            next(times)
            return Message(Error(0, "out of memory"), reply_to=asked)
        return reply

    _, rejected, _ = ends(tmp_path, fail, rounds=1)
    assert rejected == {NAMES[1]: 1}
    assert next(times) == 3


def test_a_record_is_looked_at_before_it_is_loaded() -> None:
    like = {"w": np.zeros((2, 3), np.float32)}
    good = to_record({"w": np.arange(6, dtype=np.float32).reshape(2, 3)})
    assert np.array_equal(from_record(good, like, "it")["w"], np.arange(6).reshape(2, 3))
    fortran = ArrayRecord({"w": Array(np.asfortranarray(good["w"].numpy()))})
    assert np.array_equal(from_record(fortran, like, "it")["w"], np.arange(6).reshape(2, 3))
    for record in (
        ArrayRecord({"w": Array(np.zeros((2, 3), ">f4"))}),
        ArrayRecord({"w": Array(np.zeros(7, np.float32))}),
        ArrayRecord({"w": Array("float32", (2, 3), "torch", good["w"].data)}),
        ArrayRecord({"w": Array("float32", (2, 3), "numpy.ndarray", good["w"].data[:-1])}),
    ):
        with pytest.raises(BadRecord):
            from_record(record, like, "it")


def test_an_upload_far_from_the_others_is_found_among_five() -> None:
    ups = {name: {"w": np.ones(4)} for name in "abcd"} | {"e": {"w": np.full(4, 100.0)}}
    assert far_from_the_others(ups, 10.0) == ["e"]
    assert far_from_the_others(ups, 1000.0) == []
    del ups["a"]
    assert far_from_the_others(ups, 10.0) == []


@pytest.mark.slow
def test_the_states_of_rejected_rounds_are_not_gone_on_from(tmp_path: Path) -> None:
    """A client whose first reply was bad has no accepted state, and trains again from its beginning."""
    begun: list[str] = []

    def first_is_bad(asked: Message, reply: Message) -> Message:
        if "order" not in asked.content:
            return reply
        order = Order.from_content(asked.content, "order")
        begun.append(order.begin)
        if order.round == 0:
            content = RecordDict(dict(reply.content))
            BAD["no diagnostics"](content)
            return Message(content, reply_to=asked)
        return reply

    deployment = Deployment(tmp_path, "ditto", rounds=2)
    nodes = [deployment.node(k) for k in range(len(NAMES))]
    nodes[1].tamper = first_is_bad
    run = deployment.run(nodes, at_once())
    assert begun[:2] == ["", ""]
    assert begun[2].startswith("00000002-")
    assert checkpoint.read(run.checkpoints[-1]) is not None

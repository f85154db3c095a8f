"""Replies of a broken or hostile client: rejected, named and counted, and nothing else is changed by them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from fedprior.errors import FedpriorError
from fedprior.flower.judge import far_from_the_others, impossible
from fedprior.flower.ledger import Ledger
from fedprior.flower.memory import MemoryGrid, Node, Tamper
from fedprior.flower.messages import Order
from fedprior.flower.options import Options
from fedprior.flower.server import serve
from fedprior.flower.spec import open_spec
from fedprior.flower.wire import BadRecord, from_record, to_record
from fedprior.records import checkpoint
from fedprior.records.schema import Status
from flower.example import NAMES, Deployment, assert_same, at_once, same_arrays

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


def _scores(change: Callable[[np.ndarray], Any]) -> Callable[[RecordDict], None]:
    def act(content: RecordDict) -> None:
        record = content["sums"]
        assert isinstance(record, ArrayRecord)
        name = next(name for name in record if "accuracy" in name and "balanced" not in name)
        content["sums"] = ArrayRecord({**record, name: Array(np.asarray(change(record[name].numpy())))})

    return act


FAR, REPLAY = "far from the others", "an earlier reply"  # of the first round, in which nothing is scored
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
    "a score above all": _scores(lambda x: x + np.int32(1000)),
    "a score below nothing": _scores(lambda x: -1 - x),
    "scores that are no numbers": _scores(lambda x: np.float32(np.nan)),
    "a state that is lost": _receipt(problem="it is lost", lost=True),
    "a newcomer nobody asked for": _receipt(problem="it is lost", lost=True, rejoin=True),
    "lines for the log": _receipt(problem="oh\n\x1b[2Jfedprior: all is well"),
    FAR: _up(lambda x: 1000 * x),
    REPLAY: lambda content: None,
}


def ends(deployment: Deployment, tamper: Tamper) -> tuple[list[dict[str, Any]], dict[str, int], list[Any]]:
    """The last states of the server and of the honest clients, the rejections counted, and the recorded rows."""
    nodes = deployment.nodes()
    nodes[1].tamper = tamper
    run = deployment.run(nodes, at_once())
    arrays, ledger = deployment.server(run)
    honest = [k for k in range(len(deployment.names)) if k != 1 and ledger.accepted[k]]
    own = [deployment.store(ledger, k).arrays(ledger.accepted[k]) for k in honest]
    return [arrays, *own], ledger.rejected, run.rows("metrics.csv") + run.rows("clients.csv")


def uploads(message: Message) -> bool:
    return "order" in message.content and Order.from_content(message.content, "order").upload


def silent(asked: Message, reply: Message) -> Message | None:
    return None if uploads(asked) else reply


@pytest.mark.slow
def test_bad_replies_are_as_if_they_were_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every kind in turn, round after round: server, honest clients and scores are those of a run without these replies."""
    rounds, kinds = 100, [REPLAY, *(kind for kind in BAD if kind != REPLAY)]
    seen: set[str] = set()
    first: list[RecordDict] = []

    def hostile(asked: Message, reply: Message) -> Message:
        if not uploads(asked):
            return reply
        content, t = RecordDict(dict(reply.content)), Order.from_content(asked.content, "order").round
        first[:] = first or [content]
        kind = kinds[t % len(kinds)]
        if kind == REPLAY:
            content = first[0] if t else RecordDict({})  # of the first round there is no earlier one
        else:
            BAD[kind](content)
        seen.add(kind)
        return Message(content, reply_to=asked)

    row = "ditto:aggregated=5,R=3"
    config: dict[str, Any] = {"sites": 5, "rounds": rounds, "deadline": 20.0, "norm_limit": 10.0}
    states, rejected, rows = ends(Deployment(tmp_path / "hostile", row, **config), hostile)
    said = [record.getMessage() for record in caplog.records if "is left out" in record.getMessage()]
    missing, nobody, expected = ends(Deployment(tmp_path / "missing", row, **config), silent)
    assert seen == set(BAD)
    for one, other in zip(states, missing, strict=True):
        same_arrays(one, other)
    assert rows == expected
    assert len(states) == 5
    assert rejected == {NAMES[1]: rounds}
    assert nobody == {}
    assert len(said) == rounds
    assert all(f"client {NAMES[1]!r} is left out" in text for text in said)
    assert not any("\n" in text or "\x1b" in text for text in said)


@pytest.mark.slow
def test_an_upload_that_cannot_be_added_up_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its numbers are finite, and the model that it would make is not."""
    vast = np.finfo(np.float32).max

    def huge(asked: Message, reply: Message) -> Message:
        if uploads(asked):
            content = RecordDict(dict(reply.content))
            _up(lambda x: np.full_like(x, vast))(content)
            return Message(content, reply_to=asked)
        return reply

    row = "fedavg:beta=8"
    config: dict[str, Any] = {"rounds": 2, "deadline": 20.0, "minimum": 0}
    states, rejected, rows = ends(Deployment(tmp_path / "hostile", row, **config), huge)
    missing, _, expected = ends(Deployment(tmp_path / "missing", row, **config), silent)
    same_arrays(states[0], missing[0])
    assert rows == expected
    assert "client 'b' is left out: its upload is too large to be merged" in caplog.text
    assert rejected == {NAMES[1]: caplog.text.count("too large to be merged")}


@pytest.mark.slow
def test_a_round_without_a_valid_reply_leaves_the_model_alone(tmp_path: Path) -> None:
    """With minimum = 0 the run goes on; else it stops, and is resumed to the bits of an undisturbed one."""

    def bad(asked: Message, reply: Message) -> Message:
        if "order" in asked.content and Order.from_content(asked.content, "order").round == 1:
            content = RecordDict(dict(reply.content))
            BAD["secret"](content)
            return Message(content, reply_to=asked)
        return reply

    for minimum in (0, 1):
        deployment = Deployment(tmp_path / str(minimum), "ditto", rounds=2, minimum=minimum)
        nodes = deployment.nodes()
        for node in nodes:
            node.tamper = bad
        if minimum:
            with pytest.raises(FedpriorError, match="round 2 has 0 valid replies of 3; needed: 1; see the log, mend"):
                deployment.run(nodes, at_once())
            assert deployment.records.status == (Status.STOPPED, 1)
            deployment.records.record()  # what there is can be read
            assert_same(deployment, deployment.run(resume=True), "ditto", rounds=2)
            continue
        before, after = map(checkpoint.read, deployment.run(nodes, at_once()).checkpoints)
        assert before is not None
        assert after is not None
        kept = {name for name in before if np.array_equal(before[name], after[name])}
        assert set(before) - kept == {"state.round", "ledger"}
        assert Ledger.from_array(before["ledger"]).accepted == Ledger.from_array(after["ledger"]).accepted


class Unruly(MemoryGrid):
    """A SuperLink that does not take the second client's messages, or whose node answers with what nobody can unpack."""

    takes, unpacks = True, True

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        kept = list(messages)
        if not self.takes and kept[0].metadata.dst_node_id == 2 and uploads(kept[0]):
            return []
        return super().push_messages(kept)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = super().pull_messages(message_ids)
        if not self.unpacks and any(message.metadata.src_node_id == 2 and "up" in message.content for message in found):
            raise RuntimeError("no such object")
        return found


@pytest.mark.slow
@pytest.mark.parametrize("what", ["takes", "unpacks", "nameless", "twice"])
def test_nothing_that_a_node_does_stops_the_others(tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be sent or unpacked, and nodes of which nobody knows whose they are, in the middle of a run."""
    deployment = Deployment(tmp_path / what, "ditto", rounds=2, deadline=20.0)
    grid = Unruly(deployment.nodes(), deployment.config)
    said = {
        "takes": "the SuperLink did not take the message to it",
        "unpacks": "client 'b' is left out: its reply cannot be unpacked (RuntimeError: no such object)",
        "nameless": "node 77 has no name",
        "twice": "two nodes are called 'b'",
    }

    def begin(asked: Message, reply: Message) -> Message:
        if "order" not in asked.content:
            return reply
        if what in ("takes", "unpacks"):
            setattr(grid, what, False)
        else:
            grid.nodes[77] = Node("" if what == "nameless" else NAMES[1], grid.nodes[1].app)
        return reply

    grid.nodes[1].tamper = begin
    run = serve(grid, open_spec(deployment.task), Options.of(deployment.config), at_once())
    assert said[what] in caplog.text
    assert caplog.text.count(said["nameless"]) == (what == "nameless")  # said once, not at every look
    scored = {(row.round, row.client) for row in run.rows("clients.csv")}
    assert scored >= {(t, name) for t in (1, 2) for name in NAMES if name != NAMES[1]}
    if what == "nameless":
        assert_same(deployment, run, "ditto", rounds=2)


def test_what_a_site_says_of_itself_is_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for values, text in (
        ({"secret": "0" * 32}, "does not hold the secret"),
        ({"train": 0}, "it says that it has 0 and"),
        ({"test": 2**31}, "it says that it has 30 and 2147483648 samples"),
        ({"train": -5}, "it says that it has -5 and"),
        ({"fingerprint": "f" * 10**6}, "the fingerprint of its samples is none"),
        ({"problem": "no\nfedprior: all is well"}, r"no\nfedprior: all is well"),
        ({"more": 1}, "a message without what 'presence' must hold"),
    ):
        deployment = Deployment(tmp_path, "ditto", deadline=20.0)
        nodes = deployment.nodes()

        def lie(asked: Message, reply: Message, values: dict[str, Any] = values) -> Message:
            record = reply.content.get("presence")
            if not isinstance(record, ConfigRecord):
                return reply  # it was believed, and the run goes on
            return Message(RecordDict({"presence": ConfigRecord({**record, **values})}), reply_to=asked)

        nodes[1].tamper = lie
        with pytest.raises(FedpriorError, match="4 clients are to take part, and 3 can"):
            deployment.run(nodes, at_once())
        assert text in caplog.text
        assert len(caplog.text) < 20000


def test_no_description_of_an_array_can_do_harm() -> None:
    """NumPy's reader evaluates it, and may fail in many ways."""
    like = {"w": np.zeros((2, 3), np.float32)}
    good = to_record(like)["w"].data
    size, rng = len(good) - 24, np.random.default_rng(0)
    texts = ["(" * size, "{" * size, "[" * size, "{'descr': (", "1" * size, "\\", "'" * 3, "\0" * size, "-" * size]
    texts += ["{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3" + ")" * k for k in range(3)]
    texts += ["{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }"]
    texts += ["".join(rng.choice(list("{}()[]'\",:<f4|OVL 0123456789\n"), size - 10)) for _ in range(200)]
    for version in (b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\xff\xff"):
        for text in texts:
            header = text.encode("latin-1").ljust(size - 11 if version == b"\x01\x00" else size - 13) + b"\n"
            length = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
            data = b"\x93NUMPY" + version + length + header + bytes(24)
            record = ArrayRecord({"w": Array("float32", (2, 3), "numpy.ndarray", data)})
            with pytest.raises(BadRecord):
                from_record(record, like, "it")


@pytest.mark.slow
def test_an_app_that_fails_is_tried_a_bounded_number_of_times(tmp_path: Path) -> None:
    times = itertools.count()

    def fail(asked: Message, reply: Message) -> Message:
        if "order" in asked.content and Order.from_content(asked.content, "order").upload:
            next(times)
            return Message(Error(0, "out of memory"), reply_to=asked)
        return reply

    _, rejected, _ = ends(Deployment(tmp_path, "fedavg", rounds=1, deadline=20.0), fail)
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


def test_scores_that_cannot_be_are_found() -> None:
    sums = {"personal": {"accuracy": np.int32(5), "nll": np.float32(2.5)}}
    assert impossible(sums, 5) == ""
    assert impossible(sums, 4) == "the accuracy of its personal model would be 125 %"
    assert impossible({"global": {"accuracy": np.int32(-1)}}, 4) == "the accuracy of its global model would be -25 %"

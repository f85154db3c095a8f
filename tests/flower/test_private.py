"""What a site tells: nothing of its labels, its disk or its samples, unless the page says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Message

from fedprior.errors import FedpriorError
from fedprior.flower.client import LocalSite
from fedprior.flower.memory import Tamper
from fedprior.flower.messages import Receipt
from fedprior.flower.spec import open_spec
from fedprior.flower.state import StateLost, Store
from fedprior.methods import METHODS
from flower.example import CLASSES, Deployment, order_of

ROOT = Path(__file__).parents[2]


def test_no_score_tells_how_many_samples_of_a_class_a_site_has(tmp_path: Path) -> None:
    deployment, sent = Deployment(tmp_path, "local", rounds=2), dict[str, tuple[int, ...]]()

    def look(asked: Message, reply: Message) -> Message:
        for record in (record for record in reply.content.values() if isinstance(record, ArrayRecord)):
            sent.update({name: array.shape for name, array in record.items()})
        return reply

    nodes = deployment.nodes()
    nodes[1].tamper = look
    run = deployment.run(nodes)
    scores = {name: shape for name, shape in sent.items() if "personal" in name}
    assert len(scores) == 5  # two of them are those of ece, by bins
    assert (len(CLASSES),) not in scores.values()
    assert {metric["name"] for metric in run.config["metrics"]} == {"accuracy", "nll", "brier", "ece"}


@pytest.mark.parametrize(
    "name", [name if name == "fedfomo" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_other_sites_receive_an_upload_as_it_was_only_where_the_pages_say_so(tmp_path: Path, name: str) -> None:
    row = "fedfomo:M=2" if name == "fedfomo" else name
    deployment = Deployment(tmp_path, row, rounds=3, model="dnn" if name == "fedpac" else "mclr")
    uploads, received = list[tuple[int, bytes]](), list[tuple[int, bytes]]()

    def look(k: int) -> Tamper:
        def see(asked: Message, reply: Message) -> Message:
            received.extend((k, array.tobytes()) for record in asked.content.values() for array in arrays(record))
            uploaded = arrays(reply.content["up"]) if "up" in reply.content else []
            uploads.extend((k, array.tobytes()) for array in uploaded if len(np.unique(array)) > 2)  # not zeros, ids
            return reply

        return see

    nodes = deployment.nodes()
    for k, node in enumerate(nodes):
        node.tamper = look(k)
    deployment.run(nodes)
    assert bool(uploads) == (name != "local")
    shared = any(i != k and upload in content for k, upload in uploads for i, content in received)
    assert shared == (name == "fedfomo")
    for page in ("SECURITY.md", "docs/deploy.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert "With FedFomo, other sites also receive a site's model as it was uploaded, with its number" in text


def arrays(record: Any) -> list[np.ndarray]:
    return [array.numpy() for array in record.values()] if isinstance(record, ArrayRecord) else []


def test_what_nobody_foresaw_is_told_in_the_sites_own_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deployment, told = Deployment(tmp_path, "local", rounds=2), list[str]()

    def look(asked: Message, reply: Message) -> Message:
        assert not reply.has_error()
        if order_of(asked) is not None:
            told.append(Receipt.from_content(reply.content, "receipt").problem)
        return reply

    def fail(self: Any, *given: Any) -> Any:
        raise RuntimeError("Jane Doe, born 1950, in /srv/visits.csv")

    nodes = deployment.nodes()
    for node in nodes:
        node.tamper = look
    with monkeypatch.context() as patch:
        patch.setattr(LocalSite, "obey", fail)
        with pytest.raises(FedpriorError, match="0 valid replies"):
            deployment.run(nodes)
    assert told == ["it could not do what was asked; its own log says why, and what its owner can do"] * 4
    assert "fedprior: RuntimeError: Jane Doe" in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(LocalSite, "check", fail)
        with pytest.raises(FedpriorError, match="4 clients are to take part, and 0 can"):
            deployment.run(nodes, out=str(tmp_path / "again"))
    assert "client 'b' cannot take part: it could not do what was asked; its own log says why" in caplog.text


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_state_that_cannot_be_read_is_lost_whatever_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, "toy-1", "b")
    store.write("00000002-a1", {"w": jax.numpy.zeros(3)})

    def forbidden(path: Path, **_: Any) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", forbidden)
        with pytest.raises(StateLost, match=r"cannot be read \(Permission denied\); bring the file back"):
            store.arrays("00000002-a1")
    path = store.path("00000002-a1")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"F32"', b'"F8_E4M3"', 1))  # a type that NumPy lacks
    with pytest.raises(StateLost, match="is damaged, or cannot be read"):
        store.arrays("00000002-a1")
    path.unlink()
    with pytest.raises(StateLost, match="is not there"):
        store.arrays("00000002-a1")


@pytest.mark.parametrize("setting", ["gce=true", "score_fine_tuned=3", "pooled=every", "clients_per_vmap=2"])
def test_what_would_do_nothing_is_refused(tmp_path: Path, setting: str) -> None:
    key = setting.partition("=")[0]
    deployment = Deployment(tmp_path, f"local:{setting}")
    with pytest.raises(FedpriorError, match=f"'{key}' is for simulations, and does nothing here; leave it out"):
        deployment.run()
    value = '"every"' if key == "pooled" else setting.partition("=")[2]
    deployment.task.write_text(f"{key} = {value}\n{deployment.task.read_text()}")
    with pytest.raises(FedpriorError, match=f"'{key}' is for simulations"):
        open_spec(deployment.task)

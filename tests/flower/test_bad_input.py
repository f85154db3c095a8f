"""A site that does not fit, at the start or in the middle of a run, and full disks: one line for who can act, and the others
go on.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedprior import files
from fedprior.errors import FedpriorError
from fedprior.flower import client, look
from fedprior.flower.client import client_app
from fedprior.flower.messages import Receipt
from fedprior.flower.site import open_site
from fedprior.flower.spec import SiteSettings, open_spec
from fedprior.records import runs
from flower.example import CLASSES, NAMES, Deployment, assert_same, at_once, order_of, same_arrays, samples

SECRET = "Jane Doe, born 1950"
X, Y, IS_TEST = samples(1)


def give(given: Any, node_config: Any) -> Any:
    return given


def fail(node_config: Any) -> Any:
    raise ValueError(f"could not convert string to float: {SECRET!r}")


class Trouble:
    """What is wrong with a site for one message: what its log says of it, and what the server is told."""

    def __init__(self, log: str, told: str = "", app: ClientApp | None = None, around: Any = None):
        self.log, self.told, self.app = log, told or log, app
        self.around: Callable[[], contextlib.AbstractContextManager[Any]] = around or contextlib.nullcontext


def no_space(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def troubles(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> list[Trouble]:
    """All of them, by the round in which the second site has them."""
    private, other = "it could not do what was asked; its own log says why", deployment.folder / "other.toml"
    other.write_text(deployment.task.read_text().replace("batch = 5", "batch = 6"))

    def app(given: Any, task: Path = deployment.task) -> ClientApp:
        return client_app(task, partial(give, given))

    def patched(target: Any, name: str, value: Any) -> Any:
        @contextlib.contextmanager
        def around() -> Iterator[None]:
            with monkeypatch.context() as patch:
                patch.setattr(target, name, value)
                yield

        return around

    another_version = patched(client, "version", lambda name: "0.0.1")
    full_disk = patched(os, "fsync", no_space)
    sick, loading = np.where(Y == "ill", "sick", Y), "this site's data cannot be loaded: ValueError: could not convert"
    return [
        Trouble("this site's samples are of shape (4,), and the federation's of (6,)", app=app((X[:, :4], Y, IS_TEST))),
        Trouble("this site has a label 'sick'", private, app((X, sick, IS_TEST))),
        Trouble("this site has 0 samples and 0 labels", app=app((X[:0], Y[:0], IS_TEST[:0]))),
        Trouble(f"{loading} string to float: {SECRET!r}", private, client_app(deployment.task, fail)),
        Trouble("this site's samples are not those with which it began", app=app((X + 1, Y, IS_TEST))),
        Trouble("the server's task file is not this site's", app=app((X, Y, IS_TEST), other)),
        Trouble("this site 0.0.1; install the same version", "the server runs fedprior", around=another_version),
        Trouble("No space left on device; free some space, or start the node with", private, around=full_disk),
    ]


@pytest.mark.slow
def test_trouble_in_the_middle_of_a_run_is_one_sites_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A trouble a round; then all is well again, and the site goes on. The others see its replies missing, and no more."""
    deployment = Deployment(tmp_path / "troubled", "ditto:aggregated=4", rounds=10)
    wrong = dict(enumerate(troubles(deployment, monkeypatch), start=1))
    good, seen = deployment.node(1).app, []

    def site(message: Message, context: Context) -> Message:
        order = order_of(message)
        if order is None or (trouble := wrong.get(order.round)) is None:
            return good(message, context)
        caplog.clear()
        with trouble.around():
            reply = (trouble.app or good)(message, context)
        assert trouble.log in caplog.text
        assert "\n" not in caplog.records[0].getMessage()
        receipt = Receipt.from_content(reply.content, "receipt")
        assert trouble.told in receipt.problem
        assert SECRET not in receipt.problem
        assert str(tmp_path) not in receipt.problem
        assert not receipt.lost
        seen.append(order.round)
        return reply

    nodes = deployment.nodes()
    nodes[1].app = cast(ClientApp, site)
    run = deployment.run(nodes)
    assert seen == list(wrong)
    scored = {(row.round, row.client) for row in run.rows("clients.csv")}
    assert scored == {(t, name) for t in range(1, 11) for name in NAMES if name != "b" or t not in wrong}
    arrays, ledger = deployment.server(run)
    assert (ledger.rejected, ledger.absent) == ({"b": len(wrong)}, {"b": len(wrong)})

    def silent(asked: Message, reply: Message) -> Message | None:
        order = order_of(asked)
        return None if order is not None and order.round in wrong else reply

    missing = Deployment(tmp_path / "missing", "ditto:aggregated=4", rounds=10, deadline=20.0)
    nodes = missing.nodes()
    nodes[1].tamper = silent
    same_arrays(arrays, missing.server(missing.run(nodes, at_once()))[0])


@pytest.mark.slow
def test_at_the_start_the_others_are_enough_if_so_many_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = Deployment(tmp_path, "ditto", clients=3)
    nodes = deployment.nodes()
    nodes[3].app = client_app(deployment.task, fail)
    run = deployment.run(nodes)
    assert "client 'é' cannot take part: it could not do what was asked; its own log says why" in caplog.text
    assert_same(deployment, run, "ditto", sites=3)


@pytest.mark.slow
def test_at_the_start_every_trouble_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = Deployment(tmp_path, "ditto")
    for trouble in troubles(deployment, monkeypatch)[:-1]:  # at the start nothing is written yet
        if "samples are not those" in trouble.log:
            continue
        nodes, good = deployment.nodes(), deployment.node(1).app

        def site(message: Message, context: Context, trouble: Trouble = trouble, good: ClientApp = good) -> Message:
            with trouble.around():
                return (trouble.app or good)(message, context)

        nodes[1].app = cast(ClientApp, site)
        caplog.clear()
        with pytest.raises(
            FedpriorError, match=r"4 clients are to take part, and 3 can \(there: 'St. A', 'c/../d', 'é'\)"
        ):
            deployment.run(nodes)
        assert trouble.log in caplog.text
        assert f"client 'b' cannot take part: {trouble.told}"[:60] in caplog.text
        assert not deployment.records.exists


def test_a_sites_samples_are_checked() -> None:
    settings = SiteSettings(shape=[6], classes=list(CLASSES))
    for given, text in (
        ((X, Y, IS_TEST, X), r"must be \(x, y\) or \(x, y, is_test\), not tuple"),
        (X[:1], r"must be \(x, y\)"),
        ((X, Y[:, None]), r"y must be one value for each sample, and is of shape \(40, 1\)"),
        ((X, [[1], [2, 3]]), "y must be one value for each sample"),
        ((X, Y, IS_TEST[:3]), "is_test has 3 entries"),
        ((X, Y, np.where(IS_TEST, "test", "train")), "is_test of sample 0 is 'test'; valid: True and False"),
        ((X, Y, np.where(IS_TEST, np.nan, 0.0)), "is_test of sample 0 is nan; valid: True and False"),
        ((X, Y, np.zeros(40, bool)), "all 40 samples of this site are marked for training; mark some for testing too"),
        ((X, Y, np.ones(40, bool)), "all 40 samples of this site are marked for testing; mark some for training too"),
        ((X, [None] * 40), "this site has a label None"),
        ((X, np.array([{} for _ in Y], object)), "this site has a label {}"),
        ((np.where(X > 2, np.nan, X), Y), "has a value that is not finite"),
        ((X.astype(str), Y), "x must be an array of numbers"),
    ):
        with pytest.raises(FedpriorError, match=text):
            open_site(given, settings)


def test_what_the_sites_have_in_common_is_checked(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "local")
    task = deployment.task.read_text()
    for change, text in (
        (("shape = [6]", "shape = [0]"), r"\[sites\] of .*toy\.toml: shape\.0: .*greater than 0 \(given: 0\)"),
        (('"well"', '"ill"'), "classes: .*two classes look the same in records; each is named once"),
        (('["ill", "well", "unsure"]', '[1, "1"]'), "classes: .*two classes look the same in records"),
    ):
        assert change[0] in task
        deployment.task.write_text(task.replace(*change))
        with pytest.raises(FedpriorError, match=text):
            open_spec(deployment.task)


def test_folders_are_found_wherever_a_program_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert client.state_folder({"state-dir": "~/states"}) == tmp_path / "states"
    assert client.state_folder({"state-dir": "states"}) == tmp_path / "states"
    with pytest.raises(FedpriorError, match=f"^{tmp_path}/runs/toy/local/0 holds no run to go on with"):
        Deployment(tmp_path, "local").run(resume=True, out="~/runs")


def test_a_damaged_standing_is_told_in_one_line(tmp_path: Path) -> None:
    about = {"round": 1, "names": ["b"], "sizes": [[]], "absent": {}, "rejected": {}}
    (tmp_path / "federation.json").write_text(json.dumps(about))
    with pytest.raises(FedpriorError, match=r"federation\.json is damaged"):
        look.status_of(tmp_path)


def test_a_full_disk_is_found_before_a_site_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look.check_state_folder({"state-dir": str(tmp_path / "new")}) == tmp_path / "new"
    assert not list((tmp_path / "new").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(FedpriorError, match="choose another state-dir"):
        look.check_state_folder({"state-dir": str(tmp_path / "file")})


class Full:
    """The server's disk, which is full when so many files have been written."""

    def __init__(self, folder: Path, after: int):
        self.folder, self.left = folder, after

    def written(self, where: str, path: Path) -> None:
        if where == "written" and path.is_relative_to(self.folder):
            self.left -= 1
            if self.left < 0:
                no_space()


@pytest.mark.slow
@pytest.mark.parametrize("after", range(13))
def test_a_full_disk_of_the_server_is_said_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    deployment = Deployment(tmp_path, "ditto", rounds=2)
    full = Full(tmp_path / "runs", after)
    with monkeypatch.context() as patch:
        patch.setattr(files, "moment", full.written)
        with pytest.raises(FedpriorError, match=r"cannot write .*: No space left on device; free some space") as said:
            deployment.run()
    assert "\n" not in str(said.value)
    assert_same(deployment, deployment.run(resume=deployment.records.exists), "ditto", rounds=2)


@pytest.mark.slow
@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_a_line_that_was_half_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    deployment = Deployment(tmp_path, "ditto", rounds=2)
    left = iter(range(lines))

    def opened(path: Path, mode: str, **how: Any) -> Any:
        file = open(path, mode, **how)  # noqa: SIM115  (its caller closes it)
        if mode == "a" and next(left, None) is None:
            whole = file.write

            def half(text: str) -> int:
                whole(text[: len(text) // 2])
                file.flush()
                no_space()
                return 0

            setattr(file, "write", half)  # noqa: B010
        return file

    with monkeypatch.context() as patch:
        patch.setattr(runs, "open", opened, raising=False)
        with pytest.raises(FedpriorError, match="No space left on device"):
            deployment.run()
    assert_same(deployment, deployment.run(resume=True), "ditto", rounds=2)


@pytest.mark.slow
def test_nothing_is_begun_anew_in_silence(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "ditto", rounds=2)
    with pytest.raises(FedpriorError, match="holds no run to go on with"):
        deployment.run(resume=True)
    run = deployment.run()
    with pytest.raises(FedpriorError, match="already holds a run"):
        deployment.run()
    for path in run.checkpoints:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FedpriorError, match=r"all checkpoints in .* are damaged"):
        deployment.run(resume=True)

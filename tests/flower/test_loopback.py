"""docs/deploy.md, followed from beginning to end with the real commands: `make test-deploy`."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("flwr")

import fedprior as fp
from fedprior.data.federation import Samples
from fedprior.flower import look
from fedprior.flower.site import Site
from fedprior.flower.spec import open_spec
from fedprior.flower.state import as_file_name
from fedprior.records.runs import RunFolder
from fedprior.study.trial import Trial
from flower.certificates import certificate_authority
from flower.loopback import SITES, Federation, free_port, has_nginx, wait
from flower.sockets import Watch

pytestmark = pytest.mark.deploy


class Followed(NamedTuple):
    federation: Federation
    said: str
    addresses: set[str]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    """The page, up to where it stops everything."""
    federation = Federation(tmp_path_factory.mktemp("page"))
    try:
        with Watch(federation) as watch:
            said = "".join(federation.type(code) for _, code in federation.blocks[:-1])
        yield Followed(federation, said, watch.seen)
    finally:
        federation.stop()


def test_the_page_works_as_it_is_written(followed: Followed) -> None:
    said = followed.said
    for site in SITES:
        assert f"{site}: the same" in said  # the models of the undisturbed and of the disturbed run
    assert "data: 192 samples to train and 64 to test" in said
    assert "server/runs/task/mh/0: finished, round 4 of 4" in said
    assert "server/again/task/mh/0: finished, round 4 of 4" in said
    assert said.count("p(malignant)") == 1
    home = followed.federation.home
    sessions = RunFolder(home / "server" / "again" / "task" / "mh" / "0").record().provenance
    assert sessions is not None
    assert [session.ended is None for session in sessions] == [True, False]  # it was killed, and resumed
    assert (home / "north" / "node.log").read_text().count("SuperNode ID") == 2  # its loop brought it back


def test_every_site_has_the_model_of_a_simulation(followed: Followed) -> None:
    home = followed.federation.home
    trial, names = simulation(home)
    state, rows = trial.init(), []
    for done in trial.rounds(state):
        state = done.state
        rows += trial.rows(done.number, done.scores or {})
    for run in ("runs", "again"):
        recorded = RunFolder(home / "server" / run / "task" / "mh" / "0").rows("metrics.csv")
        assert {row[:4]: row.values for row in recorded} == {row[:4]: row.values for row in rows}
    for k, (folder, name) in enumerate(names):
        paths = list((home / folder / "state").glob(f"{as_file_name(name)}-*.safetensors"))
        assert len(paths) == 2
        for path in paths:
            (mine,) = fp.load(path).models
            _, models = trial.program.evaluator.personal_model(state, k)
            assert np.array_equal(np.asarray(mine.head.weight), np.asarray(models.tree.head.weight[0]))
            assert np.array_equal(np.asarray(mine.head.bias), np.asarray(models.tree.head.bias[0]))


def simulation(home: Path) -> tuple[Trial, list[tuple[str, str]]]:
    """The page's run as a simulation of all sites' samples, and the sites in the order of their names."""
    names = sorted(SITES.items(), key=lambda item: item[1])
    sites: list[Site] = []
    for folder, _ in names:
        sites.append(look.check_data(home / "hospitals", {"data": str(home / folder / "visits.csv")}))
    spec = open_spec(home / "hospitals" / "hospitals" / "task.toml")
    train, test = (together([getattr(site, part) for site in sites]) for part in ("train", "test"))
    federation = spec.federation([name for _, name in names], train, test, "simulated")
    return Trial(spec.program(federation, "mh"), 0), names


def together(parts: list[Samples]) -> Samples:
    """Several clients' samples as a simulation lays them out: one after the other, without what fills them up."""
    sizes = [int(part.size[0]) for part in parts]
    x, y = (
        np.concatenate([np.asarray(array)[:size] for array, size in zip(arrays, sizes, strict=True)])
        for arrays in ([part.x for part in parts], [part.y for part in parts])
    )
    starts = np.cumsum([0, *sizes[:-1]])
    return Samples(x, y, starts.astype(np.int32), np.array(sizes, np.int32))


def test_nothing_listens_or_connects_outside_loopback(followed: Followed) -> None:
    """Of all processes that the page starts, while it is followed."""
    assert followed.addresses == {"127.0.0.1"}


@pytest.mark.skipif(not has_nginx(), reason="needs nginx: apt-get install nginx")
def test_an_outsider_can_neither_register_a_key_nor_start_a_run(followed: Followed) -> None:
    federation = followed.federation
    assert "refused: no key is registered" in followed.said
    assert "refused: no run is started" in followed.said
    assert len(asked(federation, "flwr supernode list owner --format json")["nodes"]) == len(SITES)
    assert len(asked(federation, "flwr list owner --format json")["runs"]) == 3  # run, again, and again resumed
    for path in (
        *("/v1/control/register-node", "/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", "/openapi.json"),
        *("/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/control/start-run", "/v1/fleet/..%2fcontrol/start-run"),
        *("//v1/control/start-run", "/v1/fleet%2f..%2fcontrol%2fstart-run", "/v1/fleet/..;/control/start-run"),
    ):
        assert answer(federation, federation.fleet, path) == 404, path
    # By the SuperLink's own port, the same request is taken: it is the proxy that refuses.
    assert answer(federation, federation.link, "/v1/control/list-runs") == 200
    # The fleet's own paths are open, and ask for a key that is registered.
    for path in ("/v1/fleet/pull-messages", "/v1/fleet/register-node"):
        assert answer(federation, federation.fleet, path) == 401, path


def asked(federation: Federation, command: str) -> Any:
    return json.loads(federation.type(command))


def answer(federation: Federation, port: str, path: str) -> int:
    """The status of the answer to an empty message of Flower's."""
    trusting = ssl.create_default_context(cafile=str(federation.home / "server" / "ca.pem"))
    connection = http.client.HTTPSConnection("localhost", int(port), context=trusting, timeout=20)
    try:
        connection.request("POST", path, b"", {"Content-Type": "application/protobuf"})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("stranger", ["an unregistered key", "another authority"])
def test_strangers_are_refused(followed: Followed, stranger: str, tmp_path: Path) -> None:
    key, authority, why = {
        "an unregistered key": ("stranger", "server/ca.pem", "Failed to activate SuperNode"),
        "another authority": (
            "st-anna/key",
            certificate_authority(tmp_path / "other.pem"),
            "certificate verify failed",
        ),
    }[stranger]
    said = followed.federation.type(
        f"timeout 60 flower-supernode --superlink 127.0.0.1:$FLEET --root-certificates {authority} "
        f"--auth-supernode-private-key {key} --port {free_port()} --node-config st-anna/node.toml || true"
    )
    assert "Exit Code: 305" in said
    assert why in said


def test_the_unit_is_what_systemd_and_a_node_take(followed: Followed) -> None:
    """The node of the unit comes up with the unit's environment alone; another one than the loop's, which is stopped."""
    home = followed.federation.home
    path = home / "st-anna" / "supernode.service"
    if shutil.which("systemd-analyze"):
        done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    unit = [line.partition("=")[::2] for line in path.read_text().splitlines() if "=" in line]
    settings = dict(unit)
    environment = dict(
        word.partition("=")[::2] for key, value in unit if key == "Environment" for word in shlex.split(value)
    )
    followed.federation.type("kill $(cat st-anna/loop.pid)\nwhile kill -0 $(cat st-anna/node.pid); do sleep 1; done")
    log = home / "st-anna" / "unit.log"
    with open(log, "wb") as file:
        node = subprocess.Popen(
            shlex.split(settings["ExecStart"]),
            cwd=settings["WorkingDirectory"],
            env=environment,
            stdout=file,
            stderr=file,
        )
    try:
        wait(lambda: "SuperNode ID" in log.read_text(), f"the unit's node: {log.read_text()}")
        wait(lambda: "Starting Flower SuperExec" in log.read_text(), "its SuperExec, which PATH must lead to")
    finally:
        node.terminate()
        node.wait(30)


def test_everything_stops(followed: Followed) -> None:
    federation = followed.federation
    federation.type(federation.blocks[-1][1].replace("st-anna/loop.pid ", ""))  # which the test above has stopped
    own = {federation.shell.pid, os.getpid()}
    wait(lambda: {int(process.name) for process in federation.processes()} <= own, "everything to stop", 30)

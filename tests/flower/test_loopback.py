"""The real commands on loopback: `make test-deploy`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

import fedprior as fp
from fedprior.flower.state import as_file_name
from fedprior.records.runs import RunFolder
from flower.example import NAMES, samples, simulated
from flower.loopback import Federation, certificate_authority

pytestmark = pytest.mark.deploy
SITES = 3


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    made = Federation(tmp_path_factory.mktemp("federation"), SITES)
    try:
        made.superlink()
        for k in range(SITES):
            done = made.register(k)
            assert done.returncode == 0, done.stdout + done.stderr
            made.supernode(k)
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def run(federation: Federation) -> RunFolder:
    done = federation.run()
    assert done.returncode == 0, done.stdout + done.stderr + federation.log("superlink")
    return RunFolder(federation.folder / "runs" / "task" / "mh" / "0")


def test_every_site_has_the_model_of_a_simulation(federation: Federation, run: RunFolder) -> None:
    trial, _ = simulated("mh", rounds=2, sites=SITES, aggregated=2)
    state, rows = trial.init(), []
    for done in trial.rounds(state):
        state = done.state
        rows += trial.rows(done.number, done.scores or {})
    assert {row[:4]: row.values for row in run.rows("metrics.csv")} == {row[:4]: row.values for row in rows}
    for k in range(SITES):
        (path,) = (federation.folder / f"disk-{k}").glob(f"{as_file_name(NAMES[k])}-*.safetensors")
        (mine,) = fp.load(path).models
        _, models = trial.program.evaluator.personal_model(state, k)
        assert np.array_equal(np.asarray(mine.head.weight), np.asarray(models.tree.head.weight[0]))
        assert fp.load(path).predict(samples(k)[0]).shape == (len(samples(k)[0]),)
    assert [record.status for record in [run.record()]] == ["finished"]


def test_strangers_are_refused(federation: Federation, run: RunFolder, tmp_path: Path) -> None:
    federation.supernode(0, key=federation.key("stranger"), name="stranger")
    federation.supernode(0, authority=certificate_authority(tmp_path / "other"), name="misled")
    for name in ("stranger", "misled"):
        federation.wait(partial(_complains, federation, name), f"the refusal of {name}")
        federation.kill(name)


def _complains(federation: Federation, name: str) -> bool:
    """Whether a SuperNode gave up since the SuperLink did not take it, or it did not take the SuperLink."""
    return "Exit Code: 305" in federation.log(name)


def test_nothing_connects_outside_loopback(federation: Federation, run: RunFolder) -> None:
    """Of all processes that the federation started."""
    groups = {process.pid for process in federation.processes.values()}
    inodes = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if int((process / "stat").read_text().rpartition(")")[2].split()[2]) in groups:
                inodes |= {str(link.readlink()) for link in (process / "fd").iterdir() if link.is_symlink()}
        except (OSError, ValueError, IndexError):
            continue
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if f"socket:[{words[9]}]" not in inodes:
                continue
            for address in words[1:3]:
                raw = bytes.fromhex(address.partition(":")[0])
                packed = b"".join(raw[k : k + 4][::-1] for k in range(0, len(raw), 4))
                text = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
                assert text.startswith(("127.", "::ffff:127.")) or text in ("::1", "::", "0.0.0.0"), text

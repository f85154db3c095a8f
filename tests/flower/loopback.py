"""A real federation on this machine: a SuperLink with TLS and node authentication, SuperNodes, and the commands as a person
types them. Everything binds to 127.0.0.1.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedprior.flower.project import write_project
from flower.example import NAMES, TASK, samples

DATA = """
import numpy as np


def load(node_config):
    file = np.load(node_config["data"])
    return file["x"], file["y"], file["is_test"]
"""
BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Federation:
    """The folder, keys, certificates and processes of a federation of the first ``n`` sites of the example."""

    def __init__(self, folder: Path, n: int = 3, rounds: int = 2):
        self.folder, self.n, self.port = folder, n, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.app = folder / "hospitals"
        write_project(self.app)
        (self.app / "hospitals" / "data.py").write_text(DATA)
        (self.app / "hospitals" / "task.toml").write_text(
            TASK.format(rounds=rounds, model="mclr").replace("aggregated = 3", "aggregated = 2")
        )
        self.authority = certificate_authority(folder / "certificates")
        (folder / "flwr").mkdir()
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.authority}"\n'
        )
        for k in range(n):
            x, y, is_test = samples(k)
            np.savez(folder / f"site-{k}.npz", x=x, y=y, is_test=is_test)
            self.key(k)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        quiet = {
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        }
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, **quiet, "PATH": path, "FLWR_HOME": str(self.folder / "flwr")}

    def key(self, name: int | str) -> Path:
        """A node's private key; its public one lies beside it."""
        path = self.folder / "keys" / f"site-{name}"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            private = ec.generate_private_key(ec.SECP384R1())
            kind = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            path.write_bytes(private.private_bytes(*kind))
            path.chmod(0o600)
            public = private.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
            path.with_suffix(".pub").write_bytes(public)
        return path

    # -- processes ---------------------------------------------------------------------------------------------------------

    def start(self, name: str, *words: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                words, env=self.environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )

    def superlink(self) -> None:
        certificates = self.authority.parent
        self.start(
            "superlink",
            *("flower-superlink", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--ssl-ca-certfile", str(self.authority)),
            *("--ssl-certfile", str(certificates / "server.pem"), "--ssl-keyfile", str(certificates / "server.key")),
            *("--enable-supernode-auth", "--database", str(self.folder / "superlink.db")),
            "--disable-runtime-dependency-installation",
        )
        self.wait(lambda: _listens(self.port), "the SuperLink to listen")

    def register(self, k: int) -> subprocess.CompletedProcess[str]:
        return self.flwr("supernode", "register", str(self.key(k).with_suffix(".pub")), "here", "--name", NAMES[k])

    def supernode(
        self, k: int, key: Path | None = None, authority: Path | None = None, name: str | None = None
    ) -> None:
        config = f'data="{self.folder / f"site-{k}.npz"}" state-dir="{self.folder / f"disk-{k}"}"'
        self.start(
            name or f"supernode-{k}",
            *("flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--port", str(free_port())),
            *("--root-certificates", str(authority or self.authority)),
            *("--auth-supernode-private-key", str(key or self.key(k)), "--node-config", config),
        )

    def flwr(self, *words: str, seconds: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["flwr", *words], env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=seconds
        )

    def run(self, config: str = "", seconds: float = 240) -> subprocess.CompletedProcess[str]:
        """`flwr run`, to its end."""
        return self.flwr(
            "run", str(self.app), "here", "--stream", "--run-config", self.configured(config), seconds=seconds
        )

    def configured(self, config: str = "") -> str:
        return f'row="mh" clients={self.n} out="{self.folder / "runs"}" deadline=120.0 {config}'.strip()

    def kill(self, name: str) -> None:
        """SIGKILL a process and all that it started."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    @staticmethod
    def wait(done: Any, what: str, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"waited {seconds:g} s for {what}")
            time.sleep(0.2)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def certificate_authority(folder: Path) -> Path:
    """A certificate authority and the SuperLink's certificate; returns the authority's."""
    folder.mkdir(parents=True)
    root, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    now = datetime.datetime.now(datetime.UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "the hospitals' authority")])

    def issued(subject: str, key: Any, is_authority: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(who if is_authority else x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)]))
            .issuer_name(who)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            here = x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            )
            builder = builder.add_extension(here, critical=False)
        return builder.sign(root, hashes.SHA384())

    for name, key, is_authority in (("authority", root, True), ("server", server, False)):
        certificate = issued(name, key, is_authority)
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "server.key").write_bytes(server.private_bytes(*kind))
    return folder / "authority.pem"

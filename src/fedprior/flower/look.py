"""Is a site ready, and how does a federation stand? What can be told without taking part in it."""

from __future__ import annotations

import importlib
import re
import socket
import ssl
import stat
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedprior.errors import FedpriorError, first_line
from fedprior.files import read_json
from fedprior.flower.client import state_folder
from fedprior.flower.site import Site, load_site
from fedprior.flower.spec import open_spec


def package_of(app: Path) -> str:
    """The package of a Flower project that holds its client."""
    try:
        content = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
        return str(content["tool"]["flwr"]["app"]["components"]["clientapp"]).partition(":")[0].rpartition(".")[0]
    except (OSError, KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        raise FedpriorError(
            f"{app} is no Flower project ({first_line(error)}); `fedprior flower init` writes one"
        ) from error


def check_data(app: Path, node_config: Mapping[str, Any]) -> Site:
    """Load a site's samples as its SuperNode would. The model is not built: it may be one that only the app knows."""
    package = package_of(app)
    sites = open_spec(app / package / "task.toml", model=_not_built).sites
    sys.path.insert(0, str(app.absolute()))
    try:
        return load_site(lambda: importlib.import_module(f"{package}.data").load(dict(node_config)), sites)
    finally:
        sys.path.remove(str(app.absolute()))


def _not_built(key: Any) -> Any:
    raise AssertionError("nobody builds the model of a site that is only looked at")


def check_state_folder(node_config: Mapping[str, Any]) -> Path:
    """Where the site's states will lie, if they can be written there."""
    folder = state_folder(node_config)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(2**20))  # an empty file can be made on a full disk, too
    except OSError as error:
        raise FedpriorError(
            f"states cannot be written to {folder}: {error.strerror}; choose another state-dir"
        ) from error
    return folder


def check_key(path: Path) -> str:
    """What is known of a node's private key: Flower takes ECDSA keys on P-384."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    try:
        content = path.read_bytes()
        read = load_ssh_private_key if b"OPENSSH" in content else load_pem_private_key
        key = read(content, None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FedpriorError(f"{path} is no private key without a passphrase ({first_line(error)})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp384r1":
        raise FedpriorError(f"{path} is no ECDSA key on P-384; make one: ssh-keygen -t ecdsa -b 384 -N '' -f {path}")
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise FedpriorError(f"{path} can be read by others; chmod 600 {path}")
    return "ECDSA on P-384, readable by its owner alone"


def check_certificate(path: Path, superlink: str | None) -> str:
    """What is known of the authority's certificate; with an address, whether the SuperLink there shows one of its own."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FedpriorError(f"{path} is no certificate in PEM ({first_line(error)})") from error
    begin, end, now = certificate.not_valid_before_utc, certificate.not_valid_after_utc, datetime.now(UTC)
    if now > end:
        raise FedpriorError(f"{path} was valid until {end:%Y-%m-%d} only; renew it")
    if now < begin:
        raise FedpriorError(
            f"{path} is not valid before {begin:%Y-%m-%d %H:%M} UTC, and here it is {now:%Y-%m-%d %H:%M}; is this machine's "
            "clock right?"
        )
    if superlink is None:
        return f"valid until {end:%Y-%m-%d}"
    host, _, port = superlink.rpartition(":")
    host = host.strip("[]")  # of an address of version 6
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) >= 2**16:
        raise FedpriorError(f"--superlink '{superlink}' is not of the form HOST:PORT, such as 127.0.0.1:9443")
    try:
        trusting = ssl.create_default_context(cafile=str(path))
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            trusting.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return f"the SuperLink at {superlink} shows a certificate of this authority ({secure.version()})"
    except (OSError, ValueError) as error:
        raise FedpriorError(f"no trusted SuperLink at {superlink}: {first_line(error)}") from error


def status_of(run: Path) -> dict[str, Any]:
    """How a deployed run stands: the round, and what became of each client."""
    path = run / "federation.json"
    if not path.exists():
        raise FedpriorError(f"{run} holds no deployed run; give RUNS/<task>/<row>/<seed>")
    content = read_json(path)
    try:
        return {
            "round": content["round"],
            "clients": [
                {
                    "client": name,
                    "train": sizes[0],
                    "test": sizes[1],
                    "absent": content["absent"].get(name, 0),
                    "rejected": content["rejected"].get(name, 0),
                    "state": _state_of(name, content),
                }
                for name, sizes in zip(content["names"], content["sizes"], strict=True)
            ],
        }
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise FedpriorError(f"{path} is damaged ({first_line(error)})") from error


def _state_of(name: str, content: Mapping[str, Any]) -> str:
    """What became of a client's state."""
    back = ", ".join(str(int(t)) for t in content.get("rejoined", {}).get(name, ()))
    return "lost" if name in content.get("lost", ()) else f"began anew after round {back}" if back else "kept"

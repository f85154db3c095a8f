"""A certificate authority for tests."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path


def certificate_authority(path: Path, days: int = 30) -> Path:
    """Write the certificate of a new authority."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp384r1", "-nodes", "-keyout", f"{path}.key")
    words = ("openssl", "req", "-x509", *key, "-days", str(days), "-subj", "/CN=an authority", "-out", str(path))
    subprocess.run(words, check=True, capture_output=True)
    return path


def certificate_of(path: Path, days: int) -> Path:
    """Write a certificate that is valid for an hour, so many days from now."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP384R1()), x509.Name([])
    begin = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    about = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + datetime.timedelta(hours=1))
    path.write_bytes(about.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM))
    return path

"""A certificate authority for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate_authority(path: Path, days: int = 30) -> Path:
    """Write the certificate of a new authority."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:secp384r1", "-nodes", "-keyout", f"{path}.key")
    words = ("openssl", "req", "-x509", *key, "-days", str(days), "-subj", "/CN=an authority", "-out", str(path))
    subprocess.run(words, check=True, capture_output=True)
    return path

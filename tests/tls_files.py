"""Certificates for tests of TLS, made anew by openssl for each process that imports this module."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from pathlib import Path

from stretto.runtime.credentials import Certificates, Credentials

FOLDER = Path(tempfile.mkdtemp(prefix="certificates."))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
subprocess.run(["sh", Path(__file__).parent / "make_certificates.sh", FOLDER], check=True)
SECRET = bytes(range(32))


def files(name: str = "rank", authority: str = "authority", peers: str | None = None) -> Certificates:
    """The certificate, its key and the authority; and the name that peers must have."""
    return Certificates(*(str(FOLDER / f"{f}.pem") for f in (name, f"{name}.key", authority)), peers)


def with_tls(*arguments: str) -> Credentials:
    return Credentials(SECRET, certificates=files(*arguments))


_PATHS = {"CERT": FOLDER / "rank.pem", "KEY": FOLDER / "rank.key.pem", "CA": FOLDER / "authority.pem"}
ENVIRONMENT = {f"STRETTO_TLS_{option}": str(path) for option, path in _PATHS.items()}
OPTIONS = [f"--tls-{option.lower()}={path}" for option, path in _PATHS.items()]

"""A PostgreSQL cluster of a test's own, in a temporary folder, run by a user other than root, whom initdb refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
USER = "nobody"


def installed() -> bool:
    """Whether PostgreSQL's server is installed."""
    return bool(PROGRAMS) or shutil.which("initdb") is not None


@contextmanager
def cluster() -> Iterator[str]:
    """The URL of a database of a cluster that listens at a socket in its folder, and nowhere else."""
    programs = PROGRAMS[-1].parent if PROGRAMS else Path(shutil.which("initdb") or "").resolve().parent
    folder = Path(tempfile.mkdtemp(prefix="pg."))
    who = {"user": USER, "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    if who:
        shutil.chown(folder, USER)

    def run(program: str, *arguments: str) -> None:
        command = [programs / program, "-D", folder / "data", *arguments]
        subprocess.run(command, check=True, cwd=folder, capture_output=True, **who)

    try:
        run("initdb", "-A", "trust", "-U", "stretto", "--no-sync")
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -c listen_addresses= -c fsync=off", "start")
        try:
            yield f"postgresql://stretto@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)

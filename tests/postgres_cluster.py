"""A PostgreSQL cluster of a test's own, in a temporary folder, run by a user other than root, whom initdb refuses."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
USER = "nobody"


def installed() -> bool:
    """Whether PostgreSQL's server is installed."""
    return bool(PROGRAMS) or shutil.which("initdb") is not None


class Cluster:
    """A running cluster.

    Attributes:
        url: of its database, which is reached by a socket in its folder alone.
    """

    def __init__(self, programs: Path, folder: Path, who: dict[str, object]) -> None:
        self.url = f"postgresql://stretto@/postgres?host={folder}"
        self._programs, self._folder, self._who = programs, folder, who
        self.run("initdb", "-A", "trust", "-U", "stretto", "--no-sync")
        self.start()

    def start(self) -> None:
        how = f"-k {self._folder} -c listen_addresses= -c fsync=off"
        self.run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", how, "start")

    def stop(self) -> None:
        """Cut all connections and refuse new ones."""
        self.run("pg_ctl", "-w", "-m", "immediate", "stop")

    def run(self, program: str, *arguments: str) -> None:
        command = [self._programs / program, "-D", self._folder / "data", *arguments]
        subprocess.run(command, check=True, cwd=self._folder, capture_output=True, **self._who)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """All of its processes stand still: connections stay open, and nothing answers."""
        first = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(first, signal.SIGSTOP)  # it starts no other one from here on
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        processes = [first, *map(int, children)]
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)


@contextmanager
def running() -> Iterator[Cluster]:
    """A cluster, which ends with the block."""
    programs = PROGRAMS[-1].parent if PROGRAMS else Path(shutil.which("initdb") or "").resolve().parent
    folder = Path(tempfile.mkdtemp(prefix="pg."))
    who = {"user": USER, "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    if who:
        shutil.chown(folder, USER)
    try:
        cluster = Cluster(programs, folder, who)
        try:
            yield cluster
        finally:
            with suppress(subprocess.CalledProcessError):  # a test may have stopped it
                cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def cluster() -> Iterator[str]:
    """The URL of a database of a cluster of its own."""
    with running() as made:
        yield made.url

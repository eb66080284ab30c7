"""A controller in a process of its own, as ``stretto serve`` starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stretto.service.client import Controller


class Served:
    """``stretto serve`` on a free port of this machine, with little effort for plans.

    Args:
        data: the folder, or the URL of a database.
        options: of the command.
        log: where its log goes; by default to that of the tests.
        inside: the command that runs it in another place, as ``ip netns exec NAME``.
    """

    def __init__(
        self, data: Path | str, *options: object, log: IO[str] | None = None, inside: tuple[str, ...] = ()
    ) -> None:
        where = "--database" if "://" in str(data) else "--data"
        words = ["serve", where, data, "--port", 0, "--effort", "quick", "-p", "shortest-path", "--json", *options]
        environment = {**os.environ, "STRETTO_KERNELS": "python"}
        self.process = subprocess.Popen(
            [*inside, sys.executable, "-m", "stretto", *map(str, words)], stdout=subprocess.PIPE, stderr=log, text=True,
            env=environment,
        )  # fmt: skip
        self.url = json.loads(self.process.stdout.readline())["url"]

    def client(self, token: str | None = None, authorities: Path | None = None) -> Controller:
        return Controller(self.url, token, None if authorities is None else str(authorities), timeout_s=60.0)

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does; its planner ends by itself."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Stop it as a debugger does: it keeps its files, locks and connections, and does nothing."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it as ``systemctl stop`` does."""
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

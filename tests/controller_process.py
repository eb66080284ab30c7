"""A controller in a process of its own, as ``stretto serve`` starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from stretto.service.client import Controller


class Served:
    """``stretto serve`` on a free port of this machine, with little effort for plans.

    Args:
        data: the folder, or the URL of a database.
        options: of the command.
    """

    def __init__(self, data: Path | str, *options: object) -> None:
        where = "--database" if "://" in str(data) else "--data"
        words = ["serve", where, data, "--port", 0, "--effort", "quick", "-p", "shortest-path", "--json", *options]
        environment = {**os.environ, "STRETTO_KERNELS": "python"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stretto", *map(str, words)], stdout=subprocess.PIPE, text=True, env=environment
        )
        self.url = json.loads(self.process.stdout.readline())["url"]

    def client(self, token: str | None = None, authorities: Path | None = None) -> Controller:
        return Controller(self.url, token, None if authorities is None else str(authorities), timeout_s=60.0)

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does; its planner ends by itself."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self) -> None:
        """End it as ``systemctl stop`` does."""
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

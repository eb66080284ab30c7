"""The command line as a process of its own, from one that has imported what costs time already."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

IMPORTED = ["stretto.cli", "numba", "pyarrow.parquet", "stretto.planners.run", "stretto.bounds", "stretto.simulate"]
"""What each command would import; a server imports it once, and forks a process for each command."""


def _run(arguments: list[str], folder: str, files: tuple[str, str]) -> None:
    """Run a command whose stdout and stderr go into files, in the folder ``folder``."""
    from stretto.cli import main

    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY), number)
    os.chdir(folder)
    sys.argv = ["stretto", *arguments]
    main()


def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """Run ``stretto ARGUMENTS``."""
    words = [*map(str, arguments)]
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as place:
        files = f"{place}/stdout", f"{place}/stderr"
        for file in files:
            Path(file).touch()
        process = server.Process(target=_run, args=(words, str(cwd or Path.cwd()), files))
        process.start()
        process.join()
        stdout, stderr = (Path(file).read_text() for file in files)
    return subprocess.CompletedProcess(words, process.exitcode, stdout, stderr)

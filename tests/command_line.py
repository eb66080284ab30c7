"""The command line in tests: what a command prints and how it exits."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stretto import cli

COMMAND = [sys.executable, "-m", "stretto"]


def run_here(words: list[str], cwd: Path | None) -> subprocess.CompletedProcess:
    """Run ``stretto WORDS`` in this process."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys, "argv", ["stretto", *words])
        patch.chdir(cwd or Path.cwd())
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            cli.main()
    return subprocess.CompletedProcess(words, end.value.code or 0, stdout.getvalue(), stderr.getvalue())


def stretto(*arguments: object, code: int = 0, cwd: Path | None = None, apart: bool = False):
    """Run ``stretto ARGUMENTS``; if ``apart``, in a process of its own."""
    words = [*map(str, arguments)]
    done = subprocess.run(COMMAND + words, capture_output=True, text=True, cwd=cwd) if apart else run_here(words, cwd)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def answer(*arguments: object) -> dict:
    return json.loads(stretto(*arguments, "--json").stdout)

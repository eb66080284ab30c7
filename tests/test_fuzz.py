"""Damaged files of every kind that is read: never a traceback, a hang, or more than 1 GB (see fuzz_worker.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from test_foreign_topologies import FILES
from test_topology_fuzz import RICH

WORKER = Path(__file__).parent / "fuzz_worker.py"
TOPOLOGIES = [f"topology {name}" for name in (*FILES, *RICH, "own.json")]
PLANS = ["plan plan.parquet", "plan plan.json", "import trace.0.et", "import schedule.json", "import program.xml"]
PLANS += [
    "plan symmetric.parquet",
    "plan symmetric.json",
    "import execution.json",
    "import packets.json",
    "import graph.xml",
]


def fuzzed(folder: Path, subjects: list[str], seconds: float = 5) -> tuple[int, str, str]:
    """Exit code, the last case that was begun, and what was said of it."""
    done = subprocess.run(
        [sys.executable, str(WORKER), str(folder), str(seconds), *subjects], capture_output=True, text=True, timeout=280
    )
    return done.returncode, done.stdout.strip().rpartition("\n")[2], done.stderr[-2000:]


def test_damaged_files_end_in_a_line_within_limits(tmp_path):
    code, last, said = fuzzed(tmp_path, TOPOLOGIES + PLANS)
    assert (code, last) == (0, "done"), said


@pytest.mark.parametrize(("reader", "words"), [("loop", ""), ("hog", "MemoryError"), ("throw", "KeyError")])
def test_the_limits_are_hard(reader, words, tmp_path):
    code, last, said = fuzzed(tmp_path, [reader], seconds=0.5)
    assert code != 0 and last == f"{reader}, case 0" and words in said

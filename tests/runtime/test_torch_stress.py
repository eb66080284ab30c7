"""Random collectives by PyTorch's backend, and ranks that are killed or stopped meanwhile: the short form of the benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

STRESS = Path(__file__).parents[2] / "benchmarks" / "torch_stress.py"


def test_random_collectives_are_right_and_all_name_a_rank_that_is_killed_or_stops(tmp_path):
    out = tmp_path / "stress.json"
    sizes = ["--ranks", "3", "--groups", "2", "--collectives", "60", "--kills", "1", "--stops", "1", "--timeout", "15"]
    done = subprocess.run([sys.executable, STRESS, *sizes, "--out", out], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads(out.read_text())
    assert [[len(texts) for texts in run["told"].values()] for run in runs] == [[2] * 3, [2] * 2, [2] * 2]

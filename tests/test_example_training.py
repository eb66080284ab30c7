"""The example that trains across datacenters runs, and both backends learn the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stretto import emulator

pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

RUN = Path(__file__).parents[1] / "examples" / "train_across_datacenters" / "run.py"


@pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
def test_training_across_datacenters_has_one_loss_curve(tmp_path):
    trace = tmp_path / "step.json"
    command = [sys.executable, RUN, "--sites", "2", "--ranks", "1", "--steps", "2", "--width", "8", "--trace", trace]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 2
    for _, theirs, ours, *_ in rows:
        assert float(theirs) == pytest.approx(float(ours), abs=1e-4)
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["pid"] for e in events} == {0, 1}
    wholes = [e for e in events if not e["name"].startswith("transfer ")]
    assert "allreduce" in {e["name"] for e in wholes}
    transfers = [e for e in events if e["name"].startswith("transfer ")]
    assert {e["name"].split(" ", 2)[2] for e in transfers} == {f"{w} rank {r}" for w in ("to", "from") for r in (0, 1)}
    assert all(e["dur"] >= 0 for e in transfers) and any(e["dur"] > 0 for e in transfers)
    for t in transfers:  # each within a collective of its rank
        around = [w for w in wholes if w["pid"] == t["pid"] and w["ts"] <= t["ts"] + 1]
        assert any(t["ts"] + t["dur"] <= w["ts"] + w["dur"] + 1 for w in around), t

"""Some of PyTorch's own tests by the backend ``stretto``: the short form of the benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")
pytest.importorskip("expecttest", reason="PyTorch's own tests need it: pip install 'stretto[dev]'")

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "torch_own_tests.py"
NAMES = (
    "test_barrier_timeout_global", "test_scatter_object_list", "test_send_recv_any_source",
    "test_sparse_all_reduce_sum", "test_DistributedDataParallelCPU_grad_is_view",
)  # fmt: skip


def test_pytorchs_own_tests_pass(tmp_path):
    out = tmp_path / "own.json"
    command = [sys.executable, BENCHMARK, *NAMES, "--only-stretto", "--ranks", "3", "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["test"]: row["ended"] for row in json.loads(out.read_text())} == dict.fromkeys(NAMES, "passed")

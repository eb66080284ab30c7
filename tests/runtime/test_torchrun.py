"""Training scripts under torchrun learn by stretto what one process learns from the data of all ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

SCRIPT = Path(__file__).parents[1] / "training_script.py"


def launch(ranks: int, *arguments: object) -> None:
    """The script under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(SCRIPT)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr


def test_a_script_learns_what_one_process_learns(tmp_path):
    from training_script import parameters

    launch(3, "ddp,fsdp,fsdp1", tmp_path)
    alone = parameters("alone", range(3))
    for way in ("ddp", "fsdp", "fsdp1"):
        learned = {k.removeprefix("module."): v for k, v in torch.load(tmp_path / way).items()}
        torch.testing.assert_close(learned, alone)


def test_whoever_waits_for_a_collective_is_told_which_rank_died(tmp_path):
    launch(3, "dies", tmp_path)
    for rank in range(2):
        assert "rank 2" in torch.load(tmp_path / f"dies.{rank}")

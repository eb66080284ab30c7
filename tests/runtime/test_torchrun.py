"""Training scripts under torchrun learn by stretto what one process learns from the data of all ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

SCRIPT = Path(__file__).parents[1] / "training_script.py"


RANKS = 4
WAYS = ("ddp", "fsdp", "fsdp1", "hsdp", "zero", "dcp", "tp", "pp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What the script under torchrun has left."""
    folder = tmp_path_factory.mktemp("learned")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", SCRIPT]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*map(str, command), ",".join(WAYS), str(folder)], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_every_way_of_training_learns_what_it_learns_by_gloo_and_what_one_process_learns(folder):
    from training_script import ONE_DATA, parameters

    learned = torch.load(folder / "learned")
    alone = {data: parameters("alone", data) for data in (range(RANKS), range(1))}
    for way in WAYS:
        (by_gloo, losses_by_gloo), (ours, losses) = learned["gloo", way], learned["cpu:stretto", way]
        assert len(losses) == 4 and losses == pytest.approx(losses_by_gloo, rel=1e-5), way
        torch.testing.assert_close(ours, by_gloo)
        if way != "pp":  # its model is another one
            torch.testing.assert_close(ours, alone[range(1 if way in ONE_DATA else RANKS)][0])


def test_whoever_waits_for_a_collective_is_told_which_rank_died(folder):
    for rank in range(RANKS - 1):
        assert f"rank {RANKS - 1}" in torch.load(folder / f"dies.{rank}")

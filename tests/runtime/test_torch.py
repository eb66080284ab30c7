"""PyTorch by the backend ``stretto`` computes what it does by gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

WORKER = Path(__file__).parents[1] / "torch_worker.py"
RANKS = 3


def run(folder: Path, backend: str, topology: str | None = None) -> list[dict]:
    out = folder / f"{backend}{topology}".replace(":", "-").replace("?", "-")
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    if topology:
        environment["STRETTO_TOPOLOGY"] = topology
    commands = [[sys.executable, WORKER, str(r), str(RANKS), f"{out}.store", backend, str(out)] for r in range(RANKS)]
    running = [
        subprocess.Popen(c, env=environment, stderr=subprocess.PIPE, text=True) for c in commands
    ]
    failures = [p.communicate(timeout=100)[1] for p in running]
    assert [p.returncode for p in running] == [0] * RANKS, "\n".join(failures)
    return [torch.load(f"{out}.{r}") for r in range(RANKS)]


@pytest.fixture(scope="module")
def by_gloo(tmp_path_factory):
    return run(tmp_path_factory.mktemp("gloo"), "gloo")


@pytest.mark.parametrize("topology", [None, "ring:3"])
def test_every_call_gives_what_gloo_gives(topology, by_gloo, tmp_path):
    for theirs, ours in zip(by_gloo, run(tmp_path, "stretto", topology)):
        assert theirs.keys() == ours.keys()
        for name, expected in theirs.items():
            if name.startswith("ddp"):
                torch.testing.assert_close(ours[name], expected)
            else:
                assert torch.equal(ours[name], expected), name

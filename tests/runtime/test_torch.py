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


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> list[list[dict]]:
    """For gloo, stretto, stretto on a ring, and stretto on optical planes: what each rank had."""
    folder = tmp_path_factory.mktemp("torch")
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    commands = [[sys.executable, WORKER, str(r), str(RANKS), str(folder)] for r in range(RANKS)]
    running = [subprocess.Popen(c, env=environment, stderr=subprocess.PIPE, text=True) for c in commands]
    failures = [p.communicate(timeout=200)[1] for p in running]
    assert [p.returncode for p in running] == [0] * RANKS, "\n".join(failures)
    return [[torch.load(folder / f"{number}.{r}") for r in range(RANKS)] for number in range(4)]


@pytest.mark.parametrize("number", [1, 2], ids=["any network", "a ring"])
def test_every_call_gives_what_gloo_gives(number, results):
    for theirs, ours in zip(results[0], results[number]):
        assert theirs.keys() == ours.keys()
        for name, (came, expected) in theirs.items():
            if name.startswith("ddp"):
                torch.testing.assert_close(ours[name][1], expected)
            elif came == "is":
                assert same(ours[name], ["is", expected]), (name, ours[name])


SEVERAL_GROUPS = ["groups_that_overlap_and_groups_that_do_not", "many_at_once"]


def test_every_call_on_optical_planes_gives_what_gloo_gives_but_those_of_several_groups(results):
    for theirs, ours in zip(results[0], results[3]):
        refused = [name for name, (came, _) in ours.items() if came == "refused" and theirs[name][0] == "is"]
        assert sorted(refused) == SEVERAL_GROUPS
        assert all("optical planes serve one group" in ours[name][1] for name in refused)
        assert len(ours) > len(theirs) / 2
        for name in ours.keys() - {*refused}:
            came, expected = theirs[name]
            if name.startswith("ddp"):
                torch.testing.assert_close(ours[name][1], expected)
            elif came == "is":
                assert same(ours[name], ["is", expected]), (name, ours[name])


def same(a, b) -> bool:
    """Equal bit for bit, of types and shapes too."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b

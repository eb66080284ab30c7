"""What benchmarks take from elsewhere is there: functions that they replace or time, and certificates of tests."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import frames
from ablation import PARTS as PARTS_OF_PLANNERS
from ablation import owner_of
from call_parts import PARTS as PARTS_OF_CALLS
from call_parts import holder_of
from grid import measured
from stretto.model.errors import Unsupported
from stretto.planners.registry import find
from stretto.topologies import load_topology


@pytest.mark.parametrize(("module", "name"), [part[1:] for part in PARTS_OF_CALLS], ids=str)
def test_a_timed_part_of_a_call_is_a_function(module, name):
    if ".torch." in module:
        pytest.importorskip("torch")
    holder, last = holder_of(importlib.import_module(module), name)
    assert last in vars(holder)


@pytest.mark.parametrize("part", PARTS_OF_PLANNERS)
def test_a_part_of_a_planner_that_is_left_out_is_there(part):
    target, by = PARTS_OF_PLANNERS[part]
    if by is None:
        assert find(target).auto is not None
    else:
        owner, name = owner_of(target)
        assert name in vars(owner)


def test_a_handshake_is_timed_with_every_way_to_protect_a_connection(monkeypatch):
    monkeypatch.setattr(frames, "HANDSHAKES", 1)
    assert all(
        frames.handshake_s(credentials) > 0 for way, credentials in frames.kinds().items() if way != "authenticated"
    )


def test_a_benchmark_whose_reader_has_gone_ends_quietly():
    unread, ours = os.pipe()
    os.close(unread)
    program = "import piped; piped.run(lambda: print('a line'))"
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=ours, stderr=subprocess.PIPE, cwd=Path(frames.__file__).parent
    )
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_cell_of_fewer_bytes_than_pieces_is_left_out_with_its_reason():
    with pytest.raises(Unsupported, match="5 ranks have 25 pieces, and 24 B is less than a byte for each"):
        measured(load_topology("ring:5"), "alltoall", "24 B", "ring", 1, "quick")

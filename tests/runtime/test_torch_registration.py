"""A script that names the backend needs no import of stretto: ``import torch`` makes it known, at next to no cost."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installed(tmp_path):
    """The environment of a process that finds stretto as it is installed from here, entry points included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["torch.backends"]
    folder = tmp_path / "stretto-0.0.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: stretto\nVersion: 0.0.0\n")
    (folder / "entry_points.txt").write_text(
        "[torch.backends]\n" + "".join(f"{name} = {place}\n" for name, place in points.items())
    )
    paths = [str(tmp_path), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run(program: str, environment) -> str:
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout


def test_a_script_needs_nothing_but_the_name(installed):
    program = """
        import sys
        import torch
        import torch.distributed as dist
        loaded = [name for name in sys.modules if name.partition(".")[0] == "stretto"]
        store = dist.HashStore()
        dist.init_process_group("stretto", store=store, rank=0, world_size=1)
        t = torch.ones(3)
        dist.all_reduce(t)
        print(dist.get_backend(), t.tolist(), len(loaded), dist.Backend.default_device_backend_map["cpu"])
        dist.destroy_process_group()
    """
    name, *numbers, loaded, default = run(program, installed).replace(",", "").split()
    assert (name, numbers, default) == ("stretto", ["[1.0", "1.0", "1.0]"], "gloo")
    assert int(loaded) <= 5  # the package, this part, and errors: neither planners nor the runtime


@pytest.mark.parametrize("first", ["stretto.torch", "torch"])
def test_both_may_be_imported_in_any_order(first, installed):
    program = f"""
        import {first}
        import torch, stretto.torch
        assert torch.distributed.is_backend_available("stretto")
        print(stretto.torch.StrettoGroup.__name__, stretto.torch.over.__name__)
    """
    assert run(program, installed).split() == ["StrettoGroup", "over"]

"""Orders of machines as files of launchers, read back by the launchers where these are installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from stretto.model.errors import InputError
from stretto.order.files import FILES, order_text, write_order

MACHINES = ["node2", "node0", "node1"]


def find_mpirun() -> str | None:
    """Open MPI's mpirun: beside the interpreter that STRETTO_MPI_PYTHON names, or on the path."""
    beside = os.path.join(os.path.dirname(os.environ.get("STRETTO_MPI_PYTHON", "")), "mpirun")
    found = beside if os.path.exists(beside) else shutil.which("mpirun")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else ""
    return found if "Open MPI" in version else None


@pytest.mark.skipif(find_mpirun() is None, reason="there is no mpirun of Open MPI")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("openmpi-hostfile", []), ("openmpi-rankfile", ["--map-by", "rankfile:file={}"])],
)
def test_mpirun_of_open_mpi_gives_the_machines_the_ranks_that_the_file_says(tmp_path, name, arguments):
    hosts, file = tmp_path / "hosts", tmp_path / name
    # the order is that of the file, and not of the list of hosts
    write_order(str(hosts), "openmpi-hostfile", MACHINES if name == "openmpi-hostfile" else sorted(MACHINES), 2)
    write_order(str(file), name, MACHINES, 2)
    allowed = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [find_mpirun(), "--hostfile", hosts, "-n", "6", *(a.format(file) for a in arguments)]
    done = subprocess.run([*command, "--display", "map", "--do-not-launch", "true"], env=allowed, capture_output=True, text=True)  # fmt: skip
    lines = re.findall(r"Data for node: (\S+)|Data for proc: \[\S+,(\d+)\]", done.stdout)
    ranks: dict[str, list[int]] = {}
    for node, rank in lines:
        if node:
            here = ranks.setdefault(node, [])
        else:
            here.append(int(rank))
    assert ranks == {"node2": [0, 1], "node0": [2, 3], "node1": [4, 5]}, done.stderr


def test_the_script_for_torchrun_tells_each_machine_its_number(tmp_path):
    write_order(str(tmp_path / "start.sh"), "torchrun", MACHINES, 8)
    said = tmp_path / "torchrun"
    said.write_text('#!/bin/sh\necho "$@"\n')
    said.chmod(0o755)
    told = []
    for name in ("node0", "node1.cluster.local", "node2", "node3"):
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NODE_NAME": name}
        command = ["sh", str(tmp_path / "start.sh"), "train.py", "--lr", "1"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        told.append(done.stdout.strip() if done.returncode == 0 else done.stderr.strip())
    common = "--nnodes 3 --nproc-per-node 8 --node-rank {} --master-addr node2 --master-port 29500 train.py --lr 1"
    assert told == [*(common.format(rank) for rank in (1, 2, 0)), "node3 is not in the order of machines"]


def test_slurm_and_mpich_list_hosts_in_order():
    assert order_text("slurm", MACHINES, 2).split() == ["node2", "node2", "node0", "node0", "node1", "node1"]
    assert order_text("mpich-hostfile", MACHINES, [2, 1, 3]).split() == ["node2:2", "node0:1", "node1:3"]


def test_kubernetes_and_json_say_the_number_of_each_machine():
    assert json.loads(order_text("kubernetes", MACHINES))["data"] == {"node2": "0", "node0": "1", "node1": "2"}
    rows = json.loads(order_text("json", MACHINES, [1, 2, 1]))["machines"]
    assert [(row["number"], row["name"], row["ranks"]) for row in rows] == [
        (0, "node2", [0]), (1, "node0", [1, 2]), (2, "node1", [3]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("machines", "ranks", "message"),
    [
        (["a", "rm -rf /"], 1, "'rm -rf /' is no host name"),
        (["a", "$(reboot)"], 1, r"'\$\(reboot\)' is no host name"),
        (["a", "a"], 1, "a machine comes twice"),
        (["a", "b"], [1, 0], "b has no ranks"),
        ([], 1, "needs a machine"),
    ],
)
@pytest.mark.parametrize("name", FILES)
def test_orders_that_no_launcher_could_read_are_refused(name, machines, ranks, message):
    with pytest.raises(InputError, match=message):
        order_text(name, machines, ranks)


def test_torchrun_refuses_machines_with_different_numbers_of_ranks():
    with pytest.raises(InputError, match="different numbers"):
        order_text("torchrun", ["a", "b"], [8, 4])

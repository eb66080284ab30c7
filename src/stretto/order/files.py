"""An order of machines as the files and commands of launchers.

Each format is a text made from the names of the machines in the order of their numbers, and how many ranks each has.
Facts:

- Open MPI 5.0 (mpirun(1)): ``mpirun --hostfile FILE -n RANKS`` fills the slots of the hosts in the order of the file;
  ``mpirun --hostfile FILE --map-by rankfile:file=FILE -n RANKS`` gives each rank the host and the core that the second
  file says.
- MPICH (Hydra): ``mpiexec -f FILE -n RANKS`` fills the hosts, ``name:processes``, in the order of the file.
- Slurm (srun(1), ``--distribution=arbitrary``): tasks go to hosts in the order of the lines of the file that
  ``SLURM_HOSTFILE`` names, a line for each task.
- PyTorch (``torchrun --node-rank``): with a fixed master the node's rank is what the command says, and not what its
  name or its arrival makes it.
- Kubernetes: no Job lets its pods choose a node by their index. Here a ConfigMap says the number of each node, for pods
  that learn their node's name by the downward API (``spec.nodeName``) and set ``PET_NODE_RANK`` (torchrun's
  ``--node-rank``) from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..formats import atomic_file
from ..model.errors import InputError

HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""What a machine may be called in these files: a host name or an IPv4 address."""


@dataclass(frozen=True)
class FileFormat:
    """A format.

    Attributes:
        name: as the command line calls it.
        summary: one line: whose it is, and the command that reads it.
        text: the file for machines in their order, and the number of ranks of each.
    """

    name: str
    summary: str
    text: Callable[[Sequence[str], Sequence[int]], str]


def order_text(format_name: str, machines: Sequence[str], ranks: Sequence[int] | int = 1) -> str:
    """The file of a format.

    Args:
        machines: names in the order of their numbers.
        ranks: how many ranks each has.
    Raises:
        InputError: an unknown format, no machine, a name that is no host name or comes twice, a machine without ranks,
            or numbers of ranks that the format cannot say.
    """
    if format_name not in FILES:
        raise InputError(f"there is no format {format_name!r} for orders; there are {', '.join(FILES)}", "format")
    counts = np.broadcast_to(np.asarray(ranks, dtype=np.int64), (len(machines),)).tolist()
    if not machines:
        raise InputError("an order needs a machine at least", "order")
    for name, count in zip(machines, counts, strict=True):
        if not HOST_NAME.fullmatch(name):
            raise InputError(f"{name!r} is no host name, which {format_name} needs", "order")
        if count < 1:
            raise InputError(f"{name} has no ranks", "order")
    if len(set(machines)) != len(machines):
        raise InputError("a machine comes twice", "order")
    return FILES[format_name].text(machines, counts)


def write_order(path: str, format_name: str, machines: Sequence[str], ranks: Sequence[int] | int = 1) -> None:
    """Write the file of a format; see :func:`order_text`."""
    text = order_text(format_name, machines, ranks)
    with atomic_file(path) as file:
        file.write(text)


def _hostfile(machines: Sequence[str], ranks: Sequence[int]) -> str:
    return _lines(f"{name} slots={count}" for name, count in zip(machines, ranks, strict=True))


def _rankfile(machines: Sequence[str], ranks: Sequence[int]) -> str:
    places = ((name, core) for name, count in zip(machines, ranks, strict=True) for core in range(count))
    return _lines(f"rank {rank}={name} slot={core}" for rank, (name, core) in enumerate(places))


def _hydra(machines: Sequence[str], ranks: Sequence[int]) -> str:
    return _lines(f"{name}:{count}" for name, count in zip(machines, ranks, strict=True))


def _slurm(machines: Sequence[str], ranks: Sequence[int]) -> str:
    return _lines(chain.from_iterable([name] * count for name, count in zip(machines, ranks, strict=True)))


def _torchrun(machines: Sequence[str], ranks: Sequence[int]) -> str:
    if len(set(ranks)) > 1:
        raise InputError("torchrun starts as many ranks on each machine; these have different numbers", "order")
    cases = [f"  {name} | {name}.*) node_rank={number} ;;" if "." not in name else f"  {name}) node_rank={number} ;;"
             for number, name in enumerate(machines)]  # fmt: skip
    nodes = f"--nnodes {len(machines)} --nproc-per-node {ranks[0]}"
    master = f'--master-addr {machines[0]} --master-port "${{MASTER_PORT:-29500}}"'
    return _lines(
        [
            "#!/bin/sh",
            "# Run this on every machine, with the script and its arguments: sh FILE train.py ...",
            'case "${NODE_NAME:-$(hostname)}" in',
            *cases,
            '  *) echo "${NODE_NAME:-$(hostname)} is not in the order of machines" >&2; exit 2 ;;',
            "esac",
            f'exec torchrun {nodes} --node-rank "$node_rank" {master} "$@"',
        ]
    )


def _kubernetes(machines: Sequence[str], ranks: Sequence[int]) -> str:
    data = {name: str(number) for number, name in enumerate(machines)}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "machine-order"}, "data": data}
    return json.dumps(manifest, indent=1) + "\n"


def _json(machines: Sequence[str], ranks: Sequence[int]) -> str:
    first = np.concatenate(([0], np.cumsum(ranks))).tolist()
    rows = [
        {"number": k, "name": name, "ranks": list(range(first[k], first[k + 1]))} for k, name in enumerate(machines)
    ]
    return json.dumps({"machines": rows}, indent=1) + "\n"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


FILES = {
    each.name: each
    for each in (
        FileFormat("openmpi-hostfile", "Open MPI: mpirun --hostfile FILE -n RANKS", _hostfile),
        FileFormat("openmpi-rankfile", "Open MPI: mpirun --map-by rankfile:file=FILE -n RANKS", _rankfile),
        FileFormat("mpich-hostfile", "MPICH: mpiexec -f FILE -n RANKS", _hydra),
        FileFormat("slurm", "Slurm: SLURM_HOSTFILE=FILE srun --distribution=arbitrary -n RANKS", _slurm),
        FileFormat("torchrun", "PyTorch: sh FILE SCRIPT on every machine", _torchrun),
        FileFormat("kubernetes", "Kubernetes: kubectl apply -f FILE; the number of each node", _kubernetes),
        FileFormat("json", "the numbers, names and ranks of all machines", _json),
    )
}
"""By name."""

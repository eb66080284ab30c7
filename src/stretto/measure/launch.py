"""What the program that started this process says about the others: torchrun, mpirun of Open MPI or MPICH, srun.

Ranks meet at rank 0. torchrun says at which address, and srun says on which host; mpirun says neither, so that a person
must where there are several hosts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..model.errors import InputError
from ..topologies.hostlist import expand

MEETING_PORT = 29710
"""Port at which rank 0 listens, where nothing names one."""
MOST_RANKS = 1024

MPI = (
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)
"""For each mpirun its name, and where it says the rank, the ranks, and how many of them are on this host."""
MASTER = "MASTER_ADDR"


class Launch(NamedTuple):
    """Who this process is, and where it meets the others.

    Attributes:
        launcher: the program that started it, for messages.
        host, port: where rank 0 listens, if that port is free, or the next ones.
        job: what all ranks of this job know, to tell them from those of another one.
    """

    launcher: str
    rank: int
    ranks: int
    host: str
    port: int
    job: str


def launch_of(environment: Mapping[str, str], master: str | None = None) -> Launch:
    """Who this process is.

    Args:
        master: ``HOST`` or ``HOST:PORT`` of rank 0, instead of what the environment says.
    Raises:
        InputError: no launcher is recognised, a variable is missing or no number, or nothing says where rank 0 is.
    """
    given, _, port = (master or "").partition(":")
    chosen = _whole(port, "the port of --master", 1, 65535) if port else None
    for launcher, rank, size, local in MPI:
        if rank in environment:
            host = given or environment.get(MASTER, "") or _alone(environment, size, local)
            if not host:
                raise InputError(f"{launcher} does not say where rank 0 runs; set {MASTER} to its host for all ranks")
            return _launch(launcher, environment, rank, size, host, chosen, "")
    if "RANK" in environment or "WORLD_SIZE" in environment:
        host = given or environment.get(MASTER, "")
        if not host:
            raise InputError(f"{MASTER} is missing; torchrun sets it", "environment")
        # the port itself may be that of torchrun's own store
        named = environment.get("MASTER_PORT")
        near = chosen or (1 + _whole(named, "MASTER_PORT", 1, 65000) if named else None)
        return _launch("torchrun", environment, "RANK", "WORLD_SIZE", host, near, "TORCHELASTIC_RUN_ID")
    if "SLURM_PROCID" in environment:
        listed = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
        host = given or environment.get(MASTER, "") or (first_host(listed) if listed else "")
        if not host:
            raise InputError("SLURM_STEP_NODELIST is missing; srun sets it", "environment")
        size = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"
        return _launch("srun", environment, "SLURM_PROCID", size, host, chosen, "SLURM_JOB_ID")
    raise InputError(
        "nothing says which hosts to measure; name them, or start it on each by torchrun, mpirun or srun", "measure"
    )


def _alone(environment: Mapping[str, str], size: str, local: str) -> str:
    """The host of rank 0 if all ranks are on this one."""
    return "127.0.0.1" if environment.get(local, "-") == environment.get(size) else ""


def _launch(
    launcher: str, environment: Mapping[str, str], rank: str, size: str, host: str, port: int | None, job: str
) -> Launch:
    for name in (rank, size):
        if name not in environment:
            raise InputError(f"{name} is missing; {launcher} sets it", "environment")
    ranks = _whole(environment[size], size, 1, MOST_RANKS)
    if ranks < 2:
        raise InputError(f"{launcher} started one process; a network needs two or more", "measure")
    number = _whole(environment[rank], rank, 0, ranks - 1)
    return Launch(launcher, number, ranks, host, port or MEETING_PORT, environment.get(job, "") if job else "")


def _whole(text: str, name: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= most:
        raise InputError(f"{name} must be a whole number from {least} to {most}, not {text[:40]!r}", "environment")
    return int(text)


def first_host(nodelist: str) -> str:
    """The first host of a list as Slurm writes it: ``rack[1-2]n[01-04],login`` is rack1n01 and others.

    Raises:
        InputError: it is no such list.
    """
    return expand(nodelist, "SLURM_STEP_NODELIST")[0]


def hosts_in(text: str, where: str) -> list[tuple[str, str]]:
    """Hosts by name, and the address of each where one is given: ``a,b=10.0.0.2``; in a file one a line, too.

    Raises:
        InputError: fewer than two hosts, one twice, or a name that a command line could take for something else.
    """
    hosts = []
    for line in text.splitlines():
        for part in filter(None, re.split(r"[,\s]+", line.partition("#")[0])):
            name, _, address = part.partition("=")
            for word in filter(None, (name, address)):
                if not re.fullmatch(r"[A-Za-z0-9_.:@][A-Za-z0-9_.:@-]*", word):
                    raise InputError(f"{word[:40]!a} is no host name", where)
            if not name:
                raise InputError(f"{part[:40]!a} names no host", where)
            hosts.append((name, address))
    names = [name for name, _ in hosts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{twice!r} is given twice", where)
    if not 2 <= len(hosts) <= MOST_RANKS:
        raise InputError(
            f"{len(hosts)} host{'s are' if len(hosts) != 1 else ' is'} given; measuring takes from 2 to {MOST_RANKS}",
            where,
        )
    return hosts

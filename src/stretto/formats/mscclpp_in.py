"""MSCCL++ execution plans, refereed: correct in every order of its threadblocks, or the first step that is not.

The plan that comes of it has the transfers of the program. What each byte holds was followed before
(:mod:`.mscclpp_contents`), and that no order of threadblocks changes it was proved (:mod:`.interleavings`, for packets
also :mod:`.mscclpp_elements`).
"""

from __future__ import annotations

from dataclasses import replace

from ..model.errors import Fault, InputError, Unsupported
from ..model.plan import Plan
from ..model.topology import Topology
from . import Size
from .interleavings import Finding, prove
from .mscclpp_bytes import resolve
from .mscclpp_contents import Contents
from .mscclpp_elements import only_packets, race_of_elements
from .mscclpp_json import read_program
from .mscclpp_program import ExecutionPlan
from .mscclpp_ranges import Loaded, Place
from .mscclpp_run import follow
from .mscclpp_traffic import plan_of


def read(path: str, topology: Topology, size: Size) -> Plan:
    """The plan of a program for a collective of a size.

    Raises:
        InputError: the file is no execution plan, or has another number of ranks than the topology.
        Fault: the program does not do what it promises, or not in every order; names the first step that is wrong.
    """
    program = read_program(path)
    ranks = len(topology.accelerators)
    if len(program.gpus) != ranks:
        raise InputError(f"has {len(program.gpus)} gpus, and {topology.name} has {ranks} accelerators", path)
    contents, note = referee(program, path, size)
    plan = plan_of(contents, topology)
    return replace(plan, meta=plan.meta | {"notes": [note, *plan.meta.get("notes", ())]})


def referee(program: ExecutionPlan, path: str, size: Size) -> tuple[Contents, str]:
    """What a program does to the memories, and how it was proved that no order of its threadblocks changes that.

    Raises:
        Fault: the first step that is wrong.
    """
    loaded = resolve(program, path, size.full_bytes, size.shard_bytes)
    contents = follow(loaded)
    loops = any(op.name == "pipeline" for blocks in loaded.threadblocks for block in blocks for op in block)
    proof = prove(program, loaded.chunk_bytes // program.alignment if loops else None)
    if proof.holds:
        return contents, proof.note()
    if not only_packets(loaded) or not all(finding.kind in ("race", "packet") for finding in proof.findings):
        raise _fault(proof.findings[0], loaded)
    try:
        race = race_of_elements(loaded, program.double_scratch)
    except Unsupported as too_many:
        return contents, f"that no interleaving of threadblocks races is not proved: {too_many}"
    if race is not None:
        raise race
    proved = f"proved for {proof.operations} operations, element by element"
    return contents, f"no interleaving of threadblocks deadlocks or races: {proved}"


def _fault(finding: Finding, loaded: Loaded) -> Fault:
    """A finding of the proof, at the operation that it names first."""
    place = Place(*finding.operations[0]) if finding.operations else None
    return Fault(finding.text, place, finding.kind, loaded.path)


def default_topology(path: str) -> str:
    """A single NVSwitch server of as many GPUs as a program has; its switch sums if the program asks it to.

    A message costs nothing but its bytes: threads write to the memory of other GPUs as they go.
    """
    program = read_program(path)
    ranks = len(program.gpus)
    sums = any(
        op.name == "glres" for gpu in program.gpus for block in gpu.blocks for o in block for op in (o, *o.inner)
    )
    if ranks == GPUS_OF_A_SERVER:
        return "h100:1?message=0" + ("&sharp=sites" if sums else "")
    return f"star:{max(ranks, 2)}?bandwidth=450GB/s&latency=0.35us&message=0" + ("&sharp=true" if sums else "")


GPUS_OF_A_SERVER = 8

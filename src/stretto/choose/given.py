"""Plans that a controller gives a group: those of its own shapes, checked before anybody runs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..formats.native import plan_from_text
from ..model.collective import Collective
from ..model.errors import InputError
from ..model.kinds import BY_NAME, KINDS
from ..model.part_plans import part_of
from ..model.plan import Plan
from ..model.topology import Topology
from ..verify import verify
from .library import Library
from .requests import SMALLEST_CLASS_BYTES, Shape


@dataclass(frozen=True, eq=False)
class Given:
    """A plan of one shape.

    Attributes:
        version: of the job's plan.
        number: of the collective in it.
    """

    shape: Shape
    plan: Plan
    version: int
    number: int


def plans_given(text: str, version: int, library: Library, whole: bool) -> dict[Shape, Given]:
    """The plans that a version has for a group, by shape; of several for one shape the first.

    Each is one that runs alone, as soon as the links allow: calls of a group come one after another, so the moments at
    which a plan of several collectives would begin them mean nothing here.

    Args:
        text: the plan as JSON.
        whole: whether the group has all ranks of the job.
    Raises:
        InputError: it is no plan, is for another network or other ranks, or does not verify; says which.
    """
    plan = plan_from_text(text, "plan")
    _check_network(plan.topology, library.topology)
    if plan.topology.planes:
        raise InputError("it has optical planes, which groups turn by plans of their own", "plan")
    found: dict[Shape, Given] = {}
    for number, shape in _own(plan, library, whole):
        if shape not in found:
            found[shape] = Given(shape, _alone(plan, number), version, number)
    return found


def _check_network(given: Topology, known: Topology) -> None:
    """Refuse a network that has other nodes; its links may have changed."""
    if (given.names, given.kind.tolist()) != (known.names, known.kind.tolist()):
        raise InputError(
            f"it is for another network: {given.name} with {given.node_count} nodes, not {known.name} with "
            f"{known.node_count}", "plan",
        )  # fmt: skip


def _own(plan: Plan, library: Library, whole: bool) -> Iterator[tuple[int, Shape]]:
    """The numbers and shapes of the collectives that a group can call."""
    for number, c in enumerate(plan.workload.collectives):
        if c.ranks.tolist() != library.nodes:
            if whole and {*c.ranks.tolist()} >= {*library.nodes}:
                raise InputError(f"it is for {len(c.ranks)} ranks, and the group has {library.size}", "plan")
            continue
        if c.kind not in KINDS:
            continue
        shape = _shape(c)
        if _promised(c) == _promised(library.request(shape).collective()):
            yield number, shape


def _shape(c: Collective) -> Shape:
    """The shape whose calls a collective serves; that of a shape's own request is this shape."""
    shape = Shape.of(c.kind, int(c.piece_bytes.max(initial=0)), max(c.root, 0))
    smaller = replace(shape, size_bytes=shape.size_bytes // 2)
    fits = shape.size_bytes > SMALLEST_CLASS_BYTES and smaller.full_bytes(len(c.ranks)) >= c.size_bytes
    return smaller if fits else shape


def _promised(c: Collective) -> tuple[object, ...]:
    """What a collective promises, whatever its size."""
    return c.kind, c.root, *(column.tobytes() for column in (*c.holders, *c.wanted))


def _alone(plan: Plan, number: int) -> Plan:
    """What one collective of a plan does, by itself, verified."""
    part = part_of(plan, [number])
    if part.sharing == "timed":
        part = replace(part, sharing="ready-order", start_s=None, finish_s=None)
    (c,) = part.workload.collectives
    part = replace(part, workload=replace(part.workload, collectives=(replace(c, start_s=0.0, weight=1.0),)))
    finding = verify(part).finding
    if finding is not None:
        raise InputError(f"{BY_NAME[c.kind].name} does not verify: {finding.message}", "plan")
    return part

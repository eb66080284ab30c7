"""What a program of MSCCL++ sends, as a plan: the transfers of :mod:`.mscclpp_contents` over a topology.

A transfer begins when what it carries has come, and what its threadblock waited for before it; links are shared evenly
by those that are under way. Where messages cost and carry several chunks, what one signal tells of is a message, and
links carry one message after the other. Signals, barriers and the work of threads take no time. Packets are as large as
what they carry.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from ..model.arrays import Ragged
from ..model.collective import Collective, Workload, make_collective
from ..model.errors import InputError
from ..model.messages import as_sent
from ..model.plan import COPY, REDUCE, Plan, make_plan
from ..model.topology import Topology
from .mscclpp_contents import Contents, Transfer
from .mscclpp_ranges import COLLECTIVES, Loaded
from .routes import Routes

MOST_TRANSFERS, MOST_WAITING = 2_000_000, 20_000
"""Transfers of a plan, and of one in which they also wait for what their threadblock waited for."""


def plan_of(contents: Contents, topology: Topology) -> Plan:
    """The plan; InputError if the topology cannot carry what the program sends."""
    program = contents.program
    if not contents.transfers:
        raise InputError("sends nothing from one rank to another, so there is nothing to time", program.path)
    promised = program.collective in COLLECTIVES and expressible(contents)
    cuts = sorted({p for t in contents.transfers for p in (t.begin, t.end)})
    collective, first = _collective(program, topology, cuts) if promised else _messages(contents, topology)
    spans = [
        range(bisect_left(cuts, t.begin), bisect_left(cuts, t.end)) if promised else range(1)
        for t in contents.transfers
    ]
    total = sum(map(len, spans))
    if total > MOST_TRANSFERS:
        raise InputError(f"sends more than {MOST_TRANSFERS} messages", program.path)
    waits = _waits(contents, spans if promised else None)
    routes, notes = _Ways(topology, program.path), []
    if waits is None:
        waits = [[] for _ in spans]
        notes.append("threadblocks that wait for each other are left out of the times: a plan cannot say it here")
    if contents.root is not None:
        notes.append(
            f"the file names no root: contents are right for a {program.collective} with rank {contents.root} as root, "
            "and the plan and its bound are those of the messages"
        )
    elif program.collective not in COLLECTIVES:
        notes.append(
            f"of the collective {program.collective!r} the file does not say what outputs must hold: contents are not "
            "checked, and the plan and its bound are those of the messages"
        )
    elif not promised:
        notes.append("no plan can name what a rank holds twice: these are messages, and the bound is theirs")
    columns: dict[str, list[Any]] = {
        name: [] for name in ("chunk", "src", "others", "op", "dst", "route", "depends", "message", "forwards")
    }
    begins: dict[int, int] = {}  # the first row of each transfer
    together = _together(contents) if promised and topology.message_s.any() else None
    for number in together or range(len(spans)):
        t, span, after = contents.transfers[number], spans[number], waits[number]
        begins[number] = len(columns["chunk"])
        sources, receivers = (topology.accelerators[list(ranks)].tolist() for ranks in (t.sources, t.receivers))
        others = {row for d in after for row in range(begins[d], begins[d] + len(spans[d]))}
        for i in span:
            own = {begins[d] + (i - spans[d].start if promised else 0) for d in t.depends}
            columns["chunk"].append(first[cuts[i]] if promised else number)
            columns["src"].append(sources[0])
            columns["others"].append(sources[1:])
            columns["op"].append(REDUCE if t.adds and promised else COPY)
            columns["dst"].append(receivers)
            columns["route"].append(routes.of(tuple(sources), tuple(receivers)))
            columns["depends"].append(sorted(own | others))
            columns["message"].append(t.message)
            columns["forwards"].append(int(promised and _forwards(t, contents)))
    other, dst = columns["others"], columns["dst"]
    message = None
    if together is not None:
        message = as_sent(topology, columns["message"], columns["chunk"], columns["src"], [ends[0] for ends in dst])
    return make_plan(
        topology, Workload((collective,)), "fair" if message is None else "ready-order",
        weight=np.ones(total) if message is None else None, chunk=columns["chunk"], src=columns["src"],
        other_src=Ragged.of(other) if any(other) else None, op=columns["op"], dst=Ragged.of(dst),
        route=Ragged.of(columns["route"]), depends=Ragged.of(columns["depends"]), message=message,
        forwards=columns["forwards"] if any(columns["forwards"]) else None,
        meta={"planner": "mscclpp", "imported": program.path} | ({"notes": notes} if notes else {}), where=program.path,
    )  # fmt: skip


def _together(contents: Contents) -> list[int] | None:
    """The transfers message by message, each message where its last transfer is; None if they cannot go so, or if some
    go from or to several ranks."""
    sent: dict[int, list[int]] = {}
    for k, t in enumerate(contents.transfers):
        if len(t.sources) > 1 or len(t.receivers) > 1:
            return None
        sent.setdefault(t.message, []).append(k)
    messages = sorted(sent.values(), key=lambda own: own[-1])
    place = {k: i for i, own in enumerate(messages) for k in own}
    for k, t in enumerate(contents.transfers):
        if any(place[d] >= place[k] for d in (*t.depends, *t.after)):
            return None
    return [k for own in messages for k in own]


def _waits(contents: Contents, spans: list[range] | None) -> list[list[int]] | None:
    """For each transfer those that its threadblock waited for, without what others of these wait for.

    A plan has one place for a chunk at a rank. Where a rank has two, a transfer of the one would seem to carry what was
    written to the other, if it waits for that: then, and where there are too many transfers, there is no such list.
    """
    if len(contents.transfers) > MOST_WAITING:
        return None
    before: list[int] = []  # for each transfer all that happened before it, a bit each
    arrived: dict[tuple[int, int], int] = {}
    waits = []
    for k, t in enumerate(contents.transfers):
        seen = carried = 0
        for d in t.depends:
            seen |= before[d] | 1 << d
            carried |= 1 << d
        after = []
        for d in sorted(set(t.after), reverse=True):
            if not seen >> d & 1:
                seen |= before[d] | 1 << d
                after.append(d)
        before.append(seen)
        waits.append(after)
        if spans is None:
            continue
        copied = 0
        for d in t.depends:
            copied |= 0 if contents.transfers[d].adds else before[d]
        for i in spans[k]:
            if any(arrived.get((rank, i), 0) & seen & ~carried & ~copied for rank in t.sources):
                return None
            for rank in t.receivers:
                arrived[rank, i] = arrived.get((rank, i), 0) | 1 << k
    return waits


def expressible(contents: Contents) -> bool:
    """Whether the transfers are those of a plan, in which a rank has a sum of its own and all that came, or a copy.

    A rank may send on sums that came without its own data, if it also adds them to that.
    """
    for t in contents.transfers:
        writers = [contents.transfers[d] for d in t.depends]
        if len(t.sources) == 1 and not _plain(t.own, writers):
            return False
    return True


def _plain(own: bool, writers: list[Transfer]) -> bool:
    return all(w.joins for w in writers) or (not own and len(writers) == 1 and not writers[0].adds)


def _forwards(t: Transfer, contents: Contents) -> bool:
    """Whether it carries sums without what its sender had at first."""
    return not t.own and bool(t.depends) and all(contents.transfers[d].joins for d in t.depends)


def _collective(program: Loaded, topology: Topology, cuts: list[int]) -> tuple[Collective, dict[int, int]]:
    """The collective, in chunks that end at the cuts, and the chunk that begins at each position."""
    size = program.output_bytes if program.collective == "allgather" else program.input_bytes
    if program.collective == "sendrecv":
        n = program.ranks
        pieces = np.full(n, size), Ragged.single(np.arange(n)), Ragged.single((np.arange(n) + 1) % n)
        whole = Collective.uncut("remainder", topology.accelerators, n * size, *pieces)
    else:
        whole = make_collective(program.collective, topology, size)
    ends = np.cumsum(whole.piece_bytes)
    begins = np.union1d(ends - whole.piece_bytes, [c for c in cuts if c < ends[-1]])
    sizes = np.diff(np.append(begins, ends[-1]))
    piece = np.searchsorted(ends, begins, side="right").astype(np.int32)
    offset = begins - (ends - whole.piece_bytes)[piece]
    collective = Collective(
        whole.kind, whole.ranks, whole.size_bytes, whole.root, whole.start_s, whole.piece_bytes, whole.holders,
        whole.wanted, whole.reduces, piece, offset, sizes,
    )  # fmt: skip
    return collective, {int(b): i for i, b in enumerate(begins)}


def _messages(contents: Contents, topology: Topology) -> tuple[Collective, dict[int, int]]:
    """Each transfer as a piece that its sender has and its receivers want."""
    transfers = contents.transfers
    if any(len(t.sources) > 1 for t in transfers):
        raise InputError("sums in the switch what a plan cannot name", contents.program.path)
    sizes = np.array([t.end - t.begin for t in transfers], dtype=np.int64)
    pieces = sizes, Ragged.of([t.sources for t in transfers]), Ragged.of([sorted(t.receivers) for t in transfers])
    return Collective.uncut("remainder", topology.accelerators, int(sizes.sum()), *pieces), {}


class _Ways:
    """Routes between ranks, also through a switch that copies or sums."""

    def __init__(self, topology: Topology, where: str) -> None:
        self.topology, self.where, self.routes = topology, where, Routes(topology, where)
        self.known: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}

    def of(self, sources: tuple[int, ...], receivers: tuple[int, ...]) -> tuple[int, ...]:
        key = sources, receivers
        if key not in self.known:
            alone = len(sources) == 1 and len(receivers) == 1
            self.known[key] = self.routes.between(*sources, *receivers) if alone else self._star(sources, receivers)
        return self.known[key]

    def _star(self, sources: tuple[int, ...], receivers: tuple[int, ...]) -> tuple[int, ...]:
        """Links from all sources to one switch, and from there to all receivers."""
        net = self.topology
        link = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(net.src, net.dst))}
        for node in np.flatnonzero(net.replicates & ~net.is_accelerator & (net.reduces | (len(sources) == 1))):
            up, down = [(s, int(node)) for s in sources], [(int(node), d) for d in receivers]
            if all(ends in link for ends in (*up, *down)):
                return tuple(link[ends] for ends in (*up, *down))
        does = "sums and copies" if len(sources) > 1 else "copies"
        raise InputError(
            f"lets the switch work for {len({*sources, *receivers})} ranks, and {net.name} has no switch that joins "
            f"them and {does}; the NVSwitches of a server sum with ?sharp=sites",
            self.where,
        )

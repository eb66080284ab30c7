"""Messages of all ranks, as they are decided, and the plan that they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...model.arrays import Float64, Int64, Ragged, distinct
from ...model.collective import Collective, Workload
from ...model.errors import Unsupported
from ...model.plan import Plan, make_plan
from ...model.topology import Topology

NONE = -1
"""No transfer: the node held it at first."""

Way = Callable[[int, int], list[int]]
"""The links from one node to another."""


@dataclass(eq=False)
class _Message:
    """Chunks that go the same way at the same time."""

    chunks: Int64
    src: int
    dst: list[int]
    route: list[int]
    op: int
    waits: list[Int64]  # int64[chunks] each: transfers that brought something to the sender, or NONE
    forwards: bool
    start_s: float  # before it does not start
    seconds: float  # for which it keeps its links, at least


class Messages:
    """Collects messages.

    Args:
        topology: the network.
        c: the collective, in chunks.
        way: the links from one node to another inside a site.

    Attributes:
        bandwidth, message_s: float[links], bytes/s, and seconds of what a message costs.
        work_s: float[nodes], for how long messages from and to each node keep its links busy, all together.
    """

    def __init__(self, topology: Topology, c: Collective, way: Way) -> None:
        self._topology, self._c, self._way = topology, c, way
        self._all: list[_Message] = []
        self._rows = 0
        self._bytes = c.chunk_bytes.tolist()
        self.bandwidth, self.message_s = topology.bandwidth.tolist(), topology.message_s.tolist()
        self._ends = list(zip(topology.src.tolist(), topology.dst.tolist(), strict=True))
        self.work_s = [0.0] * topology.node_count

    def size(self, chunks: Int64) -> int:
        """Bytes of chunks."""
        return sum(map(self._bytes.__getitem__, chunks.tolist()))

    def send(
        self, chunks: Int64, src: int, dst: list[int], route: list[int], op: int, waits: list[Int64],
        forwards: bool = False, between: tuple[float, float] = (0.0, 0.0),
    ) -> Int64:  # fmt: skip
        """Chunks in a message; int64[chunks], the transfers.

        Args:
            waits: int64[chunks] each, transfers that brought something to the sender, or NONE.
            between: when the message starts in the plan between sites, and how long it takes there, seconds.
        """
        self._all.append(_Message(chunks, src, dst, route, op, waits, forwards, *between))
        self._rows += len(chunks)
        size = self.size(chunks)
        for link in route:
            busy_s = size / self.bandwidth[link] + self.message_s[link]
            for node in self._ends[link]:
                self.work_s[node] += busy_s
        return np.arange(self._rows - len(chunks), self._rows)

    def _busy_s(self, chunks: Int64, route: list[int]) -> float:
        """For how long a message keeps the first of its links busy, seconds."""
        seconds: float = self.size(chunks) / self.bandwidth[route[0]] + self.message_s[route[0]]
        return seconds

    def near(
        self, chunks: Int64, src: int, dst: int, op: int, waits: list[Int64], forwards: bool = False,
        due: tuple[float, int] = (0.0, 0),
    ) -> Int64:  # fmt: skip
        """Chunks in a message from one node of a site to another; int64[chunks], the transfers.

        Args:
            due: when it should be through, seconds, and how many messages like it have to be by then.
        """
        route = self._way(src, dst)
        if not route:
            names = self._topology.names
            raise Unsupported(f"by-sites: no link or switch joins {names[src]} and {names[dst]}, which are in one site")
        start_s = max(0.0, due[0] - due[1] * self._busy_s(chunks, route))
        return self.send(chunks, src, [dst], route, op, waits, forwards, (start_s, 0.0))

    def plan(self, several_chunks: bool) -> tuple[Plan, Float64, Float64]:
        """The plan, in ready-order, and float64[transfers] each: before when each should not start, and how long it
        takes in the plan between sites; 0 for those inside sites.

        Args:
            several_chunks: whether a message may carry several chunks.
        """
        topology, messages = self._topology, self._all
        counts = np.array([len(m.chunks) for m in messages])
        each = np.repeat(np.arange(len(messages)), counts)
        of = np.repeat(np.arange(len(messages)), [len(m.waits) for m in messages])
        owner = Ragged.from_lengths(counts, np.arange(len(each))).take(of).values
        value = np.concatenate([np.zeros(0, dtype=np.int64), *(waits for m in messages for waits in m.waits)])
        pairs = distinct((owner.astype(np.int64) * len(each) + value)[value != NONE])
        forwards = np.array([m.forwards for m in messages], dtype=np.int8)
        together = several_chunks and len(each) > len(messages) and topology.message_s.any()
        plan = make_plan(
            topology, Workload((self._c,)), "ready-order",
            chunk=np.concatenate([m.chunks for m in messages]),
            src=np.array([m.src for m in messages])[each],
            op=np.array([m.op for m in messages])[each],
            dst=Ragged.of([m.dst for m in messages]).take(each),
            route=Ragged.of([m.route for m in messages]).take(each),
            depends=Ragged.grouped(pairs // len(each), pairs % len(each), len(each)),
            forwards=forwards[each] if forwards.any() else None,
            message=each if together else None,
        )  # fmt: skip
        start_s, seconds = (np.array([getattr(m, name) for m in messages])[each] for name in ("start_s", "seconds"))
        if together:
            return plan, start_s, seconds
        # one after the other, each at the rate of all
        size, first = plan.size_bytes.astype(np.float64), np.cumsum(counts) - counts
        before, total = np.cumsum(size) - size, np.add.reduceat(size, first)[each]
        return plan, start_s + seconds * ((before - before[first][each]) / total), seconds * (size / total)

"""What messages take along the lines of a grid, and which exchanges suit that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...model.arrays import Int32, Ragged
from ...model.topology import Topology
from ...schedule.dissemination import blocks_moved, factorisations, messages_in_steps, radices
from ...schedule.ways import Ways


class Hop(NamedTuple):
    """The costliest way from the first rank of a line to others."""

    latency_s: float
    message_s: float
    s_per_byte: float
    exits: frozenset[int]  # the first links of all ways

    @classmethod
    def of(cls, line: Int32, topology: Topology, ways: Ways) -> Hop:
        pairs = np.stack((np.repeat(line[:1], len(line) - 1), line[1:]), axis=1)
        routes = Ragged.of([way for way in ways.first(pairs) if way])
        slowest = topology.bandwidth[routes.values].min(initial=np.inf)
        return cls(
            float(topology.route_latency_s(routes).max(initial=0.0)),
            float(topology.message_s[routes.values].max(initial=0.0)),
            1 / float(slowest),
            frozenset(routes.values[routes.offsets[:-1]].tolist()),
        )

    def radix(self, ranks: int, moved_bytes: float) -> int:
        """That of the dissemination that takes least time.

        Args:
            moved_bytes: of each block that a rank sends on in an AllToAll.
        """

        def seconds(radix: int) -> float:
            messages, bytes_ = messages_in_steps(radix, ranks), blocks_moved(radix, ranks) * moved_bytes
            return len(messages) * self.latency_s + sum(messages) * self.message_s + bytes_ * self.s_per_byte

        return min(radices(ranks), key=seconds, default=2)

    def groups(self, ranks: int, each_bytes: float) -> tuple[int, ...]:
        """The groups of an exchange of whole sums of ``each_bytes`` that takes least time, () for :data:`EXCHANGE`."""

        def seconds(groups: Sequence[int]) -> float:
            sent_s = self.message_s + each_bytes * self.s_per_byte
            return len(groups) * self.latency_s + (sum(groups) - len(groups)) * sent_s

        folded = (2,) * (ranks.bit_length() - 1 + 2 * (ranks & (ranks - 1) > 0))
        found = min(factorisations(ranks), key=seconds, default=())
        return found if found and seconds(found) <= seconds(folded) else ()

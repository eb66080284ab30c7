"""The network between the ranks of a group, measured when no topology is given; all ranks learn the same."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from ..choose.library import joined_by_sites
from ..measure.survey import Earlier, Party, Share, survey
from ..model.measurements import Measured, Pair, Survey
from ..model.topology import Topology
from ..runtime.channel import Wire
from ..runtime.probe import QUICK


class Known:
    """What one process has measured in the groups that it was in, by the names of the other processes.

    Attributes:
        name: this process, in every group.
        pairs: from another process to this one.
        between: bytes/s from the site of another process to that of this one, and by how many flows.
    """

    def __init__(self) -> None:
        self.name = secrets.token_hex(8)
        self.pairs: dict[str, Pair] = {}
        self.between: dict[str, tuple[Measured, int]] = {}

    def agree(self, share: Share) -> tuple[list[str], Earlier]:
        """The names of all ranks, and what counts as measured: a pair does if both of its processes know it."""
        pairs = {name: pair.to_json() for name, pair in self.pairs.items()}
        rows = share("known", [self.name, pairs, self.between])
        names = [name for name, _, _ in rows]
        to = [(a, b) for a in range(len(names)) for b in range(len(names)) if a != b]
        both = [(a, b) for a, b in to if names[a] in rows[b][1] and names[b] in rows[a][1]]
        earlier = {(a, b): Pair.from_json(rows[b][1][names[a]]) for a, b in both}
        rates = {(a, b): rows[b][2][names[a]] for a, b in both if names[a] in rows[b][2]}
        return names, Earlier(earlier, {ends: (Measured(*rate), flows) for ends, (rate, flows) in rates.items()})

    def keep(self, rank: int, names: Sequence[str], found: Survey) -> None:
        """Remember what concerns this rank, of the processes that are in the group now."""
        self.pairs = {names[a]: pair for (a, b), pair in found.pairs.items() if b == rank}
        earlier, self.between = self.between, {}
        (here,) = (i for i, site in enumerate(found.sites) if rank in site)
        for (a, b), rate in found.between.items():
            if b == here:
                now = rate, max(len(found.sites[a]), len(found.sites[b]))
                for name in (names[v] for v in found.sites[a]):
                    before = earlier.get(name, now)
                    self.between[name] = before if before[1] > now[1] else now


def measure(
    rank: int, ranks: int, sockets: Mapping[int, Wire], share: Share, timeout_s: float,
    known: Known | None = None,
) -> Topology:  # fmt: skip
    """The network as all ranks together measure it; every rank of the group must call this.

    Args:
        sockets: the connection to each other rank, used for nothing else until this returns.
        share: publishes this rank's value under a name, and returns the values of all ranks.
        known: what this process has measured earlier, which gets what it measures now; all ranks give it, or none.
    """
    names, earlier = known.agree(share) if known is not None else ([], None)
    party = Party(rank, ranks, {r: (sock,) for r, sock in sockets.items()}, share, timeout_s)
    found = survey(party, QUICK, earlier=earlier)
    if known is not None:
        known.keep(rank, names, found)
    pairs = {(a, b): (p.latency_s.value, p.rate.value) for (a, b), p in found.pairs.items() if a < b}
    return joined_by_sites(ranks, pairs, {sites: rate.value for sites, rate in found.between.items()})

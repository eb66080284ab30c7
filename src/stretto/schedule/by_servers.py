"""Collectives among servers of any sizes: data is collected at gateways, exchanged between servers, and spread.

Servers need not be alike, and not every rank need reach other servers: eight GPUs may share one NIC. So in each *lane*
every server has a *gateway*, a rank that reaches the lane's gateways in other servers; one rank may be the gateway of
several lanes. AllGather collects the blocks of a server at its gateways along binomial trees, exchanges them in each
lane, and spreads in each server what its gateways have, by exchanges or, where switches copy, in one message from each
gateway to all. ReduceScatter is the same backwards. AllReduce sums its blocks at gateways, and needs no collecting. In
an AllToAll blocks go to the gateway of their goal's lane, across, and to the goal. Where switches copy, a gateway may
also send all that is for ranks of its server to each of them, in ReduceScatter and AllToAll: one message of more bytes
in place of several. In a Broadcast the root gives each gateway of its server a block, these go to the other servers in
their lanes, and spread; a Reduce is the same backwards. The number of steps grows with the logarithm of ranks and of
servers. (MagPIe, Kielmann et al., PPoPP 1999, has one gateway; the dissemination is that of Bruck et al., IEEE TPDS
1997.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import numpy as np

from ..model.arrays import Bool, Int64, Ragged
from ..model.kinds import BY_NAME
from ..model.plan import COPY, REDUCE
from .algorithms import BINOMIAL, DISSEMINATION, WHERE_MESSAGES_COST, Algorithm, Step, exchange
from .useful import useful

EXCHANGE = WHERE_MESSAGES_COST["recursive-doubling"]
"""Between gateways, of whole sums."""

CHAIN = "chain"
"""Between gateways, from each server to the next one."""

APART = "apart"
"""Between gateways, from the root's server to each other one over lanes of its own."""

AT_ONCE = "at once"
"""Inside a server, each gateway copies what it has to all ranks in one step."""


@dataclass(frozen=True, eq=False)
class Gateways:
    """The ranks of each server, and which of them reach other servers.

    Attributes:
        servers: the numbers of each server's ranks, and of the relays that are gateways.
        gateway: int64[lanes, servers], a rank or relay of the server.
        ranks: how many there are.
        relays: the nodes that are numbered after the ranks.
    """

    servers: Sequence[Int64]
    gateway: Int64
    ranks: int
    relays: tuple[int, ...] = ()

    def algorithm(self, kind: str, across: str, at_once: bool = False, groups: Sequence[int] = ()) -> Algorithm:
        """A collective by way of gateways.

        Args:
            across: the algorithm in a lane: one that gathers, or that of :data:`EXCHANGE` for an AllReduce.
            at_once: whether each gateway of a server copies what it has to all ranks of the server in one step.
            groups: how many gateways exchange whole sums in each step, in place of two.
        """
        lanes, count = self.gateway.shape
        blocks, spreads = 1, (DISSEMINATION.name, AT_ONCE if at_once else DISSEMINATION.name)
        if BY_NAME[kind].pieces == "pair":
            steps = self._moved(across, at_once)
        elif BY_NAME[kind].reduces and at_once and not BY_NAME[kind].reduces_to_all:
            steps = self._scattered_at_once(across)
        elif not BY_NAME[kind].reduces_to_all:
            steps = self._gathered(across, at_once)
            steps = _backwards(steps) if BY_NAME[kind].reduces else steps
        elif across == EXCHANGE.name:
            lane, blocks = np.arange(lanes), lanes
            inward, outward = (self._useful(self._spread(self.gateway[lane], once), self.gateway.T) for once in spreads)
            among = exchange(groups) if groups else EXCHANGE
            steps = [*_backwards(inward), *self._across(among.steps(kind, count), lane, 0 * lane), *outward]
        else:
            (lane, server), blocks = (each.ravel() for each in np.indices((lanes, count))), lanes * count
            between = self._across(WHERE_MESSAGES_COST[across].steps("allgather", count), lane, server)
            spread, holder = (self._spread(self.gateway[lane], once) for once in spreads), self.gateway.reshape(1, -1)
            inward, outward = (self._useful([*between, *each], holder) for each in spread)
            steps = [*_backwards(inward), *outward]
        across = f"exchanges in groups of {' and '.join(map(str, groups))}" if groups else across
        summary = f"by {lanes} gateway{'s' * (lanes > 1)} of each server, {across} between them"
        summary += ", at once inside" * at_once
        kinds, cut = {kind: lambda n, b: steps}, lambda kind, n, piece: blocks
        return Algorithm("by-servers", summary, "", kinds, cut, relays=self.relays, at_once=at_once)

    def home(self, rank: int) -> int:
        """The server of a rank."""
        return next(number for number, members in enumerate(self.servers) if rank in members)

    def rooted(self, kind: str, root: int, across: str, inside: str) -> Algorithm:
        """A Broadcast or Reduce by way of gateways.

        Args:
            across: how blocks go from server to server: the name of an algorithm that broadcasts, or of one that
                gathers what was scattered, :data:`CHAIN`, or :data:`APART`.
            inside: the algorithm that spreads them in a server. Where it is no dissemination, the root sends to the
                gateways of its server one after the other, else along a binomial tree.
        """
        lanes, count = self.gateway.shape
        home = self.home(root)
        away = np.delete(np.arange(count), home)
        if across == APART:
            # block j goes to the k-th other server over lane j (count - 1) + k
            blocks = max(1, lanes // len(away))
            lane = np.zeros((blocks, count), dtype=np.int64)
            lane[:, away] = np.arange(blocks * len(away)).reshape(blocks, -1) % lanes
            lane[:, home] = lane[:, away[0]]
            block = np.arange(blocks)
            between = [Step(block, self.gateway[lane[:, k], home], self.gateway[lane[:, k], k], COPY) for k in away]
            exits, of = lane[:, away].ravel(), np.repeat(block, len(away))
        else:
            parts = 1 if across in (CHAIN, BINOMIAL.name) else count
            exits, part = (each.ravel() for each in np.indices((lanes, parts)))
            lane, of = np.repeat(exits[:, None], count, axis=1), np.arange(len(exits))
            between = self._across(_between(across, count, home), exits, part)
        first = self._from_root(root, self.gateway[exits, home], of, inside == DISSEMINATION.name)
        steps = [*first, *between, *self._spread(self.gateway[lane, np.arange(count)], inside)]
        steps = self._useful(steps, np.full((1, len(lane)), root))
        steps = _backwards(steps) if BY_NAME[kind].reduces else steps
        summary = f"by {lanes} gateway{'s' * (lanes > 1)} of each server, "
        summary += f"{across} between them, " * (count > 1) + f"{inside} inside"
        kinds, cut = {kind: lambda n, b: steps}, lambda kind, n, piece: len(lane)
        return Algorithm(
            "by-servers", summary, "", kinds, cut, relays=self.relays, at_once=inside == AT_ONCE, root=root
        )  # fmt: skip

    def _from_root(self, root: int, gateway: Int64, block: Int64, tree: bool) -> list[Step]:
        """Blocks from the root to gateways of its server, along a binomial tree or one after the other.

        Args:
            gateway, block: int64[any] each, what goes where.
        """
        members = np.concatenate(([root], np.setdiff1d(gateway, root)))
        of = Ragged.grouped(np.argmax(members == gateway[:, None], axis=1), block, len(members))
        steps = [Step(k, 0 * k, k, COPY) for k in np.arange(1, len(members))[:, None]]
        if tree:
            steps = BINOMIAL.steps("scatter", len(members))
        return [_once(_lifted(step, of, _numbers(members))) for step in steps]

    @cached_property
    def _of_ranks(self) -> tuple[Int64, Int64]:
        """int64[ranks] each: the lane of every rank, in which a gateway is one, and its server."""
        lane, server = np.zeros((2, self.ranks + len(self.relays)), dtype=np.int64)
        for number, members in enumerate(self.servers):
            gateways, first = np.unique(self.gateway[:, number], return_index=True)
            others = np.setdiff1d(members, gateways)
            server[members] = number
            lane[gateways], lane[others] = first, np.resize(np.arange(len(self.gateway)), len(others))
        return lane[: self.ranks], server[: self.ranks]

    def _gathered(self, across: str, at_once: bool) -> list[Step]:
        """AllGather of a block of each rank.

        For a spread at once all ranks of a server gather its blocks, so that all of them lack the same ones afterwards.
        """
        lane, server = self._of_ranks
        trees = []
        for number, gateways in enumerate(self.gateway.T.tolist()):
            if at_once:
                trees.append(_among(self.servers[number], np.flatnonzero(server == number)))
                continue
            for of, gateway in enumerate(gateways):
                own = np.flatnonzero((server == number) & (lane == of))
                trees.append(_collected(np.concatenate(([gateway], own[own != gateway]))))
        between = self._across(WHERE_MESSAGES_COST[across].steps("allgather", len(self.servers)), lane, server)
        inside = AT_ONCE if at_once else DISSEMINATION.name
        steps = [*_together(trees), *between, *self._spread(self.gateway[lane], inside)]
        return self._useful(steps, np.arange(self.ranks).reshape(1, -1))

    def _scattered_at_once(self, across: str) -> list[Step]:
        """ReduceScatter in which the gateways of a server have the sums of its ranks, and copy them to all of these."""
        lane, server = self._of_ranks
        holder = self.gateway[lane, server]
        gathered = self._across(WHERE_MESSAGES_COST[across].steps("allgather", len(self.servers)), lane, server)
        inward = self._useful([*gathered, *self._spread(self.gateway[lane], DISSEMINATION.name)], holder[None])
        return [*_backwards(inward), self._copied(np.arange(self.ranks), holder, server)]

    def _copied(self, block: Int64, holder: Int64, server: Int64) -> Step:
        """Blocks from gateways of servers to all ranks there in one step.

        Args:
            holder, server: int64[blocks] each, the gateway that has the block, and its server.
        """
        members = Ragged.of([each[each < self.ranks].tolist() for each in self.servers]).take(server)
        of, to = members.owners, members.values.astype(np.int64)
        return _chosen(Step(block[of], holder[of], to, COPY), holder[of] != to)

    def _moved(self, across: str, at_once: bool) -> list[Step]:
        """AllToAll: blocks go to the gateway of the lane of their goal, to its server, and to the goal.

        At once, what is for any rank of a server goes to all of them in one message.
        """
        goal_lane, server = self._of_ranks
        source, goal = (each.ravel() for each in np.indices((self.ranks, self.ranks)))
        lane, begin, end = goal_lane[goal], server[source], server[goal]
        leaves, enters = (np.where(begin == end, goal, self.gateway[lane, at]) for at in (begin, end))
        count = len(self.servers)
        between = self._across(
            WHERE_MESSAGES_COST[across].steps("alltoall", count), lane, begin * count + end, count**2
        )
        first = self._inside(source, leaves, begin)
        if at_once and len(come := np.flatnonzero((begin != end) & (enters != goal))):
            return [*first, *between, self._copied(come, enters[come], end[come])]
        return [*first, *between, *self._inside(enters, goal, end)]

    def _across(self, steps: Sequence[Step], lane: Int64, block: Int64, blocks: int = 0) -> list[Step]:
        """Steps of an algorithm among servers, in every lane.

        Args:
            lane: int64[blocks], the lane of each block.
            block: int64[blocks], as which of the algorithm's blocks it goes; of these there are ``blocks``, or one for
                each server.
        """
        of = Ragged.grouped(block, np.arange(len(block)), blocks or len(self.servers))
        return [_lifted(step, of, lambda server, own: self.gateway[lane[own], server]) for step in steps]

    def _spread(self, holder: Int64, inside: str) -> list[Step]:
        """From the gateways of each server to all of its ranks.

        Args:
            holder: int64[blocks, servers], the gateway that has each block.
            inside: the algorithm in a server, or :data:`AT_ONCE`.
        """
        servers = []
        for number, members in enumerate(self.servers):
            place = np.searchsorted(members, holder[:, number])
            of = Ragged.grouped(place, np.arange(len(holder)), len(members))
            if inside == AT_ONCE:
                src, dst = np.nonzero(~np.eye(len(members), dtype=np.bool_))
                steps = [Step(src, src, dst, COPY)]
            else:
                steps = WHERE_MESSAGES_COST[inside].steps("allgather", len(members))
            servers.append([_lifted(step, of, _numbers(members)) for step in steps])
        return _together(servers)

    def _inside(self, source: Int64, goal: Int64, server: Int64) -> list[Step]:
        """Every block from one rank of a server to another, int64[blocks] each."""
        servers = []
        for number, members in enumerate(self.servers):
            here = np.flatnonzero(server == number)
            first, last = (np.searchsorted(members, rank[here]) for rank in (source, goal))
            of = Ragged.grouped(first * len(members) + last, here, len(members) ** 2)
            servers.append([_lifted(s, of, _numbers(members)) for s in DISSEMINATION.steps("alltoall", len(members))])
        return [step for step in _together(servers) if len(step.block)]

    def _useful(self, steps: Sequence[Step], holders: Int64) -> list[Step]:
        """The steps without what comes to ranks that have it, and to relays that do not send it on.

        Args:
            holders: int64[some, blocks], those who have each block at first.
        """
        first, last = np.zeros((2, self.ranks + len(self.relays), holders.shape[1]), dtype=np.bool_)
        first[holders, np.arange(holders.shape[1])] = True
        last[: self.ranks] = True
        return [step for step in useful(steps, first, last, once=True) if len(step.block)]


def _between(across: str, servers: int, home: int) -> list[Step]:
    """The steps among servers of a Broadcast from one of them: of one block, or of one for each."""
    if across == BINOMIAL.name:
        return BINOMIAL.steps("broadcast", servers, root=home)
    if across == CHAIN:
        places = np.arange(servers - 1)[:, None]
        return [Step(0 * k, (home + k) % servers, (home + k + 1) % servers, COPY) for k in places]
    gathers = WHERE_MESSAGES_COST[across].steps("allgather", servers)
    return [*BINOMIAL.steps("scatter", servers, root=home), *gathers]


def _collected(members: Int64) -> list[Step]:
    """The blocks of ranks, gathered at the first of them along a binomial tree."""
    steps = BINOMIAL.steps("gather", len(members))
    return [Step(members[s.block], members[s.src], members[s.dst], COPY) for s in steps]


def _among(members: Int64, ranks: Int64) -> list[Step]:
    """The blocks of some of the members of a server, gathered at all of them."""
    of = Ragged.grouped(np.searchsorted(members, ranks), ranks, len(members))
    return [_lifted(step, of, _numbers(members)) for step in DISSEMINATION.steps("allgather", len(members))]


def _lifted(step: Step, of: Ragged, number: Callable[[Int64, Int64], Int64]) -> Step:
    """A step with the blocks that go as each of its own.

    Args:
        number: that of a rank or relay, by the place which the step names, and the block.
    """
    own = of.take(step.block)
    block = own.values.astype(np.int64)
    return Step(block, number(step.src[own.owners], block), number(step.dst[own.owners], block), step.op)


def _once(step: Step) -> Step:
    """A step without what it names again: a block that several beyond a receiver are to get."""
    block, src, dst = np.unique(np.stack((step.block, step.src, step.dst)), axis=1)
    return Step(block, src, dst, step.op)


def _numbers(members: Int64) -> Callable[[Int64, Int64], Int64]:
    return lambda place, block: members[place]


def _together(sequences: Iterable[Sequence[Step]]) -> list[Step]:
    """Copies in several places at the same time."""
    steps = []
    for each in zip_longest(*sequences):
        block, src, dst = (np.concatenate([step[k] for step in each if step is not None]) for k in range(3))
        steps.append(Step(block, src, dst, COPY))
    return steps


def _backwards(steps: Sequence[Step]) -> list[Step]:
    """Copies as sums backwards in time."""
    return [Step(s.block, s.dst, s.src, REDUCE) for s in reversed(steps)]


def _chosen(step: Step, chosen: Bool) -> Step:
    return Step(step.block[chosen], step.src[chosen], step.dst[chosen], step.op)

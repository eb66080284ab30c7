"""The order in which messages of a plan are sent and received, for programs of steps (:mod:`.steps`).

A message goes from one rank to one other: a transfer to one of its receivers, or several transfers that the plan sends
as one message. It is sent whole and received whole.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from ..model.chunks import EqualParts
from ..model.errors import Unsupported
from ..model.plan import REDUCE, Plan
from ..model.targets import Target
from ..model.timeline import Timeline


def order_of(events: Events) -> list[int]:
    """Events in a legal order: 2m for the sending and 2m + 1 for the receipt of message m.

    Of several events that are free the one with the earlier simulated time goes first.
    """
    found: list[int] = []
    count = len(events.messages)
    while len(found) < 2 * count:
        found = events.in_order()
        if len(found) < 2 * count and not (events.keep_apart(found) or events.send_later()):
            raise Unsupported(
                "transfers wait in a circle where messages are received in the order in which they are sent, and few "
                "may be under way"
            )
    return found


def _messages(plan: Plan) -> tuple[list[list[int]], list[int]]:
    """For each message its receivers, numbered as those of ``plan.dst``, a chunk each; for each receiver its
    message."""
    owner, first = plan.dst.owners.tolist(), plan.dst.offsets.tolist()
    message = plan.message.tolist() if plan.message is not None else list(range(plan.transfer_count))
    number: dict[tuple[int, int], int] = {}
    of = [number.setdefault((message[k], r - first[k]), len(number)) for r, k in enumerate(owner)]
    receivers: list[list[int]] = [[] for _ in number]
    for r, m in enumerate(of):
        receivers[m].append(r)
    return receivers, of


class Events:
    """What each event waits for.

    A transfer that does not depend on some write to the slot that it sends must read before that write: it carries what
    was there before. Messages between two ranks are received in the order in which they were sent, and few may be under
    way: a message of more parts is sent when it can be received. Where a rank sends sums of which none holds the other,
    or events wait in a circle, the summands of a chunk are kept apart at a rank.

    Attributes:
        messages: for each message its receivers r of ``plan.dst``, a chunk each. of: for each receiver its message.
        waits: for each message the receipts that its sending waits for.
        own: for each receiver those receivers that wrote what it gets, at its sender.
        later: for each receiver those that overwrite what it gets, at its sender.
        key: for each receiver the node and chunk that it gets.
        forwards: for each receiver whether what it gets leaves out its sender's own data.
        copied: for each receiver whether what it gets came to its sender as a copy.
        follows_copy: for each receiver whether a copy has come before to the slot into which it writes.
        parts: for each message the parts that it carries, each a message where chunks are large.
        room: messages from one rank to another that may be under way.
        apart: the nodes and chunks whose summands are kept apart.
    """

    def __init__(self, timeline: Timeline, parts: EqualParts, target: Target) -> None:
        plan = timeline.plan
        self.room = target.in_flight
        self.messages, self.of = _messages(plan)
        first, last = plan.dst.offsets[:-1].tolist(), plan.dst.offsets[1:].tolist()
        owner, sums = plan.dst.owners.tolist(), (plan.op == REDUCE).tolist()
        covered = parts.covered[plan.chunk].tolist()
        self.parts = [sum(covered[owner[r]] for r in own) for own in self.messages]
        begins = [own[0] for own in self.messages]
        self.start_s: list[float] = timeline.start_s[plan.dst.owners[begins]].tolist()
        self.arrival_s: list[float] = timeline.arrival_s[begins].tolist()
        ends = list(zip(plan.src[plan.dst.owners].tolist(), plan.dst.values.tolist(), strict=True))
        self.pair = [ends[r] for r in begins]
        self.key = [(ends[r][0], chunk) for r, chunk in enumerate(plan.chunk[plan.dst.owners].tolist())]
        self.own: list[frozenset[int]] = []
        alone = [0] * plan.transfer_count if plan.forwards is None else plan.forwards.tolist()
        self.forwards = [bool(alone[k]) for k in owner]
        self.later: list[list[int]] = []
        self.copied: list[bool] = []
        self.after: dict[int, set[int]] = defaultdict(set)  # for each message the sendings of others that it follows
        self.overtaken: list[tuple[int, int]] = []  # a message that waits, and one behind it that could be received
        writes: dict[tuple[int, int], list[int]] = defaultdict(list)
        replaced: set[tuple[int, int]] = set()
        self.follows_copy: list[bool] = []
        for r, v in enumerate(plan.dst.values.tolist()):
            slot = v, int(plan.chunk[owner[r]])
            writes[slot].append(r)
            self.follows_copy.append(slot in replaced)
            if not sums[owner[r]]:
                replaced.add(slot)
        waits: list[set[int]] = [set() for _ in self.messages]
        for k in range(plan.transfer_count):
            needed = set(plan.depends[k].tolist())
            brought = {2 * self.of[other] + 1 for d in needed for other in range(first[d], last[d])}
            before = writes.get((int(plan.src[k]), int(plan.chunk[k])), ())
            copied = max((owner[w] for w in before if owner[w] in needed and not sums[owner[w]]), default=-1)
            # a copy replaces earlier writes; later writes that this transfer does not need follow it
            own = frozenset(w for w in before if owner[w] in needed)
            later = [w for w in before if owner[w] not in needed and owner[w] > copied]
            for r in range(first[k], last[k]):
                waits[self.of[r]] |= brought
                self.own.append(own)
                self.later.append(later)
                self.copied.append(copied >= 0)
        self.waits = [tuple(sorted(each)) for each in waits]
        self.apart = self._unlike_sums()

    def _unlike_sums(self) -> set[tuple[int, int]]:
        """The nodes and chunks of which two sums are sent and none of these holds the other, or one without what the
        node itself adds."""
        sums: dict[tuple[int, int], set[frozenset[int]]] = defaultdict(set)
        for r, own in enumerate(self.own):
            if own and not self.copied[r]:
                sums[self.key[r]].add(own)
        alone = {key for key, forwards in zip(self.key, self.forwards, strict=True) if forwards}
        return alone | {
            key
            for key, own in sums.items()
            if any(not a < b for a, b in pairwise(sorted(own, key=lambda each: (len(each), sorted(each)))))
        }

    def in_order(self) -> list[int]:
        """The events up to where all that are left wait for each other."""
        sorter: TopologicalSorter[int] = TopologicalSorter()
        for m, receivers in enumerate(self.messages):
            sorter.add(2 * m, *self.waits[m], *self.after[m])
            sorter.add(2 * m + 1, 2 * m)
            for other in {self.of[w] for r in receivers for w in self._overwriting(r)}:
                sorter.add(2 * other + 1, 2 * m)
                if self.parts[other] > self.room:
                    sorter.add(2 * other, 2 * m)
        full: dict[tuple[int, int], list[int]] = defaultdict(list)  # sendings for which there is no room
        under_way: dict[tuple[int, int], deque[int]] = defaultdict(deque)
        early: set[int] = set()
        with suppress(CycleError):  # what waits in a circle stays
            sorter.prepare()
        heap = [(self._time_s(e), e) for e in sorter.get_ready()]
        heapq.heapify(heap)
        found = []
        while heap:
            event = heapq.heappop(heap)[1]
            queue = under_way[self.pair[event // 2]]
            if event % 2 == 0:
                if queue and sum(self.parts[e // 2] for e in (event, *queue)) > self.room:
                    full[self.pair[event // 2]].append(event)
                    continue
                queue.append(event + 1)
            elif queue[0] != event:
                early.add(event)
                continue
            else:
                queue.popleft()
                for e in full.pop(self.pair[event // 2], ()):
                    heapq.heappush(heap, (self._time_s(e), e))
                if queue and queue[0] in early:
                    heapq.heappush(heap, (self._time_s(queue[0]), queue[0]))
            found.append(event)
            sorter.done(event)
            for e in sorter.get_ready():
                heapq.heappush(heap, (self._time_s(e), e))
        behind = ((queue[0] // 2, event // 2) for queue in under_way.values() for event in queue if event in early)
        self.overtaken = [(late, m) for late, m in behind if late != m and 2 * m not in self.after[late]]
        return found

    def _overwriting(self, r: int) -> list[int]:
        """The receivers that write where their sender has what r gets, and must do so later."""
        return self.later[r] if self.copied[r] or self.key[r] not in self.apart else []

    def _time_s(self, event: int) -> float:
        return self.arrival_s[event // 2] if event % 2 else self.start_s[event // 2]

    def keep_apart(self, found: list[int]) -> bool:
        """Keep apart the summands of what holds up a receipt, given the events that found an order; False if there is
        nothing such."""
        done = set(found)
        more = {
            self.key[r]
            for r, later in enumerate(self.later)
            if 2 * self.of[r] not in done and not self.copied[r] and any(2 * self.of[w] + 1 not in done for w in later)
        }
        more -= self.apart
        self.apart |= more
        return bool(more)

    def send_later(self) -> bool:
        """Put off the messages that cannot be received yet while one could be that was sent later between the same two
        ranks: they are sent after that one. False if there are none."""
        for late, m in self.overtaken:
            self.after[late].add(2 * m)
        return bool(self.overtaken)

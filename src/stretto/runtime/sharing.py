"""The connections that the groups of one rank share, and how two ends agree on one of them.

Each rank of a world has a name of its own, and says with which others it has connections that serve. Two ranks use one
that both name; otherwise they make a new one, which their later groups share. Groups of one world connect one after
another, in the order in which they were made, so that the second finds what the first has made. Worlds share nothing.

Connections for messages are shared pair by pair, those for collectives all or none: by groups whose ranks were all in
one earlier group, and whose programs compiled loops run.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .channel import Wire
from .lines import Line

if TYPE_CHECKING:
    from .native.shared import Roads

TURN_S = 5.0
"""Seconds for which a group waits for those made before it to connect. Ranks that make their groups in different orders
would wait for each other for ever; theirs have connections of their own."""

_NUMBERS = itertools.count(1)
_PROCESS = secrets.token_hex(8)
_LOCK = threading.RLock()
_RANKS: dict[tuple[str, int], Shared] = {}


def new_number() -> int:
    """A number for streams of this process, which none of them had before."""
    return next(_NUMBERS) & 0xFFFFFFFF


class Shared:
    """What the groups of one rank share.

    Attributes:
        name: of the rank in this process. alone: whether there is only one group.
    """

    def __init__(self, rank: int, alone: bool = True) -> None:
        self.alone = alone
        self._roads: dict[str, Roads] = {}
        self.name = f"{_PROCESS}-{os.getpid()}-{rank}"
        self._lines: dict[str, dict[str, Line]] = {}
        self._turns: list[object] = []
        self._change = threading.Condition(threading.RLock())

    def turn(self) -> object:
        """A place in the order in which groups connect; give it to :meth:`end_turn`."""
        turn = object()
        with self._change:
            self._turns.append(turn)
        return turn

    def wait(self, turn: object) -> None:
        """Wait until the groups before have connected, or for ``TURN_S``."""
        with self._change:
            self._change.wait_for(lambda: turn not in self._turns or self._turns[0] is turn, TURN_S)

    def end_turn(self, turn: object) -> None:
        with self._change:
            if turn in self._turns:
                self._turns.remove(turn)
                self._change.notify_all()

    def offer(self) -> Offer:
        """The lines that serve, held for a group."""
        with self._change:
            held: dict[str, dict[str, Line]] = {}
            for peer, lines in self._lines.items():
                held[peer] = {number: line for number, line in lines.items() if line.hold()}
            return Offer(self, held)

    def keep(self, peer: str, number: str, line: Line) -> None:
        """Let later groups have a line, until it is closed."""
        with self._change:
            self._lines.setdefault(peer, {})[number] = line
        line.closed = partial(self._forget, peer, number)

    def offer_roads(self, measured: bool) -> RoadOffer:
        """The connections for collectives that serve, held for a group.

        Args:
            measured: whether the group measures its network; then those serve whose group has found nothing to measure.
        """
        with self._change:
            usable = {name: roads for name, roads in self._roads.items() if roads.measured == measured}
            return RoadOffer({name: roads for name, roads in usable.items() if roads.hold()})

    def keep_roads(self, name: str, roads: Roads) -> None:
        """Let later groups use connections for collectives, until they are closed."""
        with self._change:
            self._roads[name] = roads
        roads.closed = partial(self._forget_roads, name)

    def _forget_roads(self, name: str) -> None:
        with self._change:
            del self._roads[name]

    def _forget(self, peer: str, number: str) -> None:
        with self._change:
            del self._lines[peer][number]
            if not self._lines[peer]:
                del self._lines[peer]


class Offer:
    """What a rank says of its lines when a group connects, and what comes of it.

    Attributes:
        number: what other ranks call this one's streams in the group.
        numbers: what this rank calls those of each node.
        reuses: whether any two ranks of the group use a line that they had.
    """

    def __init__(self, shared: Shared, held: dict[str, dict[str, Line]]) -> None:
        self._shared, self._held = shared, held
        self.number, self.numbers, self.reuses = new_number(), dict[int, int](), False
        self.lines: dict[int, Line] = {}
        self._names: dict[int, str] = {}
        self._new: list[tuple[str, str, Line]] = []

    def words(self) -> list[Any]:
        """What the other ranks are told: the name of this one, its number, and which lines it has to others."""
        return [self._shared.name, self.number, {peer: list(lines) for peer, lines in self._held.items()}]

    def agree(self, answers: Mapping[int, Sequence[Any]]) -> set[int]:
        """Use the lines that both ends name.

        Args:
            answers: the words of each node.
        Returns:
            The nodes to which there is a line.
        """
        own = self._shared.name
        words = {name: lines for name, _, lines in answers.values()}
        pairs = ((a, b) for a, lines in words.items() for b in lines if b in words)
        self.reuses = any({*words[a][b]} & {*words[b].get(a, ())} for a, b in pairs)
        for node, (name, number, lines) in answers.items():
            self._names[node], self.numbers[node] = name, int(number)
            both = sorted({*lines.get(own, ())} & {*self._held.get(name, ())})
            if both and name != own:
                self.lines[node] = self._held[name].pop(both[0])
        self._drop_others()
        return set(self.lines)

    def add(self, node: int, sock: Wire, secret: bytes) -> None:
        """Make a line of a new connection.

        Args:
            secret: what only the members of the group know that both ends connect for.
        """
        name, line = self._names[node], Line(sock)
        self.lines[node] = line
        both = "/".join(sorted((name, self._shared.name)))
        self._new.append((name, hashlib.sha256(secret + both.encode()).hexdigest()[:16], line))

    def keep(self) -> None:
        """Let later groups have the new lines, whose first streams are there."""
        for name, number, line in self._new:
            self._shared.keep(name, number, line)

    def _drop_others(self) -> None:
        for lines in self._held.values():
            for line in lines.values():
                line.release()
        self._held = {}

    def give_up(self) -> None:
        """Release all lines."""
        self._drop_others()
        lines, self.lines = list(self.lines.values()), {}
        for line in lines:
            line.release(lingers=False)


class RoadOffer:
    """What a rank says of the connections that groups before have made for collectives, and what comes of it: if all
    ranks of the new group were in one of them, its connections serve.

    Attributes:
        number: what other ranks call this one's streams in the group. numbers: what this rank calls those of each node.
        roads: the connections that serve; None where the group makes its own.
    """

    def __init__(self, held: dict[str, Roads]) -> None:
        self.number, self.numbers = new_number(), dict[int, int]()
        self.roads: Roads | None = None
        self._held = held

    def words(self) -> list[Any]:
        """What the other ranks are told: the number of this one, and which connections it has."""
        return [self.number, list(self._held)]

    def agree(self, answers: Mapping[int, Sequence[Any]]) -> set[int]:
        """Use the connections that all ranks name.

        Args:
            answers: the words of each node.
        Returns:
            The nodes that need not be connected.
        """
        self.numbers = {node: int(number) for node, (number, _) in answers.items()}
        common = set(self._held).intersection(*(names for _, names in answers.values()))
        self.roads = self._held.pop(min(common)) if common else None
        self._drop_others()
        return set(answers) if common else set()

    def _drop_others(self) -> None:
        for roads in self._held.values():
            roads.release(lingers=False)
        self._held = {}

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Release all connections if what is done in here fails."""
        try:
            yield
        except BaseException:
            self._drop_others()
            if self.roads is not None:
                self.roads.release(lingers=False)
            raise


def shared(world: str | None, rank: int) -> Shared:
    """What the groups of a rank of a world share; of no world: of one group alone."""
    if world is None:
        return Shared(rank)
    with _LOCK:
        known = _RANKS.get((world, rank))
        if known is None or not known.name.startswith(f"{_PROCESS}-{os.getpid()}-"):
            known = _RANKS[world, rank] = Shared(rank, alone=False)
        return known

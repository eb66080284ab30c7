"""What libraries send, step by step, and the same as traffic.

An algorithm is a list of steps (:class:`stretto.schedule.algorithms.Step`): which blocks of the buffer go from which
rank to which, and whether the receiver adds or stores them. A rank acts on a step when it has what the steps before
brought it. The blocks say *what* is sent, so that a test can run the steps on numbers and look at the sums; traffic
says only how much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from ..model.arrays import Int64
from ..model.plan import COPY, REDUCE
from ..schedule.algorithms import Step
from .traffic import Phase, Traffic, phase


@dataclass(frozen=True, eq=False)
class Repeated(Sequence[Step]):
    """Steps that all have the same senders and receivers, and as many blocks; made when they are asked for.

    Attributes:
        number: how many steps.
        step: the step of each number from 0 on.
    """

    number: int
    step: Callable[[int], Step]

    def __len__(self) -> int:
        return self.number

    @overload
    def __getitem__(self, index: int) -> Step: ...

    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...

    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        numbers = range(self.number)[index]
        return self.step(numbers) if isinstance(numbers, int) else [self.step(k) for k in numbers]


@dataclass(frozen=True, eq=False)
class Part:
    """Steps of one form.

    Attributes:
        steps: in their order. Blocks are those of all pieces of the collective, piece after piece.
        tree: a rank sends as soon as all that earlier steps sent to it has come, to several at once. Otherwise a rank
            ends a step, with all that it sends and receives there, before it begins the next.
        in_order: each message waits for the one before, as where one rank asks the others one after the other.
        segments: into how many segments every message is cut; the segments of a message follow each other.
        in_flight: how many segments a rank sends before it waits for the first that it receives; at most ``segments``,
            since a rank sends on in each step what it received in the step before.
    """

    steps: Sequence[Step]
    tree: bool = False
    in_order: bool = False
    segments: int = 1
    in_flight: int = 1


@dataclass(frozen=True, eq=False)
class Pattern:
    """A library's algorithm for some number of ranks.

    Attributes:
        algorithm: the library's own name of it.
        parts: one after the other.
        blocks: how many blocks each piece of the collective is cut into.
    """

    algorithm: str
    parts: tuple[Part, ...]
    blocks: int = 1

    @property
    def steps(self) -> list[Step]:
        """All steps, in their order."""
        return [step for part in self.parts for step in part.steps]

    def traffic(self, piece_bytes: float) -> Traffic:
        """What it sends, for pieces of ``piece_bytes``."""
        block_bytes = piece_bytes / self.blocks
        return Traffic(self.algorithm, tuple(p for part in self.parts for p in _phases(part, block_bytes)))


def _phases(part: Part, block_bytes: float) -> tuple[Phase, ...]:
    """One phase of a tree; otherwise one for each step, where equal steps after each other are sent as one phase."""
    if isinstance(part.steps, Repeated):
        rows = [(_messages(part.steps[0]), part.steps.number)]
    else:
        messages = [_messages(step) for step in part.steps if len(step.src)]
        if messages and (part.tree or part.in_order):
            return (_in_one_phase(messages, block_bytes, part),)
        rows = []
        for now in messages:
            if rows and all(np.array_equal(a, b) for a, b in zip(rows[-1][0], now, strict=True)):
                rows[-1] = now, rows[-1][1] + 1
            else:
                rows.append((now, 1))
    lag = min(part.in_flight, part.segments)
    return tuple(_repeated(now, block_bytes / part.segments, times * part.segments, lag) for now, times in rows)


def _repeated(messages: Messages, block_bytes: float, times: int, lag: int) -> Phase:
    """A phase that is sent ``times`` times; the k-th message waits for what its sender received at time k - lag."""
    src, dst, count = messages
    size_bytes = np.maximum(count * block_bytes, 1)
    if times == 1:
        return phase(src, dst, size_bytes, 1, ())
    once = phase(src, dst, size_bytes, times)
    return phase(src, dst, size_bytes, times, np.stack((once.waiting, once.awaited, once.lag * lag), axis=1))


def _in_one_phase(rows: Sequence[Messages], block_bytes: float, part: Part) -> Phase:
    """A phase in which a message waits for all that its sender receives in steps before it, segment by segment."""
    received: dict[int, list[int]] = {}
    waits: list[tuple[int, int, int]] = []
    number = 0
    for src, dst, _ in rows:
        for k, sender in enumerate(src.tolist(), start=number):
            waits += [(k, earlier, 0) for earlier in received.get(sender, ())]
        for k, receiver in enumerate(dst.tolist(), start=number):
            received.setdefault(receiver, []).append(k)
        number += len(src)
    if part.in_order:
        waits += [(later, later - 1, 0) for later in range(1, number)]
    src, dst, count = (np.concatenate(column) for column in zip(*rows, strict=True))
    return phase(src, dst, np.maximum(count * block_bytes / part.segments, 1), part.segments, waits)


Messages = tuple[Int64, Int64, Int64]
"""Sender, receiver and number of blocks of each message."""


def _messages(step: Step) -> Messages:
    """The messages of a step: all blocks that go from one rank to another are one message."""
    ranks = int(max(step.src.max(), step.dst.max())) + 1
    pairs, count = np.unique(step.src.astype(np.int64) * ranks + step.dst, return_counts=True)
    return pairs // ranks, pairs % ranks, count.astype(np.int64)


# --- steps that several libraries have ----------------------------------------------------------


def renumbered(steps: Sequence[Step], rank: Int64) -> list[Step]:
    """The same steps among other ranks: what v did is done by ``rank[v]``."""
    return [Step(s.block, rank[s.src], rank[s.dst], s.op) for s in steps]


def from_root(steps: Sequence[Step], root: int, ranks: int, blocks: int = 0) -> list[Step]:
    """The steps of root 0 with all ranks moved on by the root; with ``blocks`` a rank, the blocks move with them."""
    moved = renumbered(steps, (np.arange(ranks) + root) % ranks)
    if not blocks:
        return moved
    return [s._replace(block=(s.block + root * blocks) % (ranks * blocks)) for s in moved]


def inside_machines(members: Sequence[Int64]) -> list[Step]:
    """From the first rank of each machine down a binomial tree to the others of the machine, the whole buffer."""
    steps = []
    for distance in (1 << s for s in range((max(map(len, members)) - 1).bit_length())):
        src = [ranks[: max(0, min(distance, len(ranks) - distance))] for ranks in members]
        dst = [ranks[distance : 2 * distance] for ranks in members]
        senders, receivers = np.concatenate(src), np.concatenate(dst)
        steps.append(Step(np.zeros_like(senders), senders, receivers, COPY))
    return steps


def backwards(steps: Sequence[Step], op: int) -> list[Step]:
    """The steps in reverse: who received sends, from the last step to the first."""
    return [Step(s.block, s.dst, s.src, op) for s in reversed(steps)]


def ring_sums(ranks: int, ends: int, by: int) -> Repeated:
    """Partial sums go round, from each rank v to v + ``by``; at last rank v has the whole sum of block v + ``ends``."""
    v = np.arange(ranks)
    return Repeated(ranks - 1, lambda s: Step((v + by * (ranks - 1 - s) + ends) % ranks, v, (v + by) % ranks, REDUCE))


def ring_copies(ranks: int, begins: int, by: int) -> Repeated:
    """Blocks go round, from each rank v to v + ``by``; at first rank v has block v + ``begins``."""
    v = np.arange(ranks)
    return Repeated(ranks - 1, lambda s: Step((v + begins - by * s) % ranks, v, (v + by) % ranks, COPY))


def ring_sums_and_copies(ranks: int, place: int, by: int) -> Repeated:
    """An AllReduce: partial sums go round until rank v has that of block v + ``place``; then the sums go round."""
    sums, copies = ring_sums(ranks, place, by), ring_copies(ranks, place, by)
    return Repeated(2 * (ranks - 1), lambda s: sums[s] if s < ranks - 1 else copies[s - (ranks - 1)])


def together(steps: Sequence[Step]) -> Step:
    """One step of all messages, which are sent at once."""
    block, src, dst = (np.concatenate(column) for column in zip(*((s.block, s.src, s.dst) for s in steps), strict=True))
    return Step(block, src, dst, steps[0].op)


def to_root(ranks: int, root: int, block: Int64, op: int) -> Step:
    """Every other rank v sends the root ``block[v]``."""
    v = np.delete(np.arange(ranks), root)
    return Step(block[v], v, np.full_like(v, root), op)

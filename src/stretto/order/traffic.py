"""The traffic of a library: what a collective sends, as a function of rank numbers alone.

A library that is blind to the network sends the same messages between the same *rank numbers* on every network. Its
traffic is a sequence of *phases*. A phase is a set of messages (sender's rank, receiver's rank, bytes), and the whole
set is sent ``times`` over. Two examples say most of it:

- A ring AllReduce of n ranks is one phase: n messages (rank v to rank v + 1, 1/n of the buffer), sent 2 (n - 1) times.
  Each time a rank sends on what it received the time before (``lag`` 1).
- A pipelined tree is one phase: a message for each edge, sent once for each segment of the buffer. Segment k goes down
  an edge once segment k has come over the edge above (``lag`` 0).

Recursive doubling is a phase for each step, each sent once. Phases follow each other rank by rank: there is no barrier.

**When a message starts.** Time k (from 0) of a message waits for time k - ``lag`` of the messages that it waits for.
Where no waits are given, it waits for all messages that its sender received the time before (``lag`` 1): the usual step
of a library that sends and receives, and then goes on. All times of a message also wait for everything that its sender
sent and received, the last time, in the last earlier phase in which it took part: a rank ends one phase before it
begins the next. Messages of one sender to one receiver arrive in the order in which they were sent. Where messages
share a link, the earlier time (of the earlier phase) is served first, and messages of the same time share the link
equally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..model.arrays import Int64
from ..model.errors import InputError


@dataclass(frozen=True, eq=False)
class Layout:
    """The ranks of one collective, and the number of the machine of each.

    Attributes:
        machine: int64[ranks], the number of each rank's machine. Ranks of one machine are next to each other.
    """

    machine: Int64

    @classmethod
    def even(cls, machines: int, gpus: int = 1) -> Layout:
        """``machines`` machines with ``gpus`` ranks each."""
        return cls(np.repeat(np.arange(machines), gpus))

    @property
    def ranks(self) -> int:
        return len(self.machine)

    @cached_property
    def members(self) -> tuple[Int64, ...]:
        """For each machine, in the order of their numbers, its ranks."""
        cuts = np.flatnonzero(np.diff(self.machine)) + 1
        return tuple(np.split(np.arange(self.ranks), cuts))


@dataclass(frozen=True, eq=False)
class Phase:
    """Messages that are sent ``times`` over; see the module for when each starts. Build one with :func:`phase`.

    Attributes:
        src, dst: int64[messages], ranks.
        size_bytes: int64[messages], the bytes of each, each time.
        times: how often the whole set is sent.
        waiting, awaited, lag: int64[waits] each: time k of message ``waiting`` waits for time k - ``lag`` of message
            ``awaited``. Messages are meant by their index in this phase; with lag 0 an awaited message has a lower one.
    """

    src: Int64
    dst: Int64
    size_bytes: Int64
    times: int
    waiting: Int64
    awaited: Int64
    lag: Int64

    def __repr__(self) -> str:
        return f"<Phase: {len(self.src)} messages, {self.times} times>"


@dataclass(frozen=True, eq=False)
class Traffic:
    """All that a collective sends.

    Attributes:
        algorithm: the library's own name of it, such as "ring".
        phases: one after the other, rank by rank.
    """

    algorithm: str
    phases: tuple[Phase, ...]

    def __repr__(self) -> str:
        return f"<Traffic of {self.algorithm}: {len(self.phases)} phases, {self.messages} messages>"

    @property
    def messages(self) -> int:
        """How many messages are sent in all."""
        return sum(len(p.src) * p.times for p in self.phases)


@dataclass(frozen=True)
class Library:
    """A communication library.

    Attributes:
        name: what users call it.
        summary: one line: which algorithms it has, and by what it chooses.
        traffic: what it sends for ranks, a kind of collective, the full buffer in bytes and the root's rank (which
            counts for rooted kinds alone). Raises Unsupported, naming the library, for a kind that it does not have.
        inside: whether the numbers of a machine's GPUs decide who sends to whom inside the machine. NCCL looks at the
            hardware there, and not at numbers.
    """

    name: str
    summary: str
    traffic: Callable[[Layout, str, int, int], Traffic]
    inside: bool = True


def phase(
    src: ArrayLike, dst: ArrayLike, size_bytes: ArrayLike, times: int = 1,
    waits: Iterable[tuple[int, int, int]] | NDArray[np.int64] | None = None,
) -> Phase:  # fmt: skip
    """A phase of messages.

    Args:
        src, dst: the ranks of each message.
        size_bytes: of each message, or of all; fractions are rounded up.
        times: how often the whole set is sent.
        waits: rows (waiting message, awaited message, lag); by default each message waits for all that its sender
            received the time before.
    Raises:
        InputError: no message, a message from a rank to itself or of no byte, a phase that is sent no time, or a lag of
            0 to a message that is not before.
    """
    a, b = np.asarray(src, dtype=np.int64).ravel(), np.asarray(dst, dtype=np.int64).ravel()
    size = np.ceil(np.broadcast_to(np.asarray(size_bytes, dtype=np.float64), a.shape)).astype(np.int64)
    if not len(a) or len(a) != len(b) or (a == b).any() or times < 1 or (size < 1).any():
        raise InputError("messages go between different ranks, have bytes, and are sent at least once", "phase")
    rows = _received_before(a, b) if waits is None else np.array(list(waits), dtype=np.int64).reshape(-1, 3)
    waiting, awaited, lag = (np.ascontiguousarray(column) for column in rows.T)
    if (lag < 0).any() or ((lag == 0) & (awaited >= waiting)).any():
        raise InputError("a message may wait for the same time of an earlier message, or for an earlier time", "phase")
    return Phase(a, b, size, int(times), waiting, awaited, lag)


def steps(rows: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike]]) -> tuple[Phase, ...]:
    """A phase, sent once, for each step of (senders, receivers, bytes); steps without messages are left out."""
    return tuple(phase(*row) for row in rows if np.size(row[0]))


def _received_before(src: Int64, dst: Int64) -> NDArray[np.int64]:
    """int64[waits, 3]: each message waits, with lag 1, for all that its sender receives."""
    order = np.argsort(dst, kind="stable")
    low, high = (np.searchsorted(dst[order], src, side=side) for side in ("left", "right"))
    count = high - low
    waiting = np.repeat(np.arange(len(src)), count)
    place = np.arange(len(waiting)) - np.repeat(np.cumsum(count) - count, count)
    return np.stack((waiting, order[low[waiting] + place], np.ones_like(waiting)), axis=1)


def ring(ranks: int, size_bytes: float, times: int) -> Phase:
    """Every rank sends to the next one, and the last to the first, ``times`` over.

    Args:
        size_bytes: of each message.
        times: steps: ranks - 1 for an AllGather or a ReduceScatter, twice that for an AllReduce.
    """
    v = np.arange(ranks)
    return phase(v, (v + 1) % ranks, max(size_bytes, 1), times)

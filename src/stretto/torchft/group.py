"""The process group of one rank of a replica group: a group of the backend ``stretto`` for each quorum, one at a time.

A new quorum ends what is under way at once. The ranks connect anew, measure the pairs that have not met before, and
plan for those that are there. What a process has measured stays with it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from torchft.process_group import ProcessGroupWrapper

from ..choose.quick import load_planners
from ..choose.requests import code_digest
from ..model.errors import InputError, PeerFailed
from ..runtime.connect import own_address
from ..runtime.native.engine import hold, let_go
from ..torch.codes import format_of
from ..torch.compressed import Feedback, may_compress
from ..torch.group import StrettoGroup
from ..torch.measuring import Known
from .stores import Stores


class Buckets:
    """What rounding has left out of the sums that a program does again and again, in one order."""

    def __init__(self) -> None:
        self._all: list[Feedback] = []
        self._at = 0

    def begin(self) -> None:
        """The sums begin anew; those before count."""
        self._at = 0
        for feedback in self._all:
            feedback.begin()

    def next(self) -> Feedback:
        """The feedback of the next sum."""
        if self._at == len(self._all):
            self._all.append(Feedback())
        self._at += 1
        return self._all[self._at - 1]

    def undo(self) -> None:
        """The sums since the last beginning were thrown away."""
        for feedback in self._all:
            feedback.undo()


class ProcessGroupStretto(ProcessGroupWrapper):  # type: ignore[misc]
    """Moves what replica groups exchange by plans for the network between them.

    Args:
        timeout: how long a collective may take, and how long the members of a quorum wait for each other.
        connect_timeout: how long they wait for each other, if that is not ``timeout``. A member that dies before it has
            told the others its address is waited for; one that dies later is noticed within a second.
        compress: ``"int8"`` or ``"fp8"``: AllReduces that add up float32, bfloat16 or float16, or average them, cross
            between sites in this format (:mod:`stretto.torch.codes` states the errors). All else has full precision,
            and so has everything by default.
        site: the name of the site that this process is in, such as a datacenter's; ``STRETTO_SITE`` by default. Where a
            member has none, sites are what the measured network shows.
    """

    def __init__(
        self, timeout: timedelta = timedelta(seconds=60), connect_timeout: timedelta | None = None,
        compress: str | None = None, site: str = "",
    ) -> None:  # fmt: skip
        super().__init__(timeout)
        if compress is not None:
            format_of(compress)
        self._compress = compress
        self._buckets: Buckets | None = None
        self._connect_timeout = connect_timeout
        self._known, self._stores = Known(site), Stores()
        self._host = ""
        self._lock = threading.Lock()
        self._meeting: StrettoGroup | None = None
        self._configures: int | None = None
        self._given_up = False
        # what a process loads once, it loads now, and not while the members of its first quorum wait for it
        load_planners()
        code_digest()
        if hold() is not None:
            weakref.finalize(self, let_go)

    def getBackendName(self) -> str:  # noqa: N802
        return "torchft-stretto"

    def configure(
        self, store_addr: str, replica_id: str, rank: int, world_size: int, *quorum: Any, **more: Any
    ) -> None:
        """Leave the last quorum, and return when all members of this one are connected and know the network.

        Args:
            store_addr: ``host:port/prefix`` of a store, with a prefix of its own for each quorum.
            rank, world_size: this process among the members.
            quorum, more: as torchft gives them.
        Raises:
            PeerFailed: a member has died, or did not come in time.
        """
        if not 0 <= rank < world_size:
            raise InputError(f"rank {rank} is not in a quorum of {world_size}")
        host = store_addr.partition("/")[0].rpartition(":")[0].strip("[]")
        self._host = os.environ.get("STRETTO_HOST") or own_address(host)
        with self._lock:
            self._configures, self._given_up = threading.get_ident(), False
        try:
            self._note_quorum(replica_id, rank, *quorum, **more)
            self.abort(errored=False)
            self._pg = self._create_pg(self._stores.part(store_addr, self._timeout), rank, world_size)
        finally:
            with self._lock:
                self._configures = self._meeting = None
        if self._given_up:
            self.abort(errored=False)
            raise _given_up(rank)

    def _note_quorum(
        self, replica_id: str, rank: int, quorum_id: int | None = None, group_rank: int | None = None,
        group_world_size: int | None = None, global_ranks: list[int] | None = None,
    ) -> None:  # fmt: skip
        """Remember what torchft logs of a quorum."""
        self._replica_id, self._rank, self._quorum_id, self._group_rank = replica_id, rank, quorum_id, group_rank
        self._group_world_size, self._global_ranks = group_world_size, global_ranks

    def _create_pg(self, store: Any, rank: int, world_size: int) -> StrettoGroup:
        connect_timeout = self._connect_timeout or self._timeout
        group = StrettoGroup(store, rank, world_size, range(world_size), connect_timeout, self._known, self._host)
        with self._lock:
            self._meeting = group
        try:
            if self._given_up:
                raise _given_up(rank)
            group.meet()
        except BaseException:
            group.abort()
            raise
        group.set_timeout(self._timeout)
        return group

    def abort(self, errored: bool = True) -> None:
        """Give up at once what is under way, also a quorum whose members are still connecting."""
        with self._lock:
            meeting = self._meeting
            if self._configures not in (None, threading.get_ident()):
                self._given_up = True
        if meeting is not None:
            meeting.abort()
        super().abort(errored=errored)

    @contextmanager
    def feeding(self, buckets: Buckets) -> Iterator[None]:
        """Compressed sums that begin meanwhile add what the same ones left out before, and keep what they leave out."""
        buckets.begin()
        self._buckets = buckets
        try:
            yield
        finally:
            self._buckets = None

    def allreduce(self, tensors: Any, opts: Any) -> Any:
        if self._compress is None or not all(may_compress(t, opts) for t in tensors):
            return super().allreduce(tensors, opts)
        feedback = None if self._buckets is None or len(tensors) != 1 else self._buckets.next()
        return self.parent.compressed.allreduce(tensors, self._compress, feedback, opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any) -> Any:
        return self.allreduce(tensors, opts)

    def errored(self) -> Exception | None:
        """Why the quorum of now runs nothing any more; None while it does."""
        failure = self._pg.failure if isinstance(self._pg, StrettoGroup) else None
        return None if failure is None else RuntimeError(f"aborted: {failure}")

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(timeout)
        if self._pg is not None:
            self._pg.set_timeout(timeout)

    def shutdown(self) -> None:
        """Leave the quorum, and give up what is under way."""
        self.abort(errored=False)

    def rank(self) -> int:
        return int(self.parent.rank())

    def _allgather_base(self, output: Any, source: Any, opts: Any = None) -> Any:
        return self.parent._allgather_base(output, source, opts)

    def _reduce_scatter_base(self, output: Any, source: Any, opts: Any = None) -> Any:
        return self.parent._reduce_scatter_base(output, source, opts)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self.parent.alltoall(outputs, inputs, opts)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        return self.parent.gather(outputs, inputs, opts)

    def reduce(self, tensors: Any, opts: Any) -> Any:
        return self.parent.reduce(tensors, opts)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        return self.parent.scatter(outputs, inputs, opts)


def _given_up(rank: int) -> PeerFailed:
    return PeerFailed(f"rank {rank}", "it gave the quorum up while it connected")

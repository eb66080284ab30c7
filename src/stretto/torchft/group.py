"""The process group of one rank of a replica group: a group of the backend ``stretto`` for each quorum, one at a time.

A new quorum ends what is under way at once. The ranks connect anew, measure the pairs that have not met before, and
plan for those that are there. What a process has measured stays with it.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from torchft.process_group import ProcessGroupWrapper

from ..model.errors import InputError
from ..runtime.connect import own_address
from ..torch.group import StrettoGroup
from ..torch.measuring import Known


class ProcessGroupStretto(ProcessGroupWrapper):  # type: ignore[misc]
    """Moves what replica groups exchange by plans for the network between them.

    Args:
        timeout: how long a collective may take, and how long the members of a quorum wait for each other.
        connect_timeout: how long they wait for each other, if that is not ``timeout``. A member that dies before it has
            told the others its address is waited for; one that dies later is noticed within a second.
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60), connect_timeout: timedelta | None = None) -> None:
        super().__init__(timeout)
        self._connect_timeout = connect_timeout
        self._known = Known()
        self._host = ""
        self._meeting: StrettoGroup | None = None

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
        super().configure(store_addr, replica_id, rank, world_size, *quorum, **more)

    def _create_pg(self, store: Any, rank: int, world_size: int) -> StrettoGroup:
        connect_timeout = self._connect_timeout or self._timeout
        group = StrettoGroup(store, rank, world_size, range(world_size), connect_timeout, self._known, self._host)
        self._meeting = group
        try:
            group.meet()
        except BaseException:
            group.abort()
            raise
        finally:
            self._meeting = None
        group.set_timeout(self._timeout)
        return group

    def abort(self, errored: bool = True) -> None:
        """Give up at once what is under way, also a quorum whose members are still connecting."""
        if self._meeting is not None:
            self._meeting.abort()
        super().abort(errored=errored)

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

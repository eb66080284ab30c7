"""Streaming DiLoCo of torchft whose outer step is compressed between sites, with error feedback for each fragment."""

from __future__ import annotations

from typing import Any

from torchft.local_sgd import DiLoCo as _DiLoCo

from ..model.errors import Unsupported
from .group import Buckets, ProcessGroupStretto


class DiLoCo(_DiLoCo):  # type: ignore[misc]
    """torchft's ``DiLoCo``, with its arguments.

    If the manager's process group compresses sums, what rounding leaves out of the pseudogradients of a fragment is
    added to those of its next synchronization. A synchronization that does not commit leaves no trace.
    """

    def __init__(self, manager: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(manager, *arguments, **named)
        if not isinstance(manager._pg, ProcessGroupStretto):
            raise Unsupported("error feedback needs a manager whose process group is a ProcessGroupStretto")
        for fragment in self._fragments:
            _Fed(fragment, manager._pg)


class _Fed:
    """Gives a fragment's sums their buckets."""

    def __init__(self, fragment: Any, group: ProcessGroupStretto) -> None:
        self.group, self.buckets = group, Buckets()
        self.prepare, self.perform = fragment.prepare_sync, fragment.perform_sync
        fragment.prepare_sync, fragment.perform_sync = self.prepare_sync, self.perform_sync

    def prepare_sync(self) -> None:
        with self.group.feeding(self.buckets):
            self.prepare()

    def perform_sync(self) -> bool:
        committed = False
        try:
            committed = bool(self.perform())
        finally:
            if not committed:
                self.buckets.undo()
        return committed

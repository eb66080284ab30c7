"""What a caller waits for."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist


class Pending(dist._Work):  # type: ignore[misc]
    """A job that is under way; unlike PyTorch's own wrapper of a future its ``wait`` raises what the job raised."""

    def __init__(self, future: torch.futures.Future) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it has ended. The job has a timeout of its own, so ``timeout`` is not needed to end."""
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future:
        return self._future

    def is_completed(self) -> bool:
        return bool(self._future.done())

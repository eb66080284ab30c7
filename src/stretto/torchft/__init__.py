"""A process group for managers of torchft, from quorum to quorum: ``Manager(pg=ProcessGroupStretto(), ...)``."""

from __future__ import annotations

from ..model.errors import Unsupported

try:
    import torchft  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise Unsupported(f"the process group needs torchft: pip install 'stretto[torchft]' ({error})") from None

from .diloco import DiLoCo
from .group import Buckets, ProcessGroupStretto

__all__ = ["Buckets", "DiLoCo", "ProcessGroupStretto"]

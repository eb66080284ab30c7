"""A process group for managers of torchft, from quorum to quorum: ``Manager(pg=ProcessGroupStretto(), ...)``."""

from __future__ import annotations

from ..model.errors import Unsupported

try:
    import torchft  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise Unsupported(f"the process group needs torchft: pip install 'stretto[torchft]' ({error})") from None

from .group import ProcessGroupStretto

__all__ = ["ProcessGroupStretto"]

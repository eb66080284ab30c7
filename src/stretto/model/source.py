"""The source of stretto as a digest: what was computed once is reused only by the code that computed it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path


def source_digest(holds: Callable[[str], bool]) -> str:
    """A digest of the source of the parts for which ``holds``; a part is a file or folder of stretto."""
    root = Path(__file__).parents[1]
    h = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if holds(place.parts[0].removesuffix(".py")):
            h.update(f"{place.as_posix()}\0".encode() + path.read_bytes())
    return h.hexdigest()[:16]

"""The libraries whose order can be planned: what each sends for a collective of some size."""

from __future__ import annotations

from ..model.errors import Unsupported
from ..model.kinds import BY_NAME
from .traffic import Layout, Library, Traffic, ring


def gloo(layout: Layout, kind: str, size_bytes: int, root: int = 0) -> Traffic:
    """gloo's ring: each step sends 1/ranks of the buffer to the next rank (``gloo/allreduce.cc``)."""
    traits, n = BY_NAME[kind], layout.ranks
    steps = {"allreduce": 2 * (n - 1), "allgather": n - 1, "reducescatter": n - 1}.get(kind)
    if steps is None:
        raise Unsupported(f"gloo's {traits.name} is not known here")
    return Traffic("ring", (ring(n, size_bytes / n, steps),))


LIBRARIES = {
    library.name: library for library in (Library("gloo", "rings, for every size", gloo, default_order="sorted"),)
}
"""By name."""

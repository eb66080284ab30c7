"""Orders of machines, for libraries whose rings and trees are fixed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ..model.progress import Progress
from ..order import answer
from .requests import Network, Size, request_topology


class Order(answer.Order):
    """An order of machines, and what it is worth. See :class:`stretto.order.answer.Order`."""

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw the network to an SVG file, with the links in red that carry something in this order."""
        from ..report.drawing import write_svg

        write_svg(self.topology, os.fspath(path), emphasised=self.links)

    @property
    def topology(self) -> Any:
        """The network."""
        return self.machines.topology


def order(
    topology: Network,
    library: str,
    collective: str | None = None,
    size: Size | None = None,
    *,
    groups: str | None = None,
    root: int = 0,
    given: Sequence[str] | str | None = None,
    machines: str = "site",
    gpus: bool = True,
    effort: str = "normal",
    progress: Progress | None = None,
) -> Order:
    """Find the order of machines with which a library ends a collective, or a step, soonest.

        st.order("net.json", "gloo", "allreduce", "1GB").order

    Args:
        topology: a spec, the path of a file, or a topology. Where nothing is known of what messages cost, a modest cost
            is assumed.
        library: "nccl", "gloo", "mpi", ... (an unknown name lists them all); "torchrun" is NCCL with machines sorted by
            name.
        collective: what all ranks do, or groups that do not say theirs.
        size: the full buffer of that.
        groups: ``"tp=8:allreduce:40GB,dp=16:allreduce:10GB"``, parallel groups, those of adjacent ranks first; or the
            path of a JSON file with lists of ranks.
        root: of a rooted collective, a rank.
        given: the present order: names of machines, or "sorted"; by default the topology's own.
        machines: "site" (accelerators of one site are a machine) or "gpu" (each is one by itself).
        gpus: whether the order of GPUs inside machines may change, too.
        effort: "quick", "normal" or "thorough".
        progress: called with (done, total, what) during long work.
    Raises:
        InputError: no such library, collective, group, machine or effort.
        Unsupported: the library lacks the collective, or no order can be planned for the topology.
    """
    found = answer.order(
        request_topology(topology), library, collective, size, groups=groups, root=root, given=given, machines=machines,
        gpus=gpus, effort=effort, progress=progress,
    )  # fmt: skip
    return Order(**{f.name: getattr(found, f.name) for f in fields(found)})

"""What automorphisms of a network make of its links and pipes, so that images of one plan share the burden."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....bounds.symmetry import automorphisms
from ....model.arrays import Ragged
from ....model.topology import Topology

__all__ = ["Renaming", "automorphisms"]

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Renaming:
    """What automorphisms make of a network's nodes, links and pipes.

    Attributes:
        node, link, pipe: int64[automorphisms, nodes (links, pipes)], which one each becomes.
        orbit: int64[links], equal for those that become each other.
    """

    node: Int64
    link: Int64
    pipe: Int64
    orbit: Int64

    @classmethod
    def of(cls, topology: Topology, hops: Ragged, node: Int64) -> Renaming | None:
        """Of automorphisms of the nodes, as far as they make pipes of all pipes.

        Args:
            hops: the links of each pipe.
        Returns:
            None if there is but one such, or two pipes have the same first and last link.
        """
        count = topology.link_count
        by_ends = np.full((topology.node_count, topology.node_count), -1, dtype=np.int64)
        by_ends[topology.src, topology.dst] = np.arange(count)
        link = by_ends[node[:, topology.src], node[:, topology.dst]]
        first, last = hops.values[hops.offsets[:-1]], hops.values[hops.offsets[1:] - 1]
        own = first.astype(np.int64) * count + last
        order = np.argsort(own, kind="stable")
        if (np.diff(own[order]) == 0).any():
            return None
        image = link[:, first] * count + link[:, last]
        pipe = order[np.minimum(np.searchsorted(own[order], image), len(order) - 1)]
        kept = (own[pipe] == image).all(axis=1)  # of equally short ways through switches, a pipe is one
        node, link, pipe = node[kept], link[kept], pipe[kept]
        if len(node) < 2:
            return None
        orbit, before = link.min(axis=0), np.arange(count)
        while (orbit != before).any():
            orbit, before = orbit[link].min(axis=0), orbit
        return cls(node, link, pipe, orbit)

    def busy_s(self, topology: Topology, links: NDArray[np.int32], step: Int64, size: float) -> Float64:
        """float64[orbits, steps], how long links are busy where those that become each other share what crosses them.

        Args:
            links, step: int64[any], those over which so many bytes go, and when.
        """
        steps, count = int(step.max()) + 1, topology.link_count
        load = np.bincount(self.orbit[links] * steps + step, minlength=count * steps).reshape(count, steps) * size
        width = np.bincount(self.orbit, topology.bandwidth, count)
        found: Float64 = load[width > 0] / width[width > 0][:, None]
        return found

    def spread(self, pipe: Int64, steps: Int64, count: int) -> list[int]:
        """Which automorphisms to take, one after another, so that at no step a pipe is used much more than others.

        Args:
            pipe, steps: int64[transfers], what each uses, and when.
        """
        used = np.zeros((self.pipe.shape[1], int(steps.max()) + 1))
        images = self.pipe[:, pipe]
        chosen: list[int] = []
        free = np.ones(len(images), dtype=np.bool_)
        for _ in range(count):
            best = int(np.where(free, used[images, steps].sum(axis=1), np.inf).argmin())
            np.add.at(used, (images[best], steps), 1.0)
            free[best] = False
            chosen.append(best)
        return chosen

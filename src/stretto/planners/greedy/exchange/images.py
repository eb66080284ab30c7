"""Images of an exchange under the automorphisms of its network, so that parts of the buffer share the load of links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....model.arrays import Float64, Int32, Int64, Ragged
from ....model.topology import Topology


@dataclass(frozen=True)
class Images:
    """Where automorphisms take a network's nodes, links and pipes.

    Attributes:
        node, link, pipe: int64[automorphisms, nodes (links, pipes)], the image of each.
        orbit: int64[links], equal for links that are images of each other.
    """

    node: Int64
    link: Int64
    pipe: Int64
    orbit: Int64

    @classmethod
    def of(cls, topology: Topology, hops: Ragged, node: Int64) -> Images | None:
        """The images under those automorphisms of the nodes that take every pipe to a pipe.

        Args:
            hops: the links of each pipe.
            node: int64[automorphisms, nodes].
        Returns:
            None if there is but one such automorphism, or two pipes have the same first and last link.
        """
        count = topology.link_count
        by_ends = np.full((topology.node_count, topology.node_count), -1, dtype=np.int64)
        by_ends[topology.src, topology.dst] = np.arange(count)
        link = by_ends[node[:, topology.src], node[:, topology.dst]]
        first, last = hops.values[hops.offsets[:-1]], hops.values[hops.offsets[1:] - 1]
        key = first.astype(np.int64) * count + last
        order = np.argsort(key, kind="stable")
        if (np.diff(key[order]) == 0).any():
            return None
        image = link[:, first] * count + link[:, last]
        pipe = order[np.minimum(np.searchsorted(key[order], image), len(order) - 1)]
        kept = (key[pipe] == image).all(axis=1)  # of equally short paths through switches, a pipe is one
        node, link, pipe = node[kept], link[kept], pipe[kept]
        if len(node) < 2:
            return None
        orbit, before = link.min(axis=0), np.arange(count)
        while (orbit != before).any():
            orbit, before = orbit[link].min(axis=0), orbit
        return cls(node, link, pipe, orbit)

    def busy_s(self, topology: Topology, links: Int32, step: Int64, size: float) -> Float64:
        """float64[orbits, steps], seconds for which links are busy if the links of an orbit share what crosses them.

        Args:
            links, step: int[messages], the link that carries each message of ``size`` bytes, and when.
        """
        steps, count = int(step.max()) + 1, topology.link_count
        load = np.bincount(self.orbit[links] * steps + step, minlength=count * steps).reshape(count, steps) * size
        width = np.bincount(self.orbit, topology.bandwidth, count)
        busy: Float64 = load[width > 0] / width[width > 0][:, None]
        return busy

    def spread(self, pipe: Int64, step: Int64, count: int) -> list[int]:
        """Automorphisms, one after another, under which no pipe is used much more than others at any step.

        Args:
            pipe, step: int64[transfers], what each transfer uses, and when.
        """
        used = np.zeros((self.pipe.shape[1], int(step.max()) + 1))
        images = self.pipe[:, pipe]
        chosen: list[int] = []
        free = np.ones(len(images), dtype=np.bool_)
        for _ in range(count):
            least = int(np.where(free, used[images, step].sum(axis=1), np.inf).argmin())
            np.add.at(used, (images[least], step), 1.0)
            free[least] = False
            chosen.append(least)
        return chosen

"""Ways from one storing node to the next, through those that only pass bytes on."""

from heapq import heappop, heappush

import numpy as np

SPREAD = 0.01
"""How much dearer a link looks when it is part of the most pipes: equal ways take turns."""


def find_pipes(out_offsets, out_links, link_src, link_dst, weight, passed):
    """A pipe for each link between storing nodes, and one for each pair joined through passed nodes.

    Args:
        out_offsets, out_links: CSR, the links that leave each node.
        weight: float64[links], seconds that a typical chunk takes; the way through passed nodes with
            the least sum is taken.
        passed: bool[nodes], nodes that pipes pass through.
    Returns:
        pipe_src, pipe_dst: int64[pipes]; hop_offsets, hop_links: CSR, the links of each.
    """
    nodes = len(passed)
    src, dst, offsets, hops = [0], [0], [0], [0]
    src.clear()
    dst.clear()
    hops.clear()
    use = np.zeros(len(link_src))
    most = 1.0
    distance = np.full(nodes, np.inf)
    via = np.full(nodes, -1, dtype=np.int64)
    heap = [(0.0, 0)]
    for u in range(nodes):
        if passed[u]:
            continue
        beyond = False
        for e in range(out_offsets[u], out_offsets[u + 1]):
            link = out_links[e]
            if passed[link_dst[link]]:
                beyond = True
                continue
            src.append(u)
            dst.append(link_dst[link])
            hops.append(link)
            offsets.append(len(hops))
        if not beyond:
            continue
        distance[:] = np.inf
        distance[u] = 0.0
        heap.clear()
        heappush(heap, (0.0, u))
        while len(heap) > 0:
            far, v = heappop(heap)
            if far > distance[v] or (v != u and not passed[v]):
                continue
            for e in range(out_offsets[v], out_offsets[v + 1]):
                link = out_links[e]
                w = link_dst[link]
                if v == u and not passed[w]:
                    continue
                reach = far + weight[link] * (1.0 + SPREAD * use[link] / most)
                if reach < distance[w]:
                    distance[w] = reach
                    via[w] = link
                    heappush(heap, (reach, w))
        for w in range(nodes):
            if passed[w] or w == u or distance[w] == np.inf:
                continue
            begin = len(hops)
            v = w
            while v != u:
                hops.append(via[v])
                use[via[v]] += 1.0
                most = max(most, use[via[v]])
                v = link_src[via[v]]
            length = len(hops) - begin
            for i in range(length // 2):
                hops[begin + i], hops[begin + length - 1 - i] = hops[begin + length - 1 - i], hops[begin + i]
            src.append(u)
            dst.append(w)
            offsets.append(len(hops))
    return np.array(src), np.array(dst), np.array(offsets), np.array(hops)


def free_from(pipe, hop_offsets, hop_links, hop_late, free_at):
    """When all links of a pipe are free, each in its turn."""
    t = 0.0
    for i in range(hop_offsets[pipe], hop_offsets[pipe + 1]):
        t = max(t, free_at[hop_links[i]] - hop_late[i])
    return t

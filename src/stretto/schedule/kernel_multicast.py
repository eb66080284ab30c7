"""Multicast trees on an implicit time-expanded graph (MTEGCCA, section 2.2).

Nothing is expanded: a link's slots are the gaps of its calendar of reservations, a storage edge
is a wait. Time is continuous, or counted in slots when ``whole`` is set (then sizes, latencies
and starts are rounded up to whole slots, as the paper does).

A *pass* is one transmission of a chunk from a storing node: over one link, or as one fluid pipe
over links that meet in switches, branching where a switch replicates. A *hit* is a node that
a pass delivers to.
"""

from heapq import heappop, heappush

import numpy as np

from .kernel_calendars import INF, SLACK, gap, grown, pipe_start, reserve, seconds_on, shared_start, slots_early

SWITCH = 2
ROUTER = 1


def _key(cost, arrived, kept_until, nearness, price, start, d, arrival):
    """What it costs to reach a node at ``arrival``: time since the tree, and link time.

    What waits in the tree already, until ``kept_until``, waits for free.
    """
    free = nearness * (min(start, kept_until) - arrived) if start > arrived else 0.0
    return cost + arrival - arrived - free + price * d


def grow_trees(
    out_offsets, out_links, link_src, link_dst, per_byte, latency, kind, replicates,
    order, chunk_bytes, chunk_start, hold_offsets, hold_nodes, want_offsets, want_nodes,
    whole, nearness, thrift,
):  # fmt: skip
    """Grow one multicast tree a chunk, in ``order``, each on what the earlier ones left free.

    Args:
        out_offsets, out_links: CSR, the links that leave each node.
        per_byte: float64[links], seconds (or slots) a byte.
        latency: float64[links], seconds (or whole slots).
        kind, replicates: of each node.
        order: int64[tasks], chunks in the order of their turn.
        chunk_bytes, chunk_start: float64[chunks].
        hold_*, want_*: CSR, the nodes that hold and want each chunk.
        whole: count time in whole slots.
        nearness: 0 to attach the node that is reached first, 1 the one nearest to the tree.
        thrift: float64[links], how much a second of each link's time counts against one of waiting.
    Returns:
        (pass_chunk, pass_src, pass_parent, pass_start, pass_seconds): a row a pass; the parent
            is the pass that brought the chunk to its source, -1 if it held it.
        (hit_pass, hit_node), (hop_pass, hop_link): ragged receivers and routes, by pass.
        unreached: (chunk, node) that has no path, or (-1, -1).
        finish: when the last wanted chunk has arrived.
    """
    nodes, links = len(kind), len(link_src)
    head = np.full(links, -1, dtype=np.int64)
    tail = np.full(links, -1, dtype=np.int64)
    room = 4 * links + 64
    seg_start, seg_end = np.empty(room), np.empty(room)
    seg_next = np.empty(room, dtype=np.int64)
    segments = 0
    smallest = chunk_bytes.min()

    room = 2 * len(want_nodes) + 16
    out_chunk = np.empty(room, dtype=np.int32)
    out_src = np.empty(room, dtype=np.int32)
    out_parent = np.empty(room, dtype=np.int32)
    out_start, out_seconds = np.empty(room), np.empty(room)
    out_hit_pass = np.empty(room, dtype=np.int32)
    out_hit = np.empty(room, dtype=np.int32)
    out_hop_pass = np.empty(room, dtype=np.int32)
    out_hop = np.empty(room, dtype=np.int32)
    passes_out = hits_out = hops_out = 0

    # of the tree being grown, by node
    done = np.zeros(nodes, dtype=np.bool_)
    wanted = np.zeros(nodes, dtype=np.bool_)
    useful = np.zeros(nodes, dtype=np.bool_)
    first_byte, last_byte = np.zeros(nodes), np.zeros(nodes)
    cost = np.zeros(nodes)
    in_tree = np.zeros(nodes, dtype=np.bool_)
    kept_until = np.zeros(nodes)
    best = np.full(nodes, INF)
    pass_of = np.full(nodes, -1, dtype=np.int64)
    # by link
    link_pass = np.full(links, -1, dtype=np.int64)
    own_head = np.full(links, -1, dtype=np.int64)
    # by pass of this tree; its hits, candidates and paths
    pass_src = np.zeros(nodes + 1, dtype=np.int64)
    pass_start, pass_seconds = np.zeros(nodes + 1), np.zeros(nodes + 1)
    pass_parent = np.zeros(nodes + 1, dtype=np.int64)
    pass_kept = np.zeros(nodes + 1, dtype=np.int64)
    hit_pass = np.zeros(nodes + 1, dtype=np.int64)
    hit_node = np.zeros(nodes + 1, dtype=np.int64)
    hit_path = np.zeros(nodes + 1, dtype=np.int64)
    hit_length = np.zeros(nodes + 1, dtype=np.int64)
    # by switch, of one exploration
    via_time = np.full(nodes, INF)
    via_link = np.full(nodes, -1, dtype=np.int64)
    via_done = np.zeros(nodes, dtype=np.bool_)

    path = [0]
    offset = [0.0]
    own_start, own_end, own_next = [0.0], [0.0], [0]
    own_link = [0]
    cand_from, cand_to, cand_path, cand_length = [0], [0], [0], [0]
    cand_start = [0.0]
    touched = [0]
    heap = [(0.0, 0, 0)]
    front = [(0.0, 0)]
    unreached = (-1, -1)
    finish = 0.0

    for task in range(len(order)):
        c = order[task]
        size = chunk_bytes[c]
        done[:] = False
        in_tree[:] = False
        wanted[:] = False
        best[:] = INF
        for i in range(len(own_link)):
            link_pass[own_link[i]] = -1
            own_head[own_link[i]] = -1
        path.clear()
        offset.clear()
        own_start.clear()
        own_end.clear()
        own_next.clear()
        own_link.clear()
        cand_from.clear()
        cand_to.clear()
        cand_path.clear()
        cand_length.clear()
        cand_start.clear()
        heap.clear()
        passes = hits = 0
        left = 0
        for i in range(want_offsets[c], want_offsets[c + 1]):
            wanted[want_nodes[i]] = True
            left += 1
        # a holder is a candidate of its own, from nowhere
        for i in range(hold_offsets[c], hold_offsets[c + 1]):
            cand_from.append(-1)
            cand_to.append(hold_nodes[i])
            cand_path.append(0)
            cand_length.append(0)
            cand_start.append(chunk_start[c])
            heappush(heap, ((1.0 - nearness) * chunk_start[c], hold_nodes[i], len(cand_to) - 1))

        while left > 0 and len(heap) > 0:
            key, w, cand = heappop(heap)
            if done[w]:
                continue
            u = cand_from[cand]
            if u < 0:
                first_byte[w] = last_byte[w] = cand_start[cand]
                pass_of[w] = -1
                cost[w] = (1.0 - nearness) * cand_start[cand]
            else:
                begin, length = cand_path[cand], cand_length[cand]
                d, price = 0.0, 0.0
                for i in range(begin, begin + length):
                    d = max(d, seconds_on(size, per_byte[path[i]], whole))
                    price = max(price, thrift[path[i]])
                ready = last_byte[u]
                if kind[u] == ROUTER:
                    ready = max(first_byte[u], last_byte[u] - d)
                start, joined = INF, -1
                if length > 1:
                    start, joined = shared_start(
                        ready, d, whole, u, path, offset, begin, length,
                        link_pass, pass_src, pass_start, pass_seconds, link_src, replicates,
                        head, tail, seg_start, seg_end, seg_next, own_head, own_next, own_start, own_end,
                    )  # fmt: skip
                fresh = pipe_start(
                    ready, d, whole, path, offset, begin, length,
                    head, tail, seg_start, seg_end, seg_next, own_head, own_next, own_start, own_end,
                )  # fmt: skip
                if fresh < start:
                    start, joined = fresh, -1
                if joined >= 0:
                    d = pass_seconds[joined]
                late = offset[begin + length - 1] + latency[path[begin + length - 1]]
                arrival = start + late + d
                now = _key(cost[u], last_byte[u], kept_until[u], nearness, price, start, d, arrival)
                if now > key * SLACK:
                    heappush(heap, (now, w, cand))
                    continue
                if joined < 0:
                    joined = passes
                    pass_src[joined], pass_start[joined], pass_seconds[joined] = u, start, d
                    pass_parent[joined] = pass_of[u]
                    passes += 1
                for i in range(begin, begin + length):
                    link = path[i]
                    if link_pass[link] != joined:
                        link_pass[link] = joined
                        own_link.append(link)
                        own_start.append(start + offset[i] - slots_early(i - begin, whole))
                        own_end.append(start + offset[i] + d)
                        own_next.append(own_head[link])
                        own_head[link] = len(own_link) - 1
                hit_pass[hits], hit_node[hits], hit_path[hits], hit_length[hits] = joined, w, begin, length
                hits += 1
                pass_of[w] = joined
                first_byte[w], last_byte[w] = start + late, arrival
                cost[w] = now
            done[w] = True
            kept_until[w] = last_byte[w]
            if wanted[w]:
                left -= 1
                finish = max(finish, last_byte[w])
                if left == 0:
                    break
            touched.clear()
            touched.append(w)
            if wanted[w]:
                # the path to a terminal is in the tree now, and paid for, waits included
                joined_tree = w
                while not in_tree[joined_tree]:
                    in_tree[joined_tree] = True
                    paid = (1.0 - nearness) * last_byte[joined_tree]
                    if cost[joined_tree] > paid and joined_tree != w:
                        touched.append(joined_tree)
                    cost[joined_tree] = paid
                    p = pass_of[joined_tree]
                    if p < 0:
                        break
                    joined_tree = pass_src[p]
                    if nearness > 0.0 and pass_start[p] > kept_until[joined_tree]:
                        kept_until[joined_tree] = pass_start[p]
                        if in_tree[joined_tree]:
                            touched.append(joined_tree)

            for index in range(len(touched)):
                u = touched[index]
                switches = False
                for e in range(out_offsets[u], out_offsets[u + 1]):
                    link = out_links[e]
                    w = link_dst[link]
                    if kind[w] == SWITCH:
                        switches = True
                        continue
                    if done[w]:
                        continue
                    d = seconds_on(size, per_byte[link], whole)
                    ready = last_byte[u]
                    if kind[u] == ROUTER:
                        ready = max(first_byte[u], last_byte[u] - d)
                    start = gap(ready, d, link, head, tail, seg_start, seg_end, seg_next)
                    arrival = start + latency[link] + d
                    now = _key(cost[u], last_byte[u], kept_until[u], nearness, thrift[link], start, d, arrival)
                    if now < best[w]:
                        best[w] = now
                        cand_from.append(u)
                        cand_to.append(w)
                        cand_path.append(len(path))
                        cand_length.append(1)
                        cand_start.append(start)
                        path.append(link)
                        offset.append(0.0)
                        heappush(heap, (now, w, len(cand_to) - 1))
                if not switches:
                    continue
                # nothing to gain beyond the switches if u is too late for every node left
                soonest = INF
                for e in range(out_offsets[u], out_offsets[u + 1]):
                    link = out_links[e]
                    if kind[link_dst[link]] == SWITCH:
                        d = seconds_on(size, per_byte[link], whole)
                        soonest = min(soonest, latency[link] + d + thrift[link] * d)
                latest = 0.0
                for v in range(nodes):
                    if wanted[v] and not done[v]:
                        latest = max(latest, best[v])
                if latest <= cost[u] + soonest:
                    continue

                # through switches: the earliest pipe from u to each node beyond
                front.clear()
                via_time[:] = INF
                via_done[:] = False
                via_time[u] = last_byte[u]
                heappush(front, (last_byte[u], u))
                while len(front) > 0:
                    _, s = heappop(front)
                    if via_done[s]:
                        continue
                    via_done[s] = True
                    for e in range(out_offsets[s], out_offsets[s + 1]):
                        link = out_links[e]
                        w = link_dst[link]
                        beyond = kind[w] == SWITCH
                        if via_done[w] or (not beyond and (done[w] or s == u)):
                            continue
                        # the path so far, in order, at the end of the pool
                        begin = len(path)
                        path.append(link)
                        v = s
                        while v != u:
                            path.append(via_link[v])
                            v = link_src[via_link[v]]
                        length = len(path) - begin
                        for i in range(length // 2):
                            path[begin + i], path[begin + length - 1 - i] = (
                                path[begin + length - 1 - i],
                                path[begin + i],
                            )
                        late, d, price = 0.0, 0.0, 0.0
                        for i in range(begin, begin + length):
                            price = max(price, thrift[path[i]])
                            offset.append(late)
                            late += latency[path[i]]
                            d = max(d, seconds_on(size, per_byte[path[i]], whole))
                        ready = last_byte[u]
                        if kind[u] == ROUTER:
                            ready = max(first_byte[u], last_byte[u] - d)
                        start = pipe_start(
                            ready, d, whole, path, offset, begin, length,
                            head, tail, seg_start, seg_end, seg_next, own_head, own_next, own_start, own_end,
                        )  # fmt: skip
                        if length > 1:
                            shared, joined = shared_start(
                                ready, d, whole, u, path, offset, begin, length,
                                link_pass, pass_src, pass_start, pass_seconds, link_src, replicates,
                                head, tail, seg_start, seg_end, seg_next, own_head, own_next, own_start, own_end,
                            )  # fmt: skip
                            if shared < start:
                                start, d = shared, pass_seconds[joined]
                        if beyond:
                            for _ in range(length):
                                path.pop()
                                offset.pop()
                            if start + late < via_time[w]:
                                via_time[w] = start + late
                                via_link[w] = link
                                heappush(front, (start + late, w))
                        else:
                            arrival = start + late + d
                            now = _key(cost[u], last_byte[u], kept_until[u], nearness, price, start, d, arrival)
                            best[w] = min(best[w], now)
                            cand_from.append(u)
                            cand_to.append(w)
                            cand_path.append(begin)
                            cand_length.append(length)
                            cand_start.append(start)
                            heappush(heap, (now, w, len(cand_to) - 1))

        if left > 0:
            for v in range(nodes):
                if wanted[v] and not done[v] and unreached[0] < 0:
                    unreached = (c, v)
            break

        # keep what leads to a terminal; enter it in the calendars and the answer
        useful[:] = wanted
        for h in range(hits - 1, -1, -1):
            if useful[hit_node[h]]:
                useful[pass_src[hit_pass[h]]] = True
        pass_kept[:passes] = -1
        for i in range(len(own_link)):
            link_pass[own_link[i]] = -1
        seg_start = grown(seg_start, segments + len(own_link))
        seg_end = grown(seg_end, segments + len(own_link))
        seg_next = grown(seg_next, segments + len(own_link))
        out_chunk = grown(out_chunk, passes_out + hits)
        out_src = grown(out_src, passes_out + hits)
        out_parent = grown(out_parent, passes_out + hits)
        out_start = grown(out_start, passes_out + hits)
        out_seconds = grown(out_seconds, passes_out + hits)
        out_hit_pass = grown(out_hit_pass, hits_out + hits)
        out_hit = grown(out_hit, hits_out + hits)
        out_hop_pass = grown(out_hop_pass, hops_out + len(own_link))
        out_hop = grown(out_hop, hops_out + len(own_link))
        for h in range(hits):
            if not useful[hit_node[h]]:
                continue
            p = hit_pass[h]
            if pass_kept[p] < 0:
                pass_kept[p] = passes_out
                out_chunk[passes_out], out_src[passes_out] = c, pass_src[p]
                out_parent[passes_out] = pass_kept[pass_parent[p]] if pass_parent[p] >= 0 else -1
                out_start[passes_out], out_seconds[passes_out] = pass_start[p], pass_seconds[p]
                passes_out += 1
            out_hit_pass[hits_out], out_hit[hits_out] = pass_kept[p], hit_node[h]
            hits_out += 1
            for i in range(hit_path[h], hit_path[h] + hit_length[h]):
                link = path[i]
                if link_pass[link] == p:
                    continue
                link_pass[link] = p
                out_hop_pass[hops_out], out_hop[hops_out] = pass_kept[p], link
                hops_out += 1
                start = pass_start[p] + offset[i]
                least = seconds_on(smallest, per_byte[link], whole) * (1 - 1e-9)
                segments = reserve(
                    start - slots_early(i - hit_path[h], whole), start + pass_seconds[p], link, least,
                    head, tail, seg_start, seg_end, seg_next, segments,
                )  # fmt: skip

    return (
        (out_chunk[:passes_out], out_src[:passes_out], out_parent[:passes_out]),
        (out_start[:passes_out], out_seconds[:passes_out]),
        (out_hit_pass[:hits_out], out_hit[:hits_out]),
        (out_hop_pass[:hops_out], out_hop[:hops_out]),
        unreached,
        finish,
    )

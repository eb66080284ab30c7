"""Routes are paths or trees over links that exist, which pass and branch only where nodes let them."""

from __future__ import annotations

import numpy as np

from ..kernels import at_speed
from ..model.plan import Plan
from . import kernel_referee
from .findings import CODES, Finding, about

STEPS_A_TRANSFER = 4.0
"""Steps of the kernel's inner loop for each transfer, about."""


def broken_route(plan: Plan) -> Finding | None:
    """The first transfer whose route does not lead from all of its sources to exactly its receivers."""
    t, n = plan.topology, plan.transfer_count
    paths = kernel_referee.Paths(plan.sources, plan.dst, plan.route)
    network = kernel_referee.Network(t.src, t.dst, t.kind)
    plane = np.full(n, -1, np.int32) if plan.plane is None else plan.plane
    code, k, a, b = at_speed(kernel_referee.routes, STEPS_A_TRANSFER * n)(
        paths, plane, network, t.transit, t.replicates, t.reduces
    )
    if code == 0:
        return None
    name = CODES[code]
    # a is a node, except for a link that does not begin where the bytes are
    link = a if name in ("route", "apart") else b
    node = None if name in ("route", "apart", "no-receiver") else int(a)
    at = "" if node is None else t.names[node]
    words = {
        "source": f"starts at {at}, a switch, which stores nothing",
        "no-receiver": "has no receiver",
        "route": f"takes link {t.link_name(int(link)) if link >= 0 else ''} without having come to its beginning",
        "route-loop": f"comes to {at} twice",
        "no-transit": f"passes through {at}, which no route may pass through",
        "no-replication": f"branches at {at}, which does not replicate",
        "receiver": f"ends at {at}, a switch, which stores nothing",
        "route-misses-receiver": f"has a route that does not lead to its receiver {at}",
        "receiver-twice": f"names the receiver {at} twice",
        "source-twice": f"names the source {at} twice",
        "no-reduction": f"sums at {at}, which does not reduce",
        "apart": "has a route that does not bring its sources together",
        "route-loose-end": f"has a route that ends at {at}, which is no receiver",
    }[name]
    return about(plan, name, int(k), words, node=node, link=int(link) if link >= 0 else None)

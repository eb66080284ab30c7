"""What ``stretto bound`` says beside the bounds: certificates, checked again, and which link to widen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..collective import Collective
    from ..topology import Topology


def certificates(net: Topology, collective: Collective) -> dict[str, Any]:
    """What bandwidth alone allows one collective, exactly, and how to allow more."""
    import numpy as np

    from ..bounds import (
        best_lengths,
        best_parts,
        best_upgrade,
        bottleneck,
        check_cut,
        check_lengths,
        check_parts,
        tree_rates,
    )

    data: dict[str, Any] = {"collective": collective.kind}
    if net.planes:
        return data
    cut = bottleneck(net, collective)
    if cut is not None:
        inside = {v for v in range(net.node_count) if cut.inside[v]}
        data["bottleneck"] = {
            "seconds": float(cut.seconds),
            "seconds_exact": str(cut.seconds),
            "bytes": cut.load_bytes,
            "width": float(cut.width),
            "inside": [net.names[v] for v in sorted(inside)],
            "checked": check_cut(net, collective, inside) == cut.seconds,
        }
    lengths = best_lengths(net, collective)
    if lengths is not None:
        data["flow"] = {
            "seconds": float(lengths.seconds),
            "seconds_exact": str(lengths.seconds),
            "lengths": {net.link_name(i): int(x) for i, x in enumerate(lengths.length) if x},
            "checked": check_lengths(net, collective, lengths.length.tolist()) == lengths.seconds,
        }
    parts = best_parts(net, collective)
    if parts is not None:
        sets = [set(np.flatnonzero(row).tolist()) for row in parts.inside]
        data["parts"] = {
            "seconds": float(parts.seconds),
            "seconds_exact": str(parts.seconds),
            "bytes": parts.load_bytes,
            "width": float(parts.width),
            "inside": [[net.names[v] for v in sorted(some)] for some in sets],
            "checked": check_parts(net, collective, sets) == parts.seconds,
        }
    if collective.kind == "allreduce":
        rates = tree_rates(net, collective.ranks)
        data["trees"] = {"seconds": collective.size_bytes / rates.rate, "rate": rates.rate}
    upgrade = best_upgrade(net, collective)
    if upgrade is not None:
        data["upgrade"] = {"link": net.link_name(upgrade.link), "gain": upgrade.gain, "seconds": float(upgrade.after_s)}
    return data

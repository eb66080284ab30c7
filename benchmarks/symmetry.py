"""What symmetry do networks have, whatever numbers their nodes have, and what do finding it and bounds by it cost?

Numbers nodes and links at random. Prints a row a network: accelerators, links, CPU seconds of finding the symmetry, the
orders of its generators, orbits of accelerators, then the bound of an AllReduce of 1 GB and its CPU seconds, and
those of an AllGather; writes the rows as JSON with `-o FILE`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.symmetry import find_symmetry
from stretto.topologies import load_topology

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from test_find_symmetry import shuffled

NETWORKS = (
    "h100:64",
    "h100:512",
    "h100:2048",
    "fattree:32",
    "torus:8x8",
    "torus:16x16x16",
    "hypercube:8",
    "amd:4",
    "dgx1",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("-o", help="file for the rows as JSON")
    options = parser.parse_args()
    rows = []
    for spec in options.networks:
        network = shuffled(load_topology(spec), 1)
        begin = time.process_time()
        symmetry = find_symmetry(network)
        row: dict[str, object] = {"network": spec, "gpus": len(network.accelerators), "links": network.link_count}
        row["find_s"] = time.process_time() - begin
        row["orders"] = symmetry.orders.tolist() if symmetry is not None else []
        row["orbits"] = len(np.unique(symmetry.node_orbits[network.accelerators])) if symmetry is not None else None
        for kind in ("allreduce", "allgather"):
            workload = Workload((make_collective(kind, network, 10**9),))
            begin = time.process_time()
            row[f"{kind}_bound_s"] = bounds(network, workload)[0].seconds
            row[f"{kind}_cpu_s"] = time.process_time() - begin
        rows.append(row)
        print(
            "| " + " | ".join(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()) + " |", flush=True
        )
    if options.o:
        Path(options.o).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

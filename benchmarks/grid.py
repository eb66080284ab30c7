"""How near the bound is a planner on many topologies and sizes? One row a cell, and means at the end.

python benchmarks/grid.py [PLANNER] [TOPOLOGY,...] [SIZE,...] [KIND,...]
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

from stretto.bounds import bounds
from stretto.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.units import parse_size
from stretto.verify import verify

TOPOLOGIES = "dgx1,dgx2:2,ndv2:2,ndv2:4,ndv2:10,amd:1,amd:2,ring:8,torus:4x4,torus:8x8,mesh:8x8,zoo:Abilene"
SIZES = "1KB,64KB,1MB,16MB,256MB,1GB"
KINDS = "allgather,reducescatter,allreduce"


def main() -> None:
    given = sys.argv[1:] + [""] * 4
    planner = given[0] or "auto"
    rows = []
    nets = [*(given[1] or TOPOLOGIES).split(","), *([] if given[1] else ["sites:2,8", "sites:3,4"])]
    for spec in nets:
        net = load_topology(spec)
        for kind in (given[3] or KINDS).split(","):
            for size in (given[2] or SIZES).split(","):
                work = Workload((make_collective(kind, net, shard_bytes=parse_size(size, "size")),))
                cpu = time.process_time()
                plan = run_planner(planner, net, work)
                cpu = time.process_time() - cpu
                assert verify(plan).ok
                ratio = simulate(plan).completion_s / bounds(net, work)[0].seconds
                chosen = plan.meta.get("chosen", planner)
                rows.append({"topology": spec, "kind": kind, "size": size, "ratio": ratio, "cpu_s": cpu, "by": chosen})
                print(f"{spec:12} {kind:14} {size:6} {ratio:7.3f} of the bound {cpu:7.2f} s  {chosen}", flush=True)
    for size in dict.fromkeys(r["size"] for r in rows):
        ratios = [r["ratio"] for r in rows if r["size"] == size]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{size:6} geometric mean {mean:.3f}, worst {max(ratios):.3f}")
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / f"grid-{planner}.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()

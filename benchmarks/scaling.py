"""Does the cost grow with the number of transfers? AllGather on tori up to 1,024 ranks, a million transfers.

python benchmarks/scaling.py [-p mtegcca] [--largest] [--plot FILE]

Prints a table and writes benchmarks/out/scaling.json and a plot, benchmarks/out/scaling.svg.
CPU seconds of planning, verifying and simulating in this process, kernels loaded before, and the
largest memory so far. The plot has both axes logarithmic: a straight line of slope 1 is linear.
--largest adds a torus of 16 x 16 x 16, 4,096 ranks and 16.8 million transfers: minutes, and gigabytes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import time
from pathlib import Path

os.environ["STRETTO_KERNELS"] = "compiled"

from stretto.bounds import bounds
from stretto.model.collective import Workload, make_collective
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify

TORI = ("4x4", "6x6", "8x8", "12x12", "16x16", "8x8x8", "24x24", "32x32")
LARGEST = "16x16x16"
SERIES = (("planning", "#1f6feb"), ("verifying", "#c2261c"), ("simulating", "#0b8a5f"))


def cell(torus: str, planner: str) -> dict:
    net = load_topology(f"torus:{torus}")
    work = Workload((make_collective("allgather", net, shard_bytes=10**6),))
    marks = [time.process_time()]
    plan = run_planner(planner, net, work)
    marks.append(time.process_time())
    assert verify(plan).ok
    marks.append(time.process_time())
    completion = simulate(plan).completion_s
    marks.append(time.process_time())
    return {
        "torus": torus,
        "ranks": net.node_count,
        "transfers": plan.transfer_count,
        "completion_over_bound": completion / bounds(net, work)[0].seconds,
        "planning_cpu_s": marks[1] - marks[0],
        "verifying_cpu_s": marks[2] - marks[1],
        "simulating_cpu_s": marks[3] - marks[2],
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def plot(rows: list[dict], against: str = "transfers", title: str = "transfers") -> str:
    """The three costs against a column of the rows, as SVG."""
    width, height, margin = 640, 420, 60
    xs = [math.log10(r[against]) for r in rows]
    low_x, high_x, low_y, high_y = math.floor(min(xs)), math.ceil(max(xs)), -4, 3

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            margin + (width - 2 * margin) * (x - low_x) / (high_x - low_x),
            height - margin - (height - 2 * margin) * (y - low_y) / (high_y - low_y),
        )

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for e in range(low_x, high_x + 1):
        x, bottom = place(e, low_y)
        lines.append(
            f'<path d="M{x} {bottom}V{margin}" stroke="#ddd"/><text x="{x - 10}" y="{bottom + 18}">1e{e}</text>'
        )
    for e in range(low_y, high_y + 1):
        left, y = place(low_x, e)
        lines.append(
            f'<path d="M{left} {y}H{width - margin}" stroke="#ddd"/><text x="{left - 40}" y="{y + 4}">1e{e} s</text>'
        )
    start, end = place(low_x + 1, low_y + 0.5), place(high_x, low_y + 0.5 + high_x - low_x - 1)
    lines.append(f'<path d="M{start[0]} {start[1]}L{end[0]} {end[1]}" stroke="#999" stroke-dasharray="4 4"/>')
    for i, (name, colour) in enumerate(SERIES):
        points = [place(x, math.log10(max(r[f"{name}_cpu_s"], 1e-4))) for x, r in zip(xs, rows, strict=True)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<text x="{margin + 14}" y="{margin + 16 + 16 * i}" fill="{colour}">{name}</text>')
    lines.append(f'<text x="{width / 2 - 60}" y="{height - 12}">{title} (dashed: linear)</text></svg>')
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-p", "--planner", default="mtegcca")
    parser.add_argument("--largest", action="store_true")
    parser.add_argument("--plot", type=Path, help="where to write the plot, beside out/scaling.svg")
    given = parser.parse_args()
    cell("4x4", given.planner)
    rows = []
    print("| torus | transfers | completion / bound | planning, CPU s | verifying | simulating | memory, MB |")
    print("|---|---|---|---|---|---|---|")
    for torus in (*TORI, *((LARGEST,) if given.largest else ())):
        r = cell(torus, given.planner)
        rows.append(r)
        print(
            f"| {r['torus']} | {r['transfers']:,} | {r['completion_over_bound']:.3f} | {r['planning_cpu_s']:.3f} "
            f"| {r['verifying_cpu_s']:.3f} | {r['simulating_cpu_s']:.3f} | {r['memory_bytes'] / 1e6:.0f} |",
            flush=True,
        )
    first, last = next(r for r in rows if r["torus"] == "16x16"), rows[-1]
    grown = math.log(last["transfers"] / first["transfers"])
    for name, _ in SERIES:
        slope = math.log(last[f"{name}_cpu_s"] / first[f"{name}_cpu_s"]) / grown
        print(f"{name}: from {first['ranks']} to {last['ranks']} ranks it grows as transfers^{slope:.2f}")
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "scaling.json").write_text(json.dumps(rows, indent=1) + "\n")
    for path in (out / "scaling.svg", *((given.plot,) if given.plot else ())):
        path.write_text(plot(rows))
        print(f"plot: {path}")


if __name__ == "__main__":
    main()

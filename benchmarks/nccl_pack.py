"""Do NCCL's own code and its example tuner plugin read an NCCL pack as it is meant?

NCCL_SOURCE=.../nccl python benchmarks/nccl_pack.py [-t h100:2,dgx1] [--build FOLDER]

NCCL_SOURCE names a checkout of https://github.com/NVIDIA/nccl; without it the benchmark clones it, or says that it
cannot and ends. NCCL's src/graph is compiled for a CPU with the stubs of benchmarks/nccl_graph, its example tuner
plugin with a C compiler (benchmarks/nccl_graph/readers.py). For each cluster:

- graphs: rings, trees and multicast heads that the pack means, and whether NCCL reports them as they are meant, once it
  has read topology.xml and graph.xml; the rings that it then connects between servers, each checked to pass all ranks;
- own: what NCCL's own search gives on the same topology file, and what we expect of it;
- choices: the algorithm and protocol that NCCL's tuning chooses with these graphs, at four sizes an octave up to
  16 GiB, for five collectives, compared with the table's; and the same without the graph file, compared with what we
  expect of NCCL there;
- plugin: each row's first and last size, and one between, asked of the plugin (v5 and v6 of its interface) for each
  communicator that the table knows, with and without multicast.

Writes benchmarks/out/nccl_pack.json. Ends with 1 if anything is not as meant.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nccl_graph.readers import KINDS, Missing, Tuner, build_graph_reader, build_tuner, checkout, read_graphs
from stretto.nccl.graphs import Graph, Graphs
from stretto.nccl.pack import GRAPH, TOPOLOGY, TUNER, Pack, make_pack, write_pack
from stretto.nccl.tuner import choices, cluster_of
from stretto.schedule.nccl_cost_model import expected_s
from stretto.schedule.nccl_releases import release_2_30
from stretto.topologies import load_topology

CLUSTERS = (
    "dgx1", "dgx2:1", "dgx2:2", "dgx2:4", "ndv2:2", "ndv2:4", "a100:1", "a100:2", "a100:4", "a100:2?nics=nodes",
    "h100:1", "h100:2", "h100:3", "h100:4", "h100:2?nics=nodes", "h100:4?pod=2&oversubscription=4",
    "h100:4?rails=100Gbit/s", "h200:4", "b200:1", "b200:2", "b200:4",
)  # fmt: skip
SIZES = sorted({max(1, round(2 ** (k / 4))) for k in range(4 * 34 + 1)})


def graphs_agree(graphs: Graphs, read: dict[str, Any]) -> dict[str, bool]:
    """For each graph whether NCCL reports what is meant."""
    return {name: _same(graph, read[name]) for name, graph in named(graphs).items()}


def named(graphs: Graphs) -> dict[str, Graph]:
    given = {"ring": graphs.ring, "tree": graphs.tree, "nvls": graphs.nvls}
    return {name: graph for name, graph in given.items() if graph is not None}


def _same(graph: Graph, read: dict[str, Any]) -> bool:
    meant = [{"gpus": list(c.gpus), "nets": list(c.nets)} for c in graph.channels]
    facts = ("pattern", graph.pattern), ("crossnic", graph.crossnic), ("typeintra", graph.type_intra)
    near = all(
        abs(read[key] - speed) < 1e-4 * speed
        for key, speed in (("speedintra", graph.intra), ("speedinter", graph.inter))
    )
    return read["channels"] == meant and near and all(read[key] == value for key, value in facts)


def choices_agree(pack: Pack, graphs: Graphs, read: dict[str, Any]) -> tuple[int, int, float]:
    """How many of NCCL's choices are those of our model with these graphs, how many were compared, and the largest
    difference of their times, as a share."""
    sm = pack.generation.sm
    cluster = cluster_of(graphs, pack.generation, len(pack.machines), pack.ranks)
    same = compared = 0
    worst = 0.0
    for kind in KINDS:
        ranges = choices(cluster, sm, kind)
        for size, algorithm, protocol, microseconds in read["choices"][kind]:
            own = next(r for r in ranges if r.least <= size <= r.most)
            same += (own.algorithm, own.protocol) == (algorithm, protocol)
            compared += 1
            best_s = min(expected_s(cluster, size, kind, release_2_30(sm)).values())
            worst = max(worst, abs(best_s * 1e6 / microseconds - 1))
    return same, compared, worst


def ask_plugin(pack: Pack, library: Path, table: Path) -> tuple[int, int]:
    """How many answers of the plugin are the row's, and how many were asked."""
    right = asked = 0
    for symbol in ("ncclTunerPlugin_v5", "ncclTunerPlugin_v6"):
        for servers, ranks in dict.fromkeys((row.servers, row.ranks) for row in pack.rows):
            tuner = Tuner(library, table, *((7, 33) if servers < 0 else (servers, ranks)), symbol=symbol)
            for without in ((), ("nvls", "nvls_tree")):
                rows = [row.range for row in pack.rows if (row.servers, row.ranks) == (servers, ranks)]
                rows = [r for r in rows if r.algorithm not in without]
                for r in rows:
                    for size in {r.least, min(r.most, 2 * r.least + 1), r.most}:
                        first = next(q for q in rows if q.kind == r.kind and q.least <= size <= q.most)
                        right += tuner.ask(r.kind, size, without) == (first.algorithm, first.protocol, 0)
                        asked += 1
    return right, asked


def study(spec: str, program: Path, library: Path) -> dict[str, Any]:
    """What readers say of one cluster's pack."""
    began = time.process_time()
    pack = make_pack(load_topology(spec))
    spent = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "pack"
        write_pack(pack, str(place))
        servers = len(pack.machines)
        read = read_graphs(program, place / TOPOLOGY, place / GRAPH, servers, SIZES)
        own = read_graphs(program, place / TOPOLOGY, None, servers, SIZES)
        plugin = ask_plugin(pack, library, place / TUNER)
    meant, expected = named(pack.found.graphs), named(pack.found.by_nics)
    whole = [sorted(ring) == list(range(pack.ranks)) for ring in read["rings"]]
    return {
        "cluster": spec,
        "release": read["release"],
        "cpu_s": spent,
        "accepted": graphs_agree(pack.found.graphs, read),
        "meant": {name: (len(g.channels), g.intra, g.inter) for name, g in meant.items()},
        "own": {
            name: (len(own[name]["channels"]), own[name]["speedintra"], own[name]["speedinter"]) for name in expected
        },
        "expected": {name: (len(g.channels), g.intra, g.inter) for name, g in expected.items()},
        "rings_whole": all(whole) and len(whole) == len(meant["ring"].channels),
        "choices": choices_agree(pack, pack.found.graphs, read),
        "own_choices": choices_agree(pack, pack.found.by_nics, own),
        "plugin": plugin,
    }  # fmt: skip


def shown(graph: tuple[int, float, float]) -> str:
    channels, intra, inter = graph
    return f"{channels} x {intra:.4g}" + (f"/{inter:.4g}" if abs(intra - inter) > 1e-9 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-t", "--topologies", default=",".join(CLUSTERS))
    parser.add_argument("--build", default="benchmarks/out/nccl", help="folder for what is built and downloaded")
    given = parser.parse_args()
    folder = Path(given.build).absolute()
    try:
        source = checkout(folder)
        program, library = build_graph_reader(source, folder), build_tuner(source, folder)
    except Missing as missing:
        print(f"skipped: {missing}")
        return
    rows = []
    columns = ("cluster", "rings meant, GB/s", "accepted", "NCCL's own rings", "expected of it", "choices as NCCL's",
               "of NCCL alone", "plugin")  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for spec in given.topologies.split(","):
        row = study(spec, program, library)
        rows.append(row)
        accepted = "all" if all(row["accepted"].values()) and row["rings_whole"] else str(row["accepted"])
        cells = [spec, shown(row["meant"]["ring"]), accepted, shown(row["own"]["ring"]), shown(row["expected"]["ring"])]
        cells += ["{} of {}".format(*row[key][:2]) for key in ("choices", "own_choices", "plugin")]
        print("| " + " | ".join(cells) + " |", flush=True)
    worst = max(row["choices"][2] for row in rows)
    spent = max(row["cpu_s"] for row in rows)
    print(f"NCCL {rows[0]['release']}; times of its choices differ by {worst:.1e} at most, as a share")
    print(f"a pack took {spent:.2f} s of CPU at most, without the search for the order")
    out = Path("benchmarks/out")
    out.mkdir(parents=True, exist_ok=True)
    (out / "nccl_pack.json").write_text(json.dumps(rows, indent=1) + "\n")
    exact = all(row[key][0] == row[key][1] for row in rows for key in ("choices", "plugin"))
    sys.exit(0 if exact and all(all(row["accepted"].values()) and row["rings_whole"] for row in rows) else 1)


if __name__ == "__main__":
    main()

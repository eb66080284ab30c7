"""Reads damaged files within hard limits; run by test_fuzz.py as ``fuzz_worker.py FOLDER SECONDS SUBJECT...``.

What it is about to read it says first, and ends where a reader lets anything but an error of stretto
out, takes more than SECONDS of CPU or more than 1 GB: then the last line names the case, and the file is
left in the folder.
"""

from __future__ import annotations

import json
import random
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from examples import examples
from execution_plans import PLANS
from networks import ring
from stretto.formats import Size, exporters, importers
from stretto.formats.native import read_plan, write_plan
from stretto.model.collective import Workload, make_collective
from stretto.model.errors import StrettoError
from stretto.planners import run_planner
from stretto.simulate import simulate
from stretto.topologies import load_topology
from stretto.verify import verify
from symmetric_networks import rails
from symmetric_plans import random_plan
from test_foreign_topologies import FILES
from test_imports import TECCL, XML
from test_nccl_graph import xml as graph_of
from test_topology_fuzz import RICH

BYTES = 10**9
HUGE = [b"9" * 18, b"1e308", b"-1", b"4294967296", b"1e999", b"nan", b"1000000"]
ODD = [
    b"9" * 30,
    b"[" * 2000,
    b"<a>" * 2000,
    b"\x00",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"&a;",
    "é".encode(),
    b"*a",
]
LAUGHS = b'<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY %c "%s">' % (c, b"&%c;" % (c - 1) * 10) for c in range(ord("b"), ord("l"))
) + b"]>"  # fmt: skip
QUADRATIC = b'<!DOCTYPE l [<!ENTITY a "' + b"a" * 100_000 + b'">]>'
EXTERNAL = b'<!DOCTYPE l [<!ENTITY a SYSTEM "file:///dev/zero">]>'
BOMBS = {
    "xml": [
        LAUGHS + b"<system>&k;</system>", LAUGHS + b'<algo name="&k;"/>', LAUGHS + b"<graphml>&k;</graphml>",
        QUADRATIC + b"<network>" + b"&a;" * 100_000 + b"</network>", EXTERNAL + b"<graphml>&a;</graphml>",
        b"<graphml>" + b"<graph>" * 100_000, b"<algo " + b" ".join(b'a%d=""' % i for i in range(50_000)) + b"/>",
    ],
    "yml": [
        b"a: &a [x,x]\n" + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 10)) for c in range(98, 110)),
        b"[" * 100_000, b"{a: " * 100_000, b"topology: [Ring]\nnpus_count: [0x7fffffffffffffff]\nbandwidth: [1]\nlatency: [1]\n",
        b"topology: [FullyConnected, FullyConnected]\nnpus_count: [99999, 99999]\nbandwidth: [1, 1]\nlatency: [1, 1]\n",
    ],
    "json": [b"[" * 1_000_000, b'{"a":' * 200_000, b'{"nodes": ' + b"9" * 100_000 + b"}"],
    "gml": [b"graph [" * 100_000, b'graph [ node [ id 1 label "' + b"&amp;" * 200_000],
    "csv": [
        b"1000000\n", b"999999999\n0,1,1,1\n", b"x" + b"".join(b",n%d" % i for i in range(20_000)) + b"\nn1,1\nn2,2\n",
        b"src,dst,Gbps,ms\n" + b"".join(b"%d,%d,1,\n" % (i, i + 1) for i in range(5_000)), b"src,dst," * 5_000,
        b"src,dst,Gbps\n" + b'a,b,"' + b"1" * 100_000, b"src,dst,Gbps\na,b," + b"9" * 5_000,
    ],
    "conf": [
        b"SwitchName=a Nodes=b[0-99999]c[0-99999]\n", b"SwitchName=a Nodes=" + b"[" * 100_000, b"SwitchName=a \\\n" * 50_000,
        b"".join(b"SwitchName=s%d Switches=s%d\n" % (i, i + 1) for i in range(20_000)) + b"SwitchName=s20000 Nodes=a,b\n",
        b"SwitchName=a Nodes=" + b"b[0-9999]," * 5_000, b"BlockName=a Nodes=x[0-99998]\nBlockName=b Nodes=y[0-99998]\n",
    ],
    "yaml": [b"- topology: a\n  tree:\n" + b"  - " * 100_000, b"- topology: &a [*a]\n", b"- topology: a\n  block: {blocks: [" + b"{block: b}," * 3_000],
    "txt": [
        b'Ca 1 "H-1" # "a mlx5_0"\n' + b'[1](1) "H-2"[1](2) # lid 1 lmc 0 "b" lid 2 4xEDR\n' * 50_000,
        b'Ca 1 "H-1" # "' + b"x" * 500_000, b"[" * 200_000 + b"]==( 4X 1 Gbps Active/ LinkUp)==> 1 1[ ] \"a\"",
        b'1 1[ ] ==(' + b"( " * 100_000 + b"4X 2.5 Gbps Active/ LinkUp)==> 2 1[ ] \"a mlx5_0\" ( )",
        b"\tGPU0" + b"".join(b"\tGPU%d" % i for i in range(1, 20_000)), b"?SNDlib native format\nNODES (" + b"(" * 100_000],
    "et": [b"\xff" * 9 + b"\x01", b"\x80" * 1_000_000, b"\x00" * 1_000_000],
}  # fmt: skip


def subjects(folder: Path) -> dict[str, tuple[bytes, Callable[[str], object]]]:
    """For each kind of file a sound one, and who reads it."""
    net = load_topology("ring:3")
    plan = run_planner("ring", net, Workload((make_collective("allreduce", net, 72_000, chunks=2),)))
    found: dict[str, tuple[bytes, Callable[[str], object]]] = {
        f"topology {name}": (text.encode(), load_topology)
        for name, text in (FILES | RICH | {"own.json": json.dumps(ring(4).to_json())}).items()
    }
    by_symmetry = random_plan(rails(2, 2), "allreduce", 8_001, 1)
    for name in ("plan.parquet", "plan.json", "symmetric.parquet", "symmetric.json"):
        write_plan(by_symmetry if "symmetric" in name else plan, str(folder / name))
        found[f"plan {name}"] = ((folder / name).read_bytes(), lambda path: verify(read_plan(path)))
    exporters()["chakra"].write(simulate(plan), str(folder / "trace"))

    def imported(source: str, net: str, size: int | None) -> Callable[[str], object]:
        topology = load_topology(net)
        return lambda path: verify(importers()[source].read(path.removesuffix(".0.et"), topology, Size(size, None)))

    found["import trace.0.et"] = ((folder / "trace.0.et").read_bytes(), imported("chakra", "ring:3", 72_000))
    found["import schedule.json"] = (json.dumps(TECCL).encode(), imported("teccl", "line:3", 3_000_000))
    execution = PLANS["put"]
    found["import execution.json"] = (json.dumps(execution).encode(), imported("mscclpp", "fullmesh:2", 4096))
    packets = json.dumps(PLANS["recspkt"]).encode()
    found["import packets.json"] = (packets, imported("mscclpp", "fullmesh:2", 4096))
    graph = graph_of([0, 1, 2], [2, 1, 0]).encode()
    rings = load_topology("fullmesh:3")
    found["import graph.xml"] = (
        graph, lambda path: verify(importers()["nccl-graph"].read(path, rings, Size(72_000, None), "allgather")),
    )  # fmt: skip
    found["import program.xml"] = (XML.encode(), imported("msccl", "ring:2", 2_000_000))
    return found


def damaged(whole: bytes, rng: random.Random) -> Iterator[bytes]:
    """Numbers made huge one by one, cuts, flipped bits, and parts doubled or replaced."""
    numbers = list(re.finditer(rb"(?<![\w.])-?\d+(?:\.\d+)?", whole))
    for found in rng.sample(numbers, min(len(numbers), 30)):
        for huge in rng.sample(HUGE, 3):
            yield whole[: found.start()] + huge + whole[found.end() :]
    for _ in range(examples(10)):
        yield whole[: rng.randrange(len(whole))]
    for _ in range(examples(40)):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at, what = rng.randrange(len(data)), rng.random()
            if what < 0.5:
                data[at] ^= 1 << rng.randrange(8)
            elif what < 0.75:
                data[at:at] = data[at : at + rng.randrange(200)]
            else:
                data[at : at + rng.randrange(20)] = rng.choice(ODD)
            data = data or bytearray(b"x")
        yield bytes(data)


def loop(path: str) -> None:
    while True:
        pass


def hog(path: str) -> None:
    bytearray(2 * BYTES)


def throw(path: str) -> None:
    raise KeyError(path)


FAULTY = {"loop": (b"x", loop), "hog": (b"x", hog), "throw": (b"x", throw)}
"""Readers that do what none may, to see that it is seen."""


def data_bytes() -> int:
    """What this process has of memory that RLIMIT_DATA counts, used or not."""
    return 1024 * int(re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def main() -> None:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    known = FAULTY if set(sys.argv[3:]) <= set(FAULTY) else subjects(folder)
    for name in sys.argv[3:]:  # loads what is imported late
        if known is not FAULTY:
            whole, read = known[name]
            path = folder / (name.rpartition(" ")[2])
            path.write_bytes(whole)
            read(str(path))
    most = data_bytes() + BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    bombed: set[tuple[str, str]] = set()
    for name in sys.argv[3:]:
        whole, read = known[name]
        path = folder / (name.rpartition(" ")[2])
        kind = (name.partition(" ")[0], path.name.rpartition(".")[2])
        # one reader reads all files of a kind, so bombs are for the first of them
        bombs = [] if kind in bombed else BOMBS.get(kind[1], [])
        bombed.add(kind)
        cases = chain(bombs, damaged(whole, random.Random(name)))
        for number, content in enumerate(cases):
            print(f"{name}, case {number}", flush=True)
            path.write_bytes(content)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            try:
                read(str(path))
            except StrettoError as error:
                assert str(error) and "\n" not in str(error), f"no line of its own: {error}"
            signal.setitimer(signal.ITIMER_PROF, 0)
        path.write_bytes(whole)
    print("done")


if __name__ == "__main__":
    main()

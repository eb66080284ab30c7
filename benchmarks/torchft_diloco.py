"""Does Streaming DiLoCo reach the same loss when its outer step is compressed between sites, and what does it send?

Trains a small network by torchft's Streaming DiLoCo: replicas at two sites, each with numbers of its own, whose outer
step averages pseudogradients by ``stretto.torchft``, in full precision, in int8 and in fp8, with error feedback and
without. Prints the loss on numbers that no replica has seen, and the bytes that the sockets between the sites have
taken in the outer steps. Writes benchmarks/out/torchft_diloco.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo as TorchftDiLoCo
from torchft.manager import Manager

import stretto.runtime.connect
from stretto.torchft import DiLoCo, ProcessGroupStretto

OUT = Path(__file__).parent / "out"
WIDTH, OUTPUTS, BATCH = 128, 16, 32
RUNS = {
    "full precision": (None, True), "int8": ("int8", True), "fp8": ("fp8", True),
    "int8 without feedback": ("int8", False), "fp8 without feedback": ("fp8", False),
}  # fmt: skip
"""What a run compresses to, and whether with error feedback."""


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU()), nn.Sequential(nn.Linear(2 * WIDTH, OUTPUTS))
    )


def batch(teacher: nn.Module, count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random inputs, and what the teacher says to them, with noise."""
    x = torch.randn(count, WIDTH, generator=generator)
    with torch.no_grad():
        return x, teacher(x) + 0.05 * torch.randn(count, OUTPUTS, generator=generator)


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (model(x) - y).square().mean()


def crossed(group: ProcessGroupStretto, others: range) -> int:
    """Bytes that the kernel has received over TCP from replicas of the other site (``tcpi_bytes_received``)."""
    sockets = [getattr(c.sock, "raw", c.sock) for c in group.parent._links.mesh().connections if c.peer in others]
    infos = [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136) for s in sockets]
    return sum(int.from_bytes(info[128:136], sys.byteorder) for info in infos)


def replica(
    r: int, replicas: int, lighthouse: str, run: str, outer_steps: int, every: int, seed: int,
    model: nn.Sequential, teacher: nn.Module,
) -> Any:  # fmt: skip
    """One replica; returns its loss, and what it sent to the other site after the first synchronization."""
    compress, feeds = RUNS[run]
    half = replicas // 2
    with ExitStack() as stack:
        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        group = ProcessGroupStretto(timedelta(seconds=60), compress=compress, site="east" if r < half else "west")
        stack.callback(group.shutdown)
        manager = Manager(
            pg=group, min_replica_size=replicas, use_async_quorum=False, replica_id=f"replica_{r}", rank=0,
            world_size=1, load_state_dict=model.load_state_dict, state_dict=model.state_dict, store_addr="localhost",
            store_port=store.port, lighthouse_addr=lighthouse, timeout=timedelta(seconds=60),
        )  # fmt: skip
        stack.callback(manager.shutdown, wait=False)
        inner = torch.optim.AdamW(model.parameters(), lr=2e-3)
        fragments = list(model)
        outer = [torch.optim.SGD(f.parameters(), lr=0.7, momentum=0.9, nesterov=True) for f in fragments]
        numbers = torch.Generator().manual_seed(100 * seed + r)
        kind = DiLoCo if feeds else TorchftDiLoCo
        options = {"backup_device": torch.device("cpu"), "use_bucketization": True}
        with kind(manager, fragments, inner, outer, sync_every=every * len(fragments), **options):
            before = 0
            while manager.current_step() < outer_steps:
                inner.zero_grad()
                loss_of(model, *batch(teacher, BATCH, numbers)).backward()
                inner.step()
                if not before and manager.current_step() == 1:  # connected, and measured
                    before = crossed(group, range(half, replicas) if r < half else range(half))
            sent = crossed(group, range(half, replicas) if r < half else range(half)) - before
        with torch.no_grad():
            return float(loss_of(model, *batch(teacher, 4096, torch.Generator().manual_seed(seed + 7)))), sent


def train(run: str, replicas: int, outer_steps: int, every: int, seed: int) -> dict[str, Any]:
    """All replicas, as threads of this process."""
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=replicas)
    stretto.runtime.connect.machine = lambda: None  # replicas meet by TCP, as between machines
    began = time.process_time()
    model, teacher = network(seed), network(seed + 1)
    with ThreadPoolExecutor(replicas) as pool:
        ended = [
            pool.submit(
                replica, r, replicas, lighthouse.address(), run, outer_steps, every, seed, deepcopy(model), teacher
            )
            for r in range(replicas)
        ]
        losses, sent = zip(*(e.result() for e in ended))
    lighthouse.shutdown()
    return {
        "run": run, "seed": seed, "loss": sum(losses) / replicas, "bytes": sum(sent),
        "cpu_s": time.process_time() - began,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--outer-steps", type=int, default=40, help="synchronizations of a fragment")
    parser.add_argument("--every", type=int, default=10, help="inner steps from one to the next")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--out", type=Path, default=OUT / "torchft_diloco.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    rows = []
    # two sites have to send each other what each has summed, as float32
    sizes = [sum(p.numel() for p in fragment.parameters()) for fragment in network(0)]
    sums = sum(sizes[step % len(sizes)] for step in range(1, arguments.outer_steps))
    print(
        "| outer step | loss, by seed | bytes between the sites | float32's least / these |\n|---|---|---|---|",
        flush=True,
    )
    for run in arguments.runs:
        some = [train(run, arguments.replicas, arguments.outer_steps, arguments.every, s) for s in arguments.seeds]
        rows += some
        fewer = 2 * 4 * sums / some[0]["bytes"]
        losses = ", ".join(f"{row['loss']:.5f}" for row in some)
        print(f"| {run} | {losses} | {some[0]['bytes']:,} | {fewer:.2f} |", flush=True)
    print(f"\n{sum(row['cpu_s'] for row in rows):.0f} CPU s")
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

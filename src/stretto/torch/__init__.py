"""The ``torch.distributed`` backend ``stretto``: ``import stretto.torch`` and ``init_process_group("stretto")``.

Each group has one thread that runs its collectives in the order in which they were asked for, by plans made on the
first use of each kind and size class; messages between two ranks go beside it. ``STRETTO_TOPOLOGY`` names the
topology whose accelerators are the ranks (measured otherwise), ``STRETTO_TUNING`` the table of ``stretto tune``
that says which planner is best for which size, ``STRETTO_SECRET`` the secret (else the store
hands one out), ``STRETTO_HOST`` the address at which this process listens, ``STRETTO_TRACE`` a folder for a
record of every transfer.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from ..collective import split_evenly
from ..errors import PeerFailed, Unsupported
from ..library import from_environment, joined_by_sites

try:
    import torch
    import torch.distributed as dist
    from torch import Tensor
except ImportError as error:  # pragma: no cover
    raise Unsupported(f"the backend needs PyTorch: pip install 'stretto[torch]' ({error})") from None

from ..lower import Program
from ..runtime.execute import Trace, execute
from ..runtime.mesh import Mesh, join, listen
from ..runtime.messages import Messages
from ..runtime.near import listen_near, machine
from ..runtime.probe import probe
from .pending import Pending
from .tensors import OPS, array_of, reducer


class StrettoGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group; see the module."""

    def __init__(self, store: Any, rank: int, size: int, ranks: Sequence[int], timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._store, self._rank, self._count = store, rank, size
        self._timeout_s = timeout.total_seconds()
        world = dist.get_world_size() if dist.is_initialized() else size
        self._library = from_environment(ranks, rank, world)
        self._measures = not os.environ.get("STRETTO_TOPOLOGY")
        self._name = self._text = ""
        self._mesh: Mesh | None = None
        self._messages: dict[int, Messages] = {}
        self._failure: BaseException | None = None
        self._connecting = threading.Lock()
        folder = os.environ.get("STRETTO_TRACE")
        self._traces = open(os.path.join(folder, f"rank{rank}.jsonl"), "a") if folder else None  # noqa: SIM115
        self._jobs: SimpleQueue[tuple[Callable[[], None], torch.futures.Future, Any] | None] = SimpleQueue()
        self._worker = threading.Thread(target=self._work, name=f"stretto-{rank}", daemon=True)
        self._worker.start()

    def getBackendName(self) -> str:  # noqa: N802
        return "stretto"

    # without a backend object under it a group has to remember its own name (device meshes ask for it)
    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupDesc(self, text: str) -> None:  # noqa: N802
        self._text = text

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._text

    def shutdown(self) -> None:
        """Finish what was asked for and close."""
        self._jobs.put(None)
        if threading.current_thread() is not self._worker:
            self._worker.join(self._timeout_s)
        if self._traces is not None:
            self._traces.close()
        for messages in self._messages.values():
            messages.close()
        if self._mesh is not None:
            self._mesh.close()

    def abort(self) -> None:
        self.shutdown()

    # --- connections and order -------------------------------------------------------------------

    def _connect(self) -> None:
        """Meet the others by the store: one mesh for collectives, one for messages."""
        with self._connecting:
            if self._mesh is not None:
                return
            secret = self._secret()
            meshes = []
            for purpose in ("collectives", "messages"):
                meshes.append(self._meet(purpose, secret))
            if self._measures:
                self._measure({r: meshes[1].connections[v].sock for r, v in enumerate(self._library.nodes)
                               if r != self._rank})  # fmt: skip
            for r, node in enumerate(self._library.nodes):
                if r != self._rank:
                    self._messages[r] = Messages(meshes[1].connections[node].sock, f"rank {r}")
            self._mesh = meshes[0]

    def _meet(self, purpose: str, secret: bytes) -> Mesh:
        """Connections to all others, whose addresses are in the store; near ones by Unix sockets."""
        here, host = machine(), os.environ.get("STRETTO_HOST") or _own_address()
        listener, (near, name) = listen(host), listen_near() if here else (None, "")
        mine = {"machine": here, "near": name, "host": host, "port": listener.getsockname()[1]}
        self._store.set(f"stretto/{purpose}/{self._rank}", json.dumps(mine))
        addresses = {}
        for r, node in enumerate(self._library.nodes):
            its = json.loads(self._store.get(f"stretto/{purpose}/{r}"))
            together = here is not None and its["machine"] == here
            addresses[node] = (its["near"], 0) if together else (its["host"], int(its["port"]))
        names = {node: f"rank {r}" for r, node in enumerate(self._library.nodes)}
        own = self._library.nodes[self._rank]
        try:
            return join(own, listener, addresses, names, secret, timeout_s=self._timeout_s, near=near)
        finally:
            listener.close()
            if near is not None:
                near.close()

    def _measure(self, sockets: dict[int, socket.socket]) -> None:
        """Measure the network; by the store all ranks learn all numbers, and so plan alike."""
        try:
            mine = probe(self._rank, self._count, sockets, self._timeout_s)
        except OSError as error:
            raise PeerFailed("a rank", f"it went silent while the network was measured ({error})") from None
        self._store.set(f"stretto/measured/{self._rank}", json.dumps([[r, *m] for r, m in mine.items()]))
        pairs = {(low, int(high)): (latency_s, bandwidth) for low in range(self._count)
                 for high, latency_s, bandwidth in json.loads(self._store.get(f"stretto/measured/{low}"))}  # fmt: skip
        self._library.learn(joined_by_sites(self._count, pairs))

    def _secret(self) -> bytes:
        given = os.environ.get("STRETTO_SECRET")
        if given:
            return given.encode()
        if self._rank == 0:
            self._store.set("stretto/secret", os.urandom(32).hex())
        return bytes(self._store.get("stretto/secret"))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            run, future, result = job
            try:
                if self._failure is not None:
                    raise self._failure
                self._connect()
                run()
            except BaseException as error:
                self._failure = error if isinstance(error, PeerFailed) else self._failure
                future.set_exception(error)  # type: ignore[arg-type]
            else:
                future.set_result(result)

    def _later(self, run: Callable[[], None], result: Any) -> Any:
        """Put a job into the queue; the work that it is."""
        future: torch.futures.Future = torch.futures.Future()
        self._jobs.put((run, future, result))
        return Pending(future)

    # --- one collective ---------------------------------------------------------------------------

    def _run(
        self,
        kind: str,
        held: dict[int, Tensor],
        wanted: dict[int, Tensor],
        elements: Any,
        *,
        root: int = 0,
        op: Any = None,
        direct: bool = False,
    ) -> None:
        """Run one collective over pieces.

        Args:
            held, wanted: for each piece that this rank holds or wants its tensor.
            elements: of every piece.
        """
        some = next(iter((held or wanted).values()))
        counts = np.asarray(elements, dtype=np.int64)
        total = int(counts.max()) * some.element_size()
        recipe = self._library.recipe(kind, total if kind != "alltoall" else 1, root, direct)
        low, high = recipe.edges(counts)
        homes = {p: t if t.is_contiguous() else torch.empty_like(t, memory_format=torch.contiguous_format)
                 for p, t in wanted.items()}  # fmt: skip
        given = {p: array_of(t.contiguous()) for p, t in held.items()}
        made = {p: array_of(t) for p, t in homes.items()}
        program = recipe.program

        def parts(arrays: dict[int, Any], chunks: Any) -> dict[int, Any]:
            return {c: arrays[int(recipe.piece[c])][low[c] : high[c]] for c in chunks}

        assert self._mesh is not None
        began_s = time.monotonic()
        trace = execute(
            self._mesh,
            program,
            parts(given, program.held),
            parts(made, program.final),
            sizes=(high - low) * some.element_size(),
            dtype=next(iter({**given, **made}.values())).dtype,
            reduce=np.add if op is None else reducer(op, some.dtype),
            timeout_s=self._timeout_s,
        )
        if self._traces is not None:
            self._traces.write(self._record(kind, program, began_s, trace) + "\n")
        for p, t in wanted.items():
            if homes[p] is not t:
                t.copy_(homes[p])
            if op is not None and getattr(op, "op", op) == OPS.AVG:
                t.div_(self._count, rounding_mode=None if t.is_floating_point() else "trunc")

    def _record(self, kind: str, program: Program, began_s: float, trace: Trace) -> str:
        """A line of the trace: the collective, and when this rank sent and received what, by the monotonic clock."""
        rank = {node: r for r, node in enumerate(self._library.nodes)}
        sent = [[row, rank[to], began_s + at] for row, at in trace.sent_s.items() for to in program.sends[row].to]
        arrived = [
            [row, rank[receive.source], began_s + trace.arrived_s[row]] for row, receive in program.receives.items()
        ]
        span = {"began_s": began_s, "ended_s": time.monotonic()}
        return json.dumps({"kind": kind, "rank": self._rank, **span, "sent": sent, "arrived": arrived})

    def _refuse_devices(self, *tensors: Tensor) -> None:
        for t in tensors:
            if t.device.type != "cpu" or t.is_sparse:
                what = "sparse tensors" if t.is_sparse else f"tensors on {t.device}"
                raise Unsupported(f"the backend 'stretto' does not move {what}; it moves dense tensors on the CPU")

    def _collective(self, tensors: Sequence[Tensor], result: Any, *jobs: Callable[[], None]) -> Any:
        self._refuse_devices(*tensors)

        def run() -> None:
            for job in jobs:
                job()

        if self._count == 1:
            run = _nothing
        return self._later(run, result)

    # --- the API ----------------------------------------------------------------------------------

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        op = opts.reduceOp if opts is not None else OPS.SUM

        def one(t: Tensor) -> None:
            self._run("allreduce", {0: t}, {0: t}, [t.numel()], op=op)

        return self._collective(tensors, tensors, *(partial(one, t) for t in tensors))

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        root = opts.rootRank

        def one(t: Tensor) -> None:
            self._run("broadcast", {0: t} if self._rank == root else {}, {0: t}, [t.numel()], root=root)

        return self._collective(tensors, tensors, *(partial(one, t) for t in tensors))

    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        root, op = opts.rootRank, opts.reduceOp

        def one(t: Tensor) -> None:
            self._run("reduce", {0: t}, {0: t} if self._rank == root else {}, [t.numel()], root=root, op=op)

        return self._collective(tensors, tensors, *(partial(one, t) for t in tensors))

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        def one(parts: list[Tensor], own: Tensor) -> None:
            self._run("allgather", {self._rank: own}, dict(enumerate(parts)), [t.numel() for t in parts])

        return self._collective(inputs, outputs, *map(partial(partial, one), outputs, inputs))

    def allgather_into_tensor_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return self.allgather([self._shares(o) for o in outputs], inputs, opts)

    def _allgather_base(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        return self.allgather([self._shares(output)], [given], opts)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        op = opts.reduceOp if opts is not None else OPS.SUM

        def one(own: Tensor, parts: list[Tensor]) -> None:
            held, wanted = dict(enumerate(parts)), {self._rank: own}
            self._run("reducescatter", held, wanted, [t.numel() for t in parts], op=op)

        return self._collective(outputs, outputs, *map(partial(partial, one), outputs, inputs))

    def reduce_scatter_tensor_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return self.reduce_scatter(outputs, [self._shares(i) for i in inputs], opts)

    def _reduce_scatter_base(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter([output], [self._shares(given)], opts)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        n, me = self._count, self._rank
        counts = np.zeros(n * n, dtype=np.int64)
        counts[me * n : me * n + n] = [t.numel() for t in inputs]
        counts[me::n] = [t.numel() for t in outputs]
        held, wanted = {me * n + r: t for r, t in enumerate(inputs)}, {r * n + me: t for r, t in enumerate(outputs)}
        # who sends how much to whom only those two know: nobody forwards
        return self._collective(
            [*inputs, *outputs], outputs, lambda: self._run("alltoall", held, wanted, counts, direct=True)
        )  # fmt: skip

    def alltoall_base(
        self, output: Tensor, given: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> Any:
        return self.alltoall(self._shares(output, output_splits), self._shares(given, input_splits), opts)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        root, mine = opts.rootRank, inputs[0]
        wanted = dict(enumerate(outputs[0])) if self._rank == root else {}
        sizes = [mine.numel()] * self._count
        return self._collective(
            inputs, outputs, lambda: self._run("gather", {self._rank: mine}, wanted, sizes, root=root)
        )

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        root, mine = opts.rootRank, outputs[0]
        held = dict(enumerate(inputs[0])) if self._rank == root else {}
        sizes = [mine.numel()] * self._count
        return self._collective(
            outputs, outputs, lambda: self._run("scatter", held, {self._rank: mine}, sizes, root=root)
        )

    def barrier(self, opts: Any = None) -> Any:
        token = torch.zeros(self._count, dtype=torch.uint8)
        return self._allgather_base(token, torch.ones(1, dtype=torch.uint8))

    def send(self, tensors: list[Tensor], to: int, tag: int = 0) -> Any:
        return self._message(tensors, to, tag, sends=True)

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Any:
        return self._message(tensors, source, tag, sends=False)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Any:
        raise Unsupported("the backend 'stretto' does not receive from any source; name the rank")

    def _message(self, tensors: list[Tensor], peer: int, tag: int, sends: bool) -> Any:
        self._refuse_devices(*tensors)
        future: torch.futures.Future = torch.futures.Future()
        (tensor,) = tensors
        flat = tensor.contiguous() if sends or not tensor.is_contiguous() else tensor
        memory = array_of(flat)

        def done(failure: PeerFailed | None) -> None:
            if failure is not None:
                future.set_exception(failure)
                return
            if not sends and flat is not tensor:
                tensor.copy_(flat)
            future.set_result(tensors)

        self._connect()
        payload = memory.data.cast("B") if memory.size else memoryview(bytearray())
        go = self._messages[peer].send if sends else self._messages[peer].receive
        go(tag, payload, done)
        return Pending(future)

    # what PyTorch 2.13 calls the same
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def monitored_barrier(self, *arguments: Any) -> Any:
        raise Unsupported("the backend 'stretto' has no monitored_barrier; its barrier names who is missing")

    def _shares(self, tensor: Tensor, splits: Sequence[int] = ()) -> list[Tensor]:
        """A tensor as one part a rank, along its first dimension."""
        if splits:
            return list(torch.split(tensor, list(splits)))
        rows = tensor.shape[0] if tensor.dim() else 1
        if rows % self._count:
            if not tensor.is_contiguous() or tensor.numel() % self._count:
                raise Unsupported(f"{rows} rows do not divide among {self._count} ranks; give the splits")
            return list(torch.split(tensor.view(-1), split_evenly(tensor.numel(), self._count).tolist()))
        return list(torch.split(tensor, rows // self._count)) if rows else [tensor] * self._count


def _nothing() -> None:
    """What a group of one rank has to do."""


def _own_address() -> str:
    """The address that leads to the master, or loopback."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _create(options: Any, backend_options: Any) -> StrettoGroup:
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    return StrettoGroup(options.store, options.group_rank, options.group_size, ranks, options.timeout)


dist.Backend.register_backend("stretto", _create, extended_api=True, devices=["cpu"])

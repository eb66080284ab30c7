"""The process group: PyTorch's calls as collectives over pieces, and messages beside them."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ..choose.library import Library, effort_from_environment
from ..model.errors import PeerFailed, Unsupported
from ..model.kinds import BY_NAME
from ..model.targets import MESSAGE_S
from ..runtime.connect import own_address
from ..runtime.inbox import Done, Receive
from ..runtime.mesh import GRACE_S
from ..runtime.messages import ask
from ..runtime.sharing import Shared, shared
from .arguments import check_count, check_pieces, check_rank, is_on_device, seconds, shares
from .backends import configured
from .between_sites import BetweenSites
from .calls import FUNCTIONS
from .collectives import Call, Collectives
from .job import library_of_group
from .leaving import LEAVE_S, leave
from .links import Links
from .measuring import Known
from .mending import Mending, silent_s_of
from .monitored import MonitoredBarrier
from .pending import Order, Pending, Started
from .repeats import Repeats, repeated
from .serving import Serving, by_device
from .sparse import sparse_sums
from .stores import own_part, world_of
from .tensors import OPS, array_of, plain, plain_copy

_KNOWN: weakref.WeakKeyDictionary[Shared, Known] = weakref.WeakKeyDictionary()
"""What this process has measured in groups of a world."""


class StrettoGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group; see the package.

    Args:
        ranks: the ranks of the world that are in the group, in order.
        earlier: given where the process goes from group to group: what it has measured in those before, so that only
            what is new is measured; a topology that the environment names does not count then.
        host: the address at which this process listens, if not what the environment says.

    Its threads must not outlive the interpreter (one that wakes inside PyTorch while that is torn down crashes the
    process), so a group that nobody destroys is left when it is collected, or at exit.
    """

    def __init__(
        self, store: Any, rank: int, size: int, ranks: Sequence[int], timeout: timedelta, earlier: Known | None = None,
        host: str = "",
    ) -> None:  # fmt: skip
        super().__init__(rank, size)
        common = shared(world_of(store) if earlier is None else None, ranks[rank])
        store = own_part(store, rank)
        self._rank, self._count = rank, size
        self._shares = partial(shares, count=size)
        self.timeout_s = timeout.total_seconds()
        if earlier is None:
            world = dist.get_world_size() if dist.is_initialized() else size
            library, job = library_of_group(store, ranks, rank, world, MESSAGE_S)
        else:
            job, library = None, Library(None, ranks, rank, message_s=MESSAGE_S, effort=effort_from_environment())
        if library.controller is not None and dist.is_initialized():
            raise Unsupported("optical planes serve one group: on them all collectives are of the first, of all ranks")
        host = host or os.environ.get("STRETTO_HOST") or own_address(os.environ.get("MASTER_ADDR", "127.0.0.1"))
        known = earlier or _KNOWN.setdefault(common, Known(forgets=False))
        self._links = Links(store, library, host, library.unknown, self.timeout_s, known, common, ranks)
        self._collectives = Collectives(library, self._links, job)
        own = weakref.ref(self)  # the finalizer has the parts, and must not keep the group
        self._order = Order(f"stretto-{rank}", self._links.blame)
        self._links.on_failure = self._order.note
        self._message_failed = partial(_message_failed, self._links, self._order)
        uses, failed = (library, self._links, self._collectives), self._message_failed
        Mending(self._links, self._order, self._collectives, rank, size, self.timeout_s, silent_s_of(job))
        self._serving = Serving(lambda: configured(own()), *uses, store, ranks, self.timeout_s, failed)
        self.compressed = BetweenSites(library, self._collectives, self._links, self._order, self.timeout_s)
        self._monitored = MonitoredBarrier(rank, self._links)
        self._name = self._text = ""
        # all barriers may use the same memory, since nobody looks at what is in it
        self._token = torch.ones(1, dtype=torch.uint8)
        self._tokens = list(torch.zeros(size, dtype=torch.uint8).split(1))
        self.repeats = Repeats(self._collectives, self._order, self._shares, self._token, self._tokens)
        parts = self._links, self._order, self._collectives, self._serving
        self._leave = weakref.finalize(self, leave, *parts, os.getpid())
        self._order.later(self._links.connect, None)
        if size > 1:
            self._order.later(self._collectives.plans.load, None)

    def getBackendName(self) -> str:  # noqa: N802
        return "stretto"

    def set_timeout(self, timeout: timedelta) -> None:
        """The seconds that each collective from now on may take."""
        self.timeout_s = self.compressed.timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    # without a backend object under it a group has to remember its own name (device meshes ask for it)
    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupDesc(self, text: str) -> None:  # noqa: N802
        self._text = text

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._text

    supports_splitting = supports_coalescing = supports_time_estimate = False

    @property
    def _device_types(self) -> list[torch.device]:
        """The types of devices whose tensors the group moves."""
        return self._serving.types()

    def _get_backend(self, device: torch.device) -> Any:
        """What moves the tensors of a type of devices: this group, or the backend that the program named."""
        other = self._serving.other(torch.device(device).type)
        return self if other is None else other._get_backend(device)

    def beside(self, tensor: Tensor) -> Any:
        """The group of the other backend that the program named for a tensor's device; None if this one moves it."""
        return self._serving.other(tensor.device.type)

    def _part(self, tensors: Sequence[Tensor]) -> tuple[Callable[..., None], Callable[..., Pending]]:
        """What runs a collective of tensors, and what queues it."""
        if not tensors or tensors[0].device.type == "cpu":
            return self._collectives.run, self._order.later
        device = self._serving.accelerator(tensors[0])
        return device.run, partial(device.later, self._order, tensors)

    def shutdown(self) -> None:
        """Finish the calls made so far and close."""
        self._order.stop(self.timeout_s)
        self._serving.close()
        self._collectives.drain(self.timeout_s)
        self._collectives.close()
        self._links.close()
        self._leave.detach()

    def abort(self) -> None:
        """Give up running calls at once and close."""
        self._leave.detach()
        self._links.drop()
        self._serving.leave(LEAVE_S)
        self._order.stop(LEAVE_S)
        self._collectives.close()
        self._links.close()

    def meet(self) -> None:
        """Return when all ranks are connected, and have measured the network."""
        if self._count > 1:
            self._order.later(self._links.ready, None).wait()

    @property
    def failure(self) -> PeerFailed | None:
        """Why this group runs nothing any more; None while it does."""
        return self._order.failure

    def _queue(self, kind: str, inputs: Sequence[Any], outputs: Sequence[Any], opts: Any, function: str = "") -> Any:
        """Queue one collective for each input and its output; the group's thread runs them in the order of the calls.

        Args:
            inputs, outputs: at each end a tensor, or a list of one tensor for each rank.
            opts: PyTorch's options, with the root, the operation that reduces and the timeout.
            function: the key of :data:`.calls.FUNCTIONS` for what the caller asked for; the kind by default.
        """
        traits = BY_NAME[kind]
        root = opts.rootRank if traits.rooted else 0
        name = FUNCTIONS[function or kind]
        check_rank(name, root, self._count)
        op = None
        if traits.reduces:  # PyTorch takes an operation in place of the options, too
            op = OPS.SUM if opts is None else getattr(opts, "reduceOp", opts)
        calls: list[Call] = []
        for source, output in zip(inputs, outputs, strict=True):
            held, wanted = self._pieces(traits.held, source, root), self._pieces(traits.wanted, output, root)
            for pieces, who in ((held, traits.held), (wanted, traits.wanted)):
                if not traits.whole and who in ("all", "root") and (who == "all" or root == self._rank):
                    check_count(name, pieces, self._count)
            check_pieces(name, held, wanted, traits.rooted or traits.whole)
            tensors = [*held.values(), *wanted.values()]
            if traits.rooted or traits.whole:  # without the root a rank knows the size of one piece only
                sizes = [tensors[0].numel()] * (1 if traits.whole else self._count)
            else:
                sizes = [t.numel() for t in (held if traits.held == "all" else wanted).values()]
            arguments = kind, held, wanted, sizes, seconds(opts, self.timeout_s)
            calls.append((arguments, {"root": root, "op": op, "function": function}))
        return self._begin(calls, outputs)

    def _begin(self, calls: Sequence[Call], outputs: Any) -> Any:
        """Run collectives one after another: by the compiled loop at once, if it can, or else by the group's thread."""
        tensors = [t for (_, held, wanted, *_), _ in calls for t in (*held.values(), *wanted.values())]
        run, later = self._part(tensors)
        number = self._order.call()
        if run == self._collectives.run and self._order.free:
            if (runs := self._collectives.begin(calls)) is not None:
                return self._order.start(number, Started(runs, lambda: outputs, calls))

        def run_all() -> None:
            for arguments, options in calls:
                run(*arguments, **options)

        return later(run_all, outputs, number=number)

    def _pieces(self, ranks: str, end: Any, root: int) -> dict[int, Tensor]:
        """The tensors of one end by piece, if this rank is among the ``ranks`` that have any."""
        if ranks == "root" and self._rank != root:
            return {}
        if ranks == "own":
            return {self._rank: end}
        return {0: end} if isinstance(end, Tensor) else dict(enumerate(end))

    @repeated()
    @by_device
    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        if any(t.layout != torch.strided for t in tensors):
            return self._sum_sparse(tensors, opts)
        return self._queue("allreduce", tensors, tensors, opts)

    def _sum_sparse(self, tensors: list[Tensor], opts: Any) -> Any:
        op = OPS.SUM if opts is None else getattr(opts, "reduceOp", opts)
        run = self._collectives.run, seconds(opts, self.timeout_s)
        return self._order.later(
            sparse_sums(tensors, op, self._rank, self._count, *run), tensors, number=self._order.call()
        )

    @repeated()
    @by_device
    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        return self._queue("broadcast", tensors, tensors, opts)

    @repeated()
    @by_device
    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        return self._queue("reduce", tensors, tensors, opts)

    @repeated()
    @by_device
    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        return self._queue("allgather", inputs, outputs, opts)

    @by_device
    def allgather_into_tensor_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return self.allgather([self._shares(o) for o in outputs], inputs, opts)

    @by_device
    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        return self.allgather([list(same) for same in zip(*outputs, strict=True)], inputs, opts)

    @repeated(lambda repeats, output, *_: [repeats.shares(output)])
    @by_device
    def _allgather_base(self, output: Tensor, source: Tensor, opts: Any = None) -> Any:
        return self._queue("allgather", [source], [self._shares(output)], opts)

    @repeated()
    @by_device
    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        return self._queue("reducescatter", inputs, outputs, opts)

    @by_device
    def reduce_scatter_tensor_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return self.reduce_scatter(outputs, [self._shares(i) for i in inputs], opts)

    @repeated(lambda repeats, output, *_: [output])
    @by_device
    def _reduce_scatter_base(self, output: Tensor, source: Tensor, opts: Any = None) -> Any:
        return self._queue("reducescatter", [self._shares(source)], [output], opts)

    @repeated(lambda repeats, outputs, *_: outputs or [[]])
    @by_device
    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        return self._queue("gather", inputs, outputs or [[]], opts)

    @repeated()
    @by_device
    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        return self._queue("scatter", inputs or [[]], outputs, opts)

    @repeated()
    @by_device
    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        return self._exchange(outputs, inputs, opts)

    def _exchange(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Any:
        n, me = self._count, self._rank
        check_count("all_to_all", inputs, n)
        check_count("all_to_all", outputs, n)
        counts = np.zeros(n * n, dtype=np.int64)
        counts[me * n : me * n + n] = [t.numel() for t in inputs]
        counts[me::n] = [t.numel() for t in outputs]
        held, wanted = {me * n + r: t for r, t in enumerate(inputs)}, {r * n + me: t for r, t in enumerate(outputs)}
        check_pieces("all_to_all", held, wanted, even=False)
        # who sends how much to whom only those two know: nobody forwards
        arguments = "alltoall", held, wanted, counts.tolist(), seconds(opts, self.timeout_s)
        return self._begin([(arguments, {"direct": True})], outputs)

    @repeated(lambda repeats, output, source, splits, *_: repeats.shares(output, splits))
    @by_device
    def alltoall_base(
        self, output: Tensor, source: Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None
    ) -> Any:
        return self._exchange(self._shares(output, output_splits), self._shares(source, input_splits), opts)

    @repeated(lambda repeats, *_: [repeats.tokens])
    def barrier(self, opts: Any = None) -> Any:
        return self._queue("allgather", [self._token], [self._tokens], opts, "barrier")

    @by_device
    def send(self, tensors: list[Tensor], to: int, tag: int = 0) -> Any:
        check_rank("send", to, self._count)
        peer = self._links.to(to)
        if is_on_device(tensors):
            return self._serving.accelerator(tensors[0]).messages.send(tensors[0], partial(peer.send, tag))
        future, payload, done = self._message(tensors, sends=True)
        peer.send(tag, payload, done)
        return Pending(future)

    @by_device
    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> Any:
        check_rank("recv", source, self._count)
        peer = self._links.to(source)
        return self._receive(tensors, tag, {source: peer}, peer)

    @by_device
    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Any:
        return self._receive(tensors, tag, self._links.everyone(), None)

    def _receive(self, tensors: list[Tensor], tag: int, peers: Mapping[int, Any], source: Any) -> Any:
        """Receive from one peer, or from any of them if ``source`` is None."""
        asked: list[Receive] = []

        def post(into: memoryview, done: Done) -> None:
            asked.append(Receive(tag, into, done, source, self.timeout_s))
            ask(self._links.inbox, peers.values(), asked[0])

        def came_from() -> int:
            return next(r for r, peer in peers.items() if peer is asked[0].came_from)

        if is_on_device(tensors):
            return self._serving.accelerator(tensors[0]).messages.receive(tensors[0], post, came_from)
        future, into, done = self._message(tensors, sends=False)
        post(into, done)
        return Pending(future, came_from)

    def _message(self, tensors: list[Tensor], sends: bool) -> tuple[torch.futures.Future, memoryview, Done]:
        """A message's future, its memory, and what to call when it has been sent or has come."""
        future: torch.futures.Future = torch.futures.Future()
        (tensor,) = tensors
        flat = plain_copy(tensor) if sends or plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)
        memory = array_of(flat)

        def done(failure: PeerFailed | None) -> None:
            if failure is not None:
                self._message_failed(failure)
                future.set_exception(failure)
                return
            if not sends and not plain(tensor):
                tensor.copy_(flat)
            future.set_result(tensors)

        return future, memory.data.cast("B") if memory.size else memoryview(bytearray()), done

    allreduce_coalesced = allreduce
    # what PyTorch 2.13 calls the same
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return when all ranks have come; rank 0 names those that have not."""
        timeout_s = self.timeout_s if timeout is None or timeout < timedelta() else timeout.total_seconds()
        self._monitored.pass_all(timeout_s, wait_all_ranks)


def _message_failed(links: Links, order: Order, failure: PeerFailed) -> None:
    if not links.left:
        order.fail(failure, 2 * GRACE_S)

"""Groups of other backends: for types of devices that are theirs, and among the ranks of a site."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..model.errors import Unsupported

OWN = "stretto"
INNER_DEFAULT = {"cuda": "nccl", "xpu": "xccl"}
"""The backend among the ranks of a site, by the type of their devices."""


def backend_of(
    name: str, store: Any, rank: int, ranks: Sequence[int], timeout: timedelta, label: str
) -> tuple[Any, Any]:
    """One rank's backend object, and PyTorch's type of it; a backend written in Python may be a process group.

    Args:
        name: as in ``init_process_group``.
        rank: the position of this rank among the ranks.
        ranks: their numbers in the world.
        label: the name of the group, for what the backend logs.
    Raises:
        Unsupported: this PyTorch has no such backend.
    """
    kinds, plugin = dist.ProcessGroup.BackendType, dist.Backend._plugins.get(name.upper())
    if plugin is not None:
        if not plugin.extended_api:
            return plugin.creator_fn(store, rank, len(ranks), timeout), kinds.CUSTOM
        options = dist.distributed_c10d._DistributedBackendOptions()
        options.store, options.group_rank, options.group_size = store, rank, len(ranks)
        options.timeout, options.group_id, options.global_ranks_in_group = timeout, label, list(ranks)
        return plugin.creator_fn(options, None), kinds.CUSTOM
    made: Any = getattr(dist, f"ProcessGroup{'Gloo' if name == 'gloo' else name.upper()}", None)
    if made is None or name == "mpi":
        raise Unsupported(f"this PyTorch cannot make a group of the backend {name!r} beside 'stretto'")
    if name in ("gloo", "ucc"):
        return made(store, rank, len(ranks), timeout=timeout), getattr(kinds, name.upper())
    options = made.Options()
    options._timeout, options.global_ranks_in_group, options.group_name = timeout, list(ranks), label
    return made(store, rank, len(ranks), options), getattr(kinds, name.upper())


def group_of(
    name: str, device: str, store: Any, rank: int, ranks: Sequence[int], timeout: timedelta, label: str
) -> Any:
    """A process group of another backend for one type of devices; see :func:`backend_of`."""
    backend, kind = backend_of(name, store, rank, ranks, timeout, label)
    if isinstance(backend, dist.ProcessGroup):
        return backend
    group = dist.ProcessGroup(store, rank, len(ranks))
    group._set_default_backend(kind)
    group._register_backend(torch.device(device), kind, backend)
    group._set_group_name(label)
    return group


def configured(group: Any) -> dict[str, str] | None:
    """The backend of each type of devices that the program asked for (``"cpu:stretto,cuda:nccl"``); None for a group
    that PyTorch does not know, or not yet."""
    text = dist.distributed_c10d._world.pg_backend_config.get(group)
    return text and {device: name for device, _, name in (pair.partition(":") for pair in text.split(","))}

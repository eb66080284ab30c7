"""The ``torch.distributed`` backend ``stretto``: ``import stretto.torch`` and ``init_process_group("stretto")``.

Each group has one thread that runs its collectives in the order of the calls. A plan is made on the first use of each
kind and size class. Messages between two ranks do not wait for collectives. :func:`over` runs plans over groups of
other backends. Environment variables:

- ``STRETTO_TOPOLOGY``: the topology whose accelerators are the ranks; without it the network is measured.
- ``STRETTO_TUNING``: the table of ``stretto tune`` that says which planner is best for which size.
- ``STRETTO_SECRET``, ``STRETTO_SECRET_FILE``: the secret by which ranks authenticate, or the file that has it; without
  it the store hands a random one out.
- ``STRETTO_TLS_CERT``, ``STRETTO_TLS_KEY``, ``STRETTO_TLS_CA``, ``STRETTO_TLS_NAME``: certificates for TLS.
- ``STRETTO_FRAMES``: ``plain``, ``authenticated`` or ``encrypted`` (Python 3.13), without certificates; authenticated
  between machines by default.
- ``STRETTO_HOST``: the address at which this process listens.
- ``STRETTO_INNER``: the backend that moves tensors of accelerators inside a site; NCCL for CUDA by default.
- ``STRETTO_TRACE``: a folder for a record of every transfer.
"""

from __future__ import annotations

from typing import Any

from ..model.errors import Unsupported

try:
    import torch
    import torch.distributed as dist
except ImportError as error:  # pragma: no cover
    raise Unsupported(f"the backend needs PyTorch: pip install 'stretto[torch]' ({error})") from None

from .group import StrettoGroup
from .sendrecv import over

__all__ = ["StrettoGroup", "over"]


def _create(options: Any, backend_options: Any) -> StrettoGroup:
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    return StrettoGroup(options.store, options.group_rank, options.group_size, ranks, options.timeout)


_accelerator = torch.accelerator.current_accelerator()
_devices = ["cpu", *([_accelerator.type] if _accelerator is not None else [])]
dist.Backend.register_backend("stretto", _create, extended_api=True, devices=_devices)

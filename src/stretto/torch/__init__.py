"""The ``torch.distributed`` backend ``stretto``: ``init_process_group("stretto")``.

Where stretto is installed, ``import torch`` makes the name known (entry-point group ``torch.backends``); ``import
stretto.torch`` does the same. What groups need is imported with the first of them.

Each group has one thread that runs its collectives in the order of the calls. Each kind and size class has a quick plan
at first and a better one later (:mod:`.plans`). Messages between two ranks do not wait for collectives. :func:`over`
runs plans over groups of other backends. Environment variables:

- ``STRETTO_TOPOLOGY``: the topology whose accelerators are the ranks; without it the network is measured.
- ``STRETTO_TUNING``: the table of ``stretto tune`` that says which planner is best for which size.
- ``STRETTO_EFFORT``: how much may be tried for better plans; ``none``: first plans only.
- ``STRETTO_CACHE``: the folder where better plans are kept; empty: nothing is kept.
- ``STRETTO_SECRET``, ``STRETTO_SECRET_FILE``: the secret by which ranks authenticate, or the file that has it; without
  it the store hands a random one out.
- ``STRETTO_TLS_CERT``, ``STRETTO_TLS_KEY``, ``STRETTO_TLS_CA``, ``STRETTO_TLS_NAME``: certificates for TLS.
- ``STRETTO_FRAMES``: ``plain``, ``authenticated`` or ``encrypted`` (Python 3.13), without certificates; authenticated
  between machines by default.
- ``STRETTO_CONNECTIONS``: how many connections each pair of ranks over a network has (``8``, ``8:bbr``), or
  ``measure``.
- ``STRETTO_HOST``: the address at which this process listens.
- ``STRETTO_INNER``: the backend inside a site for tensors on accelerators, or ``none``; NCCL for CUDA by default.
- ``STRETTO_SWITCH``: the program that turns optical planes.
- ``STRETTO_KERNELS``: ``python``: no compiled code, also for running collectives.
- ``STRETTO_TRACE``: a folder for a record of every transfer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.errors import Unsupported

if TYPE_CHECKING:
    from .compressed import Feedback
    from .functions import all_reduce, reduce_scatter
    from .group import StrettoGroup
    from .sendrecv import over

__all__ = ["Feedback", "StrettoGroup", "all_reduce", "over", "reduce_scatter", "register"]


def register(loading: bool = True) -> None:
    """Make the backend known to PyTorch.

    Args:
        loading: whether ``import torch`` calls this: then devices are left out that have no backend yet, since theirs
            may be registered later and is to be the default.
    """
    import torch

    if not torch.distributed.is_available():
        return
    backends = torch.distributed.Backend
    accelerator = torch.accelerator.current_accelerator()
    devices = ["cpu", *([accelerator.type] if accelerator is not None else [])]
    if loading:
        devices = [device for device in devices if device in backends.default_device_backend_map]
    backends.register_backend("stretto", _create, extended_api=True, devices=devices)


def _create(options: Any, backend_options: Any) -> StrettoGroup:
    from .loading import uncollected

    with uncollected():
        from .batches import install
        from .group import StrettoGroup

    install()
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    return StrettoGroup(options.store, options.group_rank, options.group_size, ranks, options.timeout)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    modules = {"Feedback": "compressed", "StrettoGroup": "group", "over": "sendrecv"}
    modules |= dict.fromkeys(("all_reduce", "reduce_scatter"), "functions")
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{modules[name]}", __name__), name)


try:
    register(loading=False)
except ImportError as error:
    raise Unsupported(f"the backend needs PyTorch: pip install 'stretto[torch]' ({error})") from None

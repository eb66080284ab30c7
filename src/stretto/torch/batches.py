"""Batches of sends and receives on tensors of another backend than this one.

PyTorch makes a batch one operation of its backend only for groups of exactly its own class. A group of this package is
another class, so NCCL beside it would get one send or receive after another, and ranks that send to each other at once
would wait for ever. Here such a batch is one operation of the backend again.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch.distributed as dist

from .group import StrettoGroup

_alone = dist.batch_isend_irecv


@wraps(_alone)
def batch_isend_irecv(p2p_op_list: list[Any]) -> list[Any]:
    group = p2p_op_list[0].group if p2p_op_list else None
    if not isinstance(group, StrettoGroup):
        return list(_alone(p2p_op_list))
    device, other = p2p_op_list[0].tensor.device, group.beside(p2p_op_list[0].tensor)
    if other is None or not other._get_backend(device).supports_coalescing:
        return list(_alone(p2p_op_list))
    dist.distributed_c10d._check_p2p_op_list(p2p_op_list)
    other._start_coalescing(device)
    for op in p2p_op_list:
        (other.send if op.op is dist.isend else other.recv)([op.tensor], op.group_peer, op.tag)
    return [other._end_coalescing(device)]


def install() -> None:
    """Let ``torch.distributed`` have this function for its own."""
    dist.batch_isend_irecv = dist.distributed_c10d.batch_isend_irecv = batch_isend_irecv

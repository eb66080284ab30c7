"""The libraries whose order can be planned: what each sends for a collective of some size."""

from __future__ import annotations

from . import libraries_gloo, libraries_mpich, libraries_nccl, libraries_open_mpi
from .traffic import Library

LIBRARIES = {
    library.name: library
    for library in (
        Library("nccl", "rings, and trees for short AllReduces, as its model says", libraries_nccl.nccl, inside=False),
        Library("nccl-ring", "NCCL with rings alone", libraries_nccl.nccl_rings, inside=False),
        Library("nccl-tree", "NCCL with trees for every AllReduce", libraries_nccl.nccl_trees, inside=False),
        Library(
            "gloo",
            "as PyTorch's backend: rings for AllReduce, AllGather and ReduceScatter of every size",
            libraries_gloo.gloo,
        ),
        Library(
            "gloo-halving-doubling",
            "gloo with AllreduceHalvingDoubling for AllReduce",
            libraries_gloo.halving_doubling,
        ),
        Library("gloo-bcube", "gloo with BCUBE for AllReduce", libraries_gloo.bcube),
        Library(
            "openmpi",
            "Open MPI 5.0: recursive doubling, Rabenseifner, rings and trees, by ranks and bytes",
            libraries_open_mpi.open_mpi,
        ),
        Library(
            "mpich",
            "MPICH: recursive doubling, Rabenseifner, rings and trees, by ranks and bytes",
            libraries_mpich.mpich,
        ),
    )
}
"""By name."""

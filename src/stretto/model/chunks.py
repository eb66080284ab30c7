"""Pieces cut into chunks: as even as whole bytes allow, none of them empty."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .arrays import Int64, offsets_of
from .errors import InputError
from .kinds import split_evenly

if TYPE_CHECKING:
    from .collective import Collective


def cut(collective: Collective, chunks: int | Int64) -> Collective:
    """Cut every piece into ``chunks`` chunks, as even as whole bytes allow; or piece i into ``chunks[i]`` of them.

    Raises:
        InputError: a chunk would be empty.
    """
    if isinstance(chunks, int):
        check_cut(collective.size_bytes, len(collective.ranks), int(collective.piece_bytes.min()), chunks)
        if chunks == 1 and collective.is_whole:
            return collective
    counts = np.broadcast_to(np.asarray(chunks, dtype=np.int64), collective.piece_bytes.shape)
    piece = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    sizes = np.empty(len(piece), dtype=np.int64)
    alike = np.stack((collective.piece_bytes, counts), axis=1)
    for total, count in np.unique(alike, axis=0).tolist():
        if total < count:
            raise InputError(f"a piece of {total} bytes cannot be cut into {count} chunks; raise the size", "size")
        same = (collective.piece_bytes == total) & (counts == count)
        sizes[same[piece]] = np.tile(split_evenly(total, count), int(same.sum()))
    before = np.cumsum(sizes) - sizes
    offset = before - before[offsets_of(counts)[:-1]][piece]
    return replace(collective, chunk_piece=piece, chunk_offset=offset, chunk_bytes=sizes)


def check_cut(size_bytes: int, ranks: int, smallest: int, chunks: int) -> None:
    """Check that pieces can be cut into ``chunks`` chunks each.

    Args:
        size_bytes, ranks: of the collective, for the message.
        smallest: bytes of the smallest piece.
    Raises:
        InputError: fewer than one chunk, or a chunk would be empty.
    """
    if chunks < 1:
        raise InputError(f"{chunks} chunks: at least one is needed", "chunks")
    if smallest < chunks:
        raise InputError(
            f"{size_bytes} bytes among {ranks} ranks leave pieces of {smallest} bytes, "
            f"too few for {chunks} chunk{'s' if chunks > 1 else ''}; raise the size",
            "size",
        )

"""Pieces cut into chunks: as even as whole bytes allow, none of them empty; and chunks that cover equal parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .arrays import Bool, Float64, Int32, Int64, offsets_of
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
    for total, count in sorted({*map(tuple, alike.tolist())}):  # without the module that numpy.unique imports
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


FIRST_TESTED, BATCH = 8, 1024
"""``FIRST_TESTED``: edges of chunks that are tested before all others are; most numbers of parts do not fit these.
``BATCH``: numbers of parts that are tested at once."""

MOST_PARTS = 2**15
"""Equal parts of a piece that are tried for chunks of unlike sizes, which takes a fraction of a second. Where a target
sets no limit, each number of parts up to the bytes of a piece would be tried: minutes for pieces of some megabytes."""


class EqualParts(NamedTuple):
    """Every piece in equally many equal parts, and the parts that each chunk covers.

    Attributes:
        number: parts of a piece.
        first: int64[chunks], the first part of each chunk in its piece.
        covered: int64[chunks], how many parts each chunk covers.
    """

    number: int
    first: Int64
    covered: Int64


def equal_parts(collective: Collective, least_bytes: int, most: int) -> EqualParts | None:
    """The fewest equal parts of a piece of which every chunk covers one or several; None if none are found.

    Parts are equal but for a byte. Where all pieces are cut into equally many equal chunks these are the parts.

    Args:
        least_bytes: bytes of the smallest part, where chunks are not equal.
        most: parts of a piece, at most.
    """
    if collective.evenly_cut:
        count = collective.chunk_count // collective.piece_count
        every = np.arange(collective.chunk_count, dtype=np.int64)
        return EqualParts(count, every % count, np.ones_like(every)) if count <= most else None
    begin, total = collective.chunk_offset, collective.piece_bytes[collective.chunk_piece]
    most = min(most, int(collective.piece_bytes.min()) // least_bytes)
    fewest = int(np.bincount(collective.chunk_piece).max())
    most = min(most, max(MOST_PARTS, fewest), 2**61 // int(total.max()))  # products of these are int64
    tested = np.unique(np.stack((begin, total), axis=1), axis=0).T
    for least in range(fewest, most + 1, BATCH):
        counts = np.arange(least, min(least + BATCH, most + 1))
        for count in counts[_are_edges(tested[:, :FIRST_TESTED], counts[:, None])].tolist():
            if _are_edges(tested, count):
                first = _nearest(begin, total, count)
                after = _nearest(begin + collective.chunk_bytes, total, count)
                return EqualParts(count, first, after - first)
    return None


def _nearest(place: Int64, total: Int64, count: int | Int64) -> Int64:
    """int64[...], which of the edges between ``count`` equal parts of ``total`` bytes is nearest to a place."""
    edge: Int64 = (2 * place * count + total) // (2 * total)
    return edge


def _are_edges(tested: Int64, count: int | Int64) -> Bool:
    """bool[counts], whether places are edges between ``count`` equal parts but for a byte.

    Args:
        tested: int64[2, places], the places and the bytes of their pieces.
        count: one, or int64[counts, 1].
    """
    place, total = tested
    fits: Bool = (np.abs(place * count - _nearest(place, total, count) * total) < count).all(axis=-1)
    return fits


def in_equal_parts(collective: Collective, count: int) -> Collective | None:
    """The collective with chunks that cover whole parts, where every piece is cut into ``count`` equal ones.

    Edges of chunks move to the nearest edge of a part, and every chunk keeps one part at least. None where a piece has
    more chunks than parts, or fewer bytes.
    """
    piece, begin = collective.chunk_piece, collective.chunk_offset
    chunks = np.bincount(piece, minlength=collective.piece_count)
    if chunks.max() > count or collective.piece_bytes.min() < count:
        return None
    place = np.arange(len(piece)) - offsets_of(chunks)[piece]
    nearest = _nearest(begin, collective.piece_bytes[piece], count)
    # edges are apart by a part at least: what is left of an edge after a part for each chunk before it never falls
    low = piece.astype(np.int64) * count
    slack = np.maximum.accumulate(nearest - place + low) - low
    return _cut_at(collective, piece, np.minimum(slack, count - chunks[piece]) + place, count)


def weighted(collective: Collective, weight: Float64) -> Collective | None:
    """The collective with chunks whose bytes are multiplied by float64[chunks] and scaled to fill their pieces.

    None if a chunk would be empty.
    """
    piece = collective.chunk_piece
    share = collective.chunk_bytes * weight
    share /= np.bincount(piece, share)[piece]
    first = offsets_of(np.bincount(piece, minlength=collective.piece_count))[piece]
    before = np.concatenate(([0.0], np.cumsum(share)))
    offset = np.rint((before[:-1] - before[first]) * collective.piece_bytes[piece]).astype(np.int64)
    made = _from(collective, piece, offset)
    return made if made.chunk_bytes.min() > 0 else None


def covering(collective: Collective, count: int, covered: Int64) -> Collective | None:
    """The collective with every piece in ``count`` equal parts, of which the chunks cover these numbers, int64[chunks],
    one after another; None if they do not cover every piece."""
    first = np.cumsum(covered) - covered
    piece = (first // count).astype(np.int32)
    last = (first + covered - 1) // count
    if covered.min() < 1 or (piece != last).any() or covered.sum() != count * collective.piece_count:
        return None
    return _cut_at(collective, piece, first % count, count)


def _cut_at(collective: Collective, piece: Int32, first: Int64, count: int) -> Collective:
    """The collective in chunks that begin at these of the ``count`` equal parts of their pieces, in ascending order."""
    total = collective.piece_bytes[piece]
    return _from(collective, piece, (first * total + count // 2) // count)


def _from(collective: Collective, piece: Int32, offset: Int64) -> Collective:
    """The collective in chunks that begin at these bytes of their pieces, in ascending order."""
    last = np.append(np.diff(piece) != 0, True)
    size = np.where(last, collective.piece_bytes[piece], np.append(offset[1:], 0)) - offset
    return replace(collective, chunk_piece=piece, chunk_offset=offset, chunk_bytes=size)

"""A node's program as a record of the compiled loop (:mod:`.kernel_layout`), made once and copied for each run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...lower import NOTHING, Program
from ...model.arrays import Int64, Ragged
from . import kernel_layout as at
from .records import WORD, Ends, address, words


@dataclass(frozen=True, eq=False)
class Template:
    """A run of a program as it is at first.

    Attributes:
        block: the words of the record and its columns; a run is a copy of it.
        chunks: int64[chunks], the plan's number of each chunk. sizes: int64[chunks], their bytes.
        index: the place of each chunk by its number.
    """

    block: Int64
    chunks: Int64
    sizes: Int64
    index: Mapping[int, int]


def column(block: Int64, which: int, count: int) -> Int64:
    """A column of a run."""
    begin = int(block[which // WORD]) // WORD
    return block[begin : begin + count]


def template_of(program: Program, ends: Ends) -> Template:
    """A program as the loop needs it, over the connections of a mesh."""
    chunks, receives, sends = program.chunks, program.receives, program.sends
    columns = {**_sends(program, ends), **_receives(program, ends), **_versions(program)}
    counts = {
        at.START_COUNT: len(sends), at.COPY_COUNT: len(sends.to.values), at.RECEIVE_COUNT: len(receives),
        at.SLOT_COUNT: len(chunks.chunk), at.VERSION_COUNT: len(chunks.base), at.AWAITED_COUNT: len(program.awaited),
        at.PART_COUNT: len(columns[at.P_CONNECTION]), at.MISSING: len(receives),
        at.UNSENT_COPIES: len(sends.to.values), at.SIGNALS_DUE: len(program.awaited),
        at.SIGNALS_LEFT: len(program.receives.signals.values),
        at.TAKES_TURNS: program.plan.sharing == "fair", at.RUN_GROUP: address(ends.group),
    }  # fmt: skip
    for whiches, count in (
        ((at.S_BEGAN, at.S_GONE), len(sends)),
        ((at.C_PLACE, at.C_LEFT, at.C_TOTAL, at.C_NEXT, at.C_TURNS, at.C_END), len(sends.to.values)),
        ((at.R_PAYLOAD, at.R_STATE, at.R_GOT, at.R_AHEAD, at.R_ARRAY), len(receives)),
        ((at.R_VERSION, at.R_CAME, at.R_ARRIVED, at.R_DRY_AT, at.R_DRY_BYTES), len(receives)),
        ((at.G_NEXT,), len(receives.signals.values)),
        ((at.A_SEEN,), len(program.awaited)),
        ((at.L_INPUT, at.L_OUTPUT, at.L_BYTES, at.L_OUTPUT_FREE, at.L_IN_PLACE), len(chunks.chunk)),
        ((at.V_ARRAY, at.V_OUT, at.V_PUT), len(chunks.base)),
    ):  # fmt: skip
        columns.update((which, words(count)) for which in whiches)
    header = words(at.RUN_WORDS // WORD)
    used = len(header)
    for which, values in columns.items():
        header[which // WORD] = used * WORD
        used += len(values)
    for which, count in counts.items():
        header[which // WORD] = count
    block = np.concatenate([header, *(np.asarray(c, dtype=np.int64) for c in columns.values())])
    numbers = chunks.chunk.tolist()
    return Template(block, chunks.chunk, chunks.size_bytes.astype(np.int64), {c: i for i, c in enumerate(numbers)})


def fill_in(block: Int64, adds: int, adds_by: int, item_bytes: int, timeout_s: float, call: bytes) -> None:
    """Put into a run how its numbers are added, how long it may take, and the code of its call."""
    block[at.ADDS // WORD], block[at.ADDS_BY // WORD], block[at.ITEM_BYTES // WORD] = adds, adds_by, item_bytes
    block[at.TIMEOUT_NS // WORD] = int(min(timeout_s, 1e9) * 1e9)
    block[at.OWN_CALL // WORD : at.OWN_CALL // WORD + 3] = np.frombuffer(call, dtype=np.int64)


def _sends(program: Program, ends: Ends) -> dict[int, NDArray[Any]]:
    """The columns of sends and copies, of signals that are due, and of the connections that take part."""
    sends, awaited, mesh, place = program.sends, program.awaited, ends.mesh, ends.place
    owners, subflow = sends.to.owners, sends.subflow.tolist()
    to = [mesh.connection(node, subflow[s]) for s, node in zip(owners.tolist(), sends.to.values.tolist(), strict=True)]
    return {
        at.S_ROW: sends.row, at.S_SLOT: sends.chunk, at.S_WAITS: sends.waits, at.S_COPIES: sends.to.offsets,
        at.S_VERSION: program.chunks.versions[sends.chunk] + sends.version,
        at.S_PRIORITY: np.unique(sends.priority, return_inverse=True)[1],
        at.S_MESSAGE: np.full(len(sends), -1) if sends.message is None else sends.message,
        at.C_SEND: owners, at.C_CONNECTION: _numbers(place[c] for c in to),
        at.A_ROW: awaited.row, at.A_WAKES: awaited.wakes.offsets, at.A_WAKES_OF: awaited.wakes.values,
        at.A_CONNECTION: _numbers(place[mesh.connection(node, 0)] for node in awaited.node.tolist()),
        at.P_CONNECTION: _numbers(place[c] for peer in program.peers.tolist() for c in mesh.peers.get(peer, ())),
    }  # fmt: skip


def _receives(program: Program, ends: Ends) -> dict[int, NDArray[Any]]:
    """The columns of receives, and of the signals that they send."""
    receives, mesh, place = program.receives, ends.mesh, ends.place
    signals, sources = receives.signals, zip(receives.source.tolist(), receives.subflow.tolist(), strict=True)
    grows = Ragged.of(_versions_of(program.chunks.adds, len(receives)))
    return {
        at.R_ROW: receives.row, at.R_SLOT: receives.chunk, at.R_COPIES: receives.copies,
        at.R_CONNECTION: _numbers(place[mesh.connection(node, subflow)] for node, subflow in sources),
        at.R_WAKES: receives.wakes.offsets, at.R_WAKES_OF: receives.wakes.values, at.R_SIGNALS: signals.offsets,
        at.R_VERSIONS: grows.offsets, at.R_VERSIONS_OF: grows.values, at.R_LEFT: np.diff(grows.offsets),
        at.G_ROW: receives.row[signals.owners] if len(signals.values) else words(0),
        at.G_CONNECTION: _numbers(place[mesh.connection(node, 0)] for node in signals.values.tolist()),
    }  # fmt: skip


def _versions(program: Program) -> dict[int, NDArray[Any]]:
    """The columns of chunks and their versions, which are numbered on from chunk to chunk."""
    chunks, sends, first = program.chunks, program.sends, program.chunks.versions.astype(np.int64)
    of_chunk = np.repeat(np.arange(len(chunks.chunk), dtype=np.int64), np.diff(first))
    base = np.where(chunks.base == NOTHING, -1, first[of_chunk] + chunks.base)
    final = np.where(chunks.final == NOTHING, -1, first[:-1] + chunks.final)
    sent = np.repeat(first[sends.chunk] + sends.version, np.diff(sends.to.offsets))
    adds = chunks.adds.values.astype(np.int64)
    adds = np.where(adds < 0, ~(first[of_chunk[chunks.adds.owners]] + ~adds), adds)
    users = sum(np.bincount(of[of >= 0], minlength=len(base)) for of in (base, final, sent, ~adds))
    return {
        at.V_SLOT: of_chunk, at.V_BASE: base, at.V_USERS: np.asarray(users), at.V_ADDS: chunks.adds.offsets,
        at.V_ADDS_OF: adds, at.L_VERSIONS: first, at.L_FINAL: final,
    }  # fmt: skip


def _numbers(values: Iterable[int]) -> Int64:
    return np.fromiter(values, dtype=np.int64)


def _versions_of(adds: Ragged, receives: int) -> list[list[int]]:
    """For each receive the versions that add it."""
    lists: list[list[int]] = [[] for _ in range(receives)]
    for version, (a, b) in enumerate(pairwise(adds.offsets.tolist())):
        for receive in adds.values[a:b].tolist():
            if receive >= 0:
                lists[receive].append(version)
    return lists

"""Why a group has failed, in words: the same that :mod:`stretto.runtime.incoming` and its neighbours use."""

from __future__ import annotations

from ...lower import Program
from ...model.arrays import Int64
from ...model.errors import PeerFailed
from ...model.topology import printable
from ..mesh import Mesh
from ..wire import LIMIT, Kind
from . import kernel_layout as at
from .records import WORD, Ends, closed_words
from .templates import column


def failure_of(ends: Ends, program: Program | None, block: Int64 | None) -> tuple[PeerFailed, int]:
    """The failure of a group, and the node at fault.

    Args:
        program, block: of the run that was running, if one was.
    """
    mesh, group = ends.mesh, ends.group
    code, row = int(group[at.FAILED // WORD]), int(group[at.FAILED_ROW // WORD])
    connection = ends.by_address.get(int(group[at.CULPRIT // WORD]))
    peer = mesh.node if connection is None else connection.peer
    if code == at.OTHER_CALL and connection is not None:
        record = ends.connections[mesh.connections.index(connection)]
        theirs = record[at.CALL // WORD : at.CALL // WORD + 3].tobytes()
        return mesh.differs(peer, int(group[at.DETAIL // WORD]), theirs), peer
    if code == at.TOLD and connection is not None:
        peer = int(group[at.CONDEMNED_NODE // WORD])
        reason = f"{printable(ends.text(ends.place[connection]))} (as {mesh.name(connection.peer)} says)"
        mesh.condemned = peer, reason
    else:
        timeout_s = 0.0 if block is None else int(block[at.TIMEOUT_NS // WORD]) / 1e9
        number = mesh.runs if block is None else int(block[at.NUMBER // WORD])
        reason = _words(mesh, ends, code, timeout_s, number, connection is None)
    return PeerFailed(mesh.name(peer), reason, _transfer(program, block, peer, row)), peer


def _words(mesh: Mesh, ends: Ends, code: int, timeout_s: float, number: int, alone: bool) -> str:
    a, b = (int(ends.group[w // WORD]) for w in (at.DETAIL, at.SECOND_DETAIL))
    if code in (at.DIED, at.SAID_BYE, at.BROKE):
        return closed_words(a if code == at.BROKE else 0, code == at.SAID_BYE)
    if code == at.OVER:
        behind = f"is still in collective {a}, and " if not alone and 0 < a < number else ""
        ended = f"collective {number} of the group has not ended within the timeout of {timeout_s:g} s"
        return f"it is alive, but {behind}{ended}"
    if code == at.TOO_LONG:
        return f"it sent a {Kind(a).name} frame of {b} bytes; at most {LIMIT[Kind(a)]} may follow"
    if code == at.WRONG_RUN:
        return f"it sent {Kind(a).name} of run {b} in run {number}"
    return {
        at.NO_FRAME: f"it sent {a:04x} where a frame must begin",
        at.UNKNOWN_KIND: f"it sent a frame of unknown kind {a}",
        at.NO_SIGNAL_DUE: f"it signalled row {a}, which nothing here waits for",
        at.NO_DATA_DUE: f"it sent data of row {a}, which does not come from it (or came before)",
        at.OTHER_TOTAL: f"it sends {a} bytes where {b} are due",
        at.OTHER_PLACE: f"it sent {a} bytes for place {b}, which are not due",
        at.TOO_MUCH: f"it sent {a} bytes where {b} were due",
        at.CUT_ELEMENT: f"it sent {a} bytes at once, which ends within an element",
        at.SILENT: f"it has said nothing for the timeout of {timeout_s:g} s",
    }[code]


def _transfer(program: Program | None, block: Int64 | None, peer: int, row: int) -> str | None:
    if program is None or block is None:
        return None
    return program.describe(row) if row >= 0 else transfer_of(program, block, peer)


def transfer_of(program: Program, block: Int64, peer: int) -> str | None:
    """A transfer of a run that cannot complete: one to or from the peer at fault, if there is one."""
    receives, sends = program.receives, program.sends
    missing = column(block, at.R_STATE, len(receives)) != 2
    coming = receives.row[missing & (receives.source == peer)].tolist()
    copies = column(block, at.C_SEND, len(sends.to.values))
    left = (column(block, at.C_LEFT, len(copies)) > 0) | (column(block, at.S_GONE, len(sends))[copies] == 0)
    unsent, to = sends.row[copies[left]], sends.to.values[left]
    waiting = sends.row[column(block, at.S_WAITS, len(sends)) > 0]
    rows = [
        *coming, *sorted(unsent[to == peer].tolist()), *receives.row[missing].tolist(), *sorted(unsent.tolist()),
        *waiting.tolist(),
    ]  # fmt: skip
    return program.describe(rows[0]) if rows else None

"""Whether all ranks end a sum with the same bits.

Sums of floating-point numbers depend on their order, so ranks that add up in different orders end with results that
differ in the last bits, and replicas of a model drift apart. What a rank ends with is an expression over what the ranks
hold at first. Two expressions are alike if they differ in nothing but the sides of sums, as a + b = b + a bit for bit.
"""

from __future__ import annotations

from ..model.plan import Plan
from .kernel_programs import NOTHING
from .lowering import lower
from .orders import is_exchange
from .programs import Program


def sums_alike(plan: Plan) -> bool:
    """Whether every rank that wants a chunk of a plan ends with the same expression, as programs add up."""
    if not is_exchange(plan):  # each chunk is added up along a tree, and all other ranks get copies of the root's sum
        return True
    expressions = _Expressions(lower(plan))
    finals: dict[int, int] = {}
    for program in expressions.programs.values():
        chunks = program.chunks
        for slot, chunk in enumerate(chunks.chunk.tolist()):
            version = int(chunks.final[slot])
            if version != NOTHING:
                value = expressions.of(program.node, slot, version)
                if finals.setdefault(chunk, value) != value:
                    return False
    return True


class _Expressions:
    """The expressions of the versions of chunks at all nodes, as numbers that are equal for equal expressions."""

    def __init__(self, programs: dict[int, Program]) -> None:
        self.programs = programs
        self._numbers: dict[tuple[int, ...], int] = {}
        self._versions: dict[tuple[int, int, int], int] = {}
        self._carried: dict[int, int] = {}
        sends = ((row, node, i) for node, p in programs.items() for i, row in enumerate(p.sends.row.tolist()))
        for row, node, i in sorted(sends):  # a transfer carries what earlier ones brought
            columns = programs[node].sends
            self._carried[row] = self.of(node, int(columns.chunk[i]), int(columns.version[i]))

    def of(self, node: int, slot: int, version: int) -> int:
        """The expression of a version of a node's chunk."""
        key = node, slot, version
        if key not in self._versions:
            program = self.programs[node]
            chunks, receives = program.chunks, program.receives
            place = int(chunks.versions[slot]) + version
            base = int(chunks.base[place])
            if version == 0:
                value = self._number(-1, node, int(chunks.chunk[slot]))
            else:
                value = -1 if base == NOTHING else self.of(node, slot, base)
                for i in chunks.adds.values[chunks.adds.offsets[place] : chunks.adds.offsets[place + 1]].tolist():
                    came = self._carried[int(receives.row[i])] if i >= 0 else self.of(node, slot, ~i)
                    value = came if value < 0 else self._number(min(value, came), max(value, came))
            self._versions[key] = value
        return self._versions[key]

    def _number(self, *parts: int) -> int:
        return self._numbers.setdefault(parts, len(self._numbers))

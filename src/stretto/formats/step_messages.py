"""What a message of several chunks carries, as one range of a buffer at its sender and one at its receiver.

Where chunks do not stand side by side, the sender packs them into scratch, or the receiver takes them into scratch and
copies or adds them to their places. Of a few orders of the chunks the one with the fewest such copies is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

Slot = tuple[str, int]
"""A buffer, "i", "o" or "s", and the first part of a slot in it."""


class Carried(NamedTuple):
    """A chunk that a message carries to a receiver of the plan.

    Attributes:
        receiver: its number in ``plan.dst``.
        src, dst: its slots at both ends; ``dst`` is None where it may be anywhere in scratch.
        parts: of a piece that it covers.
        adds: whether it is added to what is at ``dst``.
    """

    receiver: int
    src: Slot
    dst: Slot | None
    parts: int
    adds: bool


class Form(NamedTuple):
    """How a message goes: its chunks in their order, whether the sender packs them into one range of scratch, and
    whether the receiver takes them into one, from where they go to their places."""

    carried: list[Carried]
    packs: bool = False
    unpacks: bool = False


def in_one_range(carried: Sequence[Carried]) -> Form:
    """The form of a message that is one range at both ends, with the fewest copies."""
    orders = ([*carried], sorted(carried, key=lambda c: c.src), sorted(carried, key=lambda c: c.dst or ("", 0)))
    forms = [Form(order, _runs_at_sender(order) > 1, not _is_range_at_receiver(order)) for order in orders]
    return min(forms, key=_copies)


def after(slot: Slot, count: int) -> Slot:
    """The slot right behind a slot with that number of parts."""
    return slot[0], slot[1] + count


def _copies(form: Form) -> int:
    fixed = [c for c in form.carried if c.dst is not None]
    return form.packs * _runs_at_sender(form.carried) + form.unpacks * _runs_at_receiver(fixed)


def _is_range_at_receiver(carried: Sequence[Carried]) -> bool:
    fixed = [c for c in carried if c.dst is not None]
    return not fixed or (len(fixed) == len(carried) and _runs_at_receiver(fixed) == 1)


def _runs_at_sender(carried: Sequence[Carried]) -> int:
    """In how many ranges the chunks stand at the sender."""
    return 1 + sum(after(a.src, a.parts) != b.src for a, b in pairwise(carried))


def _runs_at_receiver(fixed: Sequence[Carried]) -> int:
    """In how many ranges the chunks stand at the receiver, of which each is added or each is copied."""
    return 1 + sum(a.dst is None or after(a.dst, a.parts) != b.dst or a.adds != b.adds for a, b in pairwise(fixed))

"""SLURM's host lists: ``tux[0-3,12],rack[1-2]n[01-16],login``, each name once."""

from __future__ import annotations

import re
from itertools import product

from ..model.errors import InputError
from . import MOST_NODES
from .values import one_line, shown

_PART = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\])?")


def expand(text: str, where: str) -> list[str]:
    """The names of a list, in order, zeros in front kept.

    Raises:
        InputError: brackets that do not close, a range that goes down, a name twice, or too many names.
    """
    names: list[str] = []
    for item in _split(text.strip().strip('"'), where):
        axes: list[list[str]] = []
        at = 0
        while at < len(item):
            match = _PART.match(item, at)
            if match is None or match.end() == at:
                raise InputError(f"{shown(item)} is no list of hosts, such as tux[0-3,12]", where)
            axes.append([match[1]])
            if match[2] is not None:
                axes.append([number for part in match[2].split(",") for number in _range(part.strip(), where)])
            at = match.end()
        size = 1
        for axis in axes:
            size *= len(axis)
        if size + len(names) > MOST_NODES:
            raise InputError(f"{shown(item)} is more than {MOST_NODES} hosts", where)
        names += [one_line("".join(parts)) for parts in product(*axes)]
    twice = len(names) - len(set(names))
    if twice or not all(names):
        what = "a name is empty" if not all(names) else f"{twice} names stand twice"
        raise InputError(f"{what} in {shown(text)}", where)
    return names


def _split(text: str, where: str) -> list[str]:
    """The items between commas that are not in brackets."""
    items, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise InputError(f"{shown(text)} has brackets that do not close", where)
        if letter == "," and not depth:
            items.append(text[start:i])
            start = i + 1
    if depth:
        raise InputError(f"{shown(text)} has brackets that do not close", where)
    return [item.strip() for item in [*items, text[start:]]]


def _range(text: str, where: str) -> list[str]:
    """The numbers of ``7`` or ``007-012``."""
    match = re.fullmatch(r"(\d{1,12})(?:-(\d{1,12}))?", text, re.ASCII)
    if match is None:
        raise InputError(f"{shown(text)} is no number or range, such as 0-3", where)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first or last - first >= MOST_NODES:
        raise InputError(f"the range {text} {'goes down' if last < first else 'is too long'}", where)
    return [str(number).zfill(len(match[1])) for number in range(first, last + 1)]

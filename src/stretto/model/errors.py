"""Errors, by what the caller can do about them.

    StrettoError
    ├── InputError        a file, spec or argument is wrong: the message names it, the place and the remedy
    │   └── ArgumentError the tensors or ranks of one call do not fit together (also a ValueError and a RuntimeError,
    │                     as programs that use PyTorch expect)
    │   └── Fault         a program of another tool was read, and does not do what it promises
    ├── Unsupported       the request is sound, but this planner or command does not serve it
    │   └── NotInstalled  it needs an extra that this installation lacks
    ├── Infeasible        no plan exists or none was found within the limits given
    └── PeerFailed        a process that takes part in a run died, stalled or broke the protocol (also a
                          RuntimeError, as programs that use PyTorch expect)

The command line prints the message as one line and exits with 2 for each of them; with 1 for a Fault, which is the
answer to a question.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST_SHOWN = 60
"""Characters of a wrong word that a message shows."""
MOST_NAMED = 5
"""Ends of links that a message names."""


def nearest(name: str, names: Iterable[str], otherwise: str | None = None, most: int = 1) -> str:
    """What to say of a name that is not known: the known ones that are like it, else all, or ``otherwise``.

    Args:
        most: how many to name that are like it.
    """
    import difflib

    known = {each.lower(): each for each in names}
    # a word that is like another one is at most 2.4 times as long; to compare a long one would take long
    alike = len(name) <= 3 * max(map(len, known), default=0)
    near = difflib.get_close_matches(name.lower(), known, n=most) if alike else []
    if near:
        return f"did you mean {' or '.join(known[each] for each in near)}?"
    return f"there are {', '.join(known.values()) or 'none'}" if otherwise is None else otherwise


def absent(what: str, name: str, names: Iterable[str]) -> str:
    """What to say of a name of the user's own things that is not there, and of the one that is like it."""
    return _with_hint(f"there is no {what} {name!r}", nearest(name, names, ""))


def no_node(name: object, names: Iterable[str], network: str = "") -> str:
    """What to say of what no node is called, and of the node whose name is like it: another number is another node."""
    message = f"there is no node {name!r}" + (f" in {network}" if network else "")
    return _with_hint(message, nearest_numbered(name, names, "")) if isinstance(name, str) else message


def nearest_numbered(name: str, names: Iterable[str], otherwise: str) -> str:
    """As :func:`nearest`, of things that have numbers in their names: another number is another thing."""
    letters = _without_digits(name)
    return nearest(name, [each for each in names if _without_digits(each) != letters], otherwise)


def no_link(message: str, src: str, dst: str, links: Iterable[tuple[str, str]]) -> str:
    """What to say of two nodes that no link joins, after ``message``: of a misspelt end the one that was meant, else
    the link back, or where links lead."""
    links = (*links,)
    names = {end: None for link in links for end in link}
    for end in (src, dst):
        if end not in names:
            return _with_hint(message, nearest_numbered(end, names, ""))
    if (dst, src) in links:
        return _with_hint(message, f"there is {dst}→{src}")
    ends = [b for a, b in links if a == src]
    more = f" and {len(ends) - MOST_NAMED} more" if len(ends) > MOST_NAMED else ""
    return _with_hint(message, f"links from {src} lead to {', '.join(ends[:MOST_NAMED])}{more}" if ends else "")


def _without_digits(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())


def none_of(word: str, words: Iterable[str]) -> str:
    """What to say of a word that is none of a few: all of them, and the one that is like it."""
    words = (*words,)
    shown = repr(word) if len(word) <= MOST_SHOWN else f"{word[:MOST_SHOWN]!r}..."
    return _with_hint(f"{shown} is none of {', '.join(words)}", nearest(word, words, ""))


def _with_hint(message: str, hint: str) -> str:
    return f"{message}; {hint}" if hint else message


class StrettoError(Exception):
    """Any error that stretto raises on purpose."""


class InputError(StrettoError):
    """What was found in a file, a spec or an argument, what would be right, and the place (``where``) if known."""

    def __init__(self, message: str, where: str | None = None) -> None:
        self.where = where
        super().__init__(f"{where}: {message}" if where else message)


class ArgumentError(InputError, ValueError, RuntimeError):
    """The arguments of a call do not fit together; says which."""


class Fault(InputError):
    """A program of another tool does not do what it promises: the first thing that is wrong.

    Attributes:
        message: what is wrong, in words, without the file.
        place: where in the program: an object whose text names the place, and whose fields are numbers.
        code: what kind of fault.
    """

    def __init__(self, message: str, place: object, code: str, where: str | None = None) -> None:
        self.place, self.code = place, code
        named = place is None or message.startswith(str(place))
        self.message = message if named else f"{place}: {message}"
        super().__init__(self.message, where)


class Unsupported(StrettoError):
    """A sound request that this planner, exporter or mode does not serve; says what does."""


class NotInstalled(Unsupported):
    """A request that needs packages of an extra that this installation lacks; says how to install them."""


class Infeasible(StrettoError):
    """No plan exists for this request, or none was found within the limits; says why."""


class PeerFailed(StrettoError, RuntimeError):
    """Another process that takes part in a run died, stalled, or broke the protocol (``transfer`` waited for it)."""

    def __init__(self, peer: str, reason: str, transfer: str | None = None) -> None:
        self.peer, self.reason, self.transfer = peer, reason, transfer
        super().__init__(f"{peer}: {reason}" + (f", in {transfer}" if transfer else ""))

    def __reduce__(self) -> tuple[type[PeerFailed], tuple[str, str, str | None]]:
        return PeerFailed, (self.peer, self.reason, self.transfer)

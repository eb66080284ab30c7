"""A running job for people who watch it: its links and its collectives, as tables of any width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

BAR = 10
"""Characters of a bar."""

Column = tuple[str, int, list[str]]
"""Name, rank and cells of a column. Where a terminal is too narrow, columns of the highest rank are left out first."""


@dataclass(frozen=True)
class Link:
    """What a link, or a pair of ranks, carries.

    Attributes:
        now: bytes/s over the window, as all that follow; None if nothing was told.
        sending: while bytes came; from a trace alone.
        planned: from a trace, what the plan expects while bytes come; from a controller, what the plans of all jobs
            send on average while they run.
        capacity: its bandwidth; from a controller alone.
    """

    src: str
    dst: str
    now: float | None
    sending: float | None
    planned: float | None
    capacity: float | None

    @property
    def share(self) -> float | None:
        """What it gives while it sends over what was planned, or what it carries now over its bandwidth."""
        if self.sending is not None:
            return self.sending / self.planned if self.planned else None
        return self.now / self.capacity if self.now is not None and self.capacity else None


@dataclass(frozen=True)
class Collective:
    """A collective of a job.

    Attributes:
        job: empty from a trace.
        calls: how many have ended; from a controller, how often a step calls it.
        last_s: how long it took last. planned_s: as the plan says. bound_s: what no plan can beat.
    """

    job: str
    kind: str
    size_bytes: int | None
    calls: int
    last_s: float | None
    planned_s: float | None
    bound_s: float | None

    @property
    def share(self) -> float | None:
        """How long it took over what was planned."""
        return self.last_s / self.planned_s if self.last_s is not None and self.planned_s else None


@dataclass(frozen=True)
class Picture:
    """A job at one moment; ``at`` is the moment of the last news, seconds since 1970."""

    links: Sequence[Link]
    collectives: Sequence[Collective]
    at: float | None
    trouble: str = ""

    @property
    def empty(self) -> bool:
        return not (self.links or self.collectives)

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` says of it."""
        links = [
            {"src": link.src, "dst": link.dst, "now_Bps": link.now, "sending_Bps": link.sending,
             "planned_Bps": link.planned, "capacity_Bps": link.capacity, "share": link.share}
            for link in self.links
        ]  # fmt: skip
        collectives = [asdict(each) | {"share": each.share} for each in self.collectives]
        said = {"at": self.at, "links": links, "collectives": collectives}
        return said | ({"trouble": self.trouble} if self.trouble else {})

    def tables(self, columns: int, most_links: int) -> Group:
        """Two tables.

        Args:
            columns: of the terminal.
            most_links: how many links are listed: those that give the least of what was planned, or carry most of what
                they can.
        """
        from rich.console import Group
        from rich.text import Text

        ordered = sorted(self.links, key=_urgency)[:most_links]
        parts: list[Any] = [_table("collectives", _collective_columns(self.collectives), columns)]
        parts.append(_table("links", _link_columns(ordered), columns))
        if len(ordered) < len(self.links):
            parts.append(Text(f"and {len(self.links) - len(ordered)} links more"))
        if self.trouble:
            parts.append(Text(self.trouble))
        return Group(*parts)


def _urgency(link: Link) -> tuple[bool, float]:
    """Links that give little of what was planned first, or that carry most of what they can."""
    if link.share is None:
        return True, -(link.planned or 0.0)
    return False, link.share if link.sending is not None else -link.share


def _collective_columns(rows: Sequence[Collective]) -> list[Column]:
    from ..model.units import format_size, format_time

    def time(seconds: float | None) -> str:
        return "" if seconds is None else format_time(seconds)

    columns: list[Column] = [
        ("job", 0, [r.job for r in rows]),
        ("collective", 0, [r.kind for r in rows]),
        ("size", 0, ["" if r.size_bytes is None else format_size(r.size_bytes) for r in rows]),
        ("in a step" if any(r.job for r in rows) else "calls", 2, [str(r.calls) for r in rows]),
        ("last", 0, [time(r.last_s) for r in rows]),
        ("plan", 1, [time(r.planned_s) for r in rows]),
        ("bound", 3, [time(r.bound_s) for r in rows]),
        ("last / plan", 1, ["" if r.share is None else f"{r.share:.2f}" for r in rows]),
    ]
    return _said(columns)


def _link_columns(rows: Sequence[Link]) -> list[Column]:
    from ..model.units import format_bandwidth

    def rate(bytes_per_s: float | None) -> str:
        return "" if bytes_per_s is None else format_bandwidth(bytes_per_s)

    columns: list[Column] = [
        ("link", 0, [f"{r.src}→{r.dst}" for r in rows]),
        ("now", 3 if any(r.sending for r in rows) else 0, [rate(r.now) for r in rows]),
        ("sending", 0, [rate(r.sending) for r in rows]),
        ("planned", 2, [rate(r.planned) for r in rows]),
        ("bandwidth", 2, [rate(r.capacity) for r in rows]),
        ("", 1, [_bar(r.share) for r in rows]),
        ("share", 0, ["" if r.share is None else f"{100 * r.share:.0f} %" for r in rows]),
    ]
    return _said(columns)


def _said(columns: list[Column]) -> list[Column]:
    """The columns that have anything to say; the first ones always."""
    return [column for k, column in enumerate(columns) if any(column[2]) or k == 1]


def _bar(share: float | None) -> str:
    """A bar that is full at 100 %."""
    if share is None:
        return ""
    full = min(BAR, round(BAR * share))
    return "━" * full + "╌" * (BAR - full)


def _table(title: str, columns: list[Column], width: int) -> Table:
    """A table within a width: columns of the highest rank are left out first, and what is left is cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def needed() -> int:
        return sum(max(map(len, (name, *cells))) + 3 for name, _, cells in columns) + 1

    while needed() > width and max(rank for _, rank, _ in columns):
        worst = max(rank for _, rank, _ in columns)
        columns = [column for column in columns if column[1] != worst]
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for k, (name, _, _) in enumerate(columns):
        table.add_column(name, no_wrap=True, overflow="ellipsis", justify="left" if k == 0 else "right")
    for row in zip(*(cells for _, _, cells in columns), strict=True):
        table.add_row(*map(Text, row))
    return table

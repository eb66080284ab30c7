"""What the commands do before they print: read requests and plan files."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.errors import InputError
from .output import refuse

if TYPE_CHECKING:
    from ..bounds import Bound
    from ..face import Plan, Topology
    from ..model import topology as model
    from ..model.collective import Workload
    from ..model.timeline import Timeline
    from ..verify import Verdict


class Request(NamedTuple):
    """A topology and a workload, as the command line asks for them."""

    topology: Topology
    workload: Workload

    @classmethod
    def read(
        cls,
        collectives: str,
        topology: str,
        size: str | None,
        shard: str | None,
        demand: str | None,
        chunks: int,
        root: int,
    ) -> Request:
        from .. import face

        if demand is None and (size is None) == (shard is None):
            raise InputError("give either --size or --shard")
        if demand is not None and (size or shard) is not None:
            raise InputError("the matrix says how many bytes there are; leave out --size and --shard", "demand")
        net = face.topology(topology)
        how: dict[str, Any] = {"shard": shard, "demand": demand, "chunks": chunks, "root": root}
        return cls(net, face.workload(collectives, net, size, **how))

    def facts(self) -> dict[str, Any]:
        from ..report.facts import request_facts

        return request_facts(self.topology, self.workload)


def read_foreign(file: str, source: str, topology: str, size: str | None, shard: str | None) -> Plan:
    """The schedule of another tool, as a plan."""
    from ..face import of_model
    from ..face import topology as find_topology
    from ..formats import Size, importers
    from ..model.units import parse_size

    formats = importers()
    if source not in formats:
        raise InputError(f"there is no format {source!r}; there are {', '.join(formats)}", "--from")
    if (size is None) == (shard is None) and not (size is None and formats[source].sized):
        raise InputError("give either --size or --shard: the file does not say")
    given = Size(
        parse_size(size, "size") if size is not None else None,
        parse_size(shard, "shard") if shard is not None else None,
    )
    return of_model(formats[source].read(file, find_topology(topology), given))


def given_options(texts: Sequence[str] | None) -> dict[str, str]:
    """Options by name, from texts ``name=value``."""
    given = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} must be name=value", "option")
        given[name] = value
    return given


def chunk_count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{text!r} is not a number of chunks", "chunks")
    return int(text)


def accept(plan: Plan, as_json: bool) -> Verdict:
    """The verdict on a plan; one that is not correct is refused (exit code 1), since its times mean nothing."""
    verdict = plan.verify()
    if not verdict.ok:
        refuse(plan, verdict, as_json)
    return verdict


def read_verified(file: str, as_json: bool) -> Plan:
    """The plan in a file, refused if it is not correct."""
    from ..face import load

    plan = load(file)
    accept(plan, as_json)
    return plan


def judge(plan: Plan, barriers: bool = True) -> tuple[Timeline, tuple[Bound, ...]]:
    """How long a plan takes, and its lower bounds."""
    from ..bounds import bounds

    return plan.simulate(barriers=barriers), bounds(plan.topology, plan.workload)


def write_topology(net: model.Topology, to: str | None, output: str | None) -> dict[str, Any]:
    """Write a topology in another format, if ``--to`` asks for it; what ``--json`` says of it."""
    from ..formats import atomic_file
    from ..topologies.files import WRITERS

    if to is None and output is None:
        return {}
    if to is None or output is None:
        raise InputError("give both --to and -o", "--to")
    if to not in WRITERS:
        raise InputError(f"there is no format {to!r}; there are {', '.join(WRITERS)}", "--to")
    text = WRITERS[to](net, "--to astra-sim" if to == "astra-sim" else output)
    with atomic_file(output) as file:
        file.write(text)
    return {"file": output, "format": to}


_STARTED = time.monotonic()


def show_progress(done: int, total: int, what: str) -> None:
    """One line on stderr, for a person who has waited for more than a second."""
    if not sys.stderr.isatty() or time.monotonic() - _STARTED < 1.0:
        return
    sys.stderr.write("\r\033[K" + (f"{what} ({done}/{total})" if done < total else ""))
    sys.stderr.flush()

"""``stretto measure``: the network between real hosts, as a topology file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ..model.errors import InputError, PeerFailed, StrettoError
from . import arguments
from .output import answer
from .progress import show_progress
from .tables import print_line, print_table

if TYPE_CHECKING:
    from ..runtime.probe import Effort

TRIALS = 2
MOST_LISTED = 40
"""Links that a table lists."""


def measure(
    output: Annotated[str, Option("-o", "--output", help="The topology file to write.")] = "measured.json",
    hosts: Annotated[
        str | None,
        Option(
            help="Hosts to start on, separated by commas, where no launcher has started it: names that ssh takes. "
            "NAME=ADDRESS says at which address the others reach it."
        ),
    ] = None,
    hosts_file: Annotated[str | None, Option(help="The same from a file, a host a line.")] = None,
    ssh: Annotated[
        str, Option(help="The command that runs another one on a host, which it gets as its next word.")
    ] = "ssh -o BatchMode=yes",
    command: Annotated[str, Option(help="How stretto is called on the hosts of --hosts.")] = "stretto",
    master: Annotated[
        str | None, Option(help="HOST[:PORT] of rank 0, where the launcher does not say it.", show_default=False)
    ] = None,
    connections: Annotated[
        str,
        Option(help="Numbers of connections for the bandwidth of pairs. The first one's is that of the topology."),
    ] = "1,4",
    budget: Annotated[
        str, Option(help="How long a pair is measured, such as 4s, or how many bytes it sends, or both: 4s,1GB.")
    ] = "4s",
    watch: Annotated[
        float | None,
        Option(help="Seconds after which it measures again, on and on, and keeps the file up to date.", min=0.0),
    ] = None,
    cycles: Annotated[int | None, Option(help="With --watch: how often. Default: until it is stopped.", min=1)] = None,
    load: Annotated[str, Option(help="With --watch: the most bytes that each stream of a cycle sends.")] = "1MB",
    telemetry: Annotated[
        str | None,
        Option(
            help="With --watch: a file to which changes are appended, for `stretto replan --telemetry`. "
            "Default: the output's name with .news.jsonl."
        ),
    ] = None,
    controller: Annotated[
        str | None,
        Option(
            help="With --watch: URL of a controller, which is told what links give after each cycle.",
            envvar="STRETTO_CONTROLLER",
        ),
    ] = None,
    network: Annotated[
        str | None, Option(help="With --controller: what the controller calls the network that is measured.")
    ] = None,
    timeout: arguments.Timeout = 60.0,
    worker: Annotated[bool, Option("--worker", hidden=True)] = False,
    as_json: arguments.Json = False,
) -> None:
    """Measure latency, cost of messages and bandwidth between real hosts, and what they share: a topology file.

    Start it on every host by torchrun, mpirun or srun, or name the hosts and it starts itself over ssh."""
    from .. import __version__
    from ..formats import check_writable
    from ..measure import run
    from ..measure.launch import launch_of
    from ..measure.rank import Request
    from ..model.units import parse_size

    if worker:
        run.as_worker(sys.stdin, sys.stdout, os.environ)
        return
    if watch is None and (cycles is not None or telemetry is not None):
        raise InputError("it needs --watch", "--cycles" if cycles is not None else "--telemetry")
    if network is not None and (watch is None or controller is None):
        raise InputError(f"it needs {'--watch' if watch is None else '--controller'}", "--network")
    counts = _counts(connections)
    request = Request(
        __version__, _effort(budget, counts), watch, cycles, max(1, int(parse_size(load, "--load"))), timeout
    )
    recorder = _Recorder(output, telemetry or f"{os.path.splitext(output)[0]}.news.jsonl", as_json)
    if network is not None and controller is not None:
        recorder.tell = _controller(controller, network)
    try:
        if hosts is not None or hosts_file is not None:
            named = _hosts(hosts, hosts_file)
            check_writable(output, ("json",))
            run.over_ssh(named, ssh, command, request, recorder)
        else:
            launch = launch_of(os.environ, master)
            if launch.rank == 0:
                check_writable(output, ("json",))
            run.as_launched(launch, request, recorder)
    except KeyboardInterrupt:
        if recorder.data is None:
            raise PeerFailed("measuring", "it was stopped") from None
    recorder.finish()


def _counts(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= 16 for part in parts):
        raise InputError(f"{text!r} must be whole numbers from 1 to 16, separated by commas", "--connections")
    return tuple(dict.fromkeys(map(int, parts)))


def _effort(budget: str, counts: tuple[int, ...]) -> Effort:
    """What each stream of a pair may take, from what the pair may."""
    from ..model.units import parse_size, parse_time
    from ..runtime.probe import Effort

    seconds, size = 4.0, float(1 << 40)
    for part in budget.split(","):
        if part.strip().lower().endswith("b"):
            size = float(parse_size(part, "--budget"))
        else:
            seconds = parse_time(part, "--budget")
    if seconds <= 0 or size < 1:
        raise InputError(f"{budget!r} leaves nothing to measure", "--budget")
    streams = 2 * TRIALS
    return Effort(
        echoes=20, batches=16, seconds=seconds / (streams * len(counts)),
        most_bytes=max(1, int(size / (streams * sum(counts)))), trials=TRIALS, connections=counts, shared=True,
    )  # fmt: skip


def _hosts(hosts: str | None, file: str | None) -> list[tuple[str, str]]:
    from ..measure.launch import hosts_in
    from ..topologies.values import read_text

    if hosts is not None and file is not None:
        raise InputError("give either --hosts or --hosts-file", "--hosts-file")
    return hosts_in(hosts, "--hosts") if hosts is not None else hosts_in(read_text(file or ""), str(file))


def _controller(url: str, network: str) -> Callable[[dict[str, Any]], None]:
    """Tells a controller telemetry. One that does not answer or refuses is said, and measuring goes on."""
    from ..service.client import CA_VARIABLE, TOKEN_VARIABLE, Controller

    client = Controller(url, os.environ.get(TOKEN_VARIABLE), os.environ.get(CA_VARIABLE))
    said = ""

    def tell(telemetry: dict[str, Any]) -> None:
        nonlocal said
        error = ""
        try:
            client.report(network, telemetry)
        except StrettoError as failure:
            error = str(failure)
        if error != said:
            sys.stderr.write(f"controller: {error or 'it answers again'}\n")
        said = error

    return tell


class _Recorder:
    """Keeps the files, and says what was measured; ``data`` is the topology file, None before there is one.

    ``tell`` gets telemetry of all links after each cycle of watching.
    """

    def __init__(self, output: str, telemetry: str, as_json: bool) -> None:
        self.output, self.telemetry, self.as_json = output, telemetry, as_json
        self.began = time.monotonic()
        self.names: list[str] = []
        self.data: dict[str, Any] | None = None
        self.watched: list[dict[str, Any]] = []
        self.tell: Callable[[dict[str, Any]], None] | None = None

    def take(self, rank: int, kind: str, value: Any) -> None:
        from ..measure.record import append_news, telemetry_of, write_topology

        if kind == "names":
            self.names = value
        elif kind == "progress":
            show_progress(*value)
        elif kind == "measured":
            self._keep(write_topology, value)
            show_progress(1, 1, "measured")
        elif kind == "changed":
            data, news = value
            self._keep(write_topology, data)
            append_news(self.telemetry, news)
            for link in news["links"]:
                sys.stderr.write(f"{news['time']} {_changed_text(link)}\n")
        elif kind == "cycle":
            self.watched.append(value)
        if kind in ("measured", "cycle") and self.tell is not None and self.data is not None:
            self.tell(telemetry_of(self.data, time.time()))

    def _keep(self, write: Callable[[str, Any], None], data: dict[str, Any]) -> None:
        write(self.output, data)
        self.data = data

    def lost(self, failure: PeerFailed) -> None:
        """A rank has failed. Where the network is watched, this is news."""
        from ..measure.record import append_news, timestamp

        number = failure.peer.removeprefix("rank ")
        if self.data is not None and number.isdigit() and int(number) < len(self.names):
            news = {"time": timestamp(time.time()), "down": [self.names[int(number)]]}
            append_news(self.telemetry, news)
            if self.tell is not None:
                self.tell(news | {"time": time.time()})

    def finish(self) -> None:
        """Say what was measured, where this process has gathered it."""
        if self.data is None:
            return
        measured = self.data["measured"]
        summary = {
            "file": self.output, "topology": self.data["name"], "hosts": self.names,
            "sites": [site["hosts"] for site in measured["sites"]], "pairs": measured["pairs"],
            "links": self.data["links"], "nodes": [node["name"] for node in self.data["nodes"]],
            "moved_bytes": measured["bytes"], "wall_s": time.monotonic() - self.began,
            "cycles": self.watched, "cycles_bytes": sum(cycle["bytes"] for cycle in self.watched),
            "changes": sum(cycle["changed"] for cycle in self.watched),
            "telemetry": self.telemetry if any(cycle["changed"] for cycle in self.watched) else None,
        }  # fmt: skip
        answer(self.as_json, summary, lambda: _show(summary))


def _changed_text(link: dict[str, Any]) -> str:
    from ..model.units import format_bandwidth, format_time

    return f"{link['src']} to {link['dst']}: now {format_bandwidth(link['bandwidth'])}, {format_time(link['latency'])}"


def _show(summary: dict[str, Any]) -> None:
    from ..model.units import format_bandwidth, format_size, format_time

    counts = list(summary["pairs"][0]["bandwidth_Bps"])
    rows = []
    for pair in summary["pairs"][:MOST_LISTED]:
        cost = pair["message_s"]
        rates = [format_bandwidth(pair["bandwidth_Bps"][count][0]) for count in counts]
        rows.append(
            (pair["src"], pair["dst"], format_time(pair["latency_s"][0]), format_time(cost[0]) if cost else "", *rates)
        )
    by = [f"by {count} connection{'s' if count != '1' else ''}" for count in counts]
    print_table("pairs, several at a time", ("from", "to", "half a round trip", "a message costs", *by), rows)
    links = []
    for link in summary["links"][:MOST_LISTED]:
        low, high = link["measured"]["bandwidth_Bps"]
        spread = f"{format_bandwidth(low)} to {format_bandwidth(high)}" if high is not None else "at least"
        links.append((summary["nodes"][link["src"]], summary["nodes"][link["dst"]],
                      format_bandwidth(link["bandwidth_Bps"]), spread, format_time(link["latency_s"])))  # fmt: skip
    print_table(summary["topology"], ("from", "to", "bandwidth", "range", "latency"), links)
    if max(len(summary["pairs"]), len(summary["links"])) > MOST_LISTED:
        print_line(f"{summary['file']} has all {len(summary['pairs'])} pairs and {len(summary['links'])} links")
    print_line(f"{format_size(summary['moved_bytes'])} in {format_time(summary['wall_s'])}; wrote {summary['file']}")
    if summary["cycles"]:
        moved = f"{len(summary['cycles'])} cycles with {format_size(summary['cycles_bytes'])}"
        print_line(f"watched: {moved}, {summary['changes']} links changed")
    print_line(f"plan with it: stretto plan allreduce -t {summary['file']} --size 64MB")

"""``stretto measure``: how ranks meet, what is written, and what is said when something goes wrong."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ports import free_port
from stretto import __version__, emulator
from stretto.cli import app
from stretto.cli.measuring import _Recorder
from stretto.formats.telemetry import parse_telemetry, read_telemetry
from stretto.measure import meeting, run
from stretto.measure.launch import Launch
from stretto.measure.meeting import Exchange, Hub
from stretto.measure.rank import Request, measure_as
from stretto.measure.record import append_news, write_topology
from stretto.model.errors import InputError, PeerFailed, StrettoError
from stretto.runtime.probe import Effort
from stretto.topologies import load_topology
from tls_files import ENVIRONMENT

NEEDS_NAMESPACES = pytest.mark.skipif(emulator.refusal() is not None, reason=str(emulator.refusal()))
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_STEP_NODELIST": "gpu[07-09,12]", "SLURM_JOB_ID": "77"}
QUICK = Effort(echoes=3, batches=2, seconds=0.05, most_bytes=1 << 16, trials=1, shared=True)


class Notes:
    """What a reader has been told."""

    def __init__(self, on: Callable[[str, Any], None] = lambda kind, value: None) -> None:
        self.reports: list[tuple[str, Any]] = []
        self.failures: list[PeerFailed] = []
        self.on = on

    def take(self, rank: int, kind: str, value: Any) -> None:
        self.reports.append((kind, value))
        self.on(kind, value)

    def lost(self, failure: PeerFailed) -> None:
        self.failures.append(failure)

    def of(self, kind: str) -> list[Any]:
        return [value for found, value in self.reports if found == kind]


def together(ranks: int, work: Callable[[int, Exchange], None], reader: Notes, timeout_s: float = 20.0) -> list[Any]:
    """Run each rank as a thread with a hub in this one; returns what each rank raised, and the hub last."""
    pairs = [socket.socketpair() for _ in range(ranks)]
    raised: list[Any] = [None] * (ranks + 1)

    def act(rank: int) -> None:
        try:
            work(rank, Exchange(rank, pairs[rank][0].makefile("r"), pairs[rank][0].makefile("w")))
        except StrettoError as error:
            raised[rank] = error
        finally:
            pairs[rank][0].shutdown(socket.SHUT_RDWR)

    with ThreadPoolExecutor(ranks) as pool:
        for rank in range(ranks):
            pool.submit(act, rank)
        try:
            hub = Hub([f"rank {r}" for r in range(ranks)], timeout_s, reader.take)
            hub.serve({r: (there, there.makefile("w")) for r, (_, there) in enumerate(pairs)})
        except PeerFailed as failure:
            raised[-1] = failure
    for pair in pairs:
        for end in pair:
            end.close()
    return raised


def test_ranks_learn_each_others_values_in_order():
    found: dict[int, list[Any]] = {}

    def work(rank: int, exchange: Exchange) -> None:
        exchange.report("name", rank)
        found[rank] = [exchange.share("a", rank), exchange.share("b", [rank])]
        exchange.end()

    notes = Notes()
    assert together(3, work, notes) == [None] * 4
    assert [found[rank] for rank in range(3)] == [[[0, 1, 2], [[0], [1], [2]]]] * 3
    assert sorted(notes.of("name")) == [0, 1, 2]


def test_all_ranks_measure_the_same_network_over_their_own_connections():
    notes = Notes()
    request = Request(__version__, QUICK, timeout_s=20.0)
    raised = together(3, lambda r, x: measure_as(r, 3, f"host{r % 2}", "127.0.0.1", x, request), notes)
    assert raised == [None] * 4
    (data,) = notes.of("measured")
    assert [node["name"] for node in data["nodes"][:3]] == ["host0:0", "host1", "host0:1"]
    assert len(data["measured"]["pairs"]) == 6 and data["measured"]["bytes"] > 0


def test_every_rank_names_the_one_that_died():
    def work(rank: int, exchange: Exchange) -> None:
        if rank == 1:
            exchange.share("hello", {"version": __version__, "name": "b", "secret": ""})
            return  # it ends without a word
        measure_as(rank, 3, "a", "127.0.0.1", exchange, Request(__version__, QUICK, timeout_s=20.0))

    raised = together(3, work, Notes())
    assert raised[1] is None
    assert {str(raised[r]) for r in (0, 2, -1)} == {"rank 1: it died, or left"}


def test_a_rank_that_stops_in_the_middle_is_named_by_all():
    stop = threading.Event()

    def work(rank: int, exchange: Exchange) -> None:
        if rank == 2:
            share = exchange.share

            def stopping(name: str, value: Any, patience_s: float = 0.0) -> list[Any]:
                if name == "pairs":
                    stop.wait(20)  # alive, but it does not answer
                    return []
                return share(name, value, patience_s)

            exchange.share = stopping  # type: ignore[method-assign]
        try:
            measure_as(rank, 3, "a", "127.0.0.1", exchange, Request(__version__, QUICK, timeout_s=0.3))
        finally:
            stop.set()

    raised = together(3, work, Notes(), timeout_s=0.3)
    assert {raised[r].peer for r in (0, 1, -1)} == {"rank 2"} and "nothing came from it" in str(raised[0])


def test_versions_that_differ_are_refused_with_both_hosts():
    def work(rank: int, exchange: Exchange) -> None:
        request = Request("1.0" if rank else "2.0", QUICK, timeout_s=20.0)
        measure_as(rank, 2, "ab"[rank], "127.0.0.1", exchange, request)

    raised = together(2, work, Notes())
    assert "a has stretto 2.0, b has 1.0; install one version" in str(raised[0])


@pytest.mark.parametrize("line", ["Welcome to b", '{"name": "b"}', '{"name": "b", "value": 0, "patience_s": "now"}'])
def test_what_is_no_measurement_is_named(line):
    def work(rank: int, exchange: Exchange) -> None:
        if rank:
            exchange._writer.write(f"{line}\n")
            exchange._writer.flush()
        exchange.share("hello", 0)

    assert f"rank 1: it wrote {line!a} instead" in str(together(2, work, Notes())[-1])


def test_a_line_without_an_end_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr("stretto.measure.meeting.MOST_LINE", 1000)

    def work(rank: int, exchange: Exchange) -> None:
        if rank:
            exchange._writer.write("x" * 2000)
            exchange._writer.flush()
            exchange._hear()
        exchange.share("hello", 0)

    assert "rank 1: it wrote a line of over 1000 bytes" in str(together(2, work, Notes())[-1])


@pytest.mark.parametrize(
    "variables", [{}, ENVIRONMENT, {"STRETTO_FRAMES": "authenticated", "STRETTO_SECRET": "a chosen secret"}]
)
def test_launched_ranks_meet_at_rank_0_though_its_port_is_taken(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("", 0)) as taken:  # as torchrun's own store may be
        port = int(taken.getsockname()[1])
        notes, request = Notes(), Request(__version__, QUICK, timeout_s=20.0)
        # no handshake with a stranger on the taken port may hold a rank up
        threading.Thread(target=lambda: taken.accept()[0].close(), daemon=True).start()
        with ThreadPoolExecutor(2) as pool:
            for done in [
                pool.submit(run.as_launched, Launch("torchrun", r, 2, "127.0.0.1", port, "job"), request, notes)
                for r in (0, 1)
            ]:
                done.result(60)
    assert len(notes.of("measured")) == 1


def test_a_rank_of_another_job_or_none_at_all_is_not_waited_for_longer_than_the_timeout(monkeypatch):
    monkeypatch.setattr(meeting, "LOOK_S", 0.01)
    port, request = free_port(), Request(__version__, QUICK, timeout_s=0.2)
    with pytest.raises(PeerFailed, match=rf"rank 0: cannot be reached at 127.0.0.1:{port} within 0.2 s"):
        run.as_launched(Launch("srun", 1, 2, "127.0.0.1", port, ""), request, Notes())
    with pytest.raises(PeerFailed, match=r"rank 1: did not come within 0.2 s"):
        run.as_launched(Launch("srun", 0, 2, "127.0.0.1", port, ""), request, Notes())


def stretto(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["measure", *arguments])
    assert result.exit_code == code or isinstance(result.exception, StrettoError), result.output
    return result


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--hosts", "a,b", "--ssh", "false"), r"rank \d \([ab]\): it died, or left"),
        (("--hosts", "a,b", "--ssh", "sh -c 'echo no route >&2; exit 255'"), r"rank \d \([ab]\): no route"),
        (("--hosts", "a,b", "--ssh", "no-such-command"), "no-such-command cannot be started"),
        (("--hosts", "a,b", "--ssh", "echo"), r"wrote '[ab] stretto measure --worker' instead"),
        (("--hosts", "a,b", "--ssh", "ssh '"), "--ssh: .* is no command: No closing quotation"),
        (("--hosts", "a,b", "--command", ""), "--command: is empty"),
        (("--hosts", "a"), "--hosts: 1 host is given"),
        (("--hosts-file", "missing.txt"), "missing.txt"),
        (("--hosts", "a,b", "--hosts-file", "x"), "either"),
        (("--connections", "0"), "--connections"),
        (("--budget", "soon"), "--budget"),
        (("--cycles", "2"), "--cycles: it needs --watch"),
        (("--network", "wan"), "--network: it needs --watch"),
        (("--network", "wan", "--watch", "1"), "--network: it needs --controller"),
        (("-o", "missing/folder/net.json", "--hosts", "a,b"), "missing/folder/net.json: cannot be written"),
        (("--worker",), "orders"),
        ((), "nothing says which hosts"),
    ],
)
def test_what_goes_wrong_is_one_line_and_no_file(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (*TORCHRUN, *OPEN_MPI, *SLURM):
        monkeypatch.delenv(name, raising=False)
    result = stretto(*arguments, code=2)
    message = str(result.exception)
    assert "\n" not in message
    assert re.search(words, message), message
    assert os.listdir(tmp_path) == []


def test_a_host_that_fails_while_the_network_is_watched_is_news_for_replan(tmp_path):
    path, news = str(tmp_path / "net.json"), str(tmp_path / "net.news.jsonl")
    recorder, request = _Recorder(path, news, as_json=True), Request(__version__, QUICK, watch_s=0.0, timeout_s=20.0)
    notes = Notes(lambda kind, value: recorder.take(0, kind, value))

    def work(rank: int, exchange: Exchange) -> None:
        if rank == 2:
            share = exchange.share

            def leaving(name: str, value: Any, patience_s: float = 0.0) -> list[Any]:
                if name == "cycle":
                    raise InputError("its host fails")
                return share(name, value, patience_s)

            exchange.share = leaving  # type: ignore[method-assign]
        measure_as(rank, 3, "abc"[rank], "127.0.0.1", exchange, request)

    told: list[dict[str, Any]] = []
    recorder.tell = told.append
    raised = together(3, work, notes)
    assert str(raised[0]) == str(raised[1]) == str(raised[-1]) == "rank 2: it died, or left"
    assert not os.path.exists(news)
    recorder.lost(raised[-1])
    net = load_topology(path)
    assert read_telemetry(news, net, 1).nodes_down == {net.names.index("c")}
    # a controller is told what all links give, and who failed
    measured = parse_telemetry(told[0], net, 0, "told")
    assert [measured.bandwidth[i] for i in range(net.link_count)] == pytest.approx(net.bandwidth.tolist())
    assert [measured.latency_s[i] for i in range(net.link_count)] == pytest.approx(net.latency_s.tolist())
    assert told[-1]["down"] == ["c"]
    Path(news).write_text(Path(news).read_text() + '{"links": [{"src": "a", "dst": "nobody"}]}\n')
    with pytest.raises(InputError, match=r"news.jsonl, line 2, link 0: there is no node 'nobody'"):
        read_telemetry(news, net, 1)


@NEEDS_NAMESPACES
def test_a_change_is_found_confirmed_and_told_to_the_file_and_to_replan(tmp_path):
    net = load_topology("fullmesh:2?bandwidth=4MB/s&latency=0s")
    effort = Effort(echoes=5, batches=4, seconds=0.25, most_bytes=1 << 40)
    request = Request(__version__, effort, watch_s=0.0, cycles=3, load_bytes=1 << 18, timeout_s=20.0)
    path, news = str(tmp_path / "net.json"), str(tmp_path / "net.news.jsonl")

    def on(kind: str, value: Any) -> None:
        if kind == "measured":
            write_topology(path, value)
        elif kind == "changed":
            write_topology(path, value[0])
            append_news(news, value[1])
        elif kind == "cycle" and value["cycle"] == 1:
            slower = ["tc", "-n", places[0].argument, "qdisc", "change", "dev", "to1", "root", "tbf"]
            subprocess.run([*slower, "rate", "16mbit", "burst", "16384", "latency", "50ms"], check=True)

    def work(rank: int, exchange: Exchange) -> None:
        emulator.enter(places[rank].argument)
        measure_as(rank, 2, "ab"[rank], places[rank].host, exchange, request)

    notes = Notes(on)
    with emulator.built(net) as places:
        assert together(2, work, notes) == [None] * 3
    cycles = notes.of("cycle")
    assert len(cycles) == 3 and cycles[1]["changed"] and len(Path(news).read_text().splitlines()) >= 1
    # a cycle sends as little as it may, unless it has something to confirm
    assert min(cycle["bytes"] for cycle in cycles) <= 4 * request.load_bytes < cycles[1]["bytes"]
    now = load_topology(path)
    width = {now.link_name(k): float(w) for k, w in enumerate(now.bandwidth)}
    assert width == pytest.approx({"a→b": 2e6, "b→a": 4e6}, rel=0.05)
    telemetry = read_telemetry(news, now, 1)
    assert telemetry.bandwidth[0] == width["a→b"]


@NEEDS_NAMESPACES
def test_the_command_measures_hosts_that_it_starts_itself_on(tmp_path):
    path = tmp_path / "net.json"
    with emulator.built(load_topology("fullmesh:2?bandwidth=4MB/s&latency=6ms"), relayed=True) as places:
        hosts = ",".join(f"{place.argument}={place.host}" for place in places.values())
        result = stretto(
            "--hosts", hosts, "--ssh", "ip netns exec", "--command", f"{sys.executable} -m stretto.cli", "-o", str(path),
            "--budget", "2s", "--connections", "1", "--json",
        )  # fmt: skip
    summary = json.loads(result.stdout)
    assert summary["file"] == str(path) and summary["sites"] == [summary["hosts"]]
    net = load_topology(str(path))
    assert net.bandwidth.tolist() == pytest.approx([4e6] * 2, rel=0.05)
    assert net.latency_s.tolist() == pytest.approx([6e-3] * 2, rel=0.05)
    planned = CliRunner().invoke(app, ["plan", "allreduce", "-t", str(path), "--size", "1MB", "--json"])
    assert json.loads(planned.stdout)["verified"] is True
    assert os.listdir(tmp_path) == ["net.json"]

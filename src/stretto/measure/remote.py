"""Start a rank on each host over ssh, and gather what they measure through its pipes: no port is needed for that."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

from ..model.errors import InputError, PeerFailed
from ..model.topology import printable
from .meeting import Lines, Source

END_S = 5.0
"""Seconds that a rank's process gets to end by itself."""
MOST_REASON = 300


class Remote:
    """The processes on the hosts.

    Args:
        hosts: the names that the command of ``ssh`` takes.
        ssh: the words before a host's name, ``ssh -o BatchMode=yes``; after it comes what to run there.
        command: how stretto is called on the hosts.
    """

    def __init__(self, hosts: Sequence[str], ssh: str, command: str) -> None:
        self.hosts = hosts
        self.processes: list[subprocess.Popen[bytes]] = []
        self.errors: list[IO[bytes]] = []
        before, after = _words(ssh, "--ssh"), _words(command, "--command")
        for host in hosts:
            said = tempfile.TemporaryFile()  # noqa: SIM115
            words = [*before, host, *after, "measure", "--worker"]
            try:
                process = subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, bufsize=0
                )  # fmt: skip
            except OSError as error:
                self.end()
                raise InputError(f"{words[0]} cannot be started: {error.strerror}", "measure") from None
            self.processes.append(process)
            self.errors.append(said)

    def brief(self, orders: Sequence[Any]) -> Lines:
        """Give each process its orders; returns the lines of each for the hub."""
        lines: dict[int, tuple[Source, IO[str]]] = {}
        for rank, (process, order) in enumerate(zip(self.processes, orders, strict=True)):
            assert process.stdin is not None and process.stdout is not None
            writer = open(process.stdin.fileno(), "w", closefd=False)  # noqa: SIM115
            with contextlib.suppress(OSError):  # it is gone: the hub will say so
                writer.write(json.dumps(order) + "\n")
                writer.flush()
            lines[rank] = process.stdout, writer
        return lines

    def explained(self, failure: PeerFailed) -> PeerFailed:
        """The failure with the host's name, and what its process, or ssh, wrote last before it ended."""
        for rank, host in enumerate(self.hosts):
            if failure.peer == f"rank {rank}":
                reason = failure.reason
                with contextlib.suppress(subprocess.TimeoutExpired):
                    if self.processes[rank].wait(1.0):
                        self.errors[rank].seek(0)
                        said = self.errors[rank].read().decode(errors="replace").strip().rpartition("\n")[2]
                        reason = printable(said.removeprefix("error: "))[:MOST_REASON] or reason
                return PeerFailed(f"rank {rank} ({host})", reason)
        return failure

    def end(self) -> None:
        """End all processes."""
        for process in self.processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for said in self.errors:
            said.close()


def _words(text: str, option: str) -> list[str]:
    """The words of a command; InputError if there is none, or a quotation does not end."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no command: {error}", option) from None
    if not words:
        raise InputError("is empty; give a command", option)
    return words


@contextlib.contextmanager
def started(hosts: Sequence[str], ssh: str, command: str) -> Iterator[Remote]:
    """A process on each host, which ends with this block."""
    remote = Remote(hosts, ssh, command)
    try:
        yield remote
    finally:
        remote.end()

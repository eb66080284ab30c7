"""Who is let in, and who is not: the attacks on the handshake."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshes import CREDENTIALS, meshes
from stretto.model.errors import PeerFailed
from stretto.runtime import cpace, door
from stretto.runtime.connect import join, listen
from stretto.runtime.credentials import Credentials, Protection
from stretto.runtime.door import Door
from stretto.runtime.handshake import _HELLO, _MAGIC, _REFUSED, Dropped, Refusal, shake
from stretto.runtime.mesh import Mesh
from tls_files import with_tls

CHOSEN = Credentials(b"correct horse battery", chosen=True)
OTHER = Credentials(b"wrong horse, no battery", chosen=True)
NAMES = {0: "rank 0", 1: "rank 1"}


@contextlib.contextmanager
def open_door(credentials: Credentials = CREDENTIALS, node: int = 0) -> Iterator[tuple[Door, tuple[str, int]]]:
    with listen() as listener, Door(node, [listener], credentials) as entry:
        yield entry, listener.getsockname()


def visit(entry: Door, address: tuple[str, int], credentials: Credentials, end=(0, 0), node=7):
    """One call at a door; what the caller gets or why it does not, and what the door lets in."""

    def call():
        sock = socket.create_connection(address)
        try:
            return shake(sock, credentials, node, end, "rank 0", within_s=20)
        except PeerFailed as failure:
            return failure

    with ThreadPoolExecutor(1) as pool:
        caller = pool.submit(call)
        came = None
        while not caller.done() or (came is None and not isinstance(caller.result(), PeerFailed)):
            came = came or entry.next(time.monotonic() + 0.05)
        return caller.result(), came


def close(*ends) -> None:
    for end in ends:
        if end is not None and not isinstance(end, PeerFailed):
            end[1].close()


def read_all(sock: socket.socket) -> bytes:
    content = b""
    with contextlib.suppress(ConnectionError):
        while more := sock.recv(4096):
            content += more
    return content


@pytest.mark.parametrize("credentials", [CREDENTIALS, CHOSEN, Credentials(bytes(32), frames=Protection.AUTHENTICATED)])
def test_who_has_the_secret_is_let_in(credentials):
    with open_door(credentials) as (entry, address):
        ours, theirs = visit(entry, address, credentials, end=(0, 3))
        assert ours[0] == (0, 3)
        assert theirs[0] == (7, 3)
        ours[1].sendall(b"ping")
        assert theirs[1].recv(10) == b"ping"
        close(ours, theirs)


@pytest.mark.parametrize(
    ("there", "here", "at_caller", "at_door"),
    [
        (Credentials(bytes(32)), CREDENTIALS, "does not know its secret", "does not know the secret"),
        (OTHER, CHOSEN, "does not know its secret", "does not know the secret"),
        (Credentials(CREDENTIALS.secret, context=b"another group"), CREDENTIALS,
         "does not know its secret", "does not know the secret"),
        (CHOSEN, CREDENTIALS, "set STRETTO_SECRET at all ranks, or at none", "its secret is from another source"),
        (CREDENTIALS, Credentials(CREDENTIALS.secret, frames=Protection.AUTHENTICATED), "another protection of frames",
         "another protection than authenticated frames"),
    ],
)  # fmt: skip
def test_both_ends_say_in_one_line_why_someone_is_turned_away(there, here, at_caller, at_door):
    with open_door(here) as (entry, address):
        failure, came = visit(entry, address, there)
        assert came is None
        assert at_caller in failure.reason
        assert failure.peer == "rank 0"
        while not entry.last_failure:
            entry.next(time.monotonic() + 0.02)
        assert at_door in entry.last_failure
        assert "\n" not in str(failure) + entry.last_failure


@pytest.mark.parametrize("credentials", [CREDENTIALS, CHOSEN])
def test_a_stranger_who_asks_for_a_proof_gets_none(credentials):
    """Before it has proven itself it gets a random number and a share, which are different each time."""
    share = cpace.SHARE_BYTES if credentials.chosen else 0
    heard = []
    with open_door(credentials) as (entry, address):
        for _ in range(2):
            with socket.create_connection(address) as sock:
                hello = _HELLO.pack(credentials.chosen, 0, 7, 0, bytes(32))
                sock.sendall(_MAGIC + hello + (5).to_bytes(share, "big") if share else _MAGIC + hello)
                sock.sendall(bytes(32))  # a proof that is none
                while not entry.last_failure:
                    entry.next(time.monotonic() + 0.02)
                entry.last_failure = ""
                heard.append(read_all(sock))
    end = len(_MAGIC) + _HELLO.size + share
    for said in heard:
        assert said[end:] == _REFUSED + bytes([Refusal.SECRET])
    assert heard[0][:end][-32 - share :] != heard[1][:end][-32 - share :]


def test_what_a_listener_hears_and_an_impostor_gets_fits_every_secret():
    """The share of a key exchange is g^x for an unknown x: for every other secret there is an x as well, since all
    generators generate the same group."""
    assert pow(cpace.generator(b"guess", b""), cpace.PRIME // 2, cpace.PRIME) == 1
    assert cpace.generator(b"guess", b"") != 1
    one, same = (cpace.Exchange(b"secret", b"1, 0") for _ in range(2))
    other, elsewhere = cpace.Exchange(b"guess", b"1, 0"), cpace.Exchange(b"secret", b"0, 1")
    assert one.key(same.share) == same.key(one.share)
    assert one.key(other.share) != other.key(one.share)
    assert one.key(elsewhere.share) != elsewhere.key(one.share)


def test_the_group_is_that_of_rfc_3526():
    bits = 2942
    one = 1 << (bits + 64)

    def arc_cotangent(x: int) -> int:
        term, total, n = one // x, 0, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term, n = term // (x * x), n + 2
        return total

    pi = (16 * arc_cotangent(5) - 4 * arc_cotangent(239)) >> 64  # Machin's formula
    assert 2**3072 - 2**3008 - 1 + 2**64 * (pi + 1690314) == cpace.PRIME


@pytest.mark.parametrize("share", [0, 1, cpace.PRIME - 1, cpace.PRIME, 2 ** (8 * cpace.SHARE_BYTES) - 1])
def test_a_share_that_would_fix_the_key_is_refused(share):
    with pytest.raises(ValueError, match="out of range"):
        cpace.Exchange(b"secret", b"").key(share.to_bytes(cpace.SHARE_BYTES, "big"))


class Between:
    """A man in the middle: passes bytes on in both directions, keeps those of the caller, and may change them.

    Args:
        there, back: what becomes of bytes that come from the caller, and of those that go to it.
    """

    def __init__(self, address: tuple[str, int], there=bytes, back=bytes) -> None:
        self.listener = listen()
        self.address = self.listener.getsockname()
        self.to, self.there, self.back, self.heard = address, there, back, b""
        self.thread = threading.Thread(target=self._pass_on, daemon=True)
        self.thread.start()

    def _pass_on(self) -> None:
        with self.listener, self.listener.accept()[0] as near, socket.create_connection(self.to) as far:
            back = threading.Thread(target=self._one_way, args=(far, near, self.back), daemon=True)
            back.start()
            self._one_way(near, far, self._keep)
            back.join()

    def _keep(self, content: bytes) -> bytes:
        self.heard += content
        return self.there(content)

    def _one_way(self, source: socket.socket, to: socket.socket, change) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                to.sendall(change(content))
        for sock in (source, to):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("credentials", [CREDENTIALS, CHOSEN])
def test_a_recorded_handshake_cannot_be_replayed(credentials):
    with open_door(credentials) as (entry, address):
        between = Between(address)
        ours, theirs = visit(entry, between.address, credentials)
        close(ours, theirs)
        between.thread.join()
        with socket.create_connection(address) as sock:
            sock.sendall(between.heard)
            while not entry.last_failure:
                assert entry.next(time.monotonic() + 0.02) is None
            assert read_all(sock).endswith(_REFUSED + bytes([Refusal.SECRET]))
        assert "does not know the secret" in entry.last_failure


def test_a_challenge_cannot_be_passed_to_another_rank():
    """Rank 7 calls rank 1, as it believes; the other end passes all on to rank 0."""
    with open_door(node=0) as (entry, address):
        failure, came = visit(entry, address, CREDENTIALS, end=(1, 0))
        assert came is None
        assert failure.reason == "it is node 0, not node 1"

        def names_rank_1(content: bytes) -> bytes:
            at = len(_MAGIC) + 2
            return content[:at] + struct.pack("!I", 1) + content[at + 4 :] if len(content) > _HELLO.size else content

        between = Between(address, back=names_rank_1)
        failure, came = visit(entry, between.address, CREDENTIALS, end=(1, 0))
        assert came is None
        assert "does not know its secret" in failure.reason


def test_what_a_caller_said_cannot_be_sent_back_to_it():
    """The end that is called knows nothing, and mirrors all it gets."""
    with listen() as listener:

        def mirror() -> None:
            sock, _ = listener.accept()
            with sock, contextlib.suppress(OSError):
                while content := sock.recv(4096):
                    sock.sendall(content)

        thread = threading.Thread(target=mirror)
        thread.start()
        sock = socket.create_connection(listener.getsockname())
        with pytest.raises(PeerFailed):
            shake(sock, CREDENTIALS, 0, (0, 0), "rank 0")
        thread.join()


@pytest.mark.parametrize("at", range(len(_MAGIC), len(_MAGIC) + _HELLO.size))
def test_each_byte_of_what_a_caller_says_counts(at):
    """Also those that say how the connection is to be protected: it cannot be downgraded."""
    done = []

    def change(content: bytes) -> bytes:
        if done:
            return content
        done.append(True)
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    with open_door() as (entry, address):
        failure, came = visit(entry, Between(address, change).address, CREDENTIALS)
        assert came is None
        assert isinstance(failure, PeerFailed)


FIRST = st.one_of(
    st.binary(min_size=1, max_size=90),
    st.binary(max_size=500).map(lambda b: _MAGIC + b),
    st.binary(max_size=200).map(lambda b: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b),  # a hello of TLS
)


@settings(max_examples=60, deadline=None)
@given(first=FIRST, credentials=st.sampled_from([CREDENTIALS, CHOSEN, with_tls()]))
def test_whatever_comes_first_is_turned_away(first, credentials):
    with open_door(credentials) as (entry, address), socket.create_connection(address) as sock:
        sock.sendall(first)
        sock.shutdown(socket.SHUT_WR)
        while not entry.last_failure:
            assert entry.next(time.monotonic() + 0.02) is None


@settings(max_examples=60, deadline=None)
@given(answer=FIRST, credentials=st.sampled_from([CREDENTIALS, CHOSEN, with_tls()]))
def test_whatever_is_answered_a_caller_says_what_is_wrong(answer, credentials):
    with listen() as listener:
        sock = socket.create_connection(listener.getsockname())
        with listener.accept()[0] as there:
            there.sendall(answer)
            there.shutdown(socket.SHUT_WR)
            with pytest.raises(PeerFailed, match="rank 0: "):
                shake(sock, credentials, 1, (0, 0), "rank 0", within_s=20)


def test_an_end_that_is_gone_before_the_handshake_begins_may_be_called_again():
    with listen() as listener:
        sock = socket.create_connection(listener.getsockname())
        gone = listener.accept()[0]
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        gone.close()
        with pytest.raises(Dropped):
            shake(sock, CREDENTIALS, 1, (0, 0), "rank 0")


def test_who_lost_its_place_calls_again():
    listeners = [listen(), listen()]
    addresses = {v: s.getsockname() for v, s in enumerate(listeners)}
    with ThreadPoolExecutor(2) as pool:
        calling = pool.submit(join, 1, listeners[1], addresses, NAMES, CREDENTIALS, timeout_s=20)
        for _ in range(2):
            listeners[0].accept()[0].close()
        accepting = pool.submit(join, 0, listeners[0], addresses, NAMES, CREDENTIALS, timeout_s=20)
        found = [accepting.result(), calling.result()]
        list(pool.map(Mesh.close, found))
    for listener in listeners:
        listener.close()


def drip(address: tuple[str, int], count: int, ready: threading.Event, over: threading.Event) -> None:
    """Connections that send a byte now and then, and never enough."""
    with contextlib.ExitStack() as stack:
        strangers = []
        for _ in range(count):
            strangers.append(stack.enter_context(socket.create_connection(address)))
        ready.set()
        rng = random.Random(0)
        while not over.wait(0.01):
            for sock in rng.sample(strangers, 50):
                with contextlib.suppress(OSError):
                    sock.send(_MAGIC[:1])


def test_five_hundred_dripping_connections_keep_nobody_out():
    listeners = [listen(), listen()]
    addresses = {v: s.getsockname() for v, s in enumerate(listeners)}
    ready, over = threading.Event(), threading.Event()
    attacker = threading.Thread(target=drip, args=(addresses[0], 500, ready, over))
    attacker.start()
    found: dict[int, Mesh] = {}

    def one(v: int) -> None:
        found[v] = join(v, listeners[v], addresses, NAMES, CREDENTIALS, timeout_s=20)

    ranks = [threading.Thread(target=one, args=(v,)) for v in range(2)]
    ready.wait()  # the attackers come first
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    over.set()
    attacker.join()
    assert found.keys() == {0, 1}
    for mesh in found.values():
        mesh.close()
    for listener in listeners:
        listener.close()


def test_a_handshake_has_one_time_limit_however_often_a_byte_comes(monkeypatch):
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.3)
    with open_door() as (entry, address), socket.create_connection(address) as sock:
        sock.settimeout(0.05)
        began = time.monotonic()
        while not entry.last_failure:
            with contextlib.suppress(OSError):
                sock.send(_MAGIC[:1])
            assert entry.next(time.monotonic() + 0.05) is None
            assert time.monotonic() - began < 20
        assert sock.recv(10) == b""


def test_a_caller_gives_a_silent_end_no_more_than_its_time():
    with listen() as listener:
        sock = socket.create_connection(listener.getsockname())
        with pytest.raises(PeerFailed, match="the handshake did not end within"):
            shake(sock, CREDENTIALS, 1, (0, 0), "rank 0", within_s=0.2)


def test_strangers_of_one_address_do_not_take_the_places_of_others(monkeypatch):
    monkeypatch.setattr(door, "MOST_STRANGERS", 4)
    with listen("0.0.0.0") as listener, Door(0, [listener], CREDENTIALS) as entry, contextlib.ExitStack() as stack:
        port = listener.getsockname()[1]
        quiet = socket.socket()
        quiet.bind(("127.0.0.2", 0))
        quiet.connect(("127.0.0.1", port))
        stack.enter_context(quiet)
        for _ in range(12):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        while len(entry._threads) < 12 and sum(s.host == "127.0.0.1" for s in entry._strangers) < 3:
            entry.next(time.monotonic() + 0.02)
        entry.next(time.monotonic() + 0.1)
        assert [s.host for s in entry._strangers].count("127.0.0.2") == 1
        assert len(entry._strangers) == 4


def test_a_group_of_chosen_secrets_meets():
    found = meshes([0, 1, 2], timeout_s=20, credentials=CHOSEN)
    assert all(isinstance(mesh, Mesh) for mesh in found.values())
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(Mesh.close, found.values()))

"""TLS between ranks: who is let in, who is not, and what the errors say."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from joined import both_ends
from meshes import meshes
from stretto.model.errors import InputError, PeerFailed
from stretto.runtime.channel import Channel, Tls
from stretto.runtime.credentials import Credentials, Protection, certificates_of, contexts
from stretto.runtime.mesh import Mesh
from tls_files import FOLDER, SECRET, files, with_tls

GOOD = with_tls()


@pytest.mark.parametrize("credentials", [GOOD, with_tls("rank", "authority", "job.example"),
                                         Credentials(b"correct horse", True, files())])  # fmt: skip
def test_ranks_meet_over_tls_1_3(credentials):
    ours, theirs = both_ends(credentials, credentials)
    assert isinstance(ours, Channel) and isinstance(theirs, Channel)
    assert {end.codec.tls.version() for end in (ours, theirs)} == {"TLSv1.3"}
    text = b"to be encrypted " * 20_000
    sender = threading.Thread(target=ours.sendall, args=(text,))
    sender.start()
    content = b""
    while len(content) < len(text):
        content += theirs.recv(1 << 20)
    sender.join()
    assert content == text
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("caller", "host", "at_caller", "at_host"),
    [
        (with_tls("stranger"), GOOD, "unknown ca", "certificate is refused: unable to get local issuer certificate"),
        (GOOD, with_tls("stranger"), "certificate is refused: unable to get local issuer certificate", "unknown ca"),
        (with_tls("expired"), GOOD, "certificate expired", "certificate is refused: certificate has expired"),
        (GOOD, with_tls("expired"), "certificate is refused: certificate has expired", "certificate expired"),
        (GOOD, with_tls("elsewhere"), "certificate is not valid for '127.0.0.1'", "bad certificate"),
        (with_tls("rank", "authority", "job.example"), with_tls("elsewhere"),
         "certificate is not valid for 'job.example'", "bad certificate"),
        (with_tls("elsewhere"), with_tls("rank", "authority", "job.example"),
         "it closed the connection", "its certificate does not have the name job.example"),
        (Credentials(SECRET), GOOD, "it wants TLS, for which this process has no certificate", "it does not speak TLS"),
        (GOOD, Credentials(SECRET), "it does not speak TLS", "it speaks TLS, for which this process has no certificate"),
        (Credentials(bytes(32), certificates=files()), GOOD, "does not know its secret", "does not know the secret"),
    ],
)  # fmt: skip
def test_both_ends_say_in_one_line_what_is_wrong(caller, host, at_caller, at_host):
    failures = both_ends(caller, host)
    for failure, words in zip(failures, (at_caller, at_host)):
        assert isinstance(failure, PeerFailed)
        assert words in failure.reason
        assert "\n" not in str(failure)


def test_another_certificate_of_the_same_authority_does_not_make_a_man_in_the_middle():
    """He ends TLS at both sides, and passes on what is said within: but the proofs cover the certificates."""
    heard: list[bytes] = []

    def between(near: socket.socket, far: socket.socket) -> None:
        calls, accepts, _ = contexts(files("second"))
        ends = []
        for sock, tls in ((near, Tls(accepts, False, None)), (far, Tls(calls, True, "127.0.0.1"))):
            tls.shake(sock, lambda: None)
            ends.append(Channel(sock, tls))
        back = threading.Thread(target=pass_on, args=(ends[1], ends[0]))
        back.start()
        pass_on(*ends)
        back.join()

    def pass_on(source: Channel, to: Channel) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(4096):
                heard.append(content)
                to.sendall(content)
        for end in (source, to):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    caller, host = both_ends(GOOD, GOOD, between)
    assert len(heard) > 2
    assert "does not know its secret" in caller.reason
    assert "does not know the secret" in host.reason


def test_a_group_meets_over_tls():
    found = meshes([0, 1, 2], timeout_s=20, credentials=GOOD)
    assert all(isinstance(mesh, Mesh) for mesh in found.values()), found
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(Mesh.close, found.values()))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("rank.pem", None, "authority.pem"), "key: TLS needs cert, key and ca"),
        ((None, None, None), "cert: TLS needs cert, key and ca"),
        (("rank.pem", "stranger.key.pem", "authority.pem"), "key values mismatch"),
        (("rank.pem", "rank.key.pem", "nowhere.pem"), r"nowhere.pem: .*no such file"),
        (("rank.pem", "rank.key.pem", "make.sh"), r"make.sh: no certificates of an authority can be read"),
        (("make.sh", "rank.key.pem", "authority.pem"), "no certificate with its unencrypted key can be read"),
    ],
)
def test_files_that_do_not_serve_are_named(given, words):
    paths = {option: value and str(FOLDER / value) for option, value in zip(("cert", "key", "ca"), given)}
    with pytest.raises(InputError, match=words):
        certificates_of({**paths, "name": "job.example"})


def test_frames_encrypted_without_certificates_take_no_certificate_for_the_key(monkeypatch):
    # who is in the middle has passed the handshake on, does not know its key, and offers a certificate of its own
    def context(key: bytes, calls: bool) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if calls else ssl.PROTOCOL_TLS_SERVER)
        if calls:
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        else:
            made.load_cert_chain(FOLDER / "stranger.pem", FOLDER / "stranger.key.pem")
        return made

    monkeypatch.setattr("stretto.runtime.handshake.keyed_context", context)
    credentials = Credentials(SECRET, frames=Protection.ENCRYPTED)
    ours, _ = both_ends(credentials, credentials)
    assert isinstance(ours, PeerFailed), ours
    assert "it has a certificate instead of the key that the handshake gave" in str(ours)

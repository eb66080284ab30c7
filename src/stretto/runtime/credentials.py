"""What a process needs to be let into a group: a secret, perhaps certificates, and how later bytes are protected.

The environment of the PyTorch process group and the options of ``stretto run`` say the same things: a secret that
somebody chose (``STRETTO_SECRET``, ``STRETTO_SECRET_FILE``), certificates for TLS (``STRETTO_TLS_CERT``,
``STRETTO_TLS_KEY``, ``STRETTO_TLS_CA``, ``STRETTO_TLS_NAME``), and how frames are protected where there are none
(``STRETTO_FRAMES``).
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from ..model.errors import InputError, none_of

if TYPE_CHECKING:
    import ssl

LEAST_CHOSEN = 12
"""Characters of a secret that somebody chose, at least. A stranger can try one secret a connection, about a hundred
a second while a group forms (docs/reference/security.md)."""
KEY_BYTES = 32
"""Bytes of a random secret: no one can try them all, so it needs no slow handshake."""
MOST_FILE_BYTES = 4096
"""Bytes of a file with a secret, at most."""
TLS_VARIABLES = ("STRETTO_TLS_CERT", "STRETTO_TLS_KEY", "STRETTO_TLS_CA", "STRETTO_TLS_NAME")


class Protection(IntEnum):
    """How the bytes of a connection are protected after the handshake."""

    PLAIN = 0
    """Not at all."""
    AUTHENTICATED = 1
    """Each record carries a code under a key of the connection: changes are seen, but everybody can read."""
    TLS = 2
    """TLS 1.3, with certificates at both ends, around the handshake and all that follows."""
    ENCRYPTED = 3
    """TLS 1.3 after the handshake, without certificates, by a key that it has given (Python 3.13)."""

    @property
    def text(self) -> str:
        return ("plain frames", "authenticated frames", "TLS", "encrypted frames")[int(self)]


FRAMES = {p.name.lower(): p for p in (Protection.PLAIN, Protection.AUTHENTICATED, Protection.ENCRYPTED)}
"""What somebody may ask for where there are no certificates."""


@dataclass(frozen=True)
class Certificates:
    """The files of TLS, in PEM.

    Attributes:
        certificate, key: of this process, and its private key.
        authority: the certificates of those who may issue the certificates of peers.
        name: a name that all peers' certificates have; by default a peer that is called has the name or the address at
            which it is called, and one that calls may have any name.
    """

    certificate: str
    key: str
    authority: str
    name: str | None = None

    def check(self) -> None:
        """Raise InputError if the files are not what they should be."""
        contexts(self)


@dataclass(frozen=True)
class Credentials:
    """What both ends of each connection of a group have in common.

    Attributes:
        secret: what both ends must know.
        chosen: whether somebody chose the secret, so that it can perhaps be guessed; otherwise it is random.
        certificates: for TLS on every TCP connection; None without TLS.
        frames: how TCP connections without certificates are protected; by default frames are authenticated between
            machines, and plain on one machine.
        context: what else both ends must have in common, which need not be secret: several meshes may have one secret,
            and a connection of one of them must not be taken for that of another one.
    """

    secret: bytes = field(repr=False)
    chosen: bool = False
    certificates: Certificates | None = None
    frames: Protection | None = None
    context: bytes = b""

    def __post_init__(self) -> None:
        if not self.chosen and len(self.secret) < KEY_BYTES:
            raise InputError(f"a random secret has at least {KEY_BYTES} bytes, not {len(self.secret)}", "secret")

    def protection(self, sock: socket.socket) -> Protection:
        """How the connection over a socket is to be protected; both ends come to the same answer."""
        if sock.family == socket.AF_UNIX:
            return Protection.PLAIN  # its bytes do not leave the kernel
        if self.certificates is not None:
            return Protection.TLS
        if self.frames is not None:
            return self.frames
        within = ipaddress.ip_address(sock.getpeername()[0]).is_loopback
        return Protection.PLAIN if within else Protection.AUTHENTICATED


def random_secret() -> bytes:
    return os.urandom(KEY_BYTES)


def from_environment(environment: Mapping[str, str], random: Callable[[], bytes]) -> Credentials:
    """The credentials that the environment gives.

    Args:
        random: called for the secret where nobody has chosen one.
    Raises:
        InputError: a variable is wrong, names the variable.
    """
    chosen = chosen_secret(environment)
    frames = environment.get("STRETTO_FRAMES")
    certificates = certificates_of({name: environment.get(name) for name in TLS_VARIABLES})
    protection = frames_of(frames, "STRETTO_FRAMES") if frames else None
    return Credentials(random() if chosen is None else chosen, chosen is not None, certificates, protection)


def frames_of(name: str, where: str) -> Protection:
    """The protection of frames that an option or a variable names.

    Raises:
        InputError: there is none of that name, or this Python cannot do it.
    """
    if name not in FRAMES:
        raise InputError(none_of(name, FRAMES), where)
    if FRAMES[name] is Protection.ENCRYPTED and sys.version_info < (3, 13):
        here = f"this one is {sys.version_info.major}.{sys.version_info.minor}"
        raise InputError(f"`encrypted` needs Python 3.13, and {here}; certificates encrypt with any", where)
    return FRAMES[name]


def chosen_secret(environment: Mapping[str, str]) -> bytes | None:
    """The secret that somebody chose: from ``STRETTO_SECRET``, or the file ``STRETTO_SECRET_FILE``; None without."""
    text, file = environment.get("STRETTO_SECRET"), environment.get("STRETTO_SECRET_FILE")
    if text and file:
        raise InputError("give STRETTO_SECRET or STRETTO_SECRET_FILE, not both", "STRETTO_SECRET_FILE")
    if file:
        return read_secret(file)
    return _long_enough(text.encode(), "STRETTO_SECRET") if text else None


def read_secret(file: str) -> bytes:
    """The secret in a file, without white space around it.

    Raises:
        InputError: the file cannot be read, others may read it, or the secret is too short.
    """
    try:
        with open(file, "rb") as content:
            mode, secret = os.fstat(content.fileno()).st_mode, content.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"the secret cannot be read ({error.strerror})", file) from None
    if mode & 0o077:
        raise InputError(f"others than its owner may read the secret (mode {mode & 0o777:o}); chmod 600", file)
    if len(secret) > MOST_FILE_BYTES:
        raise InputError(f"the file has more than {MOST_FILE_BYTES} bytes", file)
    return _long_enough(secret.strip(), file)


def _long_enough(secret: bytes, where: str) -> bytes:
    if len(secret) < LEAST_CHOSEN:
        how = "`openssl rand -hex 32` makes a good one"
        raise InputError(f"the secret has {len(secret)} characters, and needs {LEAST_CHOSEN}; {how}", where)
    return secret


def certificates_of(given: Mapping[str, str | None]) -> Certificates | None:
    """The certificates that options or variables give; None if they give none.

    Args:
        given: by what each is called: the certificate, its key, the authority, and the name of all peers.
    Raises:
        InputError: one is missing, or a file cannot be used.
    """
    if not any(given.values()):
        return None
    (*called, _), (certificate, key, authority, name) = given, given.values()
    if not certificate or not key or not authority:
        missing = next(option for option in called if not given[option])
        raise InputError(f"TLS needs {called[0]}, {called[1]} and {called[2]}", missing)
    certificates = Certificates(certificate, key, authority, name or None)
    certificates.check()
    return certificates


@cache
def contexts(files: Certificates) -> tuple[ssl.SSLContext, ssl.SSLContext, bytes]:
    """For the end that calls, and for the one that accepts; and this process's own certificate, as sent to peers.

    Raises:
        InputError: a file cannot be used; names the file.
    """
    import ssl

    calls, accepts = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for context in (calls, accepts):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(files.authority)
        except OSError as error:  # SSLError, too
            raise InputError(f"no certificates of an authority can be read ({_said(error)})", files.authority) from None
        try:
            context.load_cert_chain(files.certificate, files.key, _no_password)
        except OSError as error:
            both = f"{files.certificate}, {files.key}"
            raise InputError(f"no certificate with its unencrypted key can be read ({_said(error)})", both) from None
    accepts.num_tickets = 0  # nobody resumes a session
    with open(files.certificate, encoding="ascii", errors="replace") as file:
        text = file.read()
    begin, end = text.index(ssl.PEM_HEADER), text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)
    return calls, accepts, ssl.PEM_cert_to_DER_cert(text[begin:end])


def keyed_context(key: bytes, calls: bool) -> ssl.SSLContext:
    """A context by which two ends that have a key speak TLS without certificates (Python 3.13)."""
    import ssl

    context: Any = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if calls else ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if calls:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_psk_client_callback(lambda hint: ("stretto", key))
    else:
        context.num_tickets = 0
        context.set_psk_server_callback(lambda identity: key)
    return cast("ssl.SSLContext", context)


def _no_password() -> str:
    """A key that is encrypted must not ask for its password at the terminal."""
    return ""


def _said(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error).lower().replace("_", " ")

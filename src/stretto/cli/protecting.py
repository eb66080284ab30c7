"""Options that say how the processes of a run prove who they are, and how what they send is protected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

if TYPE_CHECKING:
    from ..runtime.credentials import Credentials

SecretFile = Annotated[
    str | None,
    Option(
        "--secret-file",
        metavar="FILE",
        help="A file with the secret that processes prove to each other, which only its owner may read. Default: a "
        "random secret, which they get through pipes.",
    ),
]
Frames = Annotated[
    str,
    Option(
        help="`encrypted`: by TLS without certificates (Python 3.13). `authenticated`: each record carries a code that "
        "shows changes. `plain`: none does. With --tls-cert it does not count."
    ),
]
TlsCert = Annotated[
    str | None,
    Option("--tls-cert", metavar="FILE", help="Encrypt by TLS 1.3: the certificate of the processes, in PEM."),
]
TlsKey = Annotated[str | None, Option("--tls-key", metavar="FILE", help="The private key of --tls-cert.")]
TlsCa = Annotated[
    str | None,
    Option("--tls-ca", metavar="FILE", help="The certificates of those who may issue certificates of peers."),
]
TlsName = Annotated[
    str | None,
    Option(
        "--tls-name",
        metavar="NAME",
        help="The DNS name that all certificates have. Default: each has the address at which its process listens.",
    ),
]


def credentials_of(
    secret_file: str | None, frames: str, tls: tuple[str | None, str | None, str | None, str | None]
) -> Credentials:
    """The credentials that the options give; ``tls`` has the certificate, its key, the authority and the name.

    Raises:
        InputError: an option is wrong.
    """
    from ..runtime.credentials import Credentials, certificates_of, frames_of, random_secret, read_secret

    protection = frames_of(frames, "--frames")
    secret = random_secret() if secret_file is None else read_secret(secret_file)
    options = ("--tls-cert", "--tls-key", "--tls-ca", "--tls-name")
    certificates = certificates_of(dict(zip(options, tls, strict=True)))
    return Credentials(secret, secret_file is not None, certificates, protection)

"""The page at ``/``: its files, and the drawings of networks. The page asks for all else as any client does."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files

from . import networks
from .calls import Answer, Call
from .drawings import LABEL

INDEX = "index.html"
MEDIA = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
"""What the page may do: run its own script, and ask this controller. No text can become part of its markup."""

SAFE = {
    "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
}  # fmt: skip

LARGEST_LABEL = 40


@cache
def _page() -> dict[str, tuple[bytes, str]]:
    """The files of the page by name, each with its digest."""
    found = {}
    for file in (files(__package__) / "page").iterdir():
        if file.name.rpartition(".")[2] in MEDIA:
            content = file.read_bytes()
            found[file.name] = content, hashlib.sha256(content).hexdigest()[:20]
    return found


def get_page(call: Call) -> Answer:
    """A file of the page; the page itself at ``/``."""
    name = call.names.get("file", INDEX)
    if name not in _page():
        raise networks.Missing(f"the page has no file {name!r}")
    content, digest = _page()[name]
    headers = {"ETag": f'"{digest}"', "Cache-Control": "no-cache", **SAFE}
    return Answer(data=content, headers=headers, media=MEDIA[name.rpartition(".")[2]])


def get_drawing(call: Call) -> Answer:
    """The drawing of a network as an operator gave it, and its links: [from, to, bytes/s, latency in s]."""
    name, said = call.names["name"], call.whole("label", most=int(LARGEST_LABEL))
    label = LABEL if said is None else float(said)
    with call.read() as connection:
        current = networks.network(connection, name)
        tag = f'"{current.base}-{label:g}"'
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if call.headers.get("if-none-match", "").strip() == tag:
            return Answer(304, headers=headers)
        base = current if current.base == current.version else networks.network(connection, name, current.base)
    drawing = call.instance.drawings.of(name, current.base, base.topology, label)
    return Answer(data={"name": name, "base": current.base, **drawing}, headers=headers)


def is_foreign(site: str | None) -> bool:
    """Whether a browser says that a page of another site has sent a request; by its header ``Sec-Fetch-Site``."""
    return site is not None and not re.fullmatch(r"same-origin|none", site)

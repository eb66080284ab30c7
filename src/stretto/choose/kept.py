"""Plans on disk by the name of their request, so that the next run begins with them.

A file is written under a temporary name and renamed, so several processes may share the folder. It begins with a digest
of the rest: what is damaged counts as missing. The same bytes are what one process sends to another.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from contextlib import suppress
from pathlib import Path

from ..formats import atomic_file
from ..formats.native import plan_from_text, plan_to_text
from ..model.errors import InputError
from ..model.plan import Plan

VARIABLE = "STRETTO_CACHE"
"""The environment variable that names the folder; empty: nothing is kept."""

SUFFIX = ".plan"

MOST_KEPT = 1_000
"""Plans in a folder; beyond that, those that were not used for longest are removed. A file has 5 to 50 KB."""

_MAGIC = b"stretto-kept-1"


def packed(name: str, plan: Plan | None) -> bytes:
    """The answer to a request as bytes.

    Args:
        name: of the request.
        plan: None if the first plan is as good.
    """
    body = name.encode() + b"\n" + zlib.compress(b"" if plan is None else plan_to_text(plan).encode())
    return b" ".join((_MAGIC, hashlib.sha256(body).hexdigest().encode(), body))


def unpacked(content: bytes, name: str) -> Plan | None:
    """The answer that :func:`packed` gave.

    Raises:
        InputError: it is damaged, or answers another request.
    """
    magic, _, rest = content.partition(b" ")
    digest, _, body = rest.partition(b" ")
    if magic != _MAGIC or hashlib.sha256(body).hexdigest().encode() != digest:
        raise InputError("is damaged", name)
    said, _, text = body.partition(b"\n")
    if said != name.encode():
        raise InputError(f"answers another request, {said.decode(errors='replace')}", name)
    text = zlib.decompress(text)
    return plan_from_text(text.decode(), name) if text else None


class Kept:
    """A folder of plans; without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    @classmethod
    def from_environment(cls) -> Kept:
        """The folder that ``STRETTO_CACHE`` names, by default ``stretto/plans`` where the user's caches are."""
        given = os.environ.get(VARIABLE)
        if given is not None:
            return cls(Path(given) if given else None)
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return cls(Path(home, "stretto", "plans") if os.path.isabs(home) else None)

    def find(self, name: str) -> bytes | None:
        """The answer to the request of that name; None if there is none, or its file is damaged, which is removed."""
        if self.folder is None:
            return None
        path = self.folder / f"{name}{SUFFIX}"
        try:
            content = path.read_bytes()
        except OSError:
            return None
        try:
            unpacked(content, name)
        except (InputError, zlib.error, UnicodeDecodeError):
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)  # it was used now
        return content

    def keep(self, name: str, content: bytes) -> None:
        """Keep an answer, if the folder can be written."""
        if self.folder is None:
            return
        with suppress(OSError, InputError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(str(self.folder / f"{name}{SUFFIX}"), "wb") as file:
                file.write(content)
            self._prune()

    def shapes(self, network: str) -> list[str]:
        """The names of all requests on a network for which there is a file.

        Args:
            network: what their names begin with.
        """
        if self.folder is None or not self.folder.is_dir():
            return []
        return sorted(path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"{network}-*{SUFFIX}"))

    def _prune(self) -> None:
        """Remove the plans that were not used for longest, where there are too many."""
        assert self.folder is not None
        files = [
            (entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(self.folder) if entry.name.endswith(SUFFIX)
        ]
        for _, path in sorted(files)[: max(0, len(files) - MOST_KEPT)]:
            with suppress(OSError):
                os.unlink(path)

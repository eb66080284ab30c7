"""Files that a user names: what to say of one that cannot be opened."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice

from .errors import InputError

MOST_NAMES = 1000
"""Names of a folder among which one that is like the wrong one is looked for."""


def unreadable(path: str, error: OSError | ValueError) -> InputError:
    """Why a file cannot be opened; of one that is not there also the file beside it whose name is like it."""
    reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    meant = _beside(path) if isinstance(error, FileNotFoundError) else None
    return InputError(f"{reason}; did you mean {meant}?" if meant else reason, path)


def _beside(path: str) -> str | None:
    """The path of the file in the same folder whose name is like that of ``path``."""
    from difflib import get_close_matches  # of files that are there it would be a load for nothing

    folder, name = os.path.split(path)
    with suppress(OSError), os.scandir(folder or ".") as entries:
        names = [entry.name for entry in islice(entries, MOST_NAMES) if entry.is_file()]
        near = get_close_matches(name, sorted(names), 1, 0.8)
        return os.path.join(folder, near[0]) if near and near[0].isprintable() else None
    return None

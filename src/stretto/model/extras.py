"""Packages that only some users need, and that an installation without extras lacks."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import NotInstalled


def require(extra: str, what: str, *packages: str) -> None:
    """Check before they are imported that the packages of an extra are installed.

    Args:
        extra: of pyproject.toml.
        what: needs them, in words, for the message.
        packages: by the names of their modules.
    Raises:
        NotInstalled: some are not; says which, and how to install them.
    """
    if lacking := [package for package in packages if find_spec(package) is None]:
        verb = "is" if len(lacking) == 1 else "are"
        raise NotInstalled(
            f"{what} needs {', '.join(lacking)}, which {verb} not installed: pip install 'stretto[{extra}]'"
        )

"""Values of options and arguments, as they were typed.

Typer has Pydantic convert every value, defaults too, and Pydantic takes 0.1 s of CPU to load. Text stays as it is,
and plain numbers are read here. All else, and what is wrong, is left to Typer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_PLAIN = {int: re.compile(r"\d{1,15}"), float: re.compile(r"\d{1,15}(\.\d{1,15})?")}
"""Numbers that every reader reads alike."""


def read_plainly(params: list[Any]) -> list[Any]:
    """Let options and arguments of Typer's read plain values themselves; these."""
    for param in params:
        converter = getattr(param, "get_runtime_param", None)
        if callable(converter) and hasattr(param, "type_descriptor") and not isinstance(converter, _Values):
            param.get_runtime_param = _Values(converter)  # else a Typer without Pydantic
    return params


class _Values:
    """What converts the values of an option or argument.

    Args:
        converter: makes that of Typer.
    """

    def __init__(self, converter: Callable[[], Any]) -> None:
        self._converter = converter

    def __call__(self) -> _Values:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value that a function gets."""
        if value is None:
            return () if param.multiple or param.nargs < 0 else None
        plain = _plain_value(value, param.type_descriptor)
        return self._converter().coerce(value, param=param, ctx=ctx) if plain is None else plain


def _plain_value(value: Any, wanted: Any) -> Any:
    """A value of the wanted kind, if nothing needs to be converted but a plain number; else None."""
    kind, limits = wanted.annotation, wanted.parameter_info
    if kind == list[str] and isinstance(value, list | tuple) and all(type(each) is str for each in value):
        return list(value)
    if kind in (str, int, float, bool) and type(value) is kind:
        return value
    if kind not in _PLAIN or type(value) is not str or not _PLAIN[kind].fullmatch(value):
        return None
    number = kind(value)
    low, high = limits.min, limits.max
    return number if (low is None or number >= low) and (high is None or number <= high) else None

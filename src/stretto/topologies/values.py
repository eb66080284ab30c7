"""Values of foreign files: parsed by well-kept libraries, checked, and printed safely in messages."""

from __future__ import annotations

import json
import math
from typing import Any
from xml.etree.ElementTree import ParseError

from ..model.errors import InputError
from ..model.topology import printable


def shown(value: object) -> str:
    """A value of a file for a message: short, printable, on one line."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):
        return "(too large to show)"
    return text if len(text) <= 60 else f"{text[:60]}..."


def one_line(text: str) -> str:
    """A label as a name: printable, on one line, without needless spaces."""
    return " ".join(printable(text).split())


def number(data: dict[str, Any], key: str, where: str | None) -> float:
    """The number under a key.

    Raises:
        InputError: it is missing, no number, or too large for one.
    """
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{key!r} must be a number, not {shown(value)}", where)
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{key!r} is too large", where) from None


def real(text: object, what: str, where: str | None, above: bool = False) -> float:
    """A finite number of at least zero (``above``: above zero) from a file's text or number.

    Raises:
        InputError: it is none.
    """
    try:
        value = math.nan if isinstance(text, bool) else float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not (value > 0 if above else value >= 0) or math.isinf(value):
        wanted = "above zero" if above else "zero or more"
        raise InputError(f"{what} must be a finite number, {wanted}, not {shown(text)}", where)
    return value


def count(text: object, what: str, where: str | None, least: int = 0, most: int = 10**9) -> int:
    """A whole number within limits from a file's text or number.

    Raises:
        InputError: it is none.
    """
    value = text if isinstance(text, int) and not isinstance(text, bool) else None
    if isinstance(text, str) and text.strip().lstrip("-").isascii() and text.strip().lstrip("-").isdigit():
        value = int(text) if len(text) <= 20 else None
    if value is None or not least <= value <= most:
        raise InputError(f"{what} must be a whole number from {least} to {most}, not {shown(text)}", where)
    return value


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text.

    Raises:
        InputError: it is none; names line and column.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"is no JSON: {error.msg} at line {error.lineno}, column {error.colno}", where) from None
    except RecursionError:
        raise InputError("is no JSON that can be read: it is nested too deep", where) from None
    except ValueError as error:
        raise InputError(f"is no JSON: {printable(str(error))}", where) from None


def parse_xml(text: str, where: str) -> Any:
    """The root element of an XML text; entities, which could grow without bound, are refused.

    Raises:
        InputError: it is no XML, or declares entities.
    """
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        return fromstring(text.encode())
    except ParseError as error:
        raise InputError(f"is no XML: {error}", where) from None
    except DefusedXmlException:
        raise InputError("is not accepted: it declares XML entities; remove its DOCTYPE", where) from None
    except (ValueError, LookupError, RecursionError) as error:
        raise InputError(f"is no XML that can be read: {one_line(str(error))}; save it as UTF-8", where) from None


def tag(element: Any) -> str:
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def named(element: Any, name: str) -> list[Any]:
    """The children of that name."""
    return [child for child in element if tag(child) == name]

"""Values of foreign files: parsed by well-kept libraries, checked, and printed safely in messages."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar
from xml.etree.ElementTree import ParseError

from ..model.errors import InputError, nearest, none_of
from ..model.files import unreadable
from ..model.topology import KINDS, printable

MOST_BYTES = 256 * 2**20
MOST_YAML_CHARACTERS = 2**20


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


ALMOST = 0.85
"""How alike a key and a known one are, as difflib counts it, to be taken for the same word misspelt: all of a word of
six letters and one more, or one less."""

Entry = TypeVar("Entry")
WANTED = {bool: "true or false", str: "text", list: "a list", dict: "an object"}


def entry(
    data: Mapping[str, Any], key: str, kind: type[Entry], where: str | None, missing: Entry | None = None
) -> Entry:
    """The entry of an object under a key, ``missing`` where there is none; InputError if it has another type."""
    value = data.get(key, missing)
    if not isinstance(value, kind):
        raise InputError(f"{key!r} must be {WANTED[kind]}, not {shown(value)}", where)
    return value


def objects(data: Mapping[str, Any], key: str, where: str | None) -> list[dict[str, Any]]:
    """The objects that are listed under a key; InputError if it holds anything else."""
    value = data.get(key)
    if not isinstance(value, list) or not all(isinstance(x, dict) for x in value):
        raise InputError(f"{key!r} must be a list of objects", where)
    return value


def indexes(values: Any, what: str, least: int, below: int, where: str) -> list[int]:
    """A list of whole numbers from ``least`` to ``below - 1``; InputError if it is none."""
    whole = isinstance(values, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in values)
    if not whole or not all(least <= v < below for v in values):
        raise InputError(f"{what} must be a list of whole numbers from {least} to {below - 1}", where)
    return list(values)


def parse_kind(word: Any, where: str | None) -> int:
    """The kind of a node by its name; InputError if there is no such kind."""
    kind = "accelerator" if word == "gpu" else word
    if kind not in KINDS:
        words = ("gpu", *KINDS)
        said = none_of(word, words) if isinstance(word, str) else f"{shown(word)} is none of {', '.join(words)}"
        raise InputError(f"the kind {said}", where)
    return KINDS.index(kind)


def single(given: Sequence[str], where: str | None) -> str | None:
    """The one of several keys for one quantity that is given, None if none is; InputError if two are."""
    if len(given) > 1:
        raise InputError(f"{given[0]!r} and {given[1]!r}: one quantity is given twice; keep one", where)
    return given[0] if given else None


def refuse_misspelt(placed: Iterable[tuple[dict[str, Any], str | None]], keys: frozenset[str]) -> None:
    """Refuse a key that is almost one of ``keys``; other keys are the file's own affair."""
    known = set(keys)  # and the others that were looked at
    for data, where in placed:
        for key in () if data.keys() <= known else data:
            if key in known:
                continue
            from difflib import get_close_matches  # of a file without other keys it would be a load for nothing

            if meant := get_close_matches(str(key), keys, 1, ALMOST):
                raise InputError(f"{shown(key)} is not known; did you mean {meant[0]!r}?", where)
            known.add(key)


def check_keys(data: Any, keys: Collection[str], where: str) -> None:
    """Refuse a value that is no object, or has other keys."""
    if not isinstance(data, dict):
        raise InputError("must be an object", where)
    for key in data:
        if key not in keys:
            raise InputError(f"{key!r} is not known; {nearest(key, keys)}", where)


def number(data: dict[str, Any], key: str, where: str | None) -> float:
    """The number under a key; InputError if it is missing, no number, or too large for one."""
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{key!r} must be a number, not {shown(value)}", where)
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{key!r} is too large", where) from None


def real(text: object, what: str, where: str | None, above: bool = False) -> float:
    """A finite number of at least zero (``above``: above zero) from a file's text or number, else InputError."""
    try:
        value = math.nan if isinstance(text, bool) else float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not (value > 0 if above else value >= 0) or math.isinf(value):
        wanted = "above zero" if above else "zero or more"
        raise InputError(f"{what} must be a finite number, {wanted}, not {shown(text)}", where)
    return value


def count(text: object, what: str, where: str | None, least: int = 0, most: int = 10**9) -> int:
    """A whole number within limits from a file's text or number, else InputError."""
    value = text if isinstance(text, int) and not isinstance(text, bool) else None
    if isinstance(text, str) and re.fullmatch(r"-?\d{1,18}", text.strip(), re.ASCII):
        value = int(text)
    if value is None or not least <= value <= most:
        raise InputError(f"{what} must be a whole number from {least} to {most}, not {shown(text)}", where)
    return value


def read_bytes(path: str) -> bytes:
    """The content of a file; InputError if it is a folder or device, too large, or cannot be read."""
    try:
        if os.path.isdir(path):
            raise InputError("is a folder, not a file", path)
        if os.path.exists(path) and not os.path.isfile(path):
            raise InputError("is a device or pipe, not a file", path)
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if len(content) > MOST_BYTES:
        raise InputError(f"is larger than {MOST_BYTES // 2**20} MiB", path)
    return content


def read_text(path: str) -> str:
    """The text of a file; InputError as for :func:`read_bytes`, and if it is not UTF-8."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text (byte {error.start}); save it as UTF-8", path) from None


class TooManyRows(InputError):
    """A table has more rows than are read, so that a large file does not fill the memory."""


def parse_csv(text: str, where: str, delimiter: str = ",", most_rows: int | None = None) -> list[tuple[int, list[str]]]:
    """The rows of a CSV text that are not blank, each with the number of its last line.

    Raises:
        InputError: it is no CSV.
        TooManyRows: it has more than ``most_rows``.
    """
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    stripped = ((reader.line_num, [cell.strip() for cell in row]) for row in reader)
    try:
        return first_rows(((line, row) for line, row in stripped if any(row)), where, most_rows)
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: is no CSV: {error}", where) from None


def first_rows(rows: Iterable[tuple[int, list[str]]], where: str, most_rows: int | None) -> list[tuple[int, list[str]]]:
    """All rows; TooManyRows if there are more than ``most_rows``."""
    found = list(islice(rows, None if most_rows is None else most_rows + 1))
    if most_rows is not None and len(found) > most_rows:
        raise TooManyRows(f"has more than {most_rows} rows", where)
    return found


def parse_json(text: str, where: str) -> Any:
    """The value of a JSON text; InputError if it is none, with line and column."""
    if not text.strip():
        raise InputError("is empty", where)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"is no JSON: {error.msg} at line {error.lineno}, column {error.colno}", where) from None
    except RecursionError:
        raise InputError("is no JSON that can be read: it is nested too deep", where) from None
    except ValueError as error:
        raise InputError(f"is no JSON: {printable(str(error))}", where) from None


def parse_yaml(text: str, where: str, most_brackets: int | None = None) -> Any:
    """The value of a YAML text; InputError if it is none, too large, or has aliases, which could grow without bound."""
    import yaml

    if len(text) > MOST_YAML_CHARACTERS:
        raise InputError(f"has more than {MOST_YAML_CHARACTERS} characters, too many for YAML", where)
    if most_brackets is not None and text.count("[") + text.count("{") > most_brackets:
        raise InputError(f"has more than {most_brackets} brackets", where)
    if re.search(r"(?m)(^|[\s\[{,:-])[&*][\w-]", text):
        raise InputError("has YAML anchors or aliases, which could grow without bound; write values out", where)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"is no YAML: {one_line(str(error))[:200]}", where) from None
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:  # of a tag such as !!int ""
        raise InputError(f"has a value that is not of its type: {one_line(str(error))[:200]}", where) from None


def json_text(value: Any, pad: str = "") -> str:
    """JSON for people: what is in an object or a list that holds others stands on a line of its own."""
    if isinstance(value, dict) and any(isinstance(x, (dict, list)) and x for x in value.values()):
        rows = [f"{json.dumps(key)}: {json_text(x, pad + ' ')}" for key, x in value.items()]
        return "{\n" + ",\n".join(f"{pad} {row}" for row in rows) + f"\n{pad}}}"
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return "[\n" + ",\n".join(f"{pad} {json.dumps(x)}" for x in value) + f"\n{pad}]"
    return json.dumps(value)


def parse_xml(text: str, where: str) -> Any:
    """The root element of an XML text; InputError if it is none, or has entities, which could grow without bound."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    if not text.strip():
        raise InputError("is empty", where)
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

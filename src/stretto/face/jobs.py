"""Jobs: collectives of different kinds, sizes, ranks, starts and weights, as text, as objects or in a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..model.errors import InputError, nearest

JOB = re.compile(r"(?P<collective>[^:@]*)(:(?P<size>[^:@]+))?(@(?P<start>[^:@]+))?")
"""``allreduce``, ``allreduce:500MB``, ``allgather:100MB@2s``."""

KEYS = ("collective", "size", "shard", "ranks", "root", "receivers", "chunks", "start", "weight")
"""What an object says of a job: the arguments of :func:`stretto.collective`."""


EXAMPLE = '{"collective": "allreduce", "size": "500MB", "start": "2s"}'

PLACE = "place"
"""Key under which a job from a file says where it stands, for errors."""

TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "collective": ((str,), "a name"),
    "size": ((str, int, float), "a size"),
    "shard": ((str, int, float), "a size"),
    "ranks": ((list, tuple), "a list of nodes, by number or name"),
    "root": ((int,), "a rank"),
    "receivers": ((list, tuple), "a list of ranks, by number"),
    "chunks": ((int,), "a whole number"),
    "start": ((str, int, float), "a time"),
    "weight": ((int, float), "a number above 0"),
}
"""The types of values, and what they are in words."""


def jobs_of_text(text: str) -> list[dict[str, Any]]:
    """The jobs of ``KIND[:SIZE][@START]``, several separated by commas.

    Raises:
        InputError: a part has another form; names it.
    """
    jobs = []
    for part in text.split(","):
        found = JOB.fullmatch(part.strip())
        if found is None:
            raise InputError(f"{part!r} is not KIND[:SIZE][@START], such as allgather:100MB@2s", "collective")
        jobs.append({key: value for key, value in found.groupdict().items() if value is not None})
    return jobs


def read_jobs(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The jobs in a JSON file: a list of objects with the keys :data:`KEYS`, of which ``collective`` is needed.

    Raises:
        InputError: it cannot be read or has another form; names the file and the job.
    """
    from ..topologies.values import parse_json, read_text

    where = os.fspath(path)
    data = parse_json(read_text(where), where)
    if not isinstance(data, list) or not data:
        raise InputError("must be a list of jobs, each an object such as " + EXAMPLE, where)
    places = [f"{where}, job {number}" for number in range(len(data))]
    return [{**checked(job, place), PLACE: place} for job, place in zip(data, places, strict=True)]


def checked(job: object, where: str) -> dict[str, Any]:
    """A job with known keys and values of the right types; InputError names the key."""
    if not isinstance(job, Mapping):
        raise InputError("must be an object such as " + EXAMPLE, where)
    for key, value in job.items():
        if key not in TYPES:
            raise InputError(f"{key!r} is not known; {nearest(str(key), KEYS)}", where)
        types, words = TYPES[key]
        members = value if key in ("ranks", "receivers") and isinstance(value, list | tuple) else ()
        wrong = isinstance(value, bool) or not isinstance(value, types)
        kinds = (int, str) if key == "ranks" else (int,)
        if wrong or not all(isinstance(v, kinds) and not isinstance(v, bool) for v in members):
            raise InputError(f"{key!r} must be {words}, not {value!r}"[:200], where)
    if "collective" not in job:
        raise InputError("'collective' is missing, such as in " + EXAMPLE, where)
    return dict(job)

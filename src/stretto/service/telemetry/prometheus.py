"""Links as Prometheus sees them: a query for each link, over its HTTP API (``POST /api/v1/query``).

PromQL's ``rate`` finds restarts of counters and their wraps. A query must give one series or a scalar, in bytes/s;
where it gives none, there is no sample. ``$src`` and ``$dst`` in a query stand for the names of the link's nodes.
"""

from __future__ import annotations

import json
import math
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...model.errors import InputError, none_of
from ...topologies.values import check_keys, entry, objects, shown
from .samples import CARRIED, KINDS, Link, Sample
from .sources import TIMEOUT_S, Reading, SourceFailed, every_of, link_of, secret_of

MOST_ANSWER_BYTES = 1 << 20

ENTRIES = ("url", "every_s", "token_variable", "ca", "links")
LINK_ENTRIES = ("src", "dst", "kind", "query")


class LinkQuery(NamedTuple):
    """What is asked about a link; ``query`` is PromQL."""

    link: Link
    kind: str
    query: str


def prometheus_of(data: dict[str, Any], links: Mapping[Link, float], where: str) -> Prometheus:
    """The source that an object of a network's configuration describes."""
    check_keys(data, ENTRIES, where)
    url = entry(data, "url", str, where)
    if urllib.parse.urlsplit(url).scheme not in ("http", "https") or not urllib.parse.urlsplit(url).hostname:
        raise InputError(f"'url' must be one such as http://10.0.0.9:9090, not {shown(url)}", where)
    queries = [_query(d, links, f"{where}, link {i}") for i, d in enumerate(objects(data, "links", where))]
    return Prometheus(
        url, queries, every_of(data, where), secret_of(data, "token_variable", where), entry(data, "ca", str, where, "")
    )


def _query(data: dict[str, Any], links: Mapping[Link, float], where: str) -> LinkQuery:
    check_keys(data, LINK_ENTRIES, where)
    link = link_of(data, links, where)
    kind = entry(data, "kind", str, where, CARRIED)
    if kind not in KINDS:
        raise InputError(f"kind {none_of(kind, KINDS)}", where)
    ends = dict(zip(("src", "dst"), link, strict=True))
    query = re.sub(r"\$(src|dst)\b", lambda m: _in_quotes(ends[m[1]]), entry(data, "query", str, where))
    return LinkQuery(link, kind, query)


def _in_quotes(name: str) -> str:
    """A name inside a quoted string of PromQL."""
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'").replace("\n", "\\n")


class Prometheus:
    """A Prometheus server as a source of samples."""

    def __init__(self, url: str, queries: list[LinkQuery], every_s: float, token: str = "", ca: str = "") -> None:
        self.name = f"Prometheus at {urllib.parse.urlsplit(url).netloc.rpartition('@')[2]}"
        self.every_s, self.queries = every_s, queries
        self._url = url.rstrip("/") + "/api/v1/query"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        context = ssl.create_default_context(cafile=ca) if ca else None
        handlers = [urllib.request.HTTPSHandler(context=context)] if context else []
        self._opener = urllib.request.build_opener(_Stays, *handlers)

    def read(self) -> Reading:
        samples, failures = [], []
        for asked in self.queries:
            try:
                answer = self._ask(asked.query)
            except ValueError as error:  # the server is there, but not this answer
                failures.append(f"the query of {asked.link[0]} to {asked.link[1]}: {error}")
            else:
                if answer is not None:
                    samples.append(Sample(*asked.link, asked.kind, answer[1], answer[0]))
        return Reading(samples, failures[0] if failures else "")

    def close(self) -> None:
        """Nothing is kept open."""

    def _ask(self, query: str) -> tuple[float, float] | None:
        """The moment and the value of a query, None if it finds nothing; ValueError if it cannot be used."""
        body = urllib.parse.urlencode({"query": query, "timeout": f"{TIMEOUT_S:g}s"}).encode()
        request = urllib.request.Request(self._url, body, self._headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                text = response.read(MOST_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            text = error.read(MOST_ANSWER_BYTES)
            if error.code not in (400, 422, 503):  # with which it says in JSON what is wrong with a query
                raise SourceFailed(f"it answers {error.code} {error.reason}") from None
        except (OSError, TimeoutError) as error:
            raise SourceFailed(f"it does not answer: {getattr(error, 'reason', error)}") from None
        return value_of(text)


class _Stays(urllib.request.HTTPRedirectHandler):
    """Follows nobody to another server, who would get the token."""

    def redirect_request(self, *_: Any) -> None:
        return None


def value_of(text: bytes) -> tuple[float, float] | None:
    """The moment and the value in an answer of ``/api/v1/query``, None if it has no finite one.

    Raises:
        ValueError: it is an error, another form, or has several series.
    """
    try:
        answer = json.loads(text)
        if answer["status"] != "success":
            raise ValueError(str(answer["error"]))
        form, result = answer["data"]["resultType"], answer["data"]["result"]
        if form == "vector":
            if len(result) > 1:
                raise ValueError(f"it gives {len(result)} series, and one link has one rate; sum(...) adds them up")
            if not result:
                return None
            result = result[0]["value"]
        elif form != "scalar":
            raise ValueError(f"it gives a {form}, and a rate is a vector of one series or a scalar")
        at_s, rate = float(result[0]), float(result[1])
    except (KeyError, IndexError, TypeError, json.JSONDecodeError):
        raise ValueError("the answer is none of Prometheus' HTTP API") from None
    return (at_s, rate) if math.isfinite(rate) else None

"""The application: FastAPI around the routes, with tokens, limits, waiting, the audit log and metrics."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from .. import __version__
from ..model.errors import StrettoError
from .access import READ, Caller, Tokens
from .calls import NUL, Answer, Call, Refused, error_answer, not_leader, unless_known
from .database import CONNECTIONS, DatabaseGone, NotLeader
from .hosts import KnownHosts
from .instance import Instance
from .limits import Limits, Rates
from .networks import Missing
from .pages import is_foreign
from .remembered import Remembered
from .routes import EVENTS, ROUTES, Route

LOG = logging.getLogger("stretto.service")

BODY_S = 30.0
"""Seconds in which the body of a request must have come."""

READ_ON = 4
"""Times the largest body that is read, and thrown away, before a request is refused: who is still sending when the
connection ends does not see the answer."""

CODES = {404: "not_found", 405: "method_not_allowed"}
NOBODY = Caller("nobody", "read")


def make_app(instance: Instance, tokens: Tokens, limits: Limits, names: Iterable[str]) -> FastAPI:
    """The application of an instance, which begins to serve when the application does.

    Args:
        names: of hosts by which it may be asked for where there are no tokens (:mod:`.hosts`).
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await instance.begin()
        yield
        await instance.end()

    app = FastAPI(
        title="stretto controller", version=__version__, lifespan=lifespan,
        description='Networks, jobs and plans. Errors are {"error": {"code", "message", "where"}}.',
    )  # fmt: skip
    door = Door(instance, tokens, limits)
    for route in ROUTES:
        app.add_api_route(
            route.path, door.endpoint(route), methods=[route.method], summary=route.summary,
            operation_id=route.answer.__name__, openapi_extra=_documented(route), response_class=Response,
            include_in_schema=route.documented,
        )  # fmt: skip
    app.add_api_route(
        EVENTS.path, door.events, methods=[EVENTS.method], summary=EVENTS.summary, operation_id="get_events",
        openapi_extra=_documented(EVENTS), response_class=Response,
    )  # fmt: skip
    app.add_exception_handler(HTTPException, _http_error)
    if not tokens.needed:
        app.add_middleware(KnownHosts, names=names)
    _add_scheme(app)
    return app


class Door:
    """What every request passes: who asks, may he, how often and how much; then the route's answer in a thread."""

    def __init__(self, instance: Instance, tokens: Tokens, limits: Limits) -> None:
        self._instance, self._tokens, self._limits = instance, tokens, limits
        self._rates, self._remembered = Rates(limits), Remembered()
        self._threads = ThreadPoolExecutor(CONNECTIONS, "requests")

    def endpoint(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        """The function that FastAPI calls for a route."""

        async def endpoint(request: Request) -> Response:
            begun, metrics = time.perf_counter(), self._instance.metrics
            waited_s, answer = await self._answer(route, request)
            metrics.requests.labels(route.method, route.path, str(answer.status)).inc()
            metrics.seconds.labels(route.path).observe(time.perf_counter() - begun - waited_s)
            return Response(answer.body, answer.status, answer.headers, answer.media if answer.body else None)

        return endpoint

    async def events(self, request: Request) -> Response:
        """News for a page, for as long as it listens and its token is known."""
        instance = self._instance

        def hello() -> dict[str, Any] | None:
            caller = self._tokens.caller(request.headers.get("authorization"))
            if caller is None or not caller.may(READ):
                return None
            call = Call(instance, caller, "GET /events", {}, request.query_params, request.headers, b"")
            said: dict[str, Any] = EVENTS.answer(call).data
            return said

        try:
            _, client = self._caller(EVENTS, request)
            if instance.events.full(client):
                raise Refused(429, "too_many_requests", "too many pages listen", **{"Retry-After": "10"})
        except Refused as error:
            answer = error_answer(error)
            return Response(answer.body, answer.status, answer.headers, answer.media)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(instance.events.listen(hello, client), headers=headers, media_type="text/event-stream")

    async def _answer(self, route: Route, request: Request) -> tuple[float, Answer]:
        """The answer to a request, and how long it has waited for news, seconds."""
        call = None
        try:
            if route.method != "GET" and is_foreign(request.headers.get("sec-fetch-site")):
                raise Refused(403, "forbidden", "was sent by a page of another site")
            caller, _ = self._caller(route, request)
            if any("\0" in name for name in (*request.path_params.values(), *request.query_params.values())):
                raise Refused(422, "bad_name", NUL)
            content = await self._body(request)
            call = Call(
                self._instance, caller, f"{route.method} {request.url.path}", request.path_params,
                request.query_params, request.headers, content,
            )  # fmt: skip
            if not caller.may(route.role or caller.role):
                raise Refused(403, "forbidden", f"needs the role {route.role}; {caller.name} has {caller.role}")
            if route.of_job:
                call.speak_for(call.names["name"])
            if route.waits:
                return await self._waiting(route, call, request)
            return 0.0, await self._in_thread(self._asked, route, call)
        except NotLeader:
            return 0.0, error_answer(await self._in_thread(not_leader, self._instance))
        except Exception as error:
            if not isinstance(error, StrettoError):
                LOG.exception("%s %s", route.method, request.url.path)
            answer = error_answer(error)
            if call is not None and route.method != "GET" and answer.status < 500:
                await self._in_thread(_note, call, answer)
            return 0.0, answer

    def _asked(self, route: Route, call: Call) -> Answer:
        """The route's answer; while there is no database the last one, if the route's are kept."""
        if not route.kept:
            return unless_known(call, route.answer(call))
        forms = call.headers.get("accept"), call.headers.get("accept-encoding")
        asked = call.action, call.query.get("version"), forms
        try:
            answer = route.answer(call)
        except DatabaseGone:
            last = self._remembered.last(asked)
            if last is None:
                raise
            self._instance.metrics.remembered.labels(route.path).inc()
            return unless_known(call, replace(last, headers=last.headers | {"Stretto-Database": "gone"}))
        except (Missing, Refused):
            self._remembered.forget(asked)
            raise
        self._remembered.keep(asked, answer)
        return unless_known(call, answer)

    def _caller(self, route: Route, request: Request) -> tuple[Caller, str]:
        """Who asks, if that is not too often, and the client that this counts for: a token, else an address."""
        peer = request.client.host if request.client else ""
        caller = NOBODY if route.role is None else self._tokens.caller(request.headers.get("authorization"))
        known = caller is not None and self._tokens.needed and caller is not NOBODY
        client = f"token {caller.name}" if known and caller is not None else peer
        wait_s = self._rates.wait_s(client, time.monotonic())
        if wait_s:
            retry = {"Retry-After": str(int(wait_s) + 1)}
            raise Refused(429, "too_many_requests", f"at most {self._limits.rate:g} a second for one client", **retry)
        if caller is None:
            raise Refused(401, "no_token", "needs a bearer token that is known", **{"WWW-Authenticate": "Bearer"})
        return caller, client

    async def _body(self, request: Request) -> bytes:
        """The body, if it is not too large or too slow."""
        most = self._limits.body_bytes
        too_large = Refused(413, "too_large", f"a body has at most {most} bytes", Connection="close")
        said = request.headers.get("content-length", "0")
        if not re.fullmatch(r"\d{1,15}", said) or int(said) > READ_ON * most:
            raise too_large
        content, size = bytearray(), 0
        try:
            async with asyncio.timeout(BODY_S):
                async for part in request.stream():
                    size += len(part)
                    if size > READ_ON * most:
                        raise too_large
                    if size <= most:
                        content += part
        except TimeoutError:
            raise Refused(408, "too_slow", f"the body has not come in {BODY_S:g} s", Connection="close") from None
        if size > most:
            raise too_large
        return bytes(content)

    async def _waiting(self, route: Route, call: Call, request: Request) -> tuple[float, Answer]:
        """The answer as soon as there is news, or at the end of the time that the client gives."""
        loop, news, name = asyncio.get_running_loop(), self._instance.news, call.names["name"]
        begun, waits_s = loop.time(), call.seconds("wait", self._limits.wait_s)
        waited_s = 0.0
        while True:
            future = news.expect(name)
            try:
                try:
                    answer = await self._in_thread(self._asked, route, call)
                except Refused as error:
                    if error.code != "no_plan_yet":
                        raise
                    answer = error_answer(error)
                left_s = begun + waits_s - loop.time()
                if answer.status not in (304, 404) or left_s <= 0 or news.closed or await request.is_disconnected():
                    return waited_s, answer
                since = loop.time()
                with self._instance.metrics.waiting.track_inprogress():
                    await asyncio.wait([future], timeout=left_s)
                waited_s += loop.time() - since
            finally:
                news.forget(name, future)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)


def _note(call: Call, answer: Answer) -> None:
    """Note a refused call in the audit log, if this instance may write."""
    with suppress(StrettoError), call.write(noted=False) as connection:
        call.note(connection, answer.status, answer.data["error"]["message"])


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    answer = error_answer(Refused(status, CODES.get(status, "refused"), "there is no such route or method"))
    return Response(answer.body, status, answer.headers, answer.media)


def _documented(route: Route) -> dict[str, Any]:
    """What the OpenAPI page says of a route."""
    path = [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}}
            for n in re.findall(r"{(\w+)}", route.path)]  # fmt: skip
    query = [{"name": n, "in": "query", "description": said, "schema": {"type": "number"}}
             for n, said in route.query.items()]  # fmt: skip
    extra: dict[str, Any] = {"parameters": path + query}
    if route.example is not None:
        content = {"schema": {"type": "object"}, "example": route.example}
        extra["requestBody"] = {"required": True, "content": {"application/json": content}}
    if route.role is not None:
        extra |= {"security": [{"bearer": []}], "description": f"Needs the role {route.role}."}
    return extra


def _add_scheme(app: FastAPI) -> None:
    """Say on the OpenAPI page that tokens are bearer tokens."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        schema: dict[str, Any] = made()
        schema.setdefault("components", {})["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        return schema

    app.openapi = openapi

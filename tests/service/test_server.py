"""How the controller listens."""

from __future__ import annotations

import asyncio
import socket

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")

from stretto.service.server import Address, _listen


def test_nothing_that_is_sent_waits_for_an_acknowledgement():
    async def asked() -> bool:
        async def answer(_, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            found.set_result(bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
            writer.close()

        found = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(answer, sock=_listen(Address(port=0)))
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.close()
            return await found

    assert asyncio.run(asked())

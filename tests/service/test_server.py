"""How the controller listens."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")

from stretto.service.server import Address, _listen

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "controller.md"


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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_documented_unit_is_one_that_systemd_takes(tmp_path):
    text = re.search(r"<!-- tested: unit -->\n```ini\n(.*?)```", PAGE.read_text(), re.S)[1]
    (tmp_path / "stretto").touch(0o755)
    (tmp_path / "stretto.service").write_text(text.replace("/opt/stretto/bin/stretto", f"{tmp_path}/stretto"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "stretto.service"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")

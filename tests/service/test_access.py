"""Who may reach a controller: addresses, tokens and their file, rates; and clients without one."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("prometheus_client")

from stretto.model.errors import InputError
from stretto.service.access import Tokens, new_token
from stretto.service.client import Controller, ControllerGone
from stretto.service.limits import Limits, Rates
from stretto.service.server import Address, serve


def test_it_does_not_listen_to_strangers_without_tls_and_tokens(tmp_path):
    with pytest.raises(
        InputError, match=r"0\.0\.0\.0 is reached from other machines, so the controller needs TLS and tokens"
    ):
        serve(None, str(tmp_path), Address("0.0.0.0"), Tokens(), None, Limits(), print)


def test_a_client_that_asks_too_often_waits():
    rates = Rates(Limits(rate=10.0, burst=2))
    assert [rates.wait_s("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.1]
    assert rates.wait_s("b", 0.0) == 0.0
    assert rates.wait_s("a", 0.1) == 0.0


def test_a_tokens_file_is_read_again_when_it_changes(tmp_path):
    path = tmp_path / "tokens"
    first = new_token(str(path), "job", "one")
    tokens = Tokens(None, str(path))
    second = new_token(str(path), "read", "two")
    assert (tokens.caller(f"Bearer {first}").role, tokens.caller(f"Bearer {second}").name) == ("job", "two")
    assert tokens.caller("Bearer x") is None and tokens.caller(None) is None
    assert first not in path.read_text()
    path.write_text("job one nothing\n")
    with pytest.raises(InputError, match="tokens, line 1: must be ROLE NAME SHA256"):
        Tokens(None, str(path))


def test_a_bad_line_leaves_the_tokens_that_were_known_and_is_logged_once(tmp_path, caplog):
    path = tmp_path / "tokens"
    token = new_token(str(path), "job", "one", "a-*,b")
    tokens = Tokens(None, str(path))
    good = path.read_text()
    path.write_text(good + "operator two\n")
    for _ in range(2):
        assert tokens.caller(f"Bearer {token}").jobs == ("a-*", "b")
    (record,) = caplog.records
    assert "tokens, line 2: must be ROLE NAME SHA256" in record.getMessage()
    assert "those that were known before count on" in record.getMessage()
    path.write_text(good.replace("a-*,b", "c"))
    assert tokens.caller(f"Bearer {token}").jobs == ("c",)
    path.write_text("")
    assert tokens.caller(f"Bearer {token}") is None
    with pytest.raises(InputError, match="a token of the role job may be bound to names such as"):
        new_token(str(path), "read", "one", "a")
    with pytest.raises(InputError, match="may be bound to nodes such as"):
        new_token(str(path), "job", "one", "a", "b c")
    assert tokens.caller(f"Bearer {new_token(str(path), 'job', 'two', '', 's0.*')}").speaks_at("s0.gpu1")
    assert path.read_text().endswith(" * s0.*\n")


def test_a_client_without_a_controller_says_so():
    with pytest.raises(ControllerGone, match=r"127\.0\.0\.1:9: Connection refused; `stretto serve` starts one"):
        Controller("http://127.0.0.1:9").health()
    with pytest.raises(InputError, match=r"missing\.pem: cannot be used: No such file"):
        Controller("https://127.0.0.1:9", authorities="missing.pem")
    with pytest.raises(InputError, match="is no URL such as"):
        Controller("controller:8642")

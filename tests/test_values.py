"""Values of options, as they are typed."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from stretto.cli.arguments import Chunks, Options, TimeLimit
from stretto.cli.help import Command
from stretto.cli.values import _plain_value

app = typer.Typer()


@app.command(cls=Command)
def show(name: str, chunks: Chunks = 1, time_limit: TimeLimit = None, option: Options = None, quiet: bool = False):
    print([name, chunks, time_limit, option, quiet])


def said(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    return done.stdout.strip() if done.exit_code == 0 else done.output


def test_a_command_gets_what_was_typed():
    assert said("ring") in ("['ring', 1, None, None, False]", "['ring', 1, None, [], False]")
    typed = ["12", "--chunks", "012", "--time-limit", "2.5", "--option", "a=1", "--option", "b", "--quiet"]
    assert said(*typed) == "['12', 12, 2.5, ['a=1', 'b'], True]"


@pytest.mark.parametrize("value", ["1e1", "1_0", " 10", "+10"])
def test_numbers_in_other_forms_are_left_to_typer(value):
    assert said("x", "--time-limit", value) == "['x', 1, 10.0, None, False]"


@pytest.mark.parametrize("value", ["0", "-3", "two", "1.5", ""])
def test_what_is_no_such_number_is_refused(value):
    assert "--chunks" in said("x", "--chunks", value)


def test_only_plain_values_are_read_without_typer():
    params = {param.name: param for param in typer.main.get_command(app).params}
    wanted = getattr(params["chunks"], "type_descriptor", None)
    if wanted is None:
        pytest.skip("a Typer that asks nobody else to convert values")
    assert [_plain_value(text, wanted) for text in ("3", "0", "-1", "1e3", "x", "9" * 16)] == [3] + [None] * 5

"""Help of the command line: every command, at any width."""

from __future__ import annotations

import shlex

import pytest
import typer

from command_line import stretto
from stretto.cli import app
from stretto.cli.help import EXAMPLES, METAVARS, OTHERWISE, OUTPUT, SEVERAL, SUBJECTS, WHAT
from stretto.cli.tree import Commands


def _leaves(command, path: tuple[str, ...] = ()) -> dict:
    if not hasattr(command, "commands"):
        return {" ".join(path): command}
    return {name: leaf for n, c in command.commands.items() for name, leaf in _leaves(c, (*path, n)).items()}


LONG = 36
"""Characters of what may be broken: an example of groups without a space."""
ROOT = typer.main.get_command(app)
COMMANDS = _leaves(ROOT)


def _help(path: str, monkeypatch, capsys, columns: int) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as ended:
        app([*path.split(), "--help"], prog_name="stretto")
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_command_is_made_when_it_is_asked_for_and_once():
    def sound(topology: str) -> None:
        """Say something."""

    def faulty(topology: NotThere) -> None:  # noqa: F821
        """Typer asks for the types of its arguments."""

    commands = Commands({"sound": sound, "faulty": faulty})
    assert [*commands] == ["sound", "faulty"] and "faulty" in commands and "other" not in commands
    assert commands["sound"] is commands["sound"] and commands["sound"].params[0].name == "topology"
    with pytest.raises(NameError):
        commands["faulty"]


def test_every_command_and_group_is_listed_and_has_an_example(monkeypatch, capsys):
    groups = {name for name, command in ROOT.commands.items() if hasattr(command, "commands")} | {""}
    assert EXAMPLES.keys() == COMMANDS.keys() | groups
    assert all("Example:\n  stretto " in _help(path, monkeypatch, capsys, 60) for path in groups)
    assert sorted(name for names in SUBJECTS.values() for name in names) == sorted(ROOT.commands)


@pytest.mark.parametrize("path", COMMANDS)
def test_an_example_is_understood(path, monkeypatch):
    monkeypatch.setenv("STRETTO_CONTROLLER", "http://127.0.0.1:8642")
    words = shlex.split(EXAMPLES[path])
    assert words[0] == "stretto" and words[1 : 1 + len(path.split())] == path.split()
    command = COMMANDS[path]
    with command.make_context(path, words[1 + len(path.split()) :]) as context:
        assert context.params


@pytest.mark.parametrize("path", ["", *COMMANDS])
def test_help_fits_and_breaks_no_word(path, monkeypatch, capsys):
    narrow, wide = (_help(path, monkeypatch, capsys, columns) for columns in (60, 100))
    for text, columns in ((narrow, 60), (wide, 100)):
        assert max(map(len, text.splitlines())) <= columns
    words = [" ".join(text.replace("\\\n", " ").split()) for text in (narrow, wide)]
    assert "".join(words[0].split()) == "".join(words[1].split())
    assert all(len(w) > LONG for w in set(words[1].split()) - set(words[0].split()))


@pytest.mark.parametrize("path", COMMANDS)
def test_an_example_in_several_lines_is_what_a_shell_reads_as_one(path, monkeypatch, capsys):
    shown = _help(path, monkeypatch, capsys, 40).partition("Example:\n")[2]
    assert shlex.split(shown.replace("\\\n", "")) == shlex.split(EXAMPLES[path])


@pytest.mark.parametrize("words", ["plan --size", "plan allreduce -t", "jobs put --controller", "measure --hosts"])
def test_an_option_without_its_value_is_said_of_its_command(words):
    command = words.rpartition(" -")[0].removesuffix(" allreduce")
    flag = words.split()[-1]
    said = stretto(*words.split(), code=2).stderr
    assert said == f"error: stretto {command}: option '{flag}' requires an argument; see `stretto {command} --help`\n"


def test_every_option_has_a_group_and_says_what_its_value_is():
    options = {p.name: p for c in COMMANDS.values() for p in c.params if p.param_type_name == "option"}
    assert options.keys() >= METAVARS.keys() and options.keys() | {"version", "help", "file"} >= WHAT | OUTPUT
    numbers = {name for name, option in options.items() if not (option.is_flag or option.hidden or name in METAVARS)}
    assert numbers == {
        "cycles", "keep_versions", "most_bytes", "points", "port", "proposal", "seed", "servers", "transfers", "version"
    }  # fmt: skip


def test_what_an_option_means_in_one_command_is_said_there(monkeypatch, capsys):
    for key, value in (OTHERWISE | SEVERAL).items():
        path, _, name = key.rpartition(" ")
        assert name in {p.name for p in COMMANDS[path].params}
        assert f"--{name} {value}" in " ".join(_help(path, monkeypatch, capsys, 100).split())


def test_a_group_without_a_command_shows_its_help(capsys):
    from stretto.cli import main

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr("sys.argv", ["stretto", "jobs"])
        main()
    assert ended.value.code == 0 and "Commands:" in capsys.readouterr().out

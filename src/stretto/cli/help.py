"""The help of the commands, as plain text of any width: what is asked, how, what is written, and an example."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from .tables import wrapped

WIDTH = 100
"""Columns of a terminal that help uses at most."""

WHAT = frozenset((
    "topology", "jobs", "size", "sizes", "shard", "demand", "chunks", "root", "file", "telemetry", "at", "changes",
    "collective", "library", "groups", "present", "machines", "servers", "fabric", "nics", "hosts", "hosts_file", "gpu",
    "ranks", "source", "tuning", "network", "connections",
))  # fmt: skip
OUTPUT = frozenset(
    ("output", "to", "plot", "trace", "check", "transfers", "once", "targets", "as_json", "version", "help")
)
"""Options that say what is asked for, and what is written; all others say how."""

METAVARS: Mapping[str, str] = {
    "topology": "SPEC|FILE", "size": "SIZE", "sizes": "SIZE,...", "shard": "SIZE", "demand": "FILE.csv",
    "planner": "PLANNER", "planners": "PLANNER,...", "chunks": "N", "root": "RANK", "option": "NAME=VALUE",
    "effort": "LEVEL", "time_limit": "SECONDS", "timeout": "SECONDS", "target": "TARGET", "tuning": "TABLE",
    "objective": "time|cost", "budget": "USD", "output": "FILE", "plot": "FILE.svg", "to": "FORMAT",
    "source": "FORMAT", "jobs": "FILE.json", "telemetry": "FILE", "changes": "FILE", "trace": "FILE",
    "hosts": "HOST,...", "hosts_file": "FILE", "controller": "URL", "token": "TOKEN", "authorities": "FILE",
    "at": "TIME", "ranks": "RANK,...", "groups": "GROUP,...", "library": "LIBRARY", "collective": "COLLECTIVE",
    "machines": "site|gpu", "gpu": "GPU", "present": "ORDER", "fabric": "FABRIC", "nics": "COUNTxSPEED",
    "switch": "PROGRAM", "secret_file": "FILE", "frames": "KIND", "data": "FOLDER", "database": "URL",
    "tokens": "FILE", "new_token": "ROLE:NAME", "tls_cert": "FILE", "tls_key": "FILE", "tls_ca": "FILE",
    "tls_name": "NAME", "address": "URL", "sources": "FILE", "hold": "SECONDS", "gone_after": "SECONDS",
    "watch": "SECONDS", "every": "SECONDS", "window": "SECONDS",
    "wait": "SECONDS", "master": "HOST[:PORT]", "connections": "N,...", "load": "SIZE",
    "network": "NAME", "engine": "ENGINE", "command": "COMMAND", "ssh": "COMMAND", "host": "ADDRESS", "paced": "X",
    "scale": "X", "shrink": "X", "threshold": "X", "least_gain": "X", "rate": "X", "keep": "DAYS",
    "keep_telemetry": "HOURS", "allow_host": "NAME",
}  # fmt: skip
"""What stands for the value of an option; a number N where nothing is said."""
OTHERWISE: Mapping[str, str] = {"measure budget": "TIME,SIZE", "study jobs": "N", "study output": "FOLDER"}
"""The same of options that mean something else in one command."""
SEVERAL: Mapping[str, str] = {
    "compare size": "SIZE,...", "compare shard": "SIZE,...", "compare planner": "PLANNER,...",
    "compare chunks": "N,...", "tune chunks": "N,...",
}  # fmt: skip
"""The same of options of which one command takes several."""

EXAMPLES: Mapping[str, str] = {
    "": "stretto plan allreduce -t h100:4 --size 1GB",
    "topologies": "stretto topologies 'h100:8?pod=4&spines=4' --plot cluster.svg",
    "planners": "stretto planners forest",
    "plan": "stretto plan allreduce -t h100:4 --size 1GB -o plan.parquet",
    "replan": "stretto replan plan.parquet --telemetry news.json --at 2s -o rest.parquet",
    "verify": "stretto verify plan.parquet",
    "simulate": "stretto simulate plan.parquet",
    "run": "stretto run allreduce -t fullmesh:4 --size 64MB",
    "emulate": "stretto emulate allgather -t sites:2,2 --size 16MB",
    "show": "stretto show plan.parquet --transfers 20",
    "bound": "stretto bound allreduce -t zoo:Abilene --size 1GB",
    "compare": "stretto compare allgather -t dgx2:2 --size 1MB,1GB -p ring,forest,auto -o page.html",
    "tune": "stretto tune allreduce -t dgx1 -p ring,forest -o table.json",
    "order": "stretto order -t sites:2,4 --library nccl --collective allreduce --size 1GB",
    "measure": "stretto measure --hosts node1,node2,node3 -o measured.json",
    "watch": "stretto watch traces",
    "serve": "stretto serve --data controller",
    "study": "stretto study swot -o swot",
    "report": "stretto report plan.parquet -o page.html",
    "export": "stretto export plan.parquet --to trace -o plan.json",
    "import": "stretto import plan.xml --from msccl -t dgx1 --size 64MB",
    "warm": "stretto warm",
    "networks": "stretto networks put wan -t zoo:Abilene --controller http://127.0.0.1:8642",
    "networks list": "stretto networks list --controller http://127.0.0.1:8642",
    "networks show": "stretto networks show wan",
    "networks put": "stretto networks put wan -t zoo:Abilene",
    "networks delete": "stretto networks delete wan",
    "networks report": "stretto networks report wan news.json",
    "jobs": "stretto jobs show training --controller http://127.0.0.1:8642",
    "jobs list": "stretto jobs list --controller http://127.0.0.1:8642",
    "jobs show": "stretto jobs show training",
    "jobs put": "stretto jobs put training job.json",
    "jobs delete": "stretto jobs delete training",
    "jobs plan": "stretto jobs plan training -o plan.parquet",
    "jobs hold": "stretto jobs hold training",
    "jobs accept": "stretto jobs accept training",
}  # fmt: skip
"""One for each command and group of commands; a test reads them as the commands do."""

SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "Plans": ("plan", "compare", "bound", "tune", "order", "replan"),
    "Plan files": ("verify", "simulate", "show", "report", "export", "import"),
    "Real bytes": ("run", "emulate", "measure", "watch"),
    "A service": ("serve", "networks", "jobs"),
    "What there is": ("topologies", "planners", "study", "warm"),
}
"""The commands, by what they are about."""


class Command(TyperCommand):
    """A command whose help has its options in groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:  # the parser does not say whose option lacks its value
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = [self.options_metavar] if self.options_metavar else []
        return [*pieces, *(_place(p) for p in self.get_params(ctx) if p.param_type_name == "argument")]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "What": [], "How": [], "Output": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                groups[_group(param, ctx.info_name)].append((_name(param, ctx.info_name), record[1]))
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    _write_list(formatter, rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_example(ctx, formatter)


class Group(TyperGroup):
    """Commands, listed by what they are about."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        subjects = SUBJECTS if ctx.parent is None else {"Commands": self.list_commands(ctx)}
        for title, names in subjects.items():
            with formatter.section(title):
                _write_list(formatter, [(name, _first_sentence(self.get_command(ctx, name))) for name in names])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_example(ctx, formatter)


def _write_example(ctx: Any, formatter: Any) -> None:
    example = EXAMPLES.get(ctx.command_path.partition(" ")[2])
    if example is not None:
        with formatter.section("Example"):
            formatter.write("".join(f"  {line}\n" for line in _shell_lines(example, formatter.width - 2)))


def _write_list(formatter: Any, rows: Sequence[tuple[str, str]]) -> None:
    """Names, and beside each what it is; a name that is too long has a line of its own. No word is broken."""
    most = min(26, formatter.width // 3)
    first = min(max(len(name) for name, _ in rows), most) + 2
    lead = " " * formatter.current_indent
    for name, text in rows:
        lines = wrapped(" ".join(text.split()), formatter.width - formatter.current_indent - first)
        if len(name) > first - 2:
            formatter.write(f"{lead}{name}\n")
            name = ""
        for line in lines:
            formatter.write(f"{lead}{name:<{first}}{line}".rstrip() + "\n")
            name = ""


def _shell_lines(command: str, columns: int) -> list[str]:
    """A command in lines of this width that can be copied into a shell."""
    if len(command) <= columns:
        return [command]
    first, *others = wrapped(command, columns - 4)
    lines = [first, *(f"  {line}" for line in others)]
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _first_sentence(command: Any) -> str:
    return str(command.help).split("\n\n")[0]


def _group(param: Any, command: str) -> str:
    if param.param_type_name == "argument":
        return "Arguments"
    if f"{command} {param.name}" in OTHERWISE:
        return "How"
    return "What" if param.name in WHAT else "Output" if param.name in OUTPUT else "How"


def _place(argument: Any) -> str:
    """An argument as it stands in the line of usage."""
    name = _name(argument, "")
    name = name if argument.required or name.startswith("[") else f"[{name}]"
    return f"{name}..." if argument.nargs < 0 and not name.endswith("...]") else name


def _name(param: Any, command: str) -> str:
    """The flags of an option and what stands for its value, or the name of an argument."""
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    flags = ", ".join(_without_old_names(param.opts))
    if param.secondary_opts:
        flags += "/" + "/".join(param.secondary_opts)
    here = f"{command} {param.name}"
    value = OTHERWISE.get(here) or SEVERAL.get(here) or METAVARS.get(param.name, "N")
    return flags if param.is_flag else f"{flags} {value}"


def _without_old_names(flags: Iterable[str]) -> list[str]:
    """The short flags and the first long one; others are still understood."""
    flags = list(flags)
    long = [flag for flag in flags if flag.startswith("--")]
    return [flag for flag in flags if not flag.startswith("--")] + long[:1]

"""``stretto networks`` and ``stretto jobs``: ask a controller."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, Typer

from ..model.errors import InputError
from . import arguments
from .help import Command, Group
from .output import answer
from .tables import print_line, print_table

if TYPE_CHECKING:
    from ..service.client import Controller

networks = Typer(
    name="networks",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    cls=Group,
    help="Networks of a controller (docs: controller).",
)
jobs = Typer(
    name="jobs",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    cls=Group,
    help="Jobs of a controller, and their plans (docs: controller).",
)

Name = Annotated[str, Argument(help="Its name at the controller.")]
Url = Annotated[
    str, Option("--controller", help="URL of the controller; several, separated by commas, for its instances.",
                envvar="STRETTO_CONTROLLER")
]  # fmt: skip
Token = Annotated[str | None, Option(help="Bearer token.", envvar="STRETTO_CONTROLLER_TOKEN")]
Authorities = Annotated[
    str | None, Option("--tls-ca", help="File of the authorities of the controller's certificate.",
                       envvar="STRETTO_CONTROLLER_CA")
]  # fmt: skip
FROM_STDIN = "-"


def _controller(url: str, token: str | None, authorities: str | None) -> Controller:
    from ..service.client import Controller

    return Controller(url, token, authorities)


def _object(path: str) -> Any:
    """The JSON of a file, or of the standard input."""
    from ..topologies.values import parse_json, read_text

    return parse_json(sys.stdin.read() if path == FROM_STDIN else read_text(path), path)


@networks.command("list", cls=Command)
def list_networks(
    controller: Url, token: Token = None, authorities: Authorities = None, as_json: arguments.Json = False
) -> None:
    """List networks."""
    found = _controller(controller, token, authorities).networks()
    rows = [(each["name"], str(each["version"])) for each in found]
    answer(as_json, {"networks": found}, lambda: print_table("networks", ("name", "version"), rows))


@networks.command("show", cls=Command)
def show_network(
    name: Name, controller: Url, token: Token = None, authorities: Authorities = None, as_json: arguments.Json = False
) -> None:
    """Show a network: its version, what telemetry has changed, and why plans were published or not."""
    asked = _controller(controller, token, authorities)
    found = asked.network(name) | {"decisions": asked.decisions(name)}

    def show() -> None:
        topology = found["topology"]
        size = f"{len(topology['nodes'])} nodes, {len(topology['links'])} links"
        rows = [("version", f"{found['version']}: {found['why']}"), ("size", size)]
        rows += [("differs", f"{said['src']}→{said['dst']}: {_values(said)}") for said in found["overlay"]]
        rows += [(_moment(d["at"]), _outcome(d) + d["why"]) for d in found["decisions"][:5]]
        print_table(f"network {name}", ("", ""), rows)

    answer(as_json, found, show)


def _outcome(decision: dict[str, Any]) -> str:
    """What became of a decision's plan."""
    made = ["new plans"] if decision["published"] else []
    held = [f"proposed to {', '.join(decision['proposed'])}"] if decision["proposed"] else []
    return f"{'; '.join(made + held)}: " if made or held else ""


def _values(said: dict[str, Any]) -> str:
    from ..model.units import format_bandwidth, format_time

    width = said.get("bandwidth_Bps")
    words = [] if width is None else [format_bandwidth(width) if width else "down"]
    return ", ".join(words + ([format_time(said["latency_s"])] if "latency_s" in said else []))


@networks.command("put", cls=Command)
def put_network(
    name: Name,
    topology: arguments.Topology,
    controller: Url,
    token: Token = None,
    authorities: Authorities = None,
    as_json: arguments.Json = False,
) -> None:
    """Make or replace a network: by a spec, or by a file of any kind that is read here."""
    from .. import face

    data = _controller(controller, token, authorities).put_network(name, face.topology(topology).to_json())
    size = f"{data['nodes']} nodes, {data['links']} links"
    answer(as_json, data, lambda: print_line(f"network {name} has version {data['version']}: {size}"))


@networks.command("delete", cls=Command)
def delete_network(
    name: Name, controller: Url, token: Token = None, authorities: Authorities = None, as_json: arguments.Json = False
) -> None:
    """Forget a network that no job uses."""
    _controller(controller, token, authorities).delete_network(name)
    answer(as_json, {"name": name, "deleted": True}, lambda: print_line(f"network {name} is forgotten"))


@networks.command("report", cls=Command)
def report(
    name: Name,
    telemetry: Annotated[str, Argument(help="A telemetry file (docs: replanning); - for the standard input.")],
    controller: Url,
    token: Token = None,
    authorities: Authorities = None,
    as_json: arguments.Json = False,
) -> None:
    """Report what links give."""
    data = _controller(controller, token, authorities).report(name, _object(telemetry))
    refused = "".join(f", {count} refused as {reason}" for reason, count in data["refused"].items())
    answer(as_json, data, lambda: print_line(f"{data['kept']} kept{refused}"))


@jobs.command("list", cls=Command)
def list_jobs(
    controller: Url, token: Token = None, authorities: Authorities = None, as_json: arguments.Json = False
) -> None:
    """List jobs."""
    found = _controller(controller, token, authorities).jobs()
    heads = ("name", "network", "version", "plan", "status")
    rows = [(j["name"], j["network"], str(j["version"]), str(j["plan_version"] or "none"), _status(j)) for j in found]
    answer(as_json, {"jobs": found}, lambda: print_table("jobs", heads, rows))


def _status(job: dict[str, Any]) -> str:
    """The status of a job in the list of all, and whether it is held."""
    held = ["held"] if job["held"] else []
    proposed = [f"proposal {job['proposal']}"] if job["proposal"] is not None else []
    return ", ".join([job["status"], *held, *proposed])


@jobs.command("show", cls=Command)
def show_job(
    name: Name, controller: Url, token: Token = None, authorities: Authorities = None, as_json: arguments.Json = False
) -> None:
    """Show a job: its status, and the versions of its plan with what led to each."""
    found = _controller(controller, token, authorities).job(name)

    def show() -> None:
        status = found["status"] + (f": {found['reason']}" if found["reason"] else "")
        rows = [("network", found["network"]), ("version", str(found["version"])), ("status", status)]
        if found["hold"]:
            who, since = found["hold"]["who"], _moment(found["hold"]["at"])
            rows.append(("held", f"since {since}" + ("" if who == "anybody" else f", by {who}")))
        if found["proposed"]:
            proposed = found["proposed"]
            rows.append((f"proposal {proposed['proposal']}", f"{_moment(proposed['proposed_at'])}: {proposed['why']}"))
        rows += [(f"plan {v['version']}", f"{_moment(v['published_at'])}: {v['why']}") for v in found["plan_versions"]]
        print_table(f"job {name}", ("", ""), rows)

    answer(as_json, found, show)


@jobs.command("put", cls=Command)
def put_job(
    name: Name,
    job: Annotated[str, Argument(help="A JSON file, such as {\"network\": \"wan\", \"collectives\": [{\"kind\": "
                                      "\"allreduce\", \"size\": \"64MB\"}]}; - for the standard input.")],
    controller: Url,
    token: Token = None,
    authorities: Authorities = None,
    as_json: arguments.Json = False,
) -> None:  # fmt: skip
    """Make or replace a job."""
    data = _controller(controller, token, authorities).put_job(name, _object(job))
    answer(as_json, data, lambda: print_line(f"job {name} has version {data['version']}, on {data['network']}"))


@jobs.command("delete", cls=Command)
def delete_job(
    name: Name, controller: Url, token: Token = None, authorities: Authorities = None, as_json: arguments.Json = False
) -> None:
    """End a job."""
    _controller(controller, token, authorities).delete_job(name)
    answer(as_json, {"name": name, "deleted": True}, lambda: print_line(f"job {name} has ended"))


@jobs.command("hold", cls=Command)
def hold_job(
    name: Name, controller: Url, token: Token = None, authorities: Authorities = None, as_json: arguments.Json = False
) -> None:
    """Let a job keep the version of its plan: newer plans are proposed, until one is accepted."""
    data = _controller(controller, token, authorities).hold_job(name)
    answer(as_json, data, lambda: print_line(f"job {name} keeps its plan; newer ones are proposed"))


@jobs.command("accept", cls=Command)
def accept_plan(
    name: Name,
    controller: Url,
    proposal: Annotated[
        int | None, Option(help="The proposal, as `jobs show` names it; refused if there is another one by now.", min=1)
    ] = None,
    hold: Annotated[bool, Option("--hold", help="Hold the job on: accept this plan alone.")] = False,
    token: Token = None,
    authorities: Authorities = None,
    as_json: arguments.Json = False,
) -> None:
    """Publish the plan that is proposed to a job that was held; it gets later plans without being asked."""
    data = _controller(controller, token, authorities).accept_plan(name, proposal, hold)
    done = "has no new plan" if data["published"] is None else f"has version {data['published']} of its plan"
    then = "newer ones are proposed" if data["hold"] else "it gets newer ones as they come"
    answer(as_json, data, lambda: print_line(f"job {name} {done}; {then}"))


@jobs.command("plan", cls=Command)
def show_plan(
    name: Name,
    controller: Url,
    version: Annotated[int | None, Option(help="Version of the plan. Default: the newest.", min=1)] = None,
    wait: Annotated[float, Option(help="Seconds to wait for it, if there is none yet.", min=0.0)] = 0.0,
    output: Annotated[str | None, Option("-o", "--output", help="Write the plan to this file.")] = None,
    token: Token = None,
    authorities: Authorities = None,
    as_json: arguments.Json = False,
) -> None:
    """Show the plan of a job, and write it to a file that other commands read."""
    from ..formats import PLAN, atomic_file, check_writable

    if output is not None:
        check_writable(output, PLAN)
    asked = _controller(controller, token, authorities)
    found = asked.plan(name, version=version, wait_s=wait)
    if found is None:
        raise InputError("was answered as if it were known", "the plan")
    if output is not None:
        text = output.lower().endswith(".json")
        content = asked.plan_text(found["digest"]).encode() if text else asked.plan_parquet(found["digest"])
        with atomic_file(output, "wb") as file:
            file.write(content)
        found["file"] = output

    def show() -> None:
        from ..model.units import format_size, format_time

        rows = [("why", found["why"]), ("published", _moment(found["published_at"])), ("digest", found["digest"])]
        for c in found["collectives"]:
            times = f"{format_time(c['completion_s'])} beside the others, {format_time(c['alone_s'])} alone"
            rows.append((c["kind"], f"{format_size(c['size_bytes'])} among {c['ranks']} ranks: {times}"))
        rows += [("file", output)] if output is not None else []
        print_table(f"version {found['version']} of the plan of {name}", ("", ""), rows)

    answer(as_json, found, show)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))

"""``stretto serve``: the controller."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

from typer import Option

from ..model.errors import InputError, none_of
from ..model.extras import require
from . import arguments

NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "prometheus_client")

WAYS_OUT = {
    "OpenToStrangers": "give --tls-cert and --tls-key, and --tokens or --token, or --insecure where a proxy does both",
    "PortTaken": "--port names another one, and 0 takes any that is free",
}
"""What to do about errors of the server, by their names."""


def serve(
    *,
    host: Annotated[str, Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen at; 0 takes any free one.", min=0, max=65535)] = 8642,
    data: Annotated[
        str | None, Option(help="Folder of the SQLite database. Default: stretto/controller where the user's state is.")
    ] = None,
    database: Annotated[
        str | None,
        Option(
            help="Instead of the folder: a PostgreSQL database, postgresql://USER@HOST/NAME, for several instances.",
            envvar="STRETTO_DATABASE",
        ),
    ] = None,
    token: Annotated[
        str | None, Option(help="One operator's token, which every request needs.", envvar="STRETTO_CONTROLLER_TOKEN")
    ] = None,
    tokens: Annotated[str | None, Option(help="File of tokens: lines ROLE NAME SHA256 [JOBS [NODES]].")] = None,
    new_token: Annotated[
        str | None,
        Option(help="Make a token, add it to the file of --tokens, print it, and end: ROLE:NAME, with a role of read, "
               "job, operator; job:NAME:JOBS:NODES speaks for jobs such as train-*,eval alone, at such nodes."),
    ] = None,
    tls_cert: Annotated[str | None, Option(help="Certificate of the server, PEM, with the chain.")] = None,
    tls_key: Annotated[str | None, Option(help="Its key, PEM.")] = None,
    address: Annotated[
        str | None, Option(help="URL at which other machines reach this instance. Default: that of host and port.")
    ] = None,
    insecure: Annotated[
        bool, Option("--insecure", help="Listen beyond this machine even without TLS or tokens.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        Option(help="Without tokens: a name by which this controller may be asked for, besides this machine's and that "
               "of --address; may be repeated."),
    ] = None,
    sources: Annotated[
        str | None, Option(help="File of what is asked for telemetry: Prometheus and gNMI, for each network.")
    ] = None,
    planner: arguments.Planner = "auto",
    effort: Annotated[
        str, Option(help="How much is tried for plans: quick, normal or thorough. First plans are quick.",
                    autocompletion=arguments.complete_effort)
    ] = "normal",
    threshold: Annotated[
        float, Option(help="Share of the planned bandwidth or latency by which a link must differ.", min=0.01, max=10.0)
    ] = 0.15,
    hold: Annotated[float, Option(help="Seconds for which it must differ to be planned for.", min=0.0)] = 0.5,
    least_gain: Annotated[
        float, Option(help="Share of the mean completion that new plans must gain to replace others.", min=0.0, max=1.0)
    ] = 0.05,
    keep: Annotated[
        float, Option(help="Days for which the audit log, decisions, and old versions of networks and jobs are kept.",
                      min=0.01)
    ] = 30.0,
    keep_telemetry: Annotated[float, Option(help="Hours for which telemetry is kept.", min=0.1)] = 24.0,
    keep_versions: Annotated[int, Option(help="Versions of each job's plan that are kept.", min=2)] = 20,
    gone_after: Annotated[
        float,
        Option(help="Seconds after which a database, or another instance that leads, counts as gone if it does not "
               "answer.", min=1.0, max=3600.0),
    ] = 5.0,
    most_bytes: Annotated[int, Option(help="Bytes of a request's body at most.", min=1000)] = 16_000_000,
    rate: Annotated[float, Option(help="Requests a second of one client at most, over time.", min=0.1)] = 100.0,
    as_json: arguments.Json = False,
) -> None:  # fmt: skip
    """Serve networks, jobs and their plans over HTTP, listen to telemetry, and plan again (docs: controller)."""
    require("service", "the controller", *NEEDED)
    if new_token is not None:
        _make_token(new_token, tokens, as_json)
        return
    from ..planners import find
    from ..schedule.effort import EFFORTS
    from ..service.access import Tokens
    from ..service.keeping import Keep
    from ..service.limits import Limits
    from ..service.listening import Sensitivity
    from ..service.planner import Settings
    from ..service.server import Address, OpenToStrangers, PortTaken
    from ..service.server import serve as run
    from ..service.telemetry.asking import read_sources

    if effort not in EFFORTS:
        raise InputError(none_of(effort, EFFORTS), "effort")
    find(planner.partition("+")[0])
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")

    kept = Keep(keep, keep_telemetry, keep_versions)

    def ready(url: str) -> None:
        from .output import answer
        from .tables import print_line

        answer(
            as_json,
            {"url": url},
            lambda: print_line(f"the controller answers at {url}, a page in browsers; its API: {url}/docs"),
        )
        sys.stdout.flush()

    where = Address(host, port, tls_cert, tls_key, address, insecure, (*(allow_host or ()),))
    try:
        run(
            database, data or _state_folder(), where, Tokens(token, tokens),
            Settings(effort, Sensitivity(threshold, hold), least_gain, planner, kept),
            Limits(most_bytes, rate, max(1, int(4 * rate))), ready,
            None if sources is None else read_sources(sources), gone_after,
        )  # fmt: skip
    except (OpenToStrangers, PortTaken) as error:
        raise InputError(f"{error}; {WAYS_OUT[type(error).__name__]}") from None


def _make_token(given: str, path: str | None, as_json: bool) -> None:
    from ..service.access import new_token
    from .output import answer
    from .tables import print_line

    if path is None:
        raise InputError("name the file with --tokens", "--new-token")
    role, _, rest = given.partition(":")
    name, _, rest = rest.partition(":")
    jobs, _, nodes = rest.partition(":")
    made = new_token(path, role, name, jobs, nodes)
    answer(as_json, {"role": role, "name": name, "token": made}, lambda: print_line(made))


def _state_folder() -> str:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "stretto", "controller")

"""``stretto topologies`` and ``stretto planners``: lists, and descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ..model.errors import InputError
from . import arguments
from .output import answer, show_topology
from .tables import print_line, print_table
from .work import write_topology

if TYPE_CHECKING:
    from ..model.topology import Topology

COMPOSE = "compose"
_COMPOSING = "compose SERVER... --servers N --fabric FABRIC -o FILE"


def topologies(
    topology: Annotated[
        list[str] | None,
        Argument(
            metavar="[TOPOLOGY | files | compose SERVER...]",
            help="Describe this topology, list the files that are read as one, or compose a cluster of servers; each "
            "is a family, or a file such as the output of nvidia-smi topo -m or lstopo.",
            autocompletion=arguments.complete_topology,
        ),
    ] = None,
    plot: Annotated[
        str | None, Option(help="Draw the topology to this SVG file: servers, rails and spine, or a map.")
    ] = None,
    to: Annotated[
        str | None, Option(help="Write the topology as json, graphml or astra-sim, to the file of -o.")
    ] = None,
    output: Annotated[
        str | None,
        Option("-o", "--output", help="The file to write; as json, unless its ending or --to says another format."),
    ] = None,
    servers: Annotated[
        str | None,
        Option(
            help="How many of each SERVER; one number, or one for each by comma. By default 1, or as many as a "
            "topology that is the fabric has places.",
            rich_help_panel=_COMPOSING,
        ),
    ] = None,
    fabric: Annotated[
        str | None,
        Option(
            help="rails, leafspine, fattree, dragonfly, site or wan, also with options "
            "(rails?spines=4&oversubscription=2); or a topology with a place for each server, such as torus:4x4. "
            "rails by default.",
            rich_help_panel=_COMPOSING,
        ),
    ] = None,
    nics: Annotated[
        str | None,
        Option(
            help="The NICs of each server: 8x400Gbit/s, 8, or 400Gbit/s. By default those that it has.",
            rich_help_panel=_COMPOSING,
        ),
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """List the built-in topologies, describe or write one, or compose a cluster of servers under a fabric."""
    words = topology or []
    if words[:1] == [COMPOSE]:
        net = _composed(words[1:], servers, fabric, nics)
    else:
        for name, value in (("--servers", servers), ("--fabric", fabric), ("--nics", nics)):
            if value is not None:
                raise InputError("is of `stretto topologies compose SERVER...`", name)
        if len(words) > 1:
            raise InputError("give one topology, or compose SERVER...", " ".join(words))
        if words == ["files"]:
            _list_formats(as_json)
            return
        if not words or words[0] in ("zoo", "cloud"):
            _list(as_json, words[0] if words else None)
            return
        from ..topologies import load_topology

        net = load_topology(words[0])
    from ..report.facts import topology_facts

    if plot is not None:
        from ..formats import check_writable
        from ..report.drawing import write_svg

        check_writable(plot, ("svg",))
        write_svg(net, plot)
    data = topology_facts(net) | write_topology(net, to, output)
    answer(as_json, data | ({"plot": plot} if plot else {}), lambda: show_topology(data, plot))


def _composed(servers: list[str], counts: str | None, fabric: str | None, nics: str | None) -> Topology:
    """The cluster that ``compose`` and its options describe."""
    from ..topologies import compose, whole

    if not servers:
        raise InputError("give at least one SERVER: a family or a file", COMPOSE)
    each = None if counts is None else [whole(text, "--servers", 1) for text in counts.split(",")]
    count = each[0] if each is not None and len(each) == 1 else each
    return compose(servers, count, fabric or "rails", nics=nics)


def _list(as_json: bool, family: str | None) -> None:
    """All families and fabrics, or all members of the family ``zoo`` or ``cloud``."""
    from ..topologies import Setting, catalogue
    from ..topologies.fabrics import FABRICS

    if family is not None:
        names = _names_of(family)
        prefix = "zoo:" if family == "zoo" else ""
        answer(as_json, {family: names}, lambda: print_line(", ".join(f"{prefix}{name}" for name in names)))
        return

    def options(settings: tuple[Setting, ...]) -> list[dict[str, Any]]:
        return [{"name": s.name, "default": s.default, "help": s.help} for s in settings]

    rows: list[dict[str, Any]] = [
        {"spec": f.pattern, "summary": f.summary, "example": f.example, "options": options(f.settings)}
        | ({"nics": f.nics} if f.nics else {})
        for f in catalogue()
    ]
    fabrics = [{"fabric": f.name, "summary": f.summary, "options": options(f.settings)} for f in FABRICS]
    answer(as_json, {"topologies": rows, "fabrics": fabrics}, lambda: _show_families(rows, fabrics))


def _list_formats(as_json: bool) -> None:
    """The files that are read, and the options that each takes."""
    from ..topologies.importers import COMMON, FORMATS, SETTINGS

    rows = [{"file": f.name, "options": list(f.settings)} for f in FORMATS]
    options = [{"name": s.name, "help": s.help} for s in SETTINGS]

    def show() -> None:
        print_table("", ("file", "options"), [(f.name, ", ".join(f.settings)) for f in FORMATS])
        of = {s.name: ", ".join(f.name for f in FORMATS if s.name in f.settings) for s in SETTINGS[COMMON:]}
        meanings = [(s.name, of.get(s.name, "all"), s.help) for s in SETTINGS]
        print_table("options, as in topology.conf?gpus=8&nic=400Gbit/s", ("option", "of", "what it means"), meanings)

    answer(as_json, {"files": rows, "options": options}, show)


def _names_of(family: str) -> list[str]:
    """The networks of the Topology Zoo, or the regions of clouds."""
    if family == "zoo":
        from ..topologies.zoo import networks

        return networks()
    from ..topologies.cloud import measured_regions

    return list(measured_regions().names)


def _show_families(rows: list[dict[str, Any]], fabrics: list[dict[str, Any]]) -> None:
    """Tables of the families, of what their options mean, and of the fabrics."""
    families: dict[tuple[str, str], list[str]] = {}
    for r in rows:
        for o in r["options"]:
            families.setdefault((o["name"], o["help"]), []).append(r["spec"].split(":")[0])
    every = {key for key, names in families.items() if len(names) == len(rows)}
    cells = [
        (r["spec"], r["summary"], ", ".join(o["name"] for o in r["options"] if (o["name"], o["help"]) not in every))
        for r in rows
    ]
    print_table("", ("spec", "what", "options"), cells, ("options",))
    ordered = sorted(families, key=lambda key: (key not in every, key[0]))
    meanings = [(name, "all" if (name, text) in every else ", ".join(families[name, text]), text)
                for name, text in ordered]  # fmt: skip
    print_table("options, as in ring:8?bandwidth=50GB/s&message=2us", ("option", "of", "what it means"), meanings)
    known = [(f["fabric"], f["summary"], ", ".join(o["name"] for o in f["options"])) for f in fabrics]
    print_table("fabrics, as in compose h100 --servers 64 --fabric rails", ("fabric", "what", "options"), known)


def _list_targets(as_json: bool) -> None:
    """The targets and what each asks of a plan."""
    from ..model.targets import TARGETS

    rows = [{"name": t.name, "help": t.help, "kinds": list(t.kinds), "asks": t.asks} for t in TARGETS.values()]

    def show() -> None:
        for row in rows:
            print_line(f"{row['name']}: {row['help']}")
            print_line(f"  runs    {', '.join(row['kinds'])}")
            for ask in row["asks"]:
                print_line(f"  asks    {ask}")

    answer(as_json, {"targets": rows}, show)


def planners(
    name: Annotated[
        str | None, Argument(help="Show everything about this planner.", autocompletion=arguments.complete_planner)
    ] = None,
    targets: Annotated[
        bool, Option("--targets", help="List what may run plans, for --for of `stretto plan`, and what each asks.")
    ] = False,
    as_json: arguments.Json = False,
) -> None:
    """List the planners and refiners, or show one with its options; or list the targets of plans."""
    from ..planners import find, registered

    if targets:
        _list_targets(as_json)
        return
    rows: list[dict[str, Any]] = [
        {
            "name": e.name,
            "kind": "refiner" if e.refines else "planner",
            "summary": e.summary,
            "collectives": list(e.collectives),
            "topologies": e.topologies,
            "paper": e.paper,
            "exact": e.exact,
            "options": [
                {"name": o.name, "default": o.default, "help": o.help, "choices": list(o.choices)} for o in e.options
            ],
        }
        for e in ([find(name)] if name else registered().values())
    ]

    def show() -> None:
        if name is None:
            cells = [(r["name"], r["kind"], r["summary"], r["paper"]) for r in rows]
            print_table("", ("name", "kind", "what it does", "paper"), cells, ("paper", "kind"))
            print_line("`stretto planners NAME` shows its collectives, topologies and options; -p takes the name")
            return
        for r in rows:
            how = "an exact" if r["exact"] else "a heuristic"
            print_line(f"{r['name']}, {how} {r['kind']}: {r['summary']}")
            print_table("", ("", ""), [
                ("collectives", ", ".join(r["collectives"])), ("topologies", r["topologies"]), ("paper", r["paper"]),
                *[(f"--option {o['name']}={o['default']}",
                   o["help"] + (f" ({', '.join(map(str, o['choices']))})" if o["choices"] else ""))
                  for o in r["options"]],
            ])  # fmt: skip

    answer(as_json, {"planners": rows}, show)

"""``stretto topologies`` and ``stretto planners``: lists, and descriptions."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument, Option

from . import arguments
from .output import answer, print_line, print_table, show_topology
from .work import write_topology


def topologies(
    topology: Annotated[
        str | None, Argument(help="Describe this topology.", autocompletion=arguments.complete_topology)
    ] = None,
    plot: Annotated[str | None, Option(help="Draw the topology to this SVG file.")] = None,
    to: Annotated[
        str | None, Option(help="Write the topology as json, graphml or astra-sim, to the file of -o.")
    ] = None,
    output: Annotated[str | None, Option("-o", "--output", help="The file that --to writes.")] = None,
    as_json: arguments.Json = False,
) -> None:
    """List the built-in topologies, describe one, or write one in another format."""
    from ..topologies import catalogue, load_topology

    if topology in ("zoo", "cloud"):
        names = _names_of(topology)
        prefix = "zoo:" if topology == "zoo" else ""
        answer(as_json, {topology: names}, lambda: print_line(", ".join(f"{prefix}{name}" for name in names)))
        return
    if topology is None:
        rows: list[dict[str, Any]] = [
            {
                "spec": f.pattern,
                "summary": f.summary,
                "example": f.example,
                "options": [{"name": s.name, "default": s.default, "help": s.help} for s in f.settings],
            }
            for f in catalogue()
        ]
        answer(as_json, {"topologies": rows}, lambda: _show_families(rows))
        return
    from ..report.facts import topology_facts

    net = load_topology(topology)
    if plot is not None:
        from ..report.drawing import write_svg

        write_svg(net, plot)
    data = topology_facts(net) | write_topology(net, to, output)
    answer(as_json, data | ({"plot": plot} if plot else {}), lambda: show_topology(data, plot))


def _names_of(family: str) -> list[str]:
    """The networks of the Topology Zoo, or the regions of clouds."""
    if family == "zoo":
        from ..topologies.zoo import networks

        return networks()
    from ..topologies.cloud import measured_regions

    return list(measured_regions().names)


def _show_families(rows: list[dict[str, Any]]) -> None:
    """Tables of the families, and of what their options mean."""
    families: dict[tuple[str, str], list[str]] = {}
    for r in rows:
        for o in r["options"]:
            families.setdefault((o["name"], o["help"]), []).append(r["spec"].split(":")[0])
    every = {key for key, names in families.items() if len(names) == len(rows)}
    cells = [
        (r["spec"], r["summary"], ", ".join(o["name"] for o in r["options"] if (o["name"], o["help"]) not in every))
        for r in rows
    ]
    print_table("", ("spec", "what", "options"), cells)
    ordered = sorted(families, key=lambda key: (key not in every, key[0]))
    meanings = [(name, "all" if (name, text) in every else ", ".join(families[name, text]), text)
                for name, text in ordered]  # fmt: skip
    print_table("options, as in ring:8?bandwidth=50GB/s&message=2us", ("option", "of", "what it means"), meanings)


def planners(
    name: Annotated[
        str | None, Argument(help="Show everything about this planner.", autocompletion=arguments.complete_planner)
    ] = None,
    as_json: arguments.Json = False,
) -> None:
    """List the planners and refiners, or show one with its options."""
    from ..planners import find, registered

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
            print_table("", ("name", "kind", "what it does", "paper"), cells)
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

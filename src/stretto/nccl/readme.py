"""The texts of an NCCL pack for people and shells: its README, its settings, and how they are taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.units import format_time
from .generations import RELEASE
from .graphs import Graph
from .tuner import MOST_BYTES

if TYPE_CHECKING:
    from .pack import Pack

VARIABLES = ("NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE", "NCCL_GRAPH_FILE", "NCCL_TOPO_FILE", "NCCL_PACK_USE")
"""What ``nccl.sh`` may set, besides settings of the pack."""


def settings_sh(pack: Pack) -> str:
    """The shell file to source."""
    own = [f"export {name}={value}" for name, value in pack.settings.items()]
    names = "|".join((*VARIABLES, *pack.settings))
    lines = [
        f"# NCCL on {pack.topology}: source this before the job on every server (README.md says what each line does).",
        "#   . FOLDER/nccl.sh                                      the settings and the tuner table",
        '#   NCCL_PACK_USE="tuner graph" . FOLDER/nccl.sh           the graph file too',
        "# Shells other than bash need NCCL_PACK=FOLDER.",
        "# what was set before, for undo.sh",
        f'NCCL_PACK_BEFORE="${{NCCL_PACK_BEFORE-$(export -p | grep -E " ({names})=")}}"',
        'NCCL_PACK=${NCCL_PACK:-$(cd "$(dirname "${BASH_SOURCE:-$0}")" && pwd)}',
        *own,
        'case " ${NCCL_PACK_USE-tuner} " in *" tuner "*)',
        "  export NCCL_TUNER_PLUGIN=${NCCL_TUNER_PLUGIN:-example}",
        "  export NCCL_TUNER_CONFIG_FILE=$NCCL_PACK/tuner.csv ;;",
        "esac",
        'case " ${NCCL_PACK_USE-} " in *" graph "*) export NCCL_GRAPH_FILE=$NCCL_PACK/graph.xml ;; esac',
        'case " ${NCCL_PACK_USE-} " in *" topology "*) export NCCL_TOPO_FILE=$NCCL_PACK/topology.xml ;; esac',
    ]
    return "\n".join(lines) + "\n"


def undo_sh(pack: Pack) -> str:
    """The shell file that takes the settings back."""
    lines = [
        "# Takes back what nccl.sh set: variables have the values that they had before.",
        f"unset {' '.join((*VARIABLES, *pack.settings, 'NCCL_PACK'))}",
        'eval "${NCCL_PACK_BEFORE-}"',
        "unset NCCL_PACK_BEFORE",
    ]
    return "\n".join(lines) + "\n"


def tuner_comments(pack: Pack) -> list[str]:
    """The first lines of the tuner table."""
    return [
        f"{pack.topology}: {len(pack.machines)} servers of {len(pack.server.gpus)} {pack.generation.name.upper()}",
        f"For NCCL's example tuner plugin, by the model of NCCL {RELEASE}. The first row that matches counts.",
        "Channels 0 leave their number to NCCL. The last rows hold for communicators of any other size.",
    ]


def readme(pack: Pack) -> str:
    """The page."""
    parts = (_head, _changes, _use, _order, _check, _files, _limits)
    return "\n".join(text for part in parts if (text := part(pack)))


def _head(pack: Pack) -> str:
    gpus, n = len(pack.server.gpus), len(pack.machines)
    servers = f"{n} servers of {gpus} {pack.generation.name.upper()}" if n > 1 else f"one server of {gpus}"
    ring = pack.found.graphs.ring
    return f"""# NCCL on {pack.topology}

Files for NCCL on {servers} ({pack.ranks} ranks), written by `stretto export --to nccl` for NCCL {RELEASE}.

| | channels | GB/s each in the server | GB/s each between servers | first channel |
|---|---|---|---|---|
{_row("rings", ring)}{_row("trees", pack.found.graphs.tree)}{_row("multicast (NVLS)", pack.found.graphs.nvls)}"""


def _row(name: str, graph: Graph | None) -> str:
    if graph is None:
        return ""
    c = graph.channels[0]
    ends = [f"NIC {k}" for k in c.nets]
    first = " → ".join([*ends[:1], *(f"GPU {g}" for g in c.gpus), *(ends[1:] if graph.id == 0 else [])])
    between = f"{graph.inter:.4g}" if c.nets else "–"
    return f"| {name} | {len(graph.channels)} | {graph.intra:.4g} | {between} | {first} |\n"


def _changes(pack: Pack) -> str:
    """What is gained over NCCL's own choices."""
    aware, unaware = pack.found.graphs.ring, pack.found.by_nics.ring
    lines = ["## What changes\n"]
    if aware.inter < unaware.inter * (1 - 1e-6) and aware.channels[0].nets:
        lines.append(
            f"A channel of a ring has {aware.inter:.4g} GB/s between servers. NCCL would count {unaware.inter:.4g} "
            "GB/s: it knows the network cards, and not the network."
        )
    if aware.latency_us:
        lines.append(f"A step between servers takes {aware.latency_us:.4g} us more than NCCL counts.")
    for name, value in pack.settings.items():
        lines.append(
            f"`{name}={value}`: NCCL's own rings would leave a server by one network card and enter the next by "
            "another, where this network has no way or less room. With this setting they stay with one."
        )
    if not pack.changes:
        lines.append(
            "NCCL's own choice of algorithm and protocol is the table's at every size compared (1 KiB to 4 GiB): here "
            "the tuner table only pins what NCCL does, and you can leave it out."
        )
        return "\n".join(lines) + "\n"
    lines.append("The table's choice is not NCCL's own, for all ranks, where (times by NCCL's model):\n")
    lines += ["| collective | sizes | NCCL's own | table | NCCL's own takes |", "|---|---|---|---|---|"]
    for c in pack.changes:
        sizes = _binary(c.least) if c.least == c.most else f"{_binary(c.least)} to {_binary(c.most)}"
        ways = f"{' '.join(c.before)} | {' '.join(c.after)}"
        lines.append(f"| {c.kind} | {sizes} | {ways} | up to {c.gain:.2f} times as long |")
    return "\n".join(lines) + "\n"


def _binary(size: int) -> str:
    """A power of two from 1 KiB on."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size // 2**10} KiB"


def _use(pack: Pack) -> str:
    return f"""## How to use it

1. Copy this folder to every server, to the same place.
2. Build NCCL's example tuner plugin: `make -C plugins/tuner/example` in a checkout of
   https://github.com/NVIDIA/nccl, and add its folder to `LD_LIBRARY_PATH`. Without the plugin NCCL goes on as ever.
3. On every server, before the job: `. FOLDER/nccl.sh`.
4. See that it works: with `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING,GRAPH` NCCL names the files that it reads,
   and the plugin says that it loaded {len(pack.rows)} configurations.
5. Compare with nccl-tests, with and without. `. FOLDER/undo.sh` takes the settings back.

The graph file is left out unless you ask for it (`NCCL_PACK_USE="tuner graph" . FOLDER/nccl.sh`): NCCL's maintainers
advise against it in production ([nccl#933](https://github.com/NVIDIA/nccl/issues/933)). Use it to see what an
arrangement is worth. Every communicator must then have all {len(pack.server.gpus)} GPUs of each of its servers
([nccl#1008](https://github.com/NVIDIA/nccl/issues/1008)); others fail at their start.
"""


def _order(pack: Pack) -> str:
    if not pack.orders:
        return ""
    names = ", ".join(pack.machines[:8]) + (" ..." if len(pack.machines) > 8 else "")
    return f"""## The order of ranks

NCCL joins server n to server n + 1 by rank, whatever the graph file says
([nccl#776](https://github.com/NVIDIA/nccl/issues/776)). The files count on this order of servers: {names}.
{_worth(pack)}
| launcher | |
|---|---|
| Slurm | `SLURM_HOSTFILE=order.slurm srun --distribution=arbitrary -n {pack.ranks}` |
| Open MPI | `mpirun --hostfile order.openmpi -n {pack.ranks}` |
| PyTorch | `sh order.torchrun.sh SCRIPT` on every server |
"""


def _worth(pack: Pack) -> str:
    """What the order is worth, if it was looked for."""
    o = pack.ordering
    if o is None:
        return ""
    proven = "; no order ends sooner" if o.proven else ""
    if o.after_s >= o.before_s * (1 - 1e-9):
        return (
            f"It is the topology's own order. An AllReduce of 256 MB takes {format_time(o.before_s)} there{proven}.\n"
        )
    return (
        f"An AllReduce of 256 MB takes {format_time(o.after_s)} in this order, and {format_time(o.before_s)} in the "
        f"topology's own (stretto's simulator{proven}).\n"
    )


def _check(pack: Pack) -> str:
    return f"""## What was not checked

- No GPU ran this. NCCL's code for graphs and its example plugin, compiled for a CPU, read such files and do what they
  say (stretto's `benchmarks/nccl_pack.py`, NCCL {RELEASE}); other releases may not.
- Whether the network is as its description says. Measure it (`stretto measure`) if in doubt.
- Times are those of NCCL's own model, whose figures NVIDIA chose on its servers.
- Network cards are counted in NCCL's order (`NCCL_DEBUG=INFO` lists them). If yours are in another order, the graph
  file is wrong.
"""


def _files(pack: Pack) -> str:
    rows = {
        "`nccl.sh`, `undo.sh`": "environment variables, and how to take them back",
        "`tuner.csv`": f"algorithm and protocol for sizes from 0 to {MOST_BYTES} bytes: for all {pack.ranks} ranks, "
        "for one server, for one GPU of each server, then for any other communicator. What no row matched would get "
        "one channel from the plugin, so the rows cover all sizes",
        "`graph.xml`": "`NCCL_GRAPH_FILE`: the order of GPUs and network cards in a server, by their numbers there, so "
        "that one file serves all servers; the speeds that NCCL decides by",
        "`topology.xml`": "`NCCL_TOPO_FILE`: the server as described to stretto, to look at, or for NCCL on a CPU. On "
        "a real server leave it out: NCCL finds its own devices there",
    }
    table = "".join(f"| {name} | {text} |\n" for name, text in rows.items())
    return f"## The files\n\n| file | |\n|---|---|\n{table}"


def _limits(pack: Pack) -> str:
    return "## What was assumed\n\n" + "".join(f"- {note}\n" for note in pack.notes)

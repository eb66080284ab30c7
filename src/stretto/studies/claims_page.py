"""The claims of all papers: the files ``published/*.json`` with ours, and docs/contributors/reproducing.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .claims import KEYS, VERDICTS, Claim, command_of, is_clock, shown
from .model import Study

FILES = Path(__file__).parent / "published"

HEAD = """# Reproducing the papers

One command for each paper runs its evaluation again. The page that it writes has the published values beside ours,
with their sources, and ends with the paper's claims, measured in that run. With `-t my.json` the same schemes and sizes
run on [your own network](../reference/studies.md#your-network-in-a-papers-figures).

| paper | command | claims | same | better | differs | unknown | more on it |
|---|---|---|---|---|---|---|---|
{overview}

A claim is a number, an order or a trend that the paper prints. [Studies](../reference/studies.md#claims) explains the
verdicts, and how a claim is measured. Beside a command stands *clock* where the claim is a time of planning, which
depends on the machine, and *tests* where the test suite measures the claim again. `stretto study NAME --check`, with
the flags of the claim's command, measures the others, and exits with 1 if one is not as this page has it.

This page is written by `python benchmarks/claims.py` from `src/stretto/studies/published/`.
"""

MORE = {
    "mtegcca": "[our figures](planners/mtegcca.md#figures-3-to-9), [MTEGCCA](planners/mtegcca.md), "
    "[TE-CCL](planners/teccl.md), [TACCL](planners/taccl.md)",
    "scale-ccl": "[SCALE-CCL](planners/scale-ccl.md#where-it-stands)",
    "swot": "[SWOT](planners/swot.md#where-it-stands)",
    "wan": "[sharing a WAN](planners/wan-sharing.md#what-comes-out)",
}
"""The pages of the documentation on each study."""

COLUMNS = ("section", "claim", "printed", "ours", "verdict", "command", "why, and remarks")


def file_of(study: Study) -> Path:
    """The file with the claims of a study."""
    return FILES / f"{study.name.replace('-', '_')}.json"


def file_text(data: Mapping[str, Any]) -> str:
    """A file of published values as text: an entry a line, each key of a claim on a line of its own."""
    parts = []
    for key, value in data.items():
        if key == "claims":
            lines = ([f"{_json(k)}: {_json(claim[k])}" for k in KEYS if k in claim] for claim in value)
            entries = ["{" + ",\n".join(own) + "}" for own in lines]
            parts.append('"claims": [\n' + ",\n\n".join(entries) + "\n]")
        elif isinstance(value, list):
            parts.append(f'"{key}": [\n' + ",\n".join(f" {_json(entry)}" for entry in value) + "\n]")
        else:
            parts.append(f'"{key}": {json.dumps(value, indent=1, ensure_ascii=False)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def page_text(studies: Mapping[str, Study]) -> str:
    """The page docs/contributors/reproducing.md."""
    overview = []
    for name, study in studies.items():
        counts = Counter(claim["verdict"] for claim in study.claims)
        numbers = [len(study.claims), *(counts[verdict] for verdict in VERDICTS)]
        cells = [study.paper, f"`stretto study {name}`", *map(str, numbers), MORE[name]]
        overview.append(_line(cells))
    sections = [part for study in studies.values() for part in _section(study)]
    return "\n".join([HEAD.format(overview="\n".join(overview)), *sections])


def _section(study: Study) -> Iterator[str]:
    """The claims of one paper."""
    yield f"## {study.name}\n"
    yield f"{study.paper}.\n"
    if "left_out" in study.published:
        yield f"No claims, and left out: {study.published['left_out']}\n"
    yield _line(COLUMNS)
    yield "|---" * len(COLUMNS) + "|"
    for claim in study.claims:
        ours = shown(claim, claim.get("ours"), claim.get("at", "")) if "measure" in claim else ""
        yield _line([
            claim["section"], claim["claim"], claim["printed"], ours, claim["verdict"], _command(claim, study),
            claim.get("because", ""),
        ])  # fmt: skip
    yield ""


def _command(claim: Claim, study: Study) -> str:
    command = command_of(claim, study)
    if not command:
        return ""
    notes = [", tests"] * claim.get("fast", False) + [", clock"] * is_clock(claim)
    return f"`{command}`" + "".join(notes)


def _line(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

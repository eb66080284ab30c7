"""What does each claim of the papers come to here? Fills in the claims' files from results of studies, and the page.

Takes the ``results.json`` of studies (``stretto study all --full --check -o out`` writes one for each) and puts what
they give for each claim into ``src/stretto/studies/published/*.json``: ours, where an extreme value occurs, and the
verdict. A claim keeps what the file says if no result has all its cells. Then writes
docs/contributors/reproducing.md; without results only the verdicts and the page.
Prints how many claims changed, and how many no result measured.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stretto.studies import STUDIES, Study, find_study
from stretto.studies.claims import claims_of_run, is_clock, kept, request_of, verdict_of
from stretto.studies.claims_page import file_of, file_text, page_text

PAGE = Path(__file__).parents[1] / "docs" / "contributors" / "reproducing.md"


def filled(study: Study, rows: Sequence[Mapping[str, Any]], clocks: bool) -> list[dict[str, Any]]:
    """The claims of a study with what the rows give; times of planning that still agree are kept unless ``clocks``."""
    claims = []
    for result in claims_of_run(study, [dict(row) for row in rows]):
        claim = dict(result.claim)
        still = is_clock(claim) and "ours" in claim and result.agrees and not clocks
        if result.whole and result.ours is not None and not still:
            claim |= {"ours": kept(claim, result.ours)} | ({"at": result.at} if result.at else {})
        if "ours" in claim:
            claim["ours"] = kept(claim, claim["ours"])
        claim["verdict"] = verdict_of(claim, claim.get("ours"))
        claims.append(claim)
    return claims


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", nargs="*", help="results.json of studies; rows of later ones replace equal requests")
    parser.add_argument("--clocks", action="store_true", help="replace times of planning that still agree, too")
    given = parser.parse_args()
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in STUDIES}
    for path in given.results:
        result = json.loads(Path(path).read_text())
        rows[result["study"]] += result["rows"]
    studies = {}
    for name in STUDIES:
        study = find_study(name)
        claims = filled(study, list({request_of(row): row for row in rows[name]}.values()), given.clocks)
        changed = sum(a != b for a, b in zip(claims, study.claims, strict=True))
        blank = sum("measure" in c and "ours" not in c for c in claims)
        print(f"{name}: {len(claims)} claims, {changed} changed, {blank} not measured yet")
        data = json.loads(file_of(study).read_text()) | {"claims": claims}
        file_of(study).write_text(file_text(data))
        studies[name] = replace(study, published=study.published | {"claims": claims})
    PAGE.write_text(page_text(studies))


if __name__ == "__main__":
    main()

"""Plans on disk by the name of their request: what is damaged counts as missing, and processes share the folder."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stretto.choose import kept as module
from stretto.choose.kept import Kept, packed, unpacked
from stretto.choose.library import Library
from stretto.choose.quick import direct_plan, quick_plan
from stretto.choose.requests import Shape
from stretto.model.errors import InputError
from stretto.topologies import load_topology

ASKED = Library(load_topology("ring:4"), range(4), 0).request(Shape("allreduce", 1 << 20, 0))


@pytest.mark.parametrize("make", [quick_plan, direct_plan])
def test_a_plan_comes_back_with_its_digest(make, tmp_path):
    kept, plan = Kept(tmp_path / "new" / "folder"), make(ASKED)
    assert kept.find(ASKED.name) is None
    kept.keep(ASKED.name, packed(ASKED.name, plan))
    again = unpacked(kept.find(ASKED.name), ASKED.name)
    assert again.digest() == plan.digest()
    assert kept.shapes(ASKED.network) == [ASKED.name] and kept.shapes("other") == []


def test_that_the_first_plan_is_as_good_is_kept_too(tmp_path):
    Kept(tmp_path).keep(ASKED.name, packed(ASKED.name, None))
    assert unpacked(Kept(tmp_path).find(ASKED.name), ASKED.name) is None


@pytest.mark.parametrize(
    "damage", ["cut", "a bit in the plan", "a bit in the digest", "empty", "another request's", "a folder"]
)
def test_what_is_damaged_counts_as_missing(damage, tmp_path):
    kept, content = Kept(tmp_path), packed(ASKED.name, quick_plan(ASKED))
    kept.keep(ASKED.name, content)
    (path,) = tmp_path.iterdir()
    middle, early = len(content) // 2, 30
    damaged = {
        "cut": content[:middle],
        "a bit in the plan": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "a bit in the digest": content[:early] + bytes([content[early] ^ 1]) + content[early + 1 :],
        "empty": b"",
        "another request's": packed("other", quick_plan(ASKED)),
    }
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(damaged[damage])
        with pytest.raises(InputError, match=r"damaged|another request"):
            unpacked(damaged[damage], ASKED.name)
    assert kept.find(ASKED.name) is None
    if damage != "a folder":
        assert not path.exists()
        kept.keep(ASKED.name, content)
        assert kept.find(ASKED.name) == content


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    kept = Kept(tmp_path / "file" / "folder")
    kept.keep(ASKED.name, packed(ASKED.name, None))
    assert kept.find(ASKED.name) is None and kept.shapes(ASKED.network) == []


def test_many_who_keep_and_find_at_once_find_whole_plans_or_none(tmp_path):
    contents = [packed(ASKED.name, make(ASKED)) for make in (quick_plan, direct_plan)]

    def keep_and_find(number: int) -> bytes | None:
        Kept(tmp_path).keep(ASKED.name, contents[number % 2])
        return Kept(tmp_path).find(ASKED.name)

    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(keep_and_find, range(40))} <= {*contents}
    assert [path.suffix for path in tmp_path.iterdir()] == [".plan"]


def test_what_was_not_used_for_longest_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_KEPT", 3)
    kept = Kept(tmp_path)
    for age, name in enumerate(("new", "used", "old", "older")):
        kept.keep(name, packed(name, None))
        os.utime(tmp_path / f"{name}.plan", ns=(0, 10**18 - age))
    kept.find("used")
    kept.keep("last", packed("last", None))
    assert {path.stem for path in tmp_path.iterdir()} == {"new", "used", "last"}


def test_no_file_but_plans_is_removed_for_want_of_room(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_KEPT", 1)
    mine = [tmp_path / "thesis.tex", tmp_path / "data.bin"]
    for path in mine:
        path.touch()
        os.utime(path, ns=(0, 0))
    for name in ("old", "new"):
        Kept(tmp_path).keep(name, packed(name, None))
    assert all(path.exists() for path in mine)
    assert [path.stem for path in tmp_path.glob("*.plan")] == ["new"]


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"STRETTO_CACHE": "/a/b"}, Path("/a/b")),
        ({"STRETTO_CACHE": ""}, None),
        ({"XDG_CACHE_HOME": "/c"}, Path("/c/stretto/plans")),
        ({"HOME": "/h"}, Path("/h/.cache/stretto/plans")),
    ],
)
def test_where_plans_are_kept(variables, folder, monkeypatch):
    for name in ("STRETTO_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Kept.from_environment().folder == folder

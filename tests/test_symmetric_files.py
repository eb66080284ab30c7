"""Files of plans by symmetry: they hold the representatives and the group, and give the same plan again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stretto.formats import native
from stretto.model.errors import InputError
from stretto.model.symmetric import SymmetricPlan
from stretto.verify import verify
from symmetric_plans import examples

EXAMPLES = examples(0)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_what_is_read_is_what_was_written(name, ending, tmp_path):
    plan = EXAMPLES[name]
    path = str(tmp_path / f"plan.{ending}")
    native.write_plan(plan, path)
    again = native.read_plan(path)
    assert isinstance(again, SymmetricPlan)
    assert again.digest() == plan.digest()
    assert again.meta == plan.meta
    assert again.expand().digest() == plan.expand().digest()
    assert verify(again).ok


def test_a_file_holds_the_representatives(tmp_path):
    plan = EXAMPLES["allreduce on rails"]
    native.write_plan(plan, str(tmp_path / "plan.json"))
    data = json.loads((tmp_path / "plan.json").read_text())
    assert data["version"] == 4
    assert len(data["transfers"]) == plan.part.transfer_count == plan.transfer_count // 6
    assert data["symmetry"]["orders"] == [3, 2]
    assert set(data["workload"][0]) == {"kind", "size_bytes", "chunks", "ranges"}
    assert np.sum(data["workload"][0]["ranges"], axis=0).tolist() == [plan.workload.collectives[0].size_bytes, 6 * len(
        plan.orbits.position)]  # fmt: skip


def halved(ranges: list[list[float]]) -> None:
    """Two ranges in the place of the first, each with half a byte too much."""
    size, owners = ranges[0]
    ranges[:1] = [[size // 2 + 0.5, owners], [size - size // 2 + 0.5, owners]]


CHANGES = {
    "must be an object": lambda d: d.update(symmetry=[]),
    "'generators' must be a list": lambda d: d["symmetry"].pop("generators"),
    "generator 0 must be a list of whole numbers": lambda d: d["symmetry"]["generators"][0].__setitem__(0, 99),
    "an image for every node": lambda d: d["symmetry"]["generators"][0].pop(),
    "'orders' a number for each": lambda d: d["symmetry"]["orders"].pop(),
    "'orders' must be a list": lambda d: d["symmetry"].update(orders=[0, 2]),
    "elements or more": lambda d: d["symmetry"].update(orders=[2**30, 2**30]),
    "'owner' needs a list": lambda d: d["symmetry"]["owner"].append([1]),
    "an owner that is no node": lambda d: d["symmetry"].update(owner=[[0, 1]] * len(d["symmetry"]["owner"])),
    "owners of chunks must be ranks": lambda d: d["symmetry"].update(owner=[[11]] * len(d["symmetry"]["owner"])),
    "position beyond": lambda d: d["symmetry"]["position"].__setitem__(0, 10**6),
    "add up to the buffer": lambda d: d["workload"][0]["ranges"][0].__setitem__(0, 7),
    "must have a byte for each owner": lambda d: d["workload"][0]["ranges"].__setitem__(0, [6, 7]),
    "a range must be a list of whole numbers": lambda d: d["workload"][0]["ranges"][0].__setitem__(1, 0),
    "a range must be a list of whole .* from 1 to": lambda d: halved(d["workload"][0]["ranges"]),
    "6e.16 chunks need about": lambda d: d["workload"][0].update(size_bytes=2**60, ranges=[[2**60, 2**55]]),
    "chunks need about": lambda d: d["workload"][0].update(size_bytes=2**60, chunks=[2**55]),
    "'chunks' has 2 numbers, and there are 1": lambda d: d["workload"][0].update(chunks=[6, 6]),
    "'chunks' must be a list of whole numbers": lambda d: d["workload"][0].update(chunks=[10**9]),
    "is timed": lambda d: d.update(sharing="ready-order"),
    "one general kind": lambda d: d.update(
        workload=[{"kind": "multicast", "size_bytes": 6000, "chunks": 6, "root": 0, "receivers": [1]}]
    ),
    "its chunk": lambda d: d["transfers"][0].update(size_bytes=1),
    "has version 3, but an entry 'symmetry'": lambda d: d.update(version=3),
    "has version 4, but no entry 'symmetry'": lambda d: d.pop("symmetry"),
    "reads versions 1 to 6": lambda d: d.update(version=7),
}


@pytest.mark.parametrize("message", CHANGES)
def test_wrong_files_are_refused_in_one_line(message, tmp_path):
    path = tmp_path / "plan.json"
    native.write_plan(EXAMPLES["allreduce on rails"], str(path))
    data = json.loads(path.read_text())
    CHANGES[message](data)
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=message) as error:
        native.read_plan(str(path))
    assert "\n" not in str(error.value)

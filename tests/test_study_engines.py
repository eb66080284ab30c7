"""Studies that are run by many processes, killed, resumed, and spread over machines."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import study_cells
from stretto.model.errors import InputError
from stretto.studies import Cell, Store, Study, run_study
from stretto.studies.engines import Processes
from stretto.studies.grid import read_grid
from stretto.studies.identity import key_of
from stretto.studies.on_ray import OnRay

GRID = """
topologies = ["torus:4x4"]
sizes = ["1KB", "2KB", "4KB", "8KB", "16KB", "32KB", "64KB", "128KB", "256KB", "512KB", "1MB", "2MB"]
planners = ["mtegcca", "shortest-path"]
"""


def cells(count, **what):
    return [Cell("ring", "ring:4", 4000 * (i + 1), "ring", ("all",), "allgather", **what) for i in range(count)]


def study(*cells):
    return Study("some", "some", "nobody's", cells, ())


def facts(result):
    """What of the rows does not depend on the machine."""
    return [{k: v for k, v in r.items() if not k.startswith("planning")} for r in result["rows"]]


def until(condition):
    """Wait for something that comes soon, or not at all."""
    for _ in range(60_000):
        if condition():
            return
        time.sleep(0.002)
    pytest.fail("it did not come")


def ends(pid):
    """Wait for a process to end."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        assert select.select([handle], [], [], 120)[0], f"process {pid} lives on"
        os.close(handle)


def grid_command(folder, *more):
    (folder / "grid.toml").write_text(GRID)
    return [sys.executable, "-m", "stretto.cli", "study", "grid", folder / "grid.toml", "--json", *more]


def test_a_killed_study_resumes_with_nothing_lost_and_nothing_run_twice(tmp_path):
    out = tmp_path / "out"
    running = subprocess.Popen(grid_command(tmp_path, "-o", out), stdout=subprocess.DEVNULL, start_new_session=True)
    until(lambda: len(list(out.glob("cells/*.parquet"))) >= 3 or running.poll() is not None)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    kept = {path.stem for path in out.glob("cells/*.parquet")}
    assert 3 <= len(kept) < 24
    before = {name: (out / "cells" / f"{name}.parquet").read_bytes() for name in kept}

    answer = json.loads(
        subprocess.run(grid_command(tmp_path, "-o", out, "--jobs", "1"), capture_output=True, check=True).stdout
    )
    assert answer["cells"] == {"asked": 24, "found": len(kept), "run": 24 - len(kept), "failed": 0, "cannot": 0}
    table = pq.read_table(out / "results.parquet").to_pylist()
    assert len(table) == len({row["key"] for row in table}) == 24
    for name, part in before.items():  # the rows of the first run, as they were
        (out / "part.parquet").write_bytes(part)
        (row,) = pq.read_table(out / "part.parquet").to_pylist()
        assert row in table and row["key"] == name
    whole = run_study(read_grid(str(tmp_path / "grid.toml")))
    assert facts(answer) == facts(whole)


def test_the_processes_of_a_killed_study_end(tmp_path, monkeypatch):
    monkeypatch.setenv("STUDY_CELLS", str(tmp_path))
    os.mkfifo(tmp_path / "open")
    program = (
        "from stretto.studies import run_study\nfrom stretto.studies.engines import Processes\n"
        "from test_study_engines import cells, study\nimport study_cells\n"
        "if __name__ == '__main__':\n"
        "    run_study(study(*cells(2, run=study_cells.waits)), engine=Processes(2))\n"
    )
    (tmp_path / "main.py").write_text(program)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    running = subprocess.Popen([sys.executable, tmp_path / "main.py"], env={**os.environ, "PYTHONPATH": path})
    until(lambda: len(list(tmp_path.glob("begun-*"))) == 2 or running.poll() is not None)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    workers = [int(p.name.rsplit("-", 1)[1]) for p in tmp_path.glob("begun-*")]
    assert len(workers) == 2
    for pid in workers:
        ends(pid)


def test_a_cell_that_fails_or_kills_its_process_is_recorded_and_the_others_run(tmp_path):
    a, b, c, d = cells(4)
    some = study(replace(a, run=study_cells.dies), replace(b, run=study_cells.raises), c, d)
    with Store(str(tmp_path), "some") as store:
        result = run_study(some, engine=Processes(2), store=store)
        assert [r.get("failed") for r in result["rows"]] == [
            "its process died (SIGKILL)", "ValueError: no such thing", None, None,
        ]  # fmt: skip
        assert [r.get("failed") for r in run_study(some, store=store)["rows"][:2]] == [
            "its process died (SIGKILL)", "ValueError: no such thing",
        ]  # fmt: skip
        table = pq.read_table(store.whole)
    assert sorted(filter(None, table["failed"].to_pylist())) == [
        "ValueError: no such thing",
        "its process died (SIGKILL)",
    ]
    assert all(len(v) > 0 for v in table["highspy"].to_pylist()) and set(table["seed"].to_pylist()) == {0}


def test_failed_cells_are_run_again_where_asked(tmp_path):
    some = study(*cells(1), *cells(1, run=study_cells.raises))
    with Store(str(tmp_path), "some") as store:
        counts = [run_study(some, store=store, retry_failed=again)["cells"] for again in (False, False, True)]
    assert [c["run"] for c in counts] == [2, 0, 1]


def test_every_process_gives_the_same_rows():
    some = study(*cells(5))
    assert facts(run_study(some, engine=Processes(2))) == facts(run_study(some))


def test_a_key_is_of_the_request_the_seed_and_the_network_file(tmp_path):
    (one,) = cells(1)
    file = tmp_path / "net.json"
    net = {"nodes": [{"id": 0}, {"id": 1}],
           "links": [{"src": a, "dst": 1 - a, "bandwidth_GBps": 1, "latency_us": 0} for a in (0, 1)]}  # fmt: skip
    file.write_text(json.dumps(net))
    others = [
        replace(one, size_bytes=5000), replace(one, options={"a": 1}), replace(one, seeds=2),
        replace(one, run=study_cells.raises), replace(one, topology=str(file)),
    ]  # fmt: skip
    assert len({key_of(one, 0), key_of(one, 1), *(key_of(o, 0) for o in others)}) == 7
    assert key_of(one, 0) == key_of(replace(one, why_full="later"), 0)


def test_results_of_other_code_are_kept_but_not_used(tmp_path, monkeypatch):
    with Store(str(tmp_path), "some") as store:
        run_study(study(*cells(2)), store=store)
        for module in ("identity", "cell"):
            monkeypatch.setattr(f"stretto.studies.{module}.code_digest", lambda: "other")
        monkeypatch.setattr("stretto.studies.code_digest", lambda: "other")
        assert run_study(study(*cells(2)), store=store)["cells"]["run"] == 2
        assert len(store.rows()) == 4
        store.clear()
        assert store.rows() == {}


def test_a_node_with_another_stretto_stops_the_study(monkeypatch):
    monkeypatch.setattr("stretto.studies.code_digest", lambda: "ours")
    with pytest.raises(InputError, match="another stretto"):
        run_study(study(*cells(1)))


def test_a_torn_part_counts_as_not_run_and_half_written_ones_are_removed(tmp_path):
    with Store(str(tmp_path), "some") as store:
        run_study(study(*cells(2)), store=store)
    (tmp_path / "results.parquet").unlink()
    (tmp_path / "cells" / f"{key_of(cells(1)[0], 0)}.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "cells" / ".x.parquet.abc").write_bytes(b"half")
    with Store(str(tmp_path), "some") as store:
        assert not list(tmp_path.glob("cells/.x*"))
        assert run_study(study(*cells(2)), store=store)["cells"]["run"] == 2


def test_a_folder_has_one_writer_and_a_foreign_table_is_refused(tmp_path):
    with Store(str(tmp_path), "some") as store:
        with pytest.raises(InputError, match="another study is writing here"):
            Store(str(tmp_path), "some")
        store.whole.write_bytes(b"not a table")
        with pytest.raises(InputError, match="no table of a study"):
            store.rows()


def test_ray_loses_a_node_and_no_cell(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'stretto[ray]'")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("STUDY_CELLS", str(tmp_path))
    os.mkfifo(tmp_path / "open")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **small})
    node = cluster.add_node(**small)
    cluster.wait_for_nodes()

    opened: list[int] = []

    def lose_a_node():
        until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)  # one on each node
        cluster.remove_node(node, allow_graceful=False)
        opened.append(os.open(tmp_path / "open", os.O_RDWR))

    some = study(*cells(6, run=study_cells.waits))
    saboteur = threading.Thread(target=lose_a_node, daemon=True)
    saboteur.start()
    try:
        with Store(str(tmp_path / "out"), "some") as store:
            result = run_study(some, engine=OnRay(cluster.address), store=store)
            keys = pq.read_table(store.whole)["key"].to_pylist()
    finally:
        saboteur.join(60)
        cluster.shutdown()
    assert len(list(tmp_path.glob("begun-*"))) == 7  # what the node had begun was begun again
    assert result["cells"] == {"asked": 6, "found": 0, "run": 6, "failed": 0, "cannot": 0}
    assert len(keys) == len(set(keys)) == 6
    assert facts(result) == facts(run_study(some))  # in this process, while the pipe is open
    os.close(*opened)

"""``stretto watch``: real process groups that write traces, and a real controller."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from command_line import answer, stretto
from stretto.cli.told import Told
from stretto.cli.traced import Traces
from stretto.cli.watched import Collective, Link, Picture
from stretto.model.errors import InputError

RANKS = 3
TOKEN = "hush" * 4


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """The traces of three ranks that have summed 4 MB twice and 300 KB once, while their groups still run."""
    torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")
    from stretto.torch.group import StrettoGroup

    folder = tmp_path_factory.mktemp("traces")
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(RANKS) as pool:
        patch.setenv("STRETTO_TOPOLOGY", "ring:3")
        patch.setenv("STRETTO_EFFORT", "none")
        patch.setenv("STRETTO_TRACE", str(folder))
        store = torch.distributed.HashStore()
        groups = [StrettoGroup(store, r, RANKS, [*range(RANKS)], timedelta(seconds=60)) for r in range(RANKS)]
        for count in (1_000_000, 75_000, 1_000_000):
            works = [group.allreduce([torch.ones(count)]) for group in groups]
            assert all(work.wait() for work in works)
        tables = answer("watch", folder, "--once")  # what is there before the groups end
        list(pool.map(lambda group: group.shutdown(), groups))
    return folder, tables


def test_a_running_group_is_seen_with_what_its_links_give_and_what_was_planned(traces):
    folder, said = traces
    calls = {(c["kind"], c["size_bytes"]): c for c in said["collectives"]}
    assert {key: c["calls"] for key, c in calls.items()} == {("allreduce", 4_000_000): 2, ("allreduce", 300_000): 1}
    assert all(c["last_s"] > 0 and c["planned_s"] > 0 for c in calls.values())
    lines = [json.loads(line) for rank in range(RANKS) for line in (folder / f"rank{rank}.jsonl").open()]
    carried = {}
    for line in lines:
        for source, size in line["arrived_bytes"].items():
            carried[source, str(line["rank"])] = carried.get((source, str(line["rank"])), 0) + size
    assert {(link["src"], link["dst"]) for link in said["links"]} == carried.keys()
    # a ring of three moves 2 (n - 1) / n of the buffer out of each rank
    assert sum(carried.values()) == pytest.approx(2 * (RANKS - 1) * 8_300_000, rel=1e-5)
    sent = {(str(line["rank"]), to): 0 for line in lines for to in line["sent_bytes"]}
    for line in lines:
        for to, size in line["sent_bytes"].items():
            sent[str(line["rank"]), to] += size
    assert sent == carried
    assert all(link["sending_Bps"] >= link["now_Bps"] > 0 and link["planned_Bps"] > 0 for link in said["links"])


@pytest.mark.parametrize("columns", [60, 100])
def test_the_tables_fit_and_name_links_and_collectives(traces, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = stretto("watch", traces[0], "--once").stdout
    assert max(map(len, text.splitlines())) <= columns
    assert all(words in text for words in ("allreduce", "4 MB", "0→1", "sending", "last / plan", "%"))
    assert "…" not in text and ("now" in text) == (columns == 100)


def test_one_rank_is_watched_by_its_file(traces):
    said = answer("watch", traces[0] / "rank1.jsonl", "--once")
    assert {link["dst"] for link in said["links"]} == {"1"}


def test_what_is_not_written_yet_is_awaited_and_half_a_line_is_no_line(traces, tmp_path):
    done = stretto("watch", tmp_path / "later", "--once", code=1)
    assert "no collective has ended yet" in done.stdout and f"STRETTO_TRACE={tmp_path / 'later'}" in done.stdout
    seen, file = Traces(str(tmp_path), 10.0), tmp_path / "rank0.jsonl"
    line = (traces[0] / "rank0.jsonl").read_text().splitlines()[0]
    file.write_text(line[:40])
    assert seen.picture().empty
    file.write_text(line + "\n" + line[:40])
    assert [c.calls for c in seen.picture().collectives] == [1]
    file.write_text((line + "\n") * 3)
    assert [c.calls for c in seen.picture().collectives] == [3]
    file.write_text("")  # another job has begun
    assert seen.picture().empty
    file.write_text("no trace\n")
    done = stretto("watch", tmp_path, "--once", code=2)
    assert "rank0.jsonl: line 1 from byte 0 on is none of a trace" in done.stderr


def test_it_goes_on_until_it_is_interrupted_and_then_says_nothing(traces):
    command = [sys.executable, "-m", "stretto", "watch", str(traces[0]), "--json", "--every", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert lines[0] == lines[1] and lines[0]["links"] and (process.returncode, said) == (0, "")


def test_links_that_give_least_of_what_was_planned_come_first_and_many_are_counted():
    from rich.console import Console

    links = [Link("0", str(k), 1e9, k * 1e8, 1e9, None) for k in range(1, 10)]
    seen = Picture(links, [Collective("", "allgather", 1 << 20, 1, 2e-3, 1e-3, None)], 1.0)
    console = Console(width=100)
    with console.capture() as capture:
        console.print(seen.tables(100, 2))
    text = capture.get()
    assert "0→1" in text and "0→2" in text and "0→3" not in text and "and 7 links more" in text
    assert "10 %" in text and "2.00" in text


def test_a_controller_is_watched_by_its_url(tmp_path, monkeypatch):
    for module in ("fastapi", "uvicorn", "sqlalchemy", "alembic", "prometheus_client"):
        pytest.importorskip(module)
    import time
    from datetime import UTC, datetime

    import stretto as st
    from controller_process import Served

    served = Served(tmp_path, "--token", TOKEN)
    try:
        client = served.client(TOKEN)
        refused = stretto("watch", served.url, "--once", "--token", "wrong", code=2)
        assert refused.stderr.startswith("error: ") and refused.stderr.count("\n") == 1
        monkeypatch.setenv("STRETTO_CONTROLLER_TOKEN", TOKEN)
        empty = stretto("watch", served.url, "--once", code=1).stdout
        assert "no network yet" in empty
        client.put_network("wan", st.topology("ring:4?bandwidth=1GB/s").to_json())
        client.put_job("training", {"network": "wan", "collectives": [{"kind": "allreduce", "size": "64MB"}]})
        plan = client.plan("training", wait_s=60.0)
        client.report_times("training", plan["version"], [{"number": 0, "calls": 3, "measured_s": 0.5}])
        now = datetime.fromtimestamp(time.time(), UTC).isoformat()
        client.report("wan", {"time": now, "links": [{"src": "gpu0", "dst": "gpu1", "carried": 250e6}]})
        said = answer("watch", served.url, "--once")
        (collective,) = said["collectives"]
        known = {"job": "training", "kind": "allreduce", "size_bytes": 64_000_000, "last_s": 0.5}
        assert collective.items() >= known.items()
        assert collective["share"] == pytest.approx(0.5 / collective["planned_s"])
        (link,) = [link for link in said["links"] if (link["src"], link["dst"]) == ("gpu0", "gpu1")]
        assert (link["now_Bps"], link["capacity_Bps"], link["share"]) == (250e6, 1e9, 0.25)
        assert 0 < link["planned_Bps"] <= 1e9
        monkeypatch.setenv("COLUMNS", "120")
        assert "bandwidth" in stretto("watch", served.url, "--once").stdout
        monkeypatch.setenv("COLUMNS", "60")
        text = stretto("watch", served.url, "--once").stdout
        assert max(map(len, text.splitlines())) <= 60 and "training" in text and "gpu0→gpu1" in text
    finally:
        served.stop()
    gone = stretto("watch", served.url, "--once", code=2)
    assert "no controller answers" in gone.stderr


def test_a_controller_that_goes_between_its_event_and_a_question_is_trouble_and_no_end():
    class Gone:
        def events(self):
            yield "network", {"name": "lab", "version": 1, "overlay": []}
            yield "load", {"name": "lab", "use": [["a", "b", 0.5]]}
            yield "ready", {}

        def network(self, name):
            raise InputError("is no network here", name)

    told = Told(Gone(), Gone())
    told.read()
    picture = told.picture()
    assert [(link.src, link.dst, link.capacity) for link in picture.links] == [("a", "b", None)]
    assert "is no network here" in picture.trouble

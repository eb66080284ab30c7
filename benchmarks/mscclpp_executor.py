"""Do our plans give the right numbers when MSCCL++'s own executor runs them? On one GPU, or on this CPU.

Every rank is a thread of one process with a copy of the executor of its own, joined over 127.0.0.1; MSCCL++ then uses
plain pointers between ranks, and its channels, semaphores, proxies and kernels as they are. What is right is computed
with NumPy, element by element. Runs follow each other without a meeting of the ranks, and ranks begin late at random.
Plans that MSCCL++ ships show that the harness works; damaged plans must be caught. Nothing says how fast a plan is.

    MSCCLPP_SOURCE=mscclpp python benchmarks/mscclpp_executor.py --on cpu|gpu [--net NET...] [--json FILE]
    ... --build FOLDER                    only makes the executor and the plans: needs nvcc for a GPU, but no GPU
    python FOLDER/mscclpp_executor.py --run FOLDER [--only WORD...] [--seconds N]    runs them: needs NumPy alone

What is needed where is in `mscclpp_executor_plans.py`, which builds. Without it, or without a GPU, a line says so.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"int32": 0, "float16": 2, "float32": 3}
"""Types of elements, with their numbers in MSCCL++'s DataType."""
GREATEST = {"float16": 100, "float32": 1 << 19}
"""Floats are whole numbers up to this, so that sums of 16 ranks are exact in any order."""
PACKETS = 1
"""PacketType::LL16, which MSCCL++ takes by default."""
SPARE_MULTIPROCESSORS = 8
"""Left for kernels that copy, also those of cudaMemcpyAsync, which proxies call. All other threadblocks of all ranks
must be on the GPU at once: one that is not could be what the others wait for."""
LATEST_US = 150
"""How much later than others a rank begins, at most, in half of the runs."""
HANG_S = 20.0
"""Without an end after this a plan has hung. Runs on a busy CPU of two cores take a few seconds."""
FIRST_PLANS = 6
"""If none of the first plans goes as it should, the rest is not tried."""
SILENCE_S = 60.0
"""After this much without a line the process of a plan is killed."""
ENVIRONMENT = {
    "CUDA_MODULE_LOADING": "EAGER",  # a kernel loaded later could wait for one that waits for it
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",  # with fewer queues than streams, streams wait for each other
    "MSCCLPP_FORCE_DISABLE_NVLS": "1",
    "MSCCLPP_FORCE_DISABLE_GDR": "1",
    "MSCCLPP_SOCKET_IFNAME": "lo",
}
Case = dict[str, Any]
Row = dict[str, Any]


class Failed(Exception):
    """The executor refused something; the text says what."""


def expected(kind: str, root: int, rank: int, inputs: list[np.ndarray]) -> np.ndarray | None:
    """What a rank's output must hold, runs x elements; None if it may hold anything. Inputs: the same, by rank."""
    ranks = len(inputs)
    if kind == "allgather":
        return np.concatenate(inputs, axis=1)
    if kind == "broadcast":
        return inputs[root]
    if kind == "alltoall":
        return np.concatenate([np.split(own, ranks, axis=1)[rank] for own in inputs], axis=1)
    if kind == "reducescatter":
        inputs = [np.split(own, ranks, axis=1)[rank] for own in inputs]
    elif kind == "reduce" and rank != root:
        return None
    total = inputs[0].copy()
    for own in inputs[1:]:
        total += own  # of int32 it wraps, as on the GPU
    return total


def offsets(case: Case, rank: int, sizes: tuple[int, int], shared: bool) -> tuple[int, int]:
    """Where a rank's input and output begin if both are in one buffer."""
    if not shared:
        return 0, 0
    return {"allgather": (rank * sizes[0], 0), "reducescatter": (0, rank * sizes[1])}.get(case["kind"], (0, 0))


class Play:
    """One plan, run by all ranks in one process."""

    def __init__(self, libraries: list[ctypes.CDLL], folder: Path, case: Case, seed: int) -> None:
        self.libraries, self.file, self.case, self.seed = libraries[: case["ranks"]], folder / case["file"], case, seed
        self.barrier = threading.Barrier(case["ranks"], timeout=SILENCE_S)
        self.inputs: list[np.ndarray] = [np.empty(0)] * case["ranks"]
        self.lock = threading.Lock()
        self.faults: list[Row] = []
        self.wrong_runs: set[tuple[Any, ...]] = set()
        self.hung: list[int] = []
        self.failed: list[str] = []
        self.compared = self.runs = 0
        self.series = ""
        self.id = (ctypes.c_ubyte * libraries[0].id_bytes())()

    def row(self) -> Row:
        """Play, and say how it went."""
        self._call(0, "new_id", self.id)
        threads = [threading.Thread(target=self._guarded, args=(rank,)) for rank in range(self.case["ranks"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and not self.failed:
                thread.join(0.05)
        outcome = "failed" if self.failed else "hung" if self.hung else "wrong" if self.faults else "right"
        row = {"outcome": outcome, "runs": self.runs, "elements": self.compared, "series": self.series}
        detail = {"failed": self.failed, "hung": sorted(self.hung), "wrong": self.faults[:4]}.get(outcome)
        return row | {"detail": detail, "wrong_runs": len(self.wrong_runs)}

    def _call(self, rank: int, name: str, *arguments: Any) -> None:
        library = self.libraries[rank]
        if getattr(library, name)(*arguments):
            raise Failed(f"rank {rank}, {name}: {library.why().decode(errors='replace')}")

    def _guarded(self, rank: int) -> None:
        try:
            self._rank(rank)
        except threading.BrokenBarrierError:
            pass
        except Exception as error:
            self.failed.append(f"{self.series}: {error}" if isinstance(error, Failed) else f"rank {rank}: {error!r}")
            self.barrier.abort()

    def _rank(self, rank: int) -> None:
        own = ctypes.c_void_p()
        self._call(rank, "join", rank, self.case["ranks"], self.id, ctypes.byref(own))
        sizes = self.case["sizes"]
        largest = (max(size[0] for size in sizes), max(size[1] for size in sizes))
        for shared in self.case["buffers"]:
            # in one buffer each size has places of its own, so the plan is read anew for each
            for group in [[size] for size in sizes] if shared else [sizes]:
                room = (group[0][0], group[0][1]) if shared else largest
                self._call(rank, "load", own, str(self.file).encode(), *map(ctypes.c_size_t, room), int(shared),
                           *map(ctypes.c_size_t, offsets(self.case, rank, room, shared)))  # fmt: skip
                for number, (input_bytes, output_bytes, runs, types) in enumerate(group):
                    for kind in types:
                        what = f"{'one buffer' if shared else 'two buffers'}, {input_bytes} to {output_bytes} B, {kind}"
                        self._series(rank, own, (input_bytes, output_bytes), runs, kind, what, number)
                        if self.hung:
                            return
        self.barrier.wait()
        self._call(rank, "leave", own)

    def _series(
        self, rank: int, own: ctypes.c_void_p, sizes: tuple[int, int], runs: int, kind: str, what: str, number: int
    ) -> None:
        """Runs one after the other, then a comparison."""
        if self.barrier.wait() == 0:
            self.series = what
            print(json.dumps({"stage": what}), flush=True)
        random = np.random.default_rng([self.seed, rank, number, sizes[0], TYPES[kind]])
        shape = (runs, sizes[0] // np.dtype(kind).itemsize)
        most = GREATEST.get(kind, 1 << 31)
        given = random.integers(-most, most, shape).astype(kind)
        self.inputs[rank] = given
        delays = random.integers(0, LATEST_US, runs) * (random.random(runs) < 0.5)
        late = (ctypes.c_uint * runs)(*delays.tolist())
        self._call(rank, "prepare", own, *map(ctypes.c_size_t, sizes), runs, ctypes.c_void_p(given.ctypes.data))
        self.barrier.wait()
        self._call(rank, "launch", own, TYPES[kind], PACKETS, late)
        ended = ctypes.c_int()
        self._call(rank, "await_runs", own, ctypes.c_double(HANG_S), ctypes.byref(ended))
        if not ended.value:
            self.hung.append(rank)
        self.barrier.wait()
        if self.hung:
            return
        results = np.empty((runs, sizes[1] // given.itemsize), kind)
        self._call(rank, "fetch", own, ctypes.c_void_p(results.ctypes.data))
        self._compare(rank, results, what)
        self.barrier.wait()

    def _compare(self, rank: int, results: np.ndarray, what: str) -> None:
        wanted = expected(self.case["kind"], self.case["root"], rank, self.inputs)
        unequal = results != wanted if wanted is not None else np.zeros(0, bool)
        with self.lock:
            self.runs += len(results) if rank == 0 else 0
            self.compared += unequal.size
            if unequal.any():
                assert wanted is not None
                run, element = (int(place[0]) for place in np.nonzero(unequal))
                self.wrong_runs |= {(what, int(each)) for each in np.nonzero(unequal.any(axis=1))[0]}
                self.faults.append(
                    {"series": what, "rank": rank, "run": run, "element": element, "of": results.shape[1],
                     "got": results[run, element].item(), "wanted": wanted[run, element].item(),
                     "elements": int(unequal.sum()), "runs": int(unequal.any(axis=1).sum())}
                )  # fmt: skip


def libraries_of(folder: Path, on: str, ranks: int, own: Path) -> list[ctypes.CDLL]:
    """A copy of the executor for each rank, loaded; raises OSError where a GPU's has no CUDA driver."""
    if on == "gpu":
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    libraries = []
    for rank in range(ranks):
        copy = own / f"rank{rank}.so"
        shutil.copyfile(folder / "executor.so", copy)
        libraries.append(ctypes.CDLL(str(copy)))
        libraries[-1].why.restype = ctypes.c_char_p
        if libraries[-1].begin():
            raise OSError(libraries[-1].why().decode(errors="replace"))
    return libraries


def device_of(library: ctypes.CDLL) -> Row:
    """The GPU."""
    facts, name = (ctypes.c_int * 3)(), ctypes.create_string_buffer(256)
    if library.device(1024, facts, name, len(name)):
        raise OSError(library.why().decode(errors="replace"))
    return {"name": name.value.decode(), "multiprocessors": facts[0], "blocks_each": facts[1], "capability": facts[2]}


def child(folder: Path, names: list[str]) -> None:
    """Run plans, with a line of JSON for each; what hangs or fails ends the process."""
    manifest = json.loads((folder / "manifest.json").read_text())
    cases = {case["name"]: case for case in manifest["cases"]}
    with tempfile.TemporaryDirectory() as own:
        try:
            libraries = libraries_of(folder, manifest["on"], max(cases[name]["ranks"] for name in names), Path(own))
            device = device_of(libraries[0])
        except OSError as error:
            print(json.dumps({"skipped": f"no GPU: {error}"}), flush=True)
            return
        print(json.dumps({"device": device}), flush=True)
        for name in names:
            case = cases[name]
            room = (device["multiprocessors"] - SPARE_MULTIPROCESSORS) * device["blocks_each"]
            print(json.dumps({"begin": name}), flush=True)
            if case["threadblocks"] > room:
                row: Row = {"outcome": "too large", "detail": f"{case['threadblocks']} threadblocks, {room} fit"}
            else:
                row = Play(libraries, folder, case, manifest["seed"]).row()
            print(json.dumps({"name": name} | row), flush=True)
            if row["outcome"] in ("hung", "failed"):
                shutil.rmtree(own, ignore_errors=True)
                os._exit(3)
        refused = sum(library.ipc_refused() for library in libraries)
        print(json.dumps({"ipc_refused": refused}), flush=True)


def lines_of(folder: Path, names: list[str], errors: Path) -> Any:
    """The lines of a process that runs plans; ends with None if it was silent for too long. Kills it."""
    command = [sys.executable, str(Path(__file__).resolve()), "--run", str(folder), "--child", *names]
    lines: queue.Queue[Any] = queue.Queue()
    with errors.open("a") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, env=os.environ | ENVIRONMENT, text=True)

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(json.loads(line))
        lines.put("end")

    threading.Thread(target=read, daemon=True).start()
    try:
        while (line := lines.get(timeout=SILENCE_S)) != "end":
            yield line
    except queue.Empty:
        yield None
    finally:
        process.kill()
        process.wait()


def run(folder: Path, only: list[str], seconds: float, out: Path | None) -> bool:
    """Run the plans of a folder, in a new process after each that hangs; whether all went as they should."""
    manifest = json.loads((folder / "manifest.json").read_text())
    cases = [case for case in manifest["cases"] if not only or all(word in case["name"] for word in only)]
    rows: list[Row] = []
    report: Row = {"made": manifest["made"], "device": None, "rows": rows}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as own:
        errors = Path(own) / "errors"
        waiting = list(cases)
        while waiting and time.monotonic() - begin < seconds and not hopeless(rows):
            together = [case for case in waiting if shares(case, waiting[0])]
            current, stage, before = None, "", errors.stat().st_size if errors.exists() else 0
            for line in lines_of(folder, [case["name"] for case in together], errors):
                if line is not None and "skipped" in line:
                    print(f"skipped: {line['skipped']}")
                    return True
                if line is None:
                    line = {"name": current, "outcome": "silent", "detail": f"no answer in {SILENCE_S:.0f} s: {stage}"}
                if "device" in line:
                    if report["device"] is None:
                        print("on " + ", ".join(f"{key} {value}" for key, value in line["device"].items()), flush=True)
                    report["device"] = line["device"]
                current, stage = line.get("begin", current), line.get("stage", stage)
                if "ipc_refused" in line:
                    report["ipc_refused"] = report.get("ipc_refused", 0) + line["ipc_refused"]
                if "outcome" in line:
                    case = next(case for case in waiting if case["name"] == current)
                    waiting.remove(case)
                    rows.append(case | line | {"as_expected": case["expect"] in (line["outcome"], "unknown")})
                    print_row(rows[-1])
                    current = None
                if current is None and (time.monotonic() - begin > seconds or hopeless(rows)):
                    break
            ended = {row["name"] for row in rows}
            if current is not None and current not in ended:  # its process ended by itself
                case = next(case for case in waiting if case["name"] == current)
                waiting.remove(case)
                tail = errors.read_bytes()[before:][-600:].decode(errors="replace")
                rows.append(case | {"outcome": "ended", "detail": f"{stage}: {tail}", "as_expected": False})
                print_row(rows[-1])
            elif not any(case["name"] in ended for case in together):
                print("the process ended before its first plan:", errors.read_text(errors="replace")[-2000:])
                break
        report["errors"] = errors.read_text(errors="replace")[-20_000:] if errors.exists() else ""
    report |= {"not_run": [case["name"] for case in waiting], "seconds": time.monotonic() - begin}
    good = print_summary(report)
    if out:
        out.write_text(json.dumps(report, indent=1) + "\n")
    return good


def shares(case: Case, other: Case) -> bool:
    """Whether plans share a process: executors number their runs, and packets need the same number at all ranks."""
    return bool(case["group"] == other["group"] and case["ranks"] == other["ranks"])


def hopeless(rows: list[Row]) -> bool:
    """Whether nothing works, so that no plan is to blame."""
    return len(rows) >= FIRST_PLANS and not any(row["as_expected"] for row in rows)


def print_row(row: Row) -> None:
    """A line of the table, and what went wrong."""
    expectation = "" if row["as_expected"] else f" ({row['expect']} expected)"
    data = f"{row.get('runs', 0):4} runs {row.get('elements', 0):10} elements"
    print(f"{row['name']:58} {row['ranks']} ranks {row['threadblocks']:4} threadblocks {data}  "
          f"{row['outcome']}{expectation}", flush=True)  # fmt: skip
    if row["outcome"] != "right" or row["expect"] != "right":
        detail = row.get("detail") or ""
        if row["outcome"] == "hung":
            detail = f"{row['series']}: ranks {detail} did not end in {HANG_S:.0f} s"
        print(f"    {row.get('note', '')} -> {detail[0] if isinstance(detail, list) else detail}", flush=True)


def print_summary(report: Row) -> bool:
    """Count outcomes by whose plans they were."""
    for origin in dict.fromkeys(row["origin"] for row in report["rows"]):
        own = [row for row in report["rows"] if row["origin"] == origin]
        counts = ", ".join(f"{n} {o}" for o, n in Counter(row["outcome"] for row in own).most_common())
        runs, elements = (sum(row.get(key, 0) for row in own) for key in ("runs", "elements"))
        good = sum(row["as_expected"] for row in own)
        print(f"{origin}: {len(own)} plans, {good} as expected ({counts}); {runs} runs, {elements} elements compared")
    print(f"not run: {len(report['not_run'])}; {report['seconds']:.0f} s")
    return all(row["as_expected"] for row in report["rows"]) and bool(report["rows"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=("cpu", "gpu"), default="cpu", help="where kernels run")
    parser.add_argument("--net", nargs="+", help="networks of the plans")
    parser.add_argument("--build", type=Path, metavar="FOLDER", help="only write executor and plans")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="only run what was written")
    parser.add_argument("--only", nargs="+", default=[], help="run plans whose names have all of these words")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no plan later than this")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.run, args.child)
        return
    if args.run:
        sys.exit(0 if run(args.run, args.only, args.seconds, args.json) else 1)
    from mscclpp_executor_plans import Missing, build

    with tempfile.TemporaryDirectory() as name:
        folder = args.build or Path(name)
        try:
            build(folder, args.on, args.net)
        except Missing as missing:
            print(f"skipped: {missing}")
            return
        if not args.build:
            sys.exit(0 if run(folder, args.only, args.seconds, args.json) else 1)


if __name__ == "__main__":
    main()

"""SWOT in the setting of its paper: figures 7, 8, 10 and 11, its headlines, and the break-even size.

    python benchmarks/swot.py            # the headlines, the prototypes' values, figures 8, 10 and 11
    python benchmarks/swot.py --full     # and the 104 points of figure 7, one by one
    python benchmarks/swot.py --prove    # certificates, up to 30 s each, and nothing else

Prints tables and writes benchmarks/out/swot.json. Times are those of schedules (the tests hold
plans, verifier and simulator to them); planning is CPU seconds in this process. Volumes are true
ones but for Bruck, which has the paper's m a step (about m / 2 is true) so that numbers compare.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from stretto.optics.bound import lower_bound
from stretto.optics.fast import fast
from stretto.optics.model import Instance, completion, ideal, make_instance, one_shot, strawman
from stretto.optics.optimal import optimal, proved

MB, NODE = 1e6, 100e9
SIZES_MB = [0.125 * 2**i for i in range(13)]
SETTINGS = {
    "ReduceScatter": (("halving", 256, 8), ("halving", 16, 4)),
    "AllReduce": (("rabenseifner", 256, 8), ("rabenseifner", 16, 4)),
    "pairwise": (("pairwise", 9, 8), ("pairwise", 5, 4)),
    "Bruck": (("bruck", 256, 8), ("bruck", 16, 4)),
}
PUBLISHED = {"ReduceScatter": (84.0, 89.1), "AllReduce": (83.7, 87.1), "pairwise": (72.7, 89.1), "Bruck": (89.7, 85.4)}
PROTOTYPES_MS = {
    ("halving", 256, 8): 0.885625, ("rabenseifner", 256, 8): 1.77125, ("rabenseifner", 256, 4): 1.87,
    ("rabenseifner", 256, 2): 2.345, ("rabenseifner", 64, 4): 1.64, ("rabenseifner", 512, 4): 1.985,
    ("rabenseifner", 1024, 4): 2.0825, ("pairwise", 5, 4): 0.74, ("pairwise", 10, 4): 1.1452,
    ("pairwise", 9, 8): 1.0683, ("pairwise", 14, 4): 1.3308, ("bruck", 256, 8): 4.1071, ("pairwise", 256, 8): 7.66,
    ("pairwise", 256, 4): 14.25,
}  # fmt: skip


def instance(algorithm: str, ranks: int, planes: int, size_mb: float, turn_s: float = 200e-6) -> Instance:
    """The steps of an algorithm for a buffer of ``size_mb``, planes free at first."""
    steps, size = (ranks - 1).bit_length(), size_mb * MB
    volume, matching = {
        "halving": (size / 2 ** np.arange(1, steps + 1), np.arange(steps)),
        "bruck": (np.full(steps, size), np.arange(steps)),
        "pairwise": (np.full(ranks - 1, size / (ranks - 1)), np.arange(ranks - 1)),
        "rabenseifner": (np.zeros(0), np.arange(0)),
    }[algorithm]
    if algorithm == "rabenseifner":
        half = size / 2 ** np.arange(1, steps + 1)
        volume = np.concatenate((half, half[::-1]))
        matching = np.concatenate((np.arange(steps), np.arange(steps)[::-1]))
    return make_instance(volume, matching, [NODE / planes] * planes, 20e-6, turn_s)


def cell(algorithm: str, ranks: int, planes: int, size_mb: float, turn_s: float = 200e-6) -> dict:
    """One point: SWOT, its baselines and bounds, ms."""
    made = instance(algorithm, ranks, planes, size_mb, turn_s)
    started = time.process_time()
    share = fast(made)
    spent = time.process_time() - started
    held = one_shot(made)
    return {
        "algorithm": algorithm, "ranks": ranks, "planes": planes, "size_mb": size_mb, "turn_ms": turn_s * 1e3,
        "swot_ms": completion(made, share) * 1e3, "strawman_ms": completion(made, strawman(made)) * 1e3,
        "one_shot_ms": None if held is None else completion(made, held) * 1e3, "ideal_ms": ideal(made) * 1e3,
        "bound_ms": lower_bound(made) * 1e3, "planning_cpu_s": spent,
    }  # fmt: skip


def reduction(row: dict, against: str) -> float:
    """How much less time SWOT takes than a baseline, or than the better of both, percent."""
    baselines = [row[key] for key in (["strawman_ms", "one_shot_ms"] if against == "better" else [against])]
    known = [b for b in baselines if b is not None]
    return 100 * (1 - row["swot_ms"] / min(known)) if known else 0.0


def headlines(full: bool) -> list[dict]:
    """Figure 7: the largest reductions, published and ours, and against the better baseline."""
    rows: list[dict] = []
    print("## The headlines (figure 7), reductions in percent, and where they are largest\n")
    print("| | one-shot, paper | ours | at | strawman, paper | ours | at | the better of both | at |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, settings in SETTINGS.items():
        own = [cell(*setting, size) for setting in settings for size in SIZES_MB]
        rows += own
        cells = []
        for against in ("one_shot_ms", "strawman_ms", "better"):
            best = max(own, key=lambda row, key=against: reduction(row, key))
            where = f"{best['ranks']}/{best['planes']}, {best['size_mb']:g} MB"
            cells.append(f"{reduction(best, against):.1f} | {where}")
        print(
            f"| {name} | {PUBLISHED[name][0]} | {cells[0]} | {PUBLISHED[name][1]} | {cells[1]} | {cells[2]} |",
            flush=True,
        )
    spent = sum(r["planning_cpu_s"] for r in rows)
    print(f"\n{len(rows)} points, {spent:.1f} CPU s of planning\n")
    if full:
        print(
            "| algorithm | ranks/planes | MB | swot | bound | one-shot | strawman | ideal (ms) |\n" + "|---" * 8 + "|"
        )
        for r in rows:
            held = "" if r["one_shot_ms"] is None else f"{r['one_shot_ms']:.4f}"
            times = f"{r['swot_ms']:.4f} | {r['bound_ms']:.4f} | {held} | {r['strawman_ms']:.4f} | {r['ideal_ms']:.4f}"
            print(f"| {r['algorithm']} | {r['ranks']}/{r['planes']} | {r['size_mb']:g} | {times} |")
    return rows


def prototypes() -> list[dict]:
    """The values that prototypes reached at 32 MB."""
    print("## At 32 MB, ms\n\n| algorithm | ranks/planes | prototypes | ours | bound | CPU s |\n" + "|---" * 6 + "|")
    rows = []
    for setting, reached in PROTOTYPES_MS.items():
        r = cell(*setting, 32)
        rows.append(r)
        name, n, k = setting
        print(
            f"| {name} | {n}/{k} | {reached} | {r['swot_ms']:.5f} | {r['bound_ms']:.4f} | {r['planning_cpu_s']:.2f} |",
            flush=True,
        )
    return rows


def sweeps() -> list[dict]:
    """Figures 8, 10 and 11: reduction against the strawman over ranks, planes and turning time."""
    points = {
        "8": [("rabenseifner", n, 4, 32, 200e-6) for n in (4, 16, 64, 256, 512, 1024)]
        + [("pairwise", n, 4, 32, 200e-6) for n in (5, 8, 10, 14)],
        "10": [("rabenseifner", 256, k, size, 200e-6) for size in (2, 32, 512) for k in (2, 4, 8)],
        "11": [("rabenseifner", 256, 4, size, t) for t in (200e-6, 2e-3, 20e-3) for size in (2, 32, 512)],
    }
    rows = []
    print("\n## Over ranks (figure 8), planes (10) and turning time (11)\n")
    print(
        "| figure | algorithm | ranks/planes | MB | turn | swot ms | less than strawman | overhead over ideal |\n"
        + "|---" * 8
        + "|"
    )
    for figure, some in points.items():
        for name, n, k, size, turn in some:
            r = cell(name, n, k, size, turn) | {"figure": figure}
            rows.append(r)
            over = 100 * (1 - r["ideal_ms"] / r["swot_ms"])
            words = f"{name} | {n}/{k} | {size} | {turn * 1e3:g} ms | {r['swot_ms']:.4f}"
            print(f"| {figure} | {words} | {reduction(r, 'strawman_ms'):.1f} % | {over:.1f} % |", flush=True)
    return rows


def break_even(algorithm: str, ranks: int, planes: int) -> float:
    """The buffer below which the best schedule turns no plane, MB, by bisection."""

    def turns(size_mb: float) -> bool:
        r = cell(algorithm, ranks, planes, size_mb)
        return r["one_shot_ms"] is None or r["swot_ms"] < r["one_shot_ms"] * (1 - 1e-6)

    low, high = 2.0**-8, 512.0
    while high / low > 1.05:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if turns(middle) else (middle, high)
    return high


def random_instance(seed: int) -> Instance:
    """4 to 7 steps of 0.1 to 40 MB over 2 to 4 matchings, 2 to 4 planes, every other one free at first."""
    rng = np.random.default_rng(seed)
    n, k, kinds = int(rng.integers(4, 8)), int(rng.integers(2, 5)), int(rng.integers(2, 5))
    volume, matching = 10 ** rng.uniform(5, 7.6, n), rng.integers(0, kinds, n)
    return make_instance(volume, matching, [NODE / k] * k, 20e-6, 200e-6, -1 if seed % 2 else 0)


def certificates() -> None:
    """Which schedules are proved optimal, and at what cost."""
    settings = [s for s in PROTOTYPES_MS if instance(*s, 32).steps <= 20]
    named = [(f"{name} {n}/{k}, 32 MB", instance(name, n, k, 32)) for name, n, k in settings]
    print("| instance | fast, ms | exact, ms | bound, ms | proved | CPU s |\n" + "|---" * 6 + "|")
    for name, made in named + [(f"random {seed}", random_instance(seed)) for seed in range(40)]:
        quick = fast(made)
        started = time.process_time()
        answer = optimal(made, quick)
        times = [1e3 * t for t in (completion(made, quick), completion(made, answer.share), answer.bound_s)]
        spent, sure = time.process_time() - started, "yes" if proved(made, answer) else "no"
        print(f"| {name} | {' | '.join(f'{t:.5f}' for t in times)} | {sure} | {spent:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="print every point of figure 7")
    parser.add_argument("--prove", action="store_true", help="print certificates only")
    asked = parser.parse_args()
    full = asked.full
    if asked.prove:
        return certificates()
    rows = headlines(full) + prototypes() + sweeps()
    print("\n## Below these sizes turning does not pay\n")
    for setting in (("halving", 256, 8), ("rabenseifner", 16, 4), ("pairwise", 9, 8)):
        print(f"- {setting[0]} {setting[1]}/{setting[2]}: {break_even(*setting):.3g} MB", flush=True)
    out = Path(__file__).parent / "out"
    out.mkdir(exist_ok=True)
    (out / "swot.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

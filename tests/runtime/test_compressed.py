"""Sums that cross between sites in eight bits: what they cost on the sockets, how far they are off, and what makes up for it."""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from stretto.model.errors import ArgumentError, InputError, Unsupported

torch = pytest.importorskip("torch", reason="PyTorch is missing: pip install 'stretto[torch]'")

from stretto.torch.codes import BLOCK, FORMATS, encode, packed_bytes, unpack  # noqa: E402
from stretto.torch.compressed import Feedback, shares_of  # noqa: E402
from stretto.torch.group import StrettoGroup  # noqa: E402

dist = torch.distributed
UNEVEN = [[0, 3], [1], [2, 4, 5]]


@pytest.fixture
def groups(monkeypatch):
    """Makes groups of ranks in sites, and ends them."""
    made = []

    def make(sites: list[list[int]]) -> list[StrettoGroup]:
        store, n = dist.HashStore(), sum(map(len, sites))
        at = {r: f"site {s}" for s, ranks in enumerate(sites) for r in ranks}
        for r in range(n):
            monkeypatch.setenv("STRETTO_SITE", at[r])
            made.append(StrettoGroup(store, r, n, range(n), timedelta(seconds=20)))
        done([g.barrier() for g in made[-n:]])
        assert made[-1].compressed._sites() == sites
        return made[-n:]

    yield make
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda g: g.abort(), made))


def numbers(ranks: int, count: int, seed: int = 0) -> list:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, generator=generator) * 10.0 ** (r - 1) for r in range(ranks)]


def done(works) -> None:
    for work in works:
        work.wait()


def error_bound(sites, inputs, form: str):
    """What a sum in this format may be off by, number by number, as docs/reference/torchft.md states it."""

    def rounding(x):
        blocks = torch.nn.functional.pad(x, (0, -len(x) % BLOCK)).view(-1, BLOCK)
        most = blocks.abs().amax(1, keepdim=True)
        off = most.expand_as(blocks) / 254 if form == "int8" else torch.maximum(blocks.abs() / 16, most / 458752)
        return off.reshape(-1)[: len(x)]

    sums = [sum(inputs[r].double() for r in ranks) for ranks in sites]
    off = sum(rounding(x) for x in sums)
    if len(sites) > 2:  # the sum is rounded as well, with all that it is off by already
        total = sum(sums)
        off = off + rounding(total.abs() + off) + off.amax() / 127
    return off * 1.0001 + 1e-6 * sum(x.abs() for x in sums)


@pytest.mark.parametrize(
    ("sites", "form"), [([[0, 1], [2, 3]], "int8"), ([[0, 1], [2]], "fp8"), (UNEVEN, "fp8"), (UNEVEN, "int8")]
)
def test_all_ranks_have_the_same_sum_within_the_stated_error(groups, sites, form):
    made = groups(sites)
    n = len(made)
    for count in (1, 2_345):
        inputs = numbers(n, count)
        tensors = [t.clone() for t in inputs]
        done([g.compressed.allreduce([t], form) for g, t in zip(made, tensors)])
        assert all(torch.equal(t, tensors[0]) for t in tensors)
        assert ((tensors[0] - sum(t.double() for t in inputs)).abs() <= error_bound(sites, inputs, form)).all()
        assert count == 1 or not torch.equal(tensors[0], sum(inputs))
        whole = numbers(n, n * count, seed=1)
        outputs = [torch.empty(count) for _ in made]
        done([g.compressed.reduce_scatter(o, w, form) for g, o, w in zip(made, outputs, whole)])
        for r, output in enumerate(outputs):
            pieces = [w[r * count :][:count] for w in whole]
            off = (output - sum(p.double() for p in pieces)).abs()
            assert (off <= error_bound(sites, pieces, form)).all()


def crossing(group: StrettoGroup, here: list[int]) -> int:
    """Bytes that the kernel has received over TCP from ranks of other sites (``tcpi_bytes_received``)."""
    sockets = [getattr(c.sock, "raw", c.sock) for c in group._links.mesh().connections if c.peer not in here]
    infos = [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136) for s in sockets]
    return sum(int.from_bytes(info[128:136], sys.byteorder) for info in infos)


def crossed(made, sites, calls) -> int:
    """The bytes that some calls send from site to site."""
    at = {r: ranks for ranks in sites for r in ranks}
    before = sum(crossing(g, at[r]) for r, g in enumerate(made))
    done(calls())
    done([g.barrier() for g in made])
    return sum(crossing(g, at[r]) for r, g in enumerate(made)) - before


@pytest.mark.parametrize("sites", [[[0, 1], [2, 3]], UNEVEN], ids=["two sites", "three uneven sites"])
def test_a_compressed_sum_sends_3_5_times_fewer_bytes_between_sites_than_any_full_one(groups, sites, monkeypatch):
    monkeypatch.setattr("stretto.runtime.connect.machine", lambda: None)  # as between machines, by TCP
    made = groups(sites)
    count, n = 300_000, len(made)
    tensors = [torch.ones(count) for _ in range(n)]
    idle = crossed(made, sites, list)
    full = crossed(made, sites, lambda: [g.allreduce([t]) for g, t in zip(made, tensors)]) - idle
    few = crossed(made, sites, lambda: [g.compressed.allreduce([t], "int8") for g, t in zip(made, tensors)]) - idle
    least = 2 * (len(sites) - 1) * 4 * count  # every site sends all of it but for its share, twice
    assert full >= least > 3.5 * few > 0.8 * least
    scattered, out = [torch.ones(n * 50_000) for _ in range(n)], [torch.empty(50_000) for _ in range(n)]
    few = crossed(
        made, sites, lambda: [g.compressed.reduce_scatter(o, s, "fp8") for g, o, s in zip(made, out, scattered)]
    )
    assert (len(sites) - 1) * 4 * n * 50_000 > 3.5 * (few - idle)


def test_what_rounding_leaves_out_comes_with_the_next_sum_also_when_ranks_change(groups):
    sites = [[0, 1], [2, 3], [4]]
    made = groups(sites)
    inputs = numbers(5, 2000)
    exact = sum(t.double() for t in inputs)
    feedback = [Feedback() for _ in made]
    total = torch.zeros(2000, dtype=torch.float64)
    for turn in range(8):
        ranks = range(5)
        if turn == 4:
            made = groups([[0], [1, 4], [2, 3]])  # another quorum, with other shares
        tensors = [t.clone() for t in inputs]
        done([made[r].compressed.allreduce([tensors[r]], "int8", feedback[r]) for r in ranks])
        total += tensors[0]
        # what has not been sent is what the ranks keep
        kept = sum(f.rest.double() for f in feedback)
        assert torch.allclose(total + kept, (turn + 1) * exact, rtol=0, atol=1e-3 * exact.abs().max())
    once = [t.clone() for t in inputs]
    done([g.compressed.allreduce([t], "int8") for g, t in zip(made, once)])
    without, fed = (8 * once[0] - 8 * exact).abs().mean(), (total - 8 * exact).abs().mean()
    assert fed < without / 3


def test_a_sum_that_is_undone_leaves_no_trace():
    feedback = Feedback()
    feedback.keep(torch.ones(3))
    feedback.begin()
    feedback.keep(torch.tensor([2.0, torch.nan, torch.inf]))
    assert feedback.rest.tolist() == [2.0, 0.0, 0.0]
    feedback.undo()
    feedback.undo()
    assert feedback.rest.tolist() == [1.0] * 3


def test_a_sum_that_ends_after_it_was_undone_leaves_no_trace():
    feedback = Feedback()
    feedback.keep(torch.ones(3))
    feedback.begin()
    turn = feedback.turn
    feedback.undo()
    feedback.keep(torch.full((3,), 5.0), turn)
    assert feedback.rest.tolist() == [1.0] * 3


def test_a_sum_of_nothing_ends(groups):
    made = groups([[0], [1]])
    tensors = [torch.empty(0) for _ in made]
    done([g.compressed.allreduce([t], "int8", Feedback()) for g, t in zip(made, tensors)])
    assert all(t.numel() == 0 for t in tensors)


@pytest.mark.parametrize("form", FORMATS)
def test_blocks_of_any_magnitude_are_written_and_read(form):
    x = torch.cat(
        [torch.randn(BLOCK) * 10.0**e for e in (-44, -20, 0, 30)] + [torch.zeros(BLOCK)] + [torch.ones(BLOCK)] * 2
    )
    x[5 * BLOCK], x[6 * BLOCK + 3] = torch.nan, torch.inf
    coded = encode(x, FORMATS[form])
    content = coded.pack(0, 7)
    assert content.numel() == packed_bytes(7) == 7 * 260
    read = unpack(content, FORMATS[form]).decode()
    assert torch.equal(read.isnan(), torch.arange(7 * BLOCK) >= 5 * BLOCK)
    finite = x[: 5 * BLOCK].view(5, BLOCK)
    off = (read[: 5 * BLOCK].view(5, BLOCK) - finite).abs()
    most = finite.abs().amax(1, keepdim=True)
    bound = most / 254 if form == "int8" else torch.maximum(finite.abs() / 16, most / 458752)
    assert (off <= bound * 1.0001 + 1e-43).all()
    assert torch.equal(unpack(coded.pack(2, 4), FORMATS[form]).decode(), read[2 * BLOCK : 4 * BLOCK])


def test_the_parts_of_each_site_cover_every_block_once():
    for blocks in (0, 1, 2, 5, 100):
        shares = shares_of(UNEVEN, blocks)
        for ranks in UNEVEN:
            covered = [b for r in ranks for low, high in shares.parts(r) for b in range(low, high)]
            assert sorted(covered) == list(range(blocks))


def test_averages_other_types_and_one_site(groups):
    made = groups([[0], [1]])
    tensors = [torch.full((2, 300), float(r + 1), dtype=torch.bfloat16) for r in range(2)]
    done([g.compressed.allreduce([t], "int8", None, dist.ReduceOp.AVG) for g, t in zip(made, tensors)])
    assert [t.unique().tolist() for t in tensors] == [[1.5], [1.5]]
    alone = groups([[0, 1]])
    inputs = numbers(2, 1000)
    tensors = [t.clone() for t in inputs]
    done([g.compressed.allreduce([t], "int8") for g, t in zip(alone, tensors)])
    assert torch.equal(tensors[0], inputs[0] + inputs[1])  # full precision inside a site
    with pytest.raises(InputError, match="sums are compressed as int8 or fp8, not as 'int4'"):
        made[0].compressed.allreduce([torch.ones(3)], "int4")
    with pytest.raises(Unsupported, match=r"compressed for float32, bfloat16, float16, not for torch\.int64"):
        made[0].compressed.allreduce([torch.ones(3, dtype=torch.int64)], "int8")
    with pytest.raises(Unsupported, match="only sums and averages are compressed, not MAX"):
        made[0].compressed.allreduce([torch.ones(3)], "int8", None, dist.ReduceOp.MAX)
    with pytest.raises(ArgumentError, match="5 elements are not 2 of 3"):
        made[0].compressed.reduce_scatter(torch.ones(3), torch.ones(5), "int8")

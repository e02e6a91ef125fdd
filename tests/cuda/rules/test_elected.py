"""Work of one thread in text: a ring of TMA copies, and which statements share the elected thread's branch."""

from __future__ import annotations

import re

import pytest

from tests.cuda.build import Kernel, compiled, needs_nvrtc, text_of
from tests.cuda.rules.test_async import barriers, descriptor, each_hopper, room, sass
from tests.sim.build import Kernel as TileKernel
from weft import targets
from weft.errors import Loc
from weft.ir.core import Func, ParamFacts, Value
from weft.ir.types import DescriptorType, ScalarType, float16, int32, int64
from weft.layout import BlockedLayout, MBarrierLayout, NVMMASharedLayout
from weft.ops import arith, control, mbarrier, shared, sync, tma
from weft.passes.pipeline import lower_pipeline, tile_pipeline

# A kernel of TMA copies


def ring(debug: bool = False) -> Func:
    """Blocks of a matrix through a ring of two buffers, doubled, and out again; written as tiles."""
    layout, own = NVMMASharedLayout.get_default_for([64, 128], float16), BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
    k = TileKernel(num_warps=4, debug=debug)
    k.params = tuple(Value(DescriptorType(float16, (64, 128), layout), name) for name in ("in_desc", "out_desc"))
    k.params = (*k.params, Value(ScalarType(int32), "count"))
    k.attrs["params"] = (ParamFacts(),) * 3
    in_desc, out_desc, count = k.params

    def at(line: int) -> TileKernel:
        k.loc = Loc("ring.py", line)
        return k

    zero, one, two = (k.number(i) for i in range(3))
    bufs = at(2).emit(shared.alloc, element=float16, shape=(2, 64, 128), layout=layout, tag=1, name="bufs")
    result = at(3).emit(shared.alloc, element=float16, shape=(64, 128), layout=layout, tag=2, name="result")
    bars = at(4).emit(shared.alloc, element=int64, shape=(2, 1), layout=MBarrierLayout(), tag=3, name="bars")
    for i in (zero, one):
        at(6).emit(mbarrier.init, k.emit(shared.index, bars, i), count=1)

    def stage_of(i: Value) -> tuple[Value, Value]:
        stage = k.emit(arith.rem, i, two, name="stage")
        return k.emit(shared.index, bars, stage, name="bar"), k.emit(shared.index, bufs, stage, name="buf")

    def load(line: int, i: Value, pred: Value | None) -> None:
        at(line)
        bar, buf = stage_of(i)
        at(line + 1).emit(mbarrier.expect, bar, pred, bytes=64 * 128 * 2)
        row = at(line + 2).emit(arith.mul, i, k.number(64), name="row")
        at(line + 3).emit(tma.load, in_desc, bar, buf, pred, row, zero)

    load(8, zero, None)
    with k.region([ScalarType(int32)], ["i"]) as body:
        (i,) = body.args
        after = at(13).add(i, one)
        load(14, after, at(13).emit(arith.cmp, after, count, predicate="lt", name="more"))
        at(18)
        bar, buf = stage_of(i)
        phase = at(18).emit(arith.and_, k.emit(arith.div, i, two), one, name="phase")
        k.emit(mbarrier.wait, bar, phase, None)
        x = at(19).emit(shared.load, buf, layout=own, name="x")
        at(20).emit(tma.store_wait, pendings=0)
        at(21).emit(shared.store, result, k.add(x, x))
        row = at(22).emit(arith.mul, i, k.number(64), name="row")
        at(23).emit(tma.store, out_desc, result, row, zero)
        k.emit(control.yield_)
    at(12).emit(control.for_, zero, count, one, regions=(body.done,), descending=False)
    at(24).emit(tma.store_wait, pendings=0)
    for i in (zero, one):
        at(26).emit(mbarrier.invalidate, k.emit(shared.index, bars, i))
    target = targets.get("sm_90a")
    return lower_pipeline(tile_pipeline(k.done(), target), target)


def test_ring(golden):
    golden(text_of(ring()), ".cu")


@needs_nvrtc
@each_hopper
def test_a_ring_is_copies_by_the_engine(arch):
    """TMA instructions in uniform registers, without a loop over lanes, and 16-byte accesses."""
    text = sass(ring(), arch)
    assert len(re.findall(r"UTMALDG\.2D", text)) >= 2
    assert "UTMASTG.2D" in text and "UTMACMDFLUSH" in text and "ELECT" in text
    assert "SYNCS.PHASECHK" in text and "SYNCS.EXCH" in text
    assert "LDS.128" in text and "STS.128" in text
    assert not re.search(r"\bVOTE\.|\bLDS\.64|\bSTS\.64|\bLDS\.U16", text)


@needs_nvrtc
def test_a_ring_in_a_debug_build(golden):
    func = ring(debug=True)
    waits = [line.strip() for line in text_of(func).splitlines() if "mbar_wait_watched(" in line]
    golden("\n".join(waits), ".txt")
    assert compiled(func).n_spills == 0


# The elected thread


def test_neighbours_share_a_branch():
    """What is only defined in between stands before the branch."""
    k = Kernel(("n", int32))
    desc = descriptor(k, "desc")
    (bar,), smem = barriers(k), room(k, float16, 4096, 1024, "smem")
    k.at(2).emit(mbarrier.expect, bar, None, bytes=8192)
    y = k.at(3).emit(arith.mul, k.params[0], k.number(64), name="y")
    k.at(4).emit(tma.load, desc, bar, smem, None, y, k.number(32), boxes=(((0, 0), 0),))
    text = text_of(k.done())
    assert text.count("elect_one()") == 1
    assert text.index("const int y") < text.index("elect_one()") < text.index("mbar_expect(")
    assert "tma_load_2d(smem, &desc, bars, 32, y);" in text


def test_work_of_all_threads_divides_branches():
    k = Kernel(("n", int32))
    (bar,) = barriers(k)
    k.emit(mbarrier.arrive, bar, None)
    k.emit(sync.barrier)
    k.emit(mbarrier.arrive, bar, None)
    assert text_of(k.done()).count("elect_one()") == 2


def test_one_fence_for_barriers_in_a_row():
    k = Kernel(("n", int32))
    for bar in barriers(k, 4):
        k.emit(mbarrier.init, bar, count=2)
    text = text_of(k.done())
    assert text.count(" mbar_init(") == 4 and text.count("fence_mbar_init()") == 1
    assert text.count("if (") == 1


def test_predicates():
    """Each has a branch of its own, and comes before `elect.sync`."""
    k = Kernel(("n", int32))
    bars = barriers(k, 2)
    n = k.params[0]
    on, off = (k.emit(arith.cmp, n, k.number(i), predicate="lt", name=f"below_{i}") for i in (3, 5))
    for bar in bars:
        k.at(2).emit(mbarrier.arrive, bar, on)
    k.emit(sync.barrier)
    k.at(3).emit(mbarrier.arrive, bars[0], on)
    k.at(3).emit(mbarrier.expect, bars[1], off, bytes=64)
    k.at(3).emit(mbarrier.wait, bars[1], k.number(1), off)
    text = re.sub(r"#line.*\n", "", text_of(k.done()))
    assert "if (warp == 0 && below_3 && elect_one()) { mbar_arrive(bars, 1); mbar_arrive(bars + 8, 1); }" in text
    assert "if (warp == 0 && below_3 && elect_one()) mbar_arrive(bars, 1);" in text
    assert "if (warp == 0 && below_5 && elect_one()) mbar_expect(bars + 8, 64);" in text
    assert "if (below_5) mbar_wait(bars + 8, 1);" in text


def test_one_warp_needs_no_number():
    k = Kernel(num_warps=1)
    (bar,) = barriers(k)
    k.emit(mbarrier.arrive, bar, None)
    assert "if (elect_one()) mbar_arrive(bars, 1);" in text_of(k.done())


def test_what_changes_is_read_before():
    """A branch that waits for more statements is written before a variable that it reads changes."""
    k = Kernel(("n", int32))
    desc = descriptor(k, "desc")
    (bar,), smem = barriers(k), room(k, float16, 4096, 1024, "smem")
    with k.region([ScalarType(int32)] * 2, ["i", "y"]) as body:
        _, y = body.args
        k.at(3).emit(tma.load, desc, bar, smem, None, y, k.number(0), boxes=(((0, 0), 0),))
        k.at(4).emit(control.yield_, k.emit(arith.add, y, k.number(64)))
    k.at(2).emit(
        control.for_, k.number(0), k.params[0], k.number(1), k.number(0), regions=(body.done,), descending=False
    )
    text = text_of(k.done())
    assert text.index("tma_load_2d(") < text.rindex("y = ")


def test_a_watched_wait_names_its_barrier():
    k = Kernel(("n", int32), debug=True)
    bar = barriers(k, 3)[2]
    k.at(7).emit(mbarrier.wait, bar, k.params[0], None)
    line = next(line for line in text_of(k.done()).splitlines() if "mbar_wait_watched(" in line)
    assert '"kernel.py:7: mbarrier.wait has waited for 2 s on bars[%u]' in line
    assert line.rstrip().endswith("(bars + 16 - bars) / 8);")


def test_neighbours_share_a_predicate():
    k = Kernel(("n", int32))
    bars = barriers(k, 3)
    on = k.emit(arith.cmp, k.params[0], k.number(3), predicate="lt", name="below")
    k.at(2).emit(mbarrier.arrive, bars[0], None)
    for line, bar in zip((10, 20), bars[1:], strict=True):
        k.at(line).emit(mbarrier.arrive, bar, on)
    text = text_of(k.done())
    assert text.count("&& below && elect_one()) {") == 1
    # The branch stands at the line of the first statement in it.
    assert text.index("#line 10") < text.index("&& below &&") < text.index("#line 20")


def test_requests_of_several_warps():
    """Warps that follow one another share a branch; a request of one warp has a number. Predicates come before `elect.sync`."""
    k = Kernel(("n", int32), num_warps=4)
    desc = descriptor(k, "desc")
    (bar,), smem = barriers(k), room(k, float16, 16384, 1024, "smem")
    on = k.emit(arith.cmp, k.params[0], k.number(3), predicate="lt", name="below")
    boxes = tuple(((0, 64 * i), 8192 * i) for i in range(4))
    for pred, first in ((None, 0), (on, 2), (None, 3)):
        k.emit(tma.load, desc, bar, smem, pred, k.number(0), k.number(0), issuers=4, first=first, boxes=boxes)
    text = re.sub(r"#line.*\n", "", text_of(k.done()))
    assert [line.strip() for line in text.splitlines() if "elect_one())" in line and "tma_load" in line] == [
        "if (elect_one()) tma_load_2d(smem + 8192 * warp, &desc, bars, 64 * warp, 0);",
        "if (warp >= 2 && below && elect_one()) tma_load_2d(smem + 8192 * (warp - 2), &desc, bars, 64 * (warp - 2), 0);",
        "if (warp < 2 && below && elect_one()) tma_load_2d(smem + 8192 * (warp + 2), &desc, bars, 64 * (warp + 2), 0);",
        "if (warp == 3 && elect_one()) tma_load_2d(smem, &desc, bars, 0, 0);",
        "if (warp < 3 && elect_one()) tma_load_2d(smem + 8192 * (warp + 1), &desc, bars, 64 * (warp + 1), 0);",
    ]


def test_each_warp_arrives_for_itself():
    """Neighbours share a branch, which no warp enters before all of its threads have come."""
    k = Kernel(("n", int32))
    bars = barriers(k, 3)
    for bar in bars[:2]:
        k.emit(mbarrier.arrive, bar, None, each_warp=True)
    k.emit(mbarrier.arrive, bars[2], None)
    text = re.sub(r"#line.*\n", "", text_of(k.done()))
    assert re.search(
        r"__syncwarp\(\);\s*"
        r"if \(elect_one\(\)\) \{ mbar_arrive\(bars, 1\); mbar_arrive\(bars \+ 8, 1\); \}\s*"
        r"if \(warp == 0 && elect_one\(\)\) mbar_arrive\(bars \+ 16, 1\);",
        text,
    )


@needs_nvrtc
@pytest.mark.parametrize(
    ("arch", "branch"),
    [
        ("sm_80", "if (below && (threadIdx.x & 31u) == 0) mbar_arrive_each(bars, 2);"),
        ("sm_90a", "if (below && elect_one()) mbar_arrive(bars, 2);"),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_each_warp_arrives_under_a_predicate(arch, branch, debug):
    k = Kernel(("n", int32), debug=debug)
    on = k.emit(arith.cmp, k.params[0], k.number(3), predicate="lt", name="below")
    (bar,) = barriers(k)
    k.emit(mbarrier.arrive, bar, on, count=2, each_warp=True)
    func = k.done()
    assert branch in text_of(func, arch)
    assert compiled(func, arch).n_spills == 0

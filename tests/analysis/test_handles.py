from __future__ import annotations

import pytest

from tests.passes.shared import BYTES, TILE, SharedKernel
from weft.analysis.handles import alignment_of, bytes_of, handles
from weft.ir.build import Builder
from weft.ir.core import Func, FuncAttrs, ParamFacts, Value
from weft.ir.types import ScalarType, float16, float32, int32, int64
from weft.layout import NVMMASharedLayout, SwizzledSharedLayout
from weft.ops import arith, control, shared
from weft.ops.check import TypingError

MATRIX = NVMMASharedLayout(128, 32)


def places(k: SharedKernel, handle: Value) -> set[tuple[str, int, int]]:
    """Name of the allocation and its bytes, for each place of a handle."""
    found = handles(k.finished())[handle]
    return {(p.alloc.result.name, p.first, p.end) for p in found}


def test_an_allocation_is_all_of_its_bytes():
    k = SharedKernel()
    a = k.alloc("a", 3)
    assert places(k, a) == {("a", 0, 3 * BYTES)}


def test_sizes_and_alignments():
    k = SharedKernel()
    k.alloc("a", 3)
    k.bars("b", 3)
    k.alloc("m", 2, 8, layout=MATRIX, length=32)
    k.alloc("s", layout=SwizzledSharedLayout(1, 1, 1, [0]), length=2)
    ops = [op for op in k.finished().body.ops if op.kind is shared.alloc]
    assert [(bytes_of(op), alignment_of(op)) for op in ops] == [(768, 128), (24, 8), (2048, 1024), (16, 16)]


def test_an_index_that_is_known_is_one_part():
    k = SharedKernel()
    a = k.alloc("a", 3)
    assert places(k, k.index(a, 1)) == {("a", BYTES, 2 * BYTES)}


def test_an_index_of_two_dimensions():
    k = SharedKernel()
    a = k.alloc("a", 3, 2)
    row = k.index(a, 2)
    assert places(k, k.index(row, 1)) == {("a", 5 * BYTES, 6 * BYTES)}


def test_an_index_at_run_time_is_anywhere():
    k = SharedKernel()
    a = k.alloc("a", 3, 2)
    row = k.index(a, k.n)
    part = k.index(row, 1)
    assert places(k, part) == {("a", 0, 6 * BYTES)}


def test_an_index_outside_is_anywhere():
    k = SharedKernel()
    a = k.alloc("a", 3)
    assert places(k, k.index(a, 3)) == {("a", 0, 3 * BYTES)}


def test_a_slice_of_stages_and_its_parts():
    k = SharedKernel()
    a = k.alloc("a", 4)
    some = k.emit(shared.slice, a, start=1, length=2, dim=0)
    part = k.index(some, 1)
    func = k.finished()
    found = handles(func)
    assert [(p.first, p.end) for p in found[some]] == [(BYTES, 3 * BYTES)]
    assert [(p.first, p.end) for p in found[part]] == [(2 * BYTES, 3 * BYTES)]


def test_stages_keep_their_steps():
    """No view has steps between tiles that its type does not tell."""
    k = SharedKernel()
    a = k.alloc("a", 2, 4)
    whole = k.emit(shared.slice, a, start=0, length=4, dim=1)
    with pytest.raises(TypingError, match="part along dimension 1"):
        k.emit(shared.slice, a, start=0, length=1, dim=1)
    with pytest.raises(TypingError, match="stay where they are"):
        k.emit(shared.permute, a, order=(1, 0, 2), layout=TILE)
    assert places(k, k.index(whole, 1)) == {("a", 4 * BYTES, 8 * BYTES)}


def test_a_slice_of_a_tile_lies_anywhere_in_the_tile():
    k = SharedKernel()
    a = k.alloc("a", 2)
    half = k.emit(shared.slice, k.index(a, 1), start=32, length=32, dim=0)
    assert places(k, half) == {("a", BYTES, 2 * BYTES)}


def test_permuted_and_reshaped_memory_is_the_same():
    k = SharedKernel()
    a = k.alloc("a", 2, 8, layout=MATRIX, length=32)
    turned = k.emit(shared.permute, k.index(a, 1), order=(1, 0), layout=NVMMASharedLayout(128, 32, transposed=True))
    flat = k.emit(shared.reshape, k.index(a, 1), shape=(256,), layout=TILE)
    found = handles(k.finished())
    assert [(p.first, p.end) for h in (turned, flat) for p in found[h]] == [(1024, 2048)] * 2


def test_other_types_reach_as_far_as_they_say():
    k = SharedKernel()
    a = k.alloc("a", 4)
    narrow = k.emit(
        shared.reinterpret, k.index(a, 1), element=float16, shape=(64,), layout=NVMMASharedLayout(0, 16, rank=1)
    )
    wide = k.emit(shared.reinterpret, k.index(a, 1), element=float32, shape=(2, 64), layout=TILE)
    beyond = k.emit(shared.reinterpret, k.index(a, 1), element=float32, shape=(9, 64), layout=TILE)
    found = handles(k.finished())
    assert [(p.first, p.end) for h in (narrow, wide, beyond) for p in found[h]] == [(256, 384), (256, 768), (256, 1024)]


def test_other_types_of_a_part_of_a_tile_may_start_anywhere_in_it():
    k = SharedKernel()
    a = k.alloc("a", 2)
    half = k.emit(shared.slice, k.index(a, 1), start=32, length=32, dim=0)
    other = k.emit(shared.reinterpret, half, element=float16, shape=(64,), layout=NVMMASharedLayout(0, 16, rank=1))
    assert places(k, other) == {("a", BYTES, 2 * BYTES)}


def test_what_a_loop_carries():
    k = SharedKernel()
    a, b, c = k.alloc("a"), k.alloc("b"), k.alloc("c")
    with k.region([ScalarType(int32), a.type, a.type]) as body:
        _, first, second = body.args
        k.emit(control.yield_, second, c)
    results = k.emit(control.for_, k.zero, k.n, k.number(1), a, b, descending=False, regions=(body.done,))
    found = handles(k.finished())
    names = {v: {p.alloc.result.name for p in found[v]} for v in (first, second, *results)}
    assert names == {first: {"a", "b", "c"}, second: {"b", "c"}, results[0]: {"a", "b", "c"}, results[1]: {"b", "c"}}


def test_what_a_while_carries():
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b")
    with k.region([a.type]) as before:
        k.emit(control.condition, k.emit(arith.cmp, k.n, k.zero, predicate="lt"), before.args[0])
    with k.region([a.type]) as after:
        k.emit(control.yield_, b)
    result = k.emit(control.while_, a, regions=(before.done, after.done))
    found = handles(k.finished())
    assert all({p.alloc.result.name for p in found[v]} == {"a", "b"} for v in (result, *before.args, *after.args))


def test_what_branches_give():
    k = SharedKernel()
    a, b = k.alloc("a"), k.alloc("b", 2)
    with k.region() as then:
        k.emit(control.yield_, a)
    with k.region() as orelse:
        k.emit(control.yield_, k.index(b, 1))
    test = k.emit(arith.cmp, k.n, k.zero, predicate="lt")
    either = k.emit(control.if_, test, regions=(then.done, orelse.done))
    assert places(k, either) == {("a", 0, BYTES), ("b", BYTES, 2 * BYTES)}


def test_what_partitions_give():
    k = SharedKernel()
    a = k.alloc("a")
    with k.region() as default:
        k.emit(control.yield_, a)
    worker = k.inside(lambda: None)
    result = k.emit(control.warp_specialize, regions=(default.done, worker), num_warps=(4,), num_regs=())
    assert places(k, result) == {("a", 0, BYTES)}


def test_views_of_scratch_memory():
    build = Builder()
    n = Value(ScalarType(int32), "n")
    memory = build.emit(shared.scratch, dtype=float32, count=16, tag=0)
    eight = build.emit(arith.constant, value=8, type=ScalarType(int32))
    known = build.emit(shared.view, memory, eight, element=int64, count=2)
    unknown = build.emit(shared.view, memory, n, element=int64, count=2)
    inner = build.emit(shared.view, known, eight, element=int64, count=1)
    beyond = build.emit(shared.view, known, eight, element=int64, count=100)
    build.emit(control.return_)
    found = handles(build.func("k", (n,), FuncAttrs(num_warps=4, stage="lowered", params=(ParamFacts(),))))
    assert [(p.first, p.end) for v in (known, unknown, inner, beyond) for p in found[v]] == [
        (8, 24), (0, 64), (16, 24), (16, 64),
    ]  # fmt: skip


def test_a_function_without_handles():
    k = SharedKernel()
    func: Func = k.finished()
    assert handles(func) == {}

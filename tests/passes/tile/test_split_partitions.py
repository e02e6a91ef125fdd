"""Warp specialisation through the passes: nothing crosses partitions, and one program comes out for each group of warps."""

from __future__ import annotations

import pytest

from tests.lang.support import INT, POINTER, jit, read
from weft import language as gl
from weft import targets
from weft.analysis.facts import facts
from weft.analysis.scopes import scopes
from weft.errors import UserError
from weft.ir.core import walk
from weft.ir.types import Pointer, int1, int32
from weft.ir.verify import verify
from weft.lang import RuntimeParam
from weft.ops import arith, control, memory, program, shared, sync, tile
from weft.ops.control import run_by
from weft.passes.dce import dce
from weft.passes.lower import lower_tiles
from weft.passes.lowered.allocate_scratch import allocate_scratch
from weft.passes.simplify import simplify
from weft.passes.tile.resolve_layouts import resolve_layouts
from weft.passes.tile.split_partitions import split_partitions

SM90 = targets.get("sm_90a")
INTS = RuntimeParam(Pointer(int32), divisible=16)


def partitions_of(func):
    """The one operation that a function of several partitions consists of, beside memory that they share."""
    *allocs, op, end = func.body.ops
    assert {alloc.kind for alloc in allocs} <= {shared.alloc, shared.array, arith.constant}
    assert (op.kind, end.kind) == (control.partitions, control.return_)
    return op


def kinds(region, *kinds):
    return [op.kind for op in walk(region) if op.kind in kinds]


def split_func(kernel, **params):
    made = split_partitions(simplify(read(kernel, **params)), SM90)
    verify(made)
    return made


def split(kernel, **params):
    return partitions_of(split_func(kernel, **params))


@jit
def nothing():
    return


@jit
def add(ptr, x):
    at = gl.arange(0, 128, gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    gl.store(ptr + at, gl.load(ptr + at) + x)


# Splitting


@jit
def one_after_another(ptr, n):
    m = n * 2
    gl.warp_specialize([(add, (ptr, m)), (add, (ptr + 128, m))], [2])
    gl.store(ptr, m)


def test_each_partition_runs_from_begin_to_end():
    op = split(one_after_another, ptr=INTS, n=INT)
    default, worker = op.regions
    assert {name: op.attrs[name] for name in op.attrs} == {
        "first_warps": (0, 4), "num_warps": (4, 2), "num_regs": (0, 0),
    }  # fmt: skip
    work = (sync.block_barrier, memory.load, memory.store)
    assert kinds(default, *work) == [
        sync.block_barrier, memory.load, memory.store, sync.block_barrier, memory.store,
    ]  # fmt: skip
    assert kinds(worker, *work) == [sync.block_barrier, memory.load, memory.store, sync.block_barrier]


def test_workers_compute_again_what_is_simple():
    worker = split(one_after_another, ptr=INTS, n=INT).regions[1]
    assert kinds(worker, arith.mul) == [arith.mul]
    assert not kinds(worker, shared.alloc)


def test_attributes_of_the_function():
    func = split_partitions(read(one_after_another, ptr=INTS, n=INT), SM90)
    assert (func.attrs.num_warps, func.attrs.total_warps) == (4, 6)
    assert not func.attrs.registers


@jit
def loaded(ptr, flags, n):
    x = gl.load(ptr)
    flag = gl.load(flags)
    for _ in range(n):
        x += 1
    where = ptr + x
    gl.warp_specialize([(nothing, ()), (add, (gl.to_tensor(where), x)), (guarded, (ptr, flag))], [2, 1])


@jit
def guarded(ptr, flag):
    if flag:
        gl.store(ptr, 1)


def test_what_cannot_be_computed_again_goes_through_shared_memory():
    func = split_func(loaded, ptr=INTS, flags=RuntimeParam(Pointer(int1)), n=INT)
    default, first, second = partitions_of(func).regions
    allocs = [o for o in func.body.ops if o.kind is shared.alloc]
    assert [(o.attrs["tag"], o.attrs["offset"], o.result.name) for o in allocs] == [(1, 0, "x"), (2, 16, "flag")]
    assert func.attrs.shared_bytes == 32
    stores = [o for o in default.ops if o.kind is shared.store]
    assert [o.operands[0] for o in stores] == [o.result for o in allocs]
    # Before all threads meet.
    assert default.ops.index(stores[1]) < [o.kind for o in default.ops].index(sync.block_barrier)
    for worker, alloc in zip((first, second), allocs, strict=True):
        assert kinds(worker, sync.block_barrier, shared.load)[:2] == [sync.block_barrier, shared.load]
        assert [o.operands for o in walk(worker) if o.kind is shared.load] == [(alloc.result,)]
    assert not kinds(first, control.for_)
    # The address is computed again from the loaded number; a bool lies in memory as a byte.
    assert kinds(first, memory.addptr)
    assert [o.result.type.element.name for o in walk(second) if o.kind is arith.cast] == ["int1"]


def test_memory_that_the_author_has_stays_free():
    func = read(loaded, ptr=INTS, flags=RuntimeParam(Pointer(int1)), n=INT).with_attrs(shared_bytes=1000)
    made = split_partitions(func, SM90)
    offsets = {o.attrs["offset"] for o in walk(made.body) if o.kind is shared.alloc}
    assert offsets == {1008, 1024}
    assert made.attrs.shared_bytes == 1040


@jit
def chosen(ptr, n):
    memory = gl.allocate_shared_memory(gl.int32, [2, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    part = memory.index(0)
    for i in range(n):
        part = memory.index(i)
    gl.warp_specialize([(nothing, ()), (fill, (part,))], [1])


@jit
def fill(part):
    part.store(gl.zeros([128], gl.int32, gl.BlockedLayout([1], [32], [gl.num_warps()], [0])))


@jit
def indexed(ptr, n):
    memory = gl.allocate_shared_memory(gl.int32, [2, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    i = gl.load(ptr)
    gl.warp_specialize([(nothing, ()), (fill, (memory.index(i),))], [1])


def test_handles_are_computed_again():
    func = split_func(indexed, ptr=INTS, n=INT)
    default, worker = partitions_of(func).regions
    assert kinds(worker, shared.index, shared.load) == [shared.load, shared.index]
    assert not kinds(default, shared.alloc)
    tags = [o.attrs["tag"] for o in func.body.ops if o.kind is shared.alloc]
    assert len(tags) == len(set(tags)) == 2


def test_handles_that_control_flow_chose_are_refused():
    with pytest.raises(UserError, match="a handle that is chosen by run-time control flow") as caught:
        split(chosen, ptr=INTS, n=INT)
    assert caught.value.code == "partitions-worker-handle"
    assert "'part'" in caught.value.message


@jit
def in_turns(ptr, n):
    a = gl.warp_specialize([(count, (n,)), (add, (ptr, 1)), (add, (ptr, 2))], [1, 2])
    gl.warp_specialize([(nothing, ()), (add, (ptr, a)), (add, (ptr, 4)), (add, (ptr, 5))], [2, 2, 4])


@jit
def count(n):
    return n + 1


def test_workers_run_in_turns():
    op = split(in_turns, ptr=INTS, n=INT)
    # A role of one warp, two of two (the second is idle at first), one of four at a multiple of four.
    assert op.attrs["num_warps"] == (4, 1, 2, 2, 4)
    assert op.attrs["first_warps"] == (0, 12, 8, 10, 4)
    meets = sync.block_barrier
    work = [[k is meets for k in kinds(region, meets, memory.store)] for region in op.regions[1:]]
    assert work == [
        [True, False, True, True, True],
        [True, False, True, True, False, True],
        [True, True, True, False, True],
        [True, True, True, False, True],
    ]
    # What the first one returned is computed again by who needs it.
    assert [len(kinds(region, arith.add)) for region in op.regions] == [1, 1, 3, 1, 1]


# Passes before the split


@jit
def repeat(ptr):
    at = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(ptr + at, gl.warp_id())
    gl.store(ptr + at, gl.load(ptr + at) * 2)


@jit
def repeated(ptr):
    at = gl.arange(0, 128, gl.BlockedLayout([1], [32], [4], [0]))
    gl.store(ptr + at, gl.warp_id())
    gl.warp_specialize([(repeat, (ptr,)), (repeat, (ptr,))], [4])


def test_nothing_is_shared_between_partitions():
    """Equal operations are equal within one partition only: threads of another hold other elements and have other numbers."""
    func = simplify(read(repeated, ptr=INTS))
    op = next(op for op in func.body.ops if op.kind is control.warp_specialize)
    for region in op.regions:
        assert kinds(region, tile.arange, program.warp_id) == [tile.arange, program.warp_id]
        made = {*func.params, *(value for o in walk(region) for value in o.results)}
        assert made.issuperset(value for o in walk(region) for value in o.uses)


@jit
def unused(n):
    return n + 1, n * 2


@jit
def half_used(ptr, n):
    _, b = gl.warp_specialize([(unused, (n,)), (add, (ptr, n))], [1])
    gl.store(ptr, b)


def test_results_that_nobody_uses_go():
    func = dce(read(half_used, ptr=INTS, n=INT))
    verify(func)
    op = next(op for op in func.body.ops if op.kind is control.warp_specialize)
    assert len(op.results) == 1
    assert kinds(op.regions[0], arith.add, arith.mul) == [arith.mul]
    assert kinds(op.regions[1], memory.store) == [memory.store]


@jit
def coalesced(ptr):
    at = gl.arange(0, 1024, gl.CoalescedLayout())
    gl.store(ptr + at, gl.load(ptr + at))
    return at


@jit
def coalesced_worker(ptr):
    coalesced(ptr)


@jit
def open_layouts(ptr):
    at = gl.warp_specialize([(coalesced, (ptr,)), (coalesced_worker, (ptr,))], [1])
    gl.store(ptr + at, at)


def test_layouts_are_found_for_the_warps_of_the_partition():
    func = resolve_layouts(read(open_layouts, ptr=INTS), SM90)
    verify(func)
    op = next(op for op in func.body.ops if op.kind is control.warp_specialize)
    first, second = ([o.result.type.layout for o in region.ops if o.kind is tile.arange] for region in op.regions)
    assert first == [gl.BlockedLayout([4], [32], [4], [0])]
    assert second == [gl.BlockedLayout([4], [32], [1], [0])]
    assert op.result.type.layout == first[0]
    assert {warps for o, warps in run_by(func) if o.kind is memory.load} == {4, 1}


@jit
def aligned(ptr, n):
    return n * 16


@jit
def known(ptr, n):
    m = gl.warp_specialize([(aligned, (ptr, n)), (add, (ptr, n))], [1])
    gl.store(ptr, m)


def test_what_is_known_of_results():
    func = read(known, ptr=INTS, n=INT)
    op = next(op for op in func.body.ops if op.kind is control.warp_specialize)
    assert facts(func)[op.result].every == 16


# Lowering


def test_each_partition_has_an_entry_of_its_own():
    func = lower_tiles(split_partitions(simplify(read(one_after_another, ptr=INTS, n=INT)), SM90), SM90)
    verify(func)
    op = partitions_of(func)
    for region, warps in zip(op.regions, op.attrs["num_warps"], strict=True):
        assert kinds(region, program.thread_id) == [program.thread_id]
        assert region.ops.index(next(o for o in region.ops if o.kind is program.thread_id)) < 3
        (load,) = (o for o in walk(region) if o.kind is memory.load_regs)
        assert load.result.type.count == 128 // (32 * warps)
    assert scopes(func)


def test_conversions_in_partitions_take_memory_of_their_own():
    @jit
    def turn(ptr):
        rows = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
        columns = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
        x = gl.load(ptr + gl.arange(0, 1024, rows))
        gl.store(ptr + gl.arange(0, 1024, columns), gl.convert_layout(x, columns))

    @jit
    def kernel(ptr):
        gl.warp_specialize([(turn, (ptr,)), (turn, (ptr + 1024,))], [2])

    func = split_partitions(simplify(read(kernel, ptr=POINTER)), SM90)
    made = partitions_of(allocate_scratch(dce(lower_tiles(func, SM90)), SM90))
    spans = [
        {
            (o.attrs["offset"], o.attrs["offset"] + 4 * o.attrs["count"])
            for o in walk(region)
            if o.kind is shared.scratch
        }
        for region in made.regions
    ]
    ((a, b),), ((c, d),) = spans
    assert b <= c or d <= a

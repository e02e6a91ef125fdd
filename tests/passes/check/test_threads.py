"""What blocks of threads can run, which addresses vectors can have, and who may stand where."""

from __future__ import annotations

import pytest

from tests.passes.threads import Threads, flag, pointers, tiled
from weft.analysis.scopes import scopes
from weft.errors import CompilationError
from weft.ir.core import ParamFacts
from weft.ir.types import float16, float32, int32
from weft.layout import BlockedLayout, SwizzledSharedLayout
from weft.ops import arith, control, program, regs, shared, thread, tile, warp


def refused(k: Threads, code: str) -> str:
    with pytest.raises(CompilationError) as error:
        tiled(k.done())
    assert error.value.code == code
    return str(error.value)


# Blocks


def with_tile(block: tuple[int, ...]) -> Threads:
    k = Threads(*pointers("p"), block=block)
    warps = 1 << (k.attrs["num_warps"] - 1).bit_length()
    offsets = k.emit(tile.arange, start=0, end=64, layout=BlockedLayout([1], [32], [warps], [0]))
    held = k.at(7).emit(thread.fragment, offsets)
    count = held.type.count
    k.emit(thread.store_local, k.own(int32, count, "own"), None, held, None, offsets=tuple(range(count)))
    return k


@pytest.mark.parametrize(
    ("block", "threads", "instead"), [((100,), 100, 128), ((32, 3), 96, 128), ((8, 8, 3), 192, 256)]
)
def test_tiles_need_a_power_of_two_of_warps(block, threads, instead):
    says = refused(with_tile(block), "thread-block-warps")
    assert f"the block has {threads} threads" in says and f"block=({instead},)" in says
    assert "whole warps, a power of two of them" in says


@pytest.mark.parametrize("block", [(32,), (16, 8), (256,)])
def test_tiles_in_blocks_that_have_them(block):
    tiled(with_tile(block).done())


def test_what_warps_do_together_needs_whole_ones():
    k = Threads(*pointers("p"), block=(40,))
    k.store(k.params[0], 0, k.at(3).emit(warp.shuffle_xor, k.load(k.params[0], 0), mask=1))
    says = refused(k, "thread-block-warps")
    assert "a shuffle needs whole warps, but the block has 40 threads" in says and "block=(64,)" in says


def test_three_warps_exchange_values():
    k = Threads(*pointers("p"), block=(96,))
    k.store(k.params[0], 0, k.emit(warp.shuffle_xor, k.load(k.params[0], 0), mask=1))
    tiled(k.done())


def test_which_array_is_known():
    k = Threads(("on", int32))
    a, b = k.own(float32, 4, "a"), k.own(float32, 4, "b")
    with k.region() as then:
        k.emit(control.yield_, a)
    with k.region() as orelse:
        k.emit(control.yield_, b)
    either = k.emit(control.if_, k.less(k.params[0], 0), regions=(then.done, orelse.done), name="either")
    k.write(either, 0, k.number(0.0, float32))
    assert "'either' is one of several thread-local arrays" in refused(k, "thread-local-chosen")


# Alignment


def vector_load(divisible: int, vec: int, offset: int = 0, dtype=float32) -> Threads:
    k = Threads(*pointers("p", dtype=dtype))
    k.attrs["params"] = (ParamFacts(divisible) if divisible else ParamFacts(),)
    start = k.plus(k.times(k.emit(program.thread_id), vec), offset)
    own = k.own(dtype, vec, "own")
    value = k.at(4).load(k.params[0], start, vec)
    value = value if vec > 1 else k.emit(regs.concat, value)
    k.emit(thread.store_local, own, None, value, None, offsets=tuple(range(vec)))
    return k


@pytest.mark.parametrize(("divisible", "vec", "dtype"), [(4, 4, float32), (2, 8, float16), (8, 4, float32)])
def test_arguments_that_are_not_aligned(divisible, vec, dtype):
    says = refused(vector_load(divisible, vec, dtype=dtype), "thread-misaligned")
    assert "the argument p is one, but the address of p itself is only known to be a multiple of" in says
    assert f"{vec} elements of {dtype.name}" in says and f"at most {divisible // dtype.itemsize}" in says


@pytest.mark.parametrize(("divisible", "vec", "offset"), [(16, 4, 0), (4, 4, 3), (4, 1, 0), (4, 2, 0), (0, 4, 0)])
def test_addresses_that_may_fit(divisible, vec, offset):
    """An aligned argument; one whose offset may make up for it; one element; one that may have half the alignment; no facts."""
    tiled(vector_load(divisible, vec, offset).done())


# Scopes


def test_vectors_and_memory_have_scopes():
    k = Threads(*pointers("p"))
    k.emit(regs.splat, k.number(1.0, float32), count=2, name="same")
    v = k.load(k.params[0], 0, 2, name="v")
    element = k.emit(regs.extract, v, index=0, name="element")
    own, room = k.own(float32, 2, "own"), k.share(float32, 2, "room")
    k.write(own, 0, element)
    k.emit(regs.extract, k.emit(thread.load_local, own, None, offsets=(0,)), index=0, name="mine")
    k.emit(regs.extract, k.emit(thread.load_shared, room, k.number(0), None, offsets=(0,), vec=1), index=0, name="read")
    k.emit(regs.extract, k.emit(regs.splat, k.number(1.0, float32), count=2), index=1, name="number")
    found = {value.name: scope for value, scope in scopes(k.done()).items() if value.name not in ("", "p")}
    assert found == {"element": "thread", "mine": "thread", "read": "thread", "number": "block"}


def test_a_loop_of_threads_does_not_hold_a_barrier():
    k = Threads(*pointers("p"))
    v = k.load(k.params[0], 0, 2)
    more = k.emit(arith.cmp, k.emit(regs.extract, v, index=0), k.number(0.0, float32), predicate="gt")
    with k.when(more):
        k.at(9).barrier()
    assert "gl.barrier() must be executed by the whole block" in refused(k, "control-scope")


def test_copies_of_some_threads():
    """Each thread waits for its own; the barrier after it is for all."""
    k = Threads(*pointers("x"))
    room = k.share(float32, 512, "room")
    with k.when(flag(k)):
        k.copy(room, 0, k.params[0], 0, 4)
        k.arrived()
    k.barrier()
    tiled(k.done())


def test_threads_share_one_memory():
    k = Threads()
    a, b = (
        k.emit(shared.alloc, element=float32, shape=(32,), layout=SwizzledSharedLayout(1, 1, 1, [0]), tag=i)
        for i in (1, 2)
    )
    a, b = (k.emit(thread.shared_of, handle) for handle in (a, b))
    with k.region() as then:
        k.emit(control.yield_, a)
    with k.region() as orelse:
        k.emit(control.yield_, b)
    either = k.emit(control.if_, flag(k), regions=(then.done, orelse.done), name="either")
    k.at(5).put(either, 0, k.number(0.0, float32))
    says = refused(k, "async-operand-scope")
    assert "thread.store_shared executes once for the whole block, but 'either' may differ in each thread" in says

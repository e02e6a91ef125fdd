"""What the simulator reports, and that it reports nothing about kernels that are right."""

from __future__ import annotations

import numpy as np
import pytest

from tests.errors.hazards import N, X, out, report, two_pointers
from tests.sim.build import Kernel, buffer, pointer, run
from weft.errors import LaunchError, Loc, hazard
from weft.ir.core import Value
from weft.ir.types import ScalarType, float32, int32, int64
from weft.layout import BlockedLayout
from weft.ops import arith, control, debug, memory, program, shared, tile


def masked_load(k: Kernel, below: int = 100) -> tuple[Value, Value, Value]:
    """Offsets, mask and a load that leaves elements from `below` on undefined, at line 5."""
    offsets = k.arange(N)
    mask = k.below(offsets, below)
    k.at(5)
    return offsets, mask, k.load(k.params[0], offsets, mask)


# Bounds


@pytest.mark.parametrize("size", [100, 127])
def test_read_out_of_bounds(size):
    k = two_pointers()
    offsets = k.arange(N)
    k.at(5)
    loaded = k.load(k.params[0], offsets)
    k.at(6)
    k.store(k.params[1], offsets, loaded)
    error = report("hazard-out-of-bounds", hazard.OutOfBounds, k, X[:size].copy(), out(), grid=(2,))
    assert f"program (0, 0, 0) reads x[{size}], but x has elements 0 to {size - 1}" in error.message
    assert f"{N - size} of the {N} elements accessed here are outside, the first at index {size}" in error.message
    assert error.loc.line == 5
    assert f"below {size}" in error.fix


def test_write_out_of_bounds_in_a_later_program():
    k = two_pointers()
    pid = k.emit(program.program_id, axis=0)
    offsets = k.arange(N)
    shifted = k.add(offsets, k.splat(k.mul(pid, k.number(N)), offsets))
    k.at(9)
    k.store(k.params[1], shifted, offsets)
    error = report("hazard-out-of-bounds", hazard.OutOfBounds, k, X, out(), grid=(3,))
    assert "program (1, 0, 0) writes out[128]" in error.message
    assert error.loc.line == 9


def test_negative_index_before_and_inside_storage():
    def kernel() -> Kernel:
        k = two_pointers()
        k.store(k.params[1], k.number(0), k.load(k.params[0], k.number(-3)))
        return k

    error = report("hazard-out-of-bounds", hazard.OutOfBounds, kernel(), X, out())
    assert error.message.endswith("reads x[-3], but x has elements 0 to 127")
    assert "at or above 0" in error.fix
    whole = buffer("x", X)
    whole.offset = 8
    error = report("hazard-out-of-bounds", hazard.OutOfBounds, kernel(), whole, out())
    assert "x has elements -2 to 125" in error.message
    whole.offset = 12
    run(kernel().done(), whole, out())


def test_far_offsets_never_land_in_another_argument():
    k = two_pointers()
    far = k.emit(arith.constant, value=1 << 42, type=ScalarType(int64))
    k.store(k.params[1], far, k.number(1))
    k.at(2)
    error = report("hazard-no-buffer", hazard.OutOfBounds, k, X, out())
    assert "lies in no argument's memory" in error.message


def test_masked_off_elements_are_not_checked():
    k = two_pointers()
    offsets, mask, loaded = masked_load(k)
    k.store(k.params[1], offsets, loaded, mask)
    target = out()
    run(k.done(), X[:100].copy(), target[:100])
    np.testing.assert_array_equal(target[:100], X[:100])


def test_misaligned_pointer():
    raw = np.zeros(64, np.uint8)
    shifted = buffer("x", raw)
    shifted.offset += 2
    shifted.address_low += 2
    k = Kernel(("x", pointer(int32)))
    k.store(k.params[0], k.number(0), k.number(1))
    error = report("hazard-misaligned", hazard.Misaligned, k, shifted)
    assert "writes 4 bytes of x at byte 0, whose address lies 2 past a multiple of 4" in error.message


def test_read_only_array():
    frozen = X.copy()
    frozen.flags.writeable = False
    k = two_pointers()
    k.store(k.params[0], k.number(0), k.load(k.params[0], k.number(1)))
    error = report("hazard-read-only", LaunchError, k, frozen, out())
    assert "writes x" in error.message


def test_gather_out_of_range():
    k = two_pointers()
    offsets = k.arange(N)
    k.emit(tile.gather, k.load(k.params[0], offsets), k.add(offsets, k.number(1, offsets)), axis=0)
    error = report("hazard-gather-range", hazard.OutOfBounds, k, X, out())
    assert "gathers index 128 along axis 0 of length 128, at index 127" in error.message


def test_scratch_out_of_range():
    k = Kernel(stage="lowered", shared_bytes=0)
    memory_ = k.emit(shared.scratch, dtype=int32, count=8, tag=0)
    k.emit(shared.load_regs, memory_, k.emit(program.lane_id), offsets=(0,), registers=((0,),), vec=1)
    error = report("hazard-shared-range", hazard.OutOfBounds, k)
    assert "reads bytes 0 to 127 of the compiler's scratch memory, which has 32 bytes" in error.message


# Undefined elements


def test_undefined_reaches_a_store():
    k = two_pointers()
    offsets, _, loaded = masked_load(k)
    doubled = k.add(loaded, loaded)
    k.at(6)
    k.store(k.params[1], offsets, doubled)
    error = report("hazard-undefined", hazard.UndefinedValue, k, X, out())
    assert "an undefined element reaches a store (index 100)" in error.message
    assert "no `other`" in error.message
    assert error.loc.line == 6
    assert [loc.line for _, loc in error.related] == [5]


@pytest.mark.parametrize("sink", ["address", "branch", "bound", "atomic", "mask", "loop", "assertion", "histogram"])
def test_undefined_reaches(sink):
    k = two_pointers()
    offsets, _, loaded = masked_load(k)
    scalar = k.load(k.params[0], k.number(0), k.below(k.number(1), 0))
    flag = k.below(scalar, 3)
    k.at(6)
    with k.region() as empty:
        k.emit(control.yield_)
    with k.region([ScalarType(int32)]) as body:
        k.emit(control.yield_)
    with k.region() as condition:
        k.emit(control.condition, flag)
    if sink == "address":
        k.load(k.params[0], loaded)
    elif sink == "branch":
        k.emit(control.if_, flag, regions=(empty.done, empty.done))
    elif sink == "bound":
        k.emit(control.for_, k.number(0), scalar, k.number(1), descending=False, regions=(body.done,))
    elif sink == "atomic":
        k.emit(memory.atomic, k.address(k.params[1], offsets), loaded, None, kind="add")
    elif sink == "mask":
        k.store(k.params[1], offsets, offsets, k.below(loaded, 5))
    elif sink == "loop":
        k.emit(control.while_, regions=(condition.done, empty.done))
    elif sink == "assertion":
        k.emit(debug.assert_, flag, None, message="")
    else:
        k.emit(tile.histogram, loaded, None, bins=128, layout=offsets.type.layout)
    error = report("hazard-undefined", hazard.UndefinedValue, k, X, out())
    assert error.loc.line == 6
    words = {"bound": "a loop bound", "loop": "a loop condition", "address": "an address", "branch": "a branch"}
    assert words.get(sink, sink) in error.message


def test_undefined_through_a_sum():
    k = two_pointers()
    _, _, loaded = masked_load(k)
    total = _sum(k, loaded)
    k.store(k.params[1], k.number(0), total)
    error = report("hazard-undefined", hazard.UndefinedValue, k, X, out())
    assert [loc.line for _, loc in error.related] == [5]


def test_undefined_reaches_a_dot():
    layout = BlockedLayout([1, 1], [4, 8], [2, 2], [1, 0])
    from weft.layout import DotOperandLayout

    k = Kernel(("x", pointer(float32)))
    offsets = k.grid_offsets((16, 16), 16, layout)
    loaded = k.load(k.params[0], offsets, k.below(offsets, 200))
    a = k.emit(tile.convert, loaded, layout=DotOperandLayout(0, layout, 0))
    b = k.emit(tile.convert, loaded, layout=DotOperandLayout(1, layout, 0))
    k.emit(tile.dot_fma, a, b, k.number(0.0, loaded))
    error = report("hazard-undefined", hazard.UndefinedValue, k, np.zeros(256, np.float32))
    assert "reaches a dot (index (12, 8))" in error.message


def _sum(k: Kernel, value: Value) -> Value:
    element = ScalarType(value.type.element)
    with k.region([element, element]) as region:
        k.emit(control.yield_, k.add(*region.args))
    return k.emit(tile.reduce, value, axis=0, regions=(region.done,))


def test_undefined_elements_that_do_not_count():
    """Masked again, chosen away, or decided by the other side of an `and`."""
    k = two_pointers()
    offsets, mask, loaded = masked_load(k)
    kept = k.emit(arith.select, mask, loaded, k.number(0, loaded))
    k.store(k.params[1], offsets, kept)
    both = k.emit(arith.and_, mask, k.below(loaded, 50))
    k.store(k.params[1], offsets, loaded, both)
    either = k.emit(arith.or_, k.emit(arith.xor, mask, k.number(True, mask)), k.below(loaded, 50))
    k.store(k.params[1], offsets, k.number(7, offsets), either)
    target = out()
    run(k.done(), X, target)
    np.testing.assert_array_equal(target, np.where(X < 50, 7, np.where(X < 100, X, 7)))


# Arithmetic, assertions, loops


def test_division_by_zero():
    k = two_pointers()
    offsets = k.arange(N)
    k.at(5)
    quotient = k.emit(arith.div, offsets, k.load(k.params[0], offsets))
    k.at(6)
    k.store(k.params[1], offsets, quotient)
    error = report("hazard-division-by-zero", hazard.DivisionByZero, k, X, out())
    assert "divides by zero (index 0)" in error.message
    assert error.loc.line == 5


def test_division_by_zero_where_it_does_not_count():
    k = two_pointers()
    offsets = k.arange(N)
    divisor = k.load(k.params[0], offsets)
    k.store(k.params[1], offsets, k.emit(arith.rem, offsets, divisor), k.cmp("gt", divisor, k.number(0, divisor)))
    run(k.done(), X, out())


def test_assertion():
    k = two_pointers()
    offsets, mask, loaded = masked_load(k)
    k.emit(debug.assert_, k.below(loaded, 100), mask, message="never seen")
    k.at(11)
    k.emit(debug.assert_, k.below(offsets, 77), None, message="too far")
    error = report("hazard-assertion", hazard.AssertionFailed, k, X, out())
    assert error.message == "program (0, 0, 0): assertion failed at index 77: too far"
    assert error.loc.line == 11


def test_loop_without_end():
    k = Kernel(("step", int32))
    with k.region([ScalarType(int32)]) as body:
        k.emit(control.yield_)
    k.emit(control.for_, k.number(0), k.number(5), k.params[0], descending=False, regions=(body.done,))
    error = report("hazard-loop-step", hazard.EndlessLoop, k, 0)
    assert "from 0 to 5 has step 0" in error.message


def test_unknown_inline_asm():
    from weft.ops import asm

    k = two_pointers()
    offsets = k.arange(N)
    k.emit(
        asm.inline_asm, offsets, asm="vabsdiff4.u32.u32.u32 $0, $1, $1, 0;", constraints="=r,r", dtypes=(int32,), pack=1
    )
    error = report("hazard-inline-asm", hazard.NotSimulated, k, X, out())
    assert "vabsdiff4" in error.message
    assert "sim=" in error.fix


# Waiting


def spin_until(k: Kernel, ptr: Value, index: Value, wanted: int) -> None:
    """`while load(ptr + index) != wanted: pass`, counting its turns."""
    with k.region([ScalarType(int32)]) as condition:
        seen = k.watch(ptr, index)
        k.emit(control.condition, k.cmp("ne", seen, k.number(wanted)), condition.args[0])
    with k.region([ScalarType(int32)]) as body:
        k.emit(control.yield_, k.add(body.args[0], k.number(1)))
    k.emit(control.while_, k.number(0), regions=(condition.done, body.done))


def test_deadlock_counts_those_that_wait_at_one_line():
    k = Kernel(("flags", pointer(int32)))
    pid = k.emit(program.program_id, axis=0)
    k.loc = Loc("<kernel>", 12, function="kernel")
    spin_until(k, k.params[0], pid, 1)
    error = report("hazard-deadlock", hazard.Deadlock, k, np.zeros(4, np.int32), grid=(3,))
    assert "3 programs wait" in error.message
    ((label, loc),) = error.related
    assert label == "program (0, 0, 0) waits for flags[0], which holds 0; so do 2 other programs at this line"
    assert loc.line == 12
    assert "to flags[0] in a program that does not wait: no other line may write it" in error.fix


@pytest.mark.parametrize("shared", [False, True])
def test_deadlock_on_a_flag_lists_what_may_write_it(shared):
    """Through the argument itself, and through another one over the same memory."""
    k = Kernel(("flags", pointer(int32)), ("others", pointer(int32)))
    pid = k.emit(program.program_id, axis=0)
    k.loc = Loc("<kernel>", 12, function="kernel")
    spin_until(k, k.params[0], pid, 1)
    for line, param in ((20, 0), (30, 1)):
        k.loc = Loc("<kernel>", line, function="kernel")
        k.signal(k.params[param], pid)
    flags = np.zeros(4, np.int32)
    others = flags if shared else np.zeros(4, np.int32)
    error = report("hazard-deadlock", hazard.Deadlock, k, flags, others, grid=(3,))
    waits, *writers = error.related
    assert "waits for flags[0]" in waits[0]
    assert [(label, loc.line) for label, loc in writers] == [
        ("the kernel may write flags here", line) for line in ((20, 30) if shared else (20,))
    ]


def test_deadlock_for_want_of_room():
    """Each program waits for the one after it, which cannot start."""
    k = Kernel(("flags", pointer(int32)))
    pid = k.emit(program.program_id, axis=0)
    spin_until(k, k.params[0], k.add(pid, k.number(1)), 1)
    k.signal(k.params[0], pid)
    func = k.done()
    flags = np.array([0, 0, 0, 0, 1], np.int32)
    run(func, flags.copy(), grid=(4,))
    with pytest.raises(hazard.Deadlock, match="2 more cannot start while 2 are resident") as caught:
        run(func, flags.copy(), grid=(4,), max_resident=2)
    assert "waits for flags[1], which holds 0; so does one other program at this line" in caught.value.related[0][0]

"""Lowering of the steps of a bitonic sort: each element meets its partner, in another register, lane or warp, and one is kept.

    %y = tile.sort_step %x {stride = 1}    -->    %a = arith.min %even, %odd; %b = arith.max %even, %odd     in registers
    %y = tile.sort_step %x {stride = 8}    -->    %p = warp.shuffle_xor %x; %y = arith.select %c, %x, %p     across lanes

A layout is linear, so the partner of every element lies at the same XOR of register, lane and warp.
"""

from __future__ import annotations

from weft.ir.core import Op, OpDef, Value
from weft.ir.types import int32
from weft.layout import LinearLayout
from weft.layout.base import WARP_SIZE
from weft.layout.linear.ends import held
from weft.ops import arith, regs, shared, tile, warp
from weft.ops.check import linear_of
from weft.ops.regs import Table
from weft.passes.lower.combine import bit_test
from weft.passes.lower.exchange import allocate
from weft.passes.lower.forms import Array
from weft.passes.lower.placement import register_table
from weft.passes.lower.state import Lowering, LowerRule

_THREADS = ("lane", "warp", "block")


def sort_step(lo: Lowering, op: Op) -> None:
    """Registers that keep the smaller element are computed together, and so are those that keep the larger one."""
    linear = linear_of(op.result)
    axis: int = op.attrs["axis"]
    mask: int = op.attrs["stride"] | op.attrs["flip"]
    descending: bool = op.attrs["descending"]
    x = lo.array(lo.form(op.uses[0]))
    partner = _partner(lo, x, linear, axis, op.attrs["stride"])
    other_way = _thread_parity(lo, linear, axis, mask)
    larger = [_odd(at & mask) ^ descending for at in register_table(linear, axis)]
    order: list[int] = []
    parts: list[Value] = []
    for largest in (False, True):
        registers = tuple([r for r, keeps in enumerate(larger) if keeps == largest])
        if registers:
            order += registers
            parts.append(_kept(lo, lo.gather(x, registers), lo.gather(partner, registers), largest, other_way))
    whole: Value = lo.emit(regs.concat, *parts) if len(parts) > 1 else parts[0]
    lo.define(op, Array(lo.gather(whole, tuple([order.index(r) for r in range(len(larger))]))))


def _kept(lo: Lowering, x: Value, partner: Value, largest: bool, other_way: Value | None) -> Value:
    """The larger or smaller of both, in threads in which `other_way` holds the other of the two."""
    if other_way is None:
        return lo.emit(arith.maximum if largest else arith.minimum, x, partner)
    keeps = lo.emit(arith.cmp, x, partner, predicate="gt" if largest else "lt")
    way = lo.emit(regs.splat, other_way, count=lo.count(Array(x)))
    return lo.emit(arith.select, lo.emit(arith.xor, keeps, way), x, partner)


def _thread_parity(lo: Lowering, linear: LinearLayout, axis: int, mask: int) -> Value | None:
    """Whether lane, warp and block contribute an odd number of the bits of `mask` to the coordinate along an axis; None if
    never."""
    lanes, warps, blocks = (tuple([int(_odd(basis[axis] & mask)) for basis in linear.bases(d)]) for d in _THREADS)
    return bit_test(lo, lo.of_thread(lanes, warps, blocks), 1) if any((*lanes, *warps, *blocks)) else None


def _odd(bits: int) -> bool:
    return bool(bits.bit_count() & 1)


def _partner(lo: Lowering, x: Value, linear: LinearLayout, axis: int, stride: int) -> Value:
    """For each register, the element whose index along the axis differs by the bit `stride`."""
    moves = dict(zip(linear.in_dims, linear.pseudo_invert()(**{linear.out_dims[axis]: stride}), strict=True))
    assert not moves["block"], "exchange_blocks leaves no sort across blocks"
    place = {register: number for number, register in enumerate(held(linear))}
    met: Table = tuple([place[register ^ moves["register"]] for register in place])
    value = lo.gather(x, met)
    if moves["warp"]:
        return _from_other_warp(lo, value, linear, moves["lane"] | moves["warp"] * WARP_SIZE)
    return lo.emit(warp.shuffle_xor, value, mask=moves["lane"]) if moves["lane"] else value


def _from_other_warp(lo: Lowering, value: Value, linear: LinearLayout, moved: int) -> Value:
    """The same registers of the thread whose index differs by the bits of `moved`, through scratch memory."""
    bits = linear.in_bits("lane"), linear.in_bits("warp")
    count, threads = lo.count(Array(value)), 1 << sum(bits)
    lanes, warps = tuple([1 << i for i in range(bits[0])]), tuple([WARP_SIZE << i for i in range(bits[1])])
    own = lo.of_thread(lanes, warps)
    with lo.at_entry():
        theirs = lo.emit(arith.xor, own, lo.constant(moved, int32))
    memory = allocate(lo, value, count * threads)
    offsets, registers = tuple([r * threads for r in range(count)]), tuple([(r,) for r in range(count)])
    lo.emit(shared.store_regs, memory, own, value, None, offsets=offsets, registers=registers, vec=1)
    return lo.emit(shared.load_regs, memory, theirs, offsets=offsets, registers=registers, vec=1)


RULES: dict[OpDef, LowerRule] = {tile.sort_step: sort_step}

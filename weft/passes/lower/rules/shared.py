"""Lowering of the author's shared memory: allocations and views, and accesses by the plan of `weft.layout.shared.load_store`.

%x = shared.load %tile    -->    %x = shared.load_regs %memory, %base {offsets=(0, 512), vec=4}
                                 %x = shared.load_matrix %memory, %base {matrices=4}              ldmatrix, if it fits
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from weft.analysis.blocks import reaches_blocks
from weft.errors import compiler as errors
from weft.errors import fail
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import ScalarType, SharedType, int32
from weft.layout.base import whole_shape
from weft.layout.linear.ends import count
from weft.layout.linear.f2 import Span, solved
from weft.layout.linear.flat import join
from weft.layout.shared.homes import Homes, homes
from weft.layout.shared.layouts import Pads
from weft.layout.shared.load_store import RemoteAccess, SharedAccess, plan_access, plan_remote
from weft.layout.shared.sizes import allocation_bytes
from weft.layout.shared.vectors import VectorAccess
from weft.ops import arith, cluster, regs, shared
from weft.ops.check import linear_of
from weft.ops.regs import Table
from weft.passes.lower.blocks import owns_first, where
from weft.passes.lower.cluster import active, spread
from weft.passes.lower.exchange import broadcast_from_owner
from weft.passes.lower.forms import Array, Origin
from weft.passes.lower.handles import define, index, reinterpret, slice_, type_of, view
from weft.passes.lower.operands import require
from weft.passes.lower.placement import bit_terms, owned, register_coordinates
from weft.passes.lower.rules.memory import operand_form, predicate
from weft.passes.lower.state import Lowering, LowerRule

LEAST_SENT = 4
"""The narrowest st.async, in bytes."""


def plan(lo: Lowering, handle: Value, tile: Value, store: bool) -> SharedAccess:
    """The access plan between a tile in registers and a handle."""
    t, start = type_of(handle), lo.start(handle)
    return plan_access(linear_of(tile), t.layout, t.alloc_shape, t.shape, start, t.element.bits, store)


def places(lo: Lowering, access: VectorAccess) -> tuple[Value, Table, Table]:
    """The thread's base offset, and the constants that are XORed with it and added to it for each vector access."""
    xored, added = zip(*access.parts, strict=True)
    return lo.of_thread(access.lane_bases, access.warp_bases), xored, added if any(added) else ()


def slots(registers: tuple[Table, ...]) -> dict[int, int]:
    """The index of each loaded register in the loaded array."""
    return {register: i for i, register in enumerate(sorted(r for group in registers for r in group))}


# Handles


def alloc(lo: Lowering, op: Op) -> None:
    """The author's allocation becomes an array at its assigned offset."""
    t = type_of(op.result)
    size = allocation_bytes(t.layout, t.shape, t.element.bits) // t.element.itemsize
    offset: int = op.attrs["offset"]
    room = lo.emit(shared.array, dtype=t.element, count=size, tag=lo.tag(), offset=offset, name=op.result.name)
    lo.handles[op.result] = Origin(room, lo.constant(0, int32))


def renamed(lo: Lowering, op: Op) -> None:
    """Permutations and reshapes keep the address."""
    (source,) = op.uses
    define(lo, op, lo.handles[source])


def keep_alive(lo: Lowering, op: Op) -> None:
    """Dropped: it only extends the live range for `allocate_shared`."""


# Accesses


def load(lo: Lowering, op: Op) -> None:
    """Each thread loads the elements that it holds; registers with equal elements are loaded once."""
    (handle,) = op.uses
    if reaches_blocks(op):
        lo.define(op, lo.picked(*_load_remote(lo, handle, op.result)))
        return
    found = plan(lo, handle, op.result, store=False)
    matrix = found.matrix if lo.target.has_ldmatrix else None
    access = matrix.rows if matrix else found.access
    slot = slots(access.registers)
    registers = tuple(tuple([slot[r] for r in group]) for group in access.registers)
    base, offsets, added = places(lo, access)
    memory = view(lo, handle)
    if matrix:
        value = lo.emit(
            shared.load_matrix, memory, base, offsets=offsets, registers=registers, matrices=matrix.matrices,
            transposed=matrix.transposed, added=added, pads=access.pads,
        )  # fmt: skip
    else:
        value = lo.emit(
            shared.load_regs, memory, base,
            offsets=offsets, registers=registers, vec=access.vec, added=added, pads=access.pads,
        )  # fmt: skip
    lo.define(op, lo.picked(Array(value), tuple([slot[r] for r in found.result])))


def store(lo: Lowering, op: Op) -> None:
    """An element that several registers or threads hold is stored once."""
    handle, value = op.uses
    if reaches_blocks(op):
        _store_remote(lo, op, handle, value)
        return
    found = plan(lo, handle, value, store=True)
    matrix = found.matrix if lo.target.has_stmatrix else None
    access = matrix.rows if matrix else found.access
    base, offsets, added = places(lo, access)
    memory, data = view(lo, handle), lo.array(lo.form(value))
    if matrix:
        # stmatrix is `.sync.aligned`: all lanes of a warp must execute it, so only whole warps are predicated off. The lane
        # mask marks lanes whose addresses it ignores.
        lo.emit(
            shared.store_matrix, memory, base, data, lo.has_clear(0, access.warp_mask),
            offsets=offsets, registers=access.registers, matrices=matrix.matrices, transposed=matrix.transposed,
            added=added, pads=access.pads,
        )  # fmt: skip
        return
    lo.emit(
        shared.store_regs, memory, base, data, lo.has_clear(access.lane_mask, access.warp_mask),
        offsets=offsets, registers=access.registers, vec=access.vec, added=added, pads=access.pads,
    )  # fmt: skip


def async_store(lo: Lowering, op: Op) -> None:
    """Vectors of at least 4 bytes, each with a transaction of its own. Raises CompilationError (async-store-width)."""
    handle, value, bar = op.uses
    require(lo, op, lo.target.has_st_async, "st.async", "sm_90a")
    if reaches_blocks(op):
        _store_remote(lo, op, handle, value, bar)
        return
    access = plan(lo, handle, value, store=True).access
    check_sent(op, type_of(handle), access)
    base, offsets, added = places(lo, access)
    lo.emit(
        shared.async_store_regs, view(lo, handle), base, lo.array(lo.form(value)), view(lo, bar),
        lo.has_clear(access.lane_mask, access.warp_mask),
        offsets=offsets, registers=access.registers, vec=access.vec, added=added, pads=access.pads,
    )  # fmt: skip


def check_sent(op: Op, type: SharedType, access: VectorAccess) -> None:
    """Raises CompilationError (async-store-width)."""
    element = type.element
    if access.vec * element.itemsize < LEAST_SENT:
        least = LEAST_SENT // element.itemsize
        raise fail(errors.ASYNC_STORE_WIDTH, loc=op.loc, dtype=element.name, vec=access.vec, least=least)


# Accesses to the memory of other blocks.


def _remote(lo: Lowering, handle: Value, tile: Value, store: bool) -> RemoteAccess:
    t, start = type_of(handle), lo.start(handle)
    return plan_remote(
        linear_of(tile), t.layout, t.alloc_shape, t.shape, start, t.element.bits, lo.block_bits, store
    )  # fmt: skip


def _spots(lo: Lowering, plan: RemoteAccess, copy: int = 0) -> tuple[Value, Value, dict[str, Any]]:
    """The base and the peer of a thread's accesses, and what describes each access."""
    access, homes = plan.access, plan.homes
    base, peer = (spread(lo, access, homes.block_bits, lambda p, i=i: homes.split(p)[i]) for i in (0, 1))
    lanes, warps = (tuple([homes.split(p)[0] for p in bases]) for bases in (access.lane_bases, access.warp_bases))
    offsets, peers = zip(*[homes.split(offset ^ copy) for offset in access.offsets], strict=True)
    local = replace(access, lane_bases=lanes, warp_bases=warps, offsets=offsets, pads=plan.pads)
    xored, added = zip(*local.parts, strict=True)
    return base, peer, {"offsets": xored, "added": added if any(added) else (), "peers": peers}


def _load_remote(lo: Lowering, handle: Value, tile: Value) -> tuple[Array, Table]:
    plan = _remote(lo, handle, tile, store=False)
    slot = slots(plan.access.registers)
    registers = tuple(tuple([slot[r] for r in group]) for group in plan.access.registers)
    base, peer, each = _spots(lo, plan)
    value = lo.emit(
        cluster.load_regs, view(lo, handle), base, peer,
        registers=registers, vec=plan.access.vec, pads=plan.pads, **each,
    )  # fmt: skip
    return Array(value), tuple([slot[r] for r in plan.result])


def _store_remote(lo: Lowering, op: Op, handle: Value, tile: Value, bar: Value | None = None) -> None:
    """The first of the threads of all blocks that hold an element stores all copies of it, or its lane and others divide them;
    with `bar` asynchronously."""
    plan = _remote(lo, handle, tile, store=True)
    kind, signals = (cluster.store_regs, ()) if bar is None else (cluster.async_store_regs, (view(lo, bar),))
    if bar is not None:
        check_sent(op, type_of(handle), plan.access)
    data, mask = lo.array(lo.form(tile)), active(lo, plan.access, plan.homes.block_bits)
    # Of several stores by the same few threads the others skip all at once.
    several = len(plan.copies) > 1
    with where(lo, mask if several else None):
        for copy in plan.copies:
            base, peer, each = _spots(lo, plan, copy)
            lo.emit(
                kind, view(lo, handle), base, peer, data, *signals, None if several else mask,
                registers=plan.access.registers, vec=plan.access.vec, pads=plan.pads, **each,
            )  # fmt: skip


def _homes(lo: Lowering, handle: Value) -> Homes:
    t = type_of(handle)
    return homes(t.layout.to_linear(t.alloc_shape), lo.block_bits)


def _pads(handle: Value) -> Pads:
    t = type_of(handle)
    return t.layout.pads_of(t.alloc_shape)


def _parted(lo: Lowering, found: Homes, places: Value) -> tuple[Value, Value]:
    """The offsets and the ranks of an array of places."""
    count = lo.count(Array(places))
    mask, bits = (
        lo.emit(regs.splat, lo.constant(number, int32), count=count)
        for number in ((1 << found.offset_bits) - 1, found.offset_bits)
    )
    return lo.emit(arith.and_, places, mask), lo.emit(arith.shr, places, bits)


# Elements chosen by indices.


def gather(lo: Lowering, op: Op) -> None:
    """Each register loads the element that its index selects."""
    handle, indices = op.uses
    every = tuple(range(count(linear_of(indices))))
    pads = _pads(handle)
    if reaches_blocks(op):
        found = _homes(lo, handle)
        places = _elements(lo, handle, indices, op.attrs["axis"], every, found.steps)
        lo.define(op, Array(lo.emit(cluster.load_at, view(lo, handle), *_parted(lo, found, places), pads=pads)))
        return
    elements = _elements(lo, handle, indices, op.attrs["axis"], every)
    lo.define(op, Array(lo.emit(shared.load_at, view(lo, handle), elements, pads=pads)))


def scatter(lo: Lowering, op: Op) -> None:
    """The owner of each index stores the element that it selects."""
    handle, value, indices = op.uses
    linear = linear_of(indices)
    registers = owned(linear)
    data = lo.array(lo.picked(lo.form(value), registers))
    pads = _pads(handle)
    if reaches_blocks(op):
        for parts in _in_blocks(lo, op, registers):
            lo.emit(cluster.store_at, view(lo, handle), *parts, data, owns_first(lo, linear), pads=pads)
        return
    elements = _elements(lo, handle, indices, op.attrs["axis"], registers)
    lo.emit(shared.store_at, view(lo, handle), elements, data, lo.owns(linear), pads=pads)


def atomic(lo: Lowering, op: Op) -> None:
    """The owner of each index combines the element that it selects. If the old value is used, it is broadcast to the other
    threads that hold the index."""
    handle, value, mask, indices = op.operands
    assert handle is not None and value is not None and indices is not None
    linear = linear_of(indices)
    registers = owned(linear)
    data = lo.array(lo.picked(lo.form(value), registers))
    remote = reaches_blocks(op)
    on = predicate(lo, operand_form(lo, mask), registers, owns_first(lo, linear) if remote else lo.owns(linear))
    if on is not None and isinstance(on.type, ScalarType):
        on = lo.emit(regs.splat, on, count=len(registers))
    kind: OpDef = shared.atomic_at
    attrs: dict[str, Any] = {"kind": op.attrs["kind"], "pads": _pads(handle)}
    places: list[tuple[Value, ...]] = (
        [(_elements(lo, handle, indices, op.attrs["axis"], registers),)] if not remote else []
    )
    if remote:
        kind, places = cluster.atomic_at, _in_blocks(lo, op, registers)
    old, *_ = [lo.emit(kind, view(lo, handle), *parts, data, on, **attrs) for parts in places]
    lo.define(op, Array(broadcast_from_owner(lo, old, linear, op.result in lo.used)))


def _in_blocks(lo: Lowering, op: Op, registers: Table) -> list[tuple[Value, ...]]:
    """The offsets and the ranks of the elements that indices select, once for each copy in the memory of blocks."""
    handle, indices = op.operands[0], op.operands[-1]
    assert handle is not None and indices is not None
    found = _homes(lo, handle)
    places = _elements(lo, handle, indices, op.attrs["axis"], registers, (0,) * found.block_bits)
    made: list[tuple[Value, ...]] = []
    for copy in found.copies:
        moved = lo.emit(regs.splat, lo.constant(copy, int32), count=len(registers))
        made.append(_parted(lo, found, lo.emit(arith.xor, places, moved) if copy else places))
    return made


def _elements(
    lo: Lowering, handle: Value, indices: Value, axis: int, registers: Table, steps: Table | None = None
) -> Value:
    """The offsets of the selected elements, before padding, as an array.

    The layout is linear over F2: the offset of an element is the XOR of the offsets of its coordinates' bits. With `steps` the
    result are places in the memory of all blocks; bit i of the block's own rank contributes `steps[i]` besides coordinates.
    """
    t, start, linear = type_of(handle), lo.start(handle), linear_of(indices)
    rank = len(start)
    columns = t.layout.to_linear(t.alloc_shape).columns
    span = Span((*columns["offset"], *columns["block"]))

    def place(coordinate: Iterable[int]) -> int:
        return solved(span, join(coordinate, whole_shape(t.alloc_shape)))

    def others(coordinate: Iterable[int]) -> int:
        return place(0 if d == axis else at for d, at in enumerate(coordinate))

    lanes, warps = (tuple([others(basis) for basis in linear.bases(d)]) for d in ("lane", "warp"))
    coordinates, first = register_coordinates(linear), place(start)
    own = tuple([first ^ others(coordinates[r]) for r in registers])
    bits = range((t.shape[axis] - 1).bit_length())
    along = tuple([place(1 << bit if d == axis else 0 for d in range(rank)) for bit in bits])

    value = lo.array(lo.picked(lo.form(indices), registers))
    number = value if value.type.element == int32 else lo.emit(arith.cast, value, dtype=int32)
    blocks: Table = ()
    if steps is not None:
        own_bases = [others(basis) for basis in linear.bases("block")]
        blocks = tuple([place ^ step for place, step in zip_longest(own_bases, steps, fillvalue=0)])
    total: Value = lo.emit(regs.xor, lo.of_thread(lanes, warps, blocks), offsets=own)
    for part in _mapped(lo, number, along):
        total = lo.emit(arith.xor, total, part)
    return total


def _mapped(lo: Lowering, number: Value, column: Table) -> list[Value]:
    """Arrays whose XOR is the linear map of an array of indices; bits above the map's inputs are ignored."""
    count = lo.count(Array(number))

    def everywhere(value: int) -> Value:
        return lo.emit(regs.splat, lo.constant(value, int32), count=count)

    parts: list[Value] = []
    for first, bits, factor, _ in bit_terms(column):
        part = lo.emit(arith.shr, number, everywhere(first)) if first else number
        part = lo.emit(arith.and_, part, everywhere((1 << bits) - 1))
        parts.append(part if factor == 1 else lo.emit(arith.mul, part, everywhere(factor)))
    return parts


RULES: dict[OpDef, LowerRule] = {
    shared.alloc: alloc,
    shared.index: index,
    shared.slice: slice_,
    shared.permute: renamed,
    shared.reshape: renamed,
    shared.reinterpret: reinterpret,
    shared.keep_alive: keep_alive,
    shared.load: load,
    shared.store: store,
    shared.gather: gather,
    shared.scatter: scatter,
    shared.async_store: async_store,
    shared.atomic: atomic,
}

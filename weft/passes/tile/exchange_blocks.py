"""Make the blocks of a cluster exchange elements where an operation needs those of other blocks.

    %y = tile.convert %x                -->    %y = cluster.convert %x            its blocks hold other elements afterwards
    %s = tile.reduce %x {axis = 1}      -->    %p = tile.reduce %x'               each block its part of the axis
                                               %q = cluster.convert %p            each block the results of all blocks
                                               %s = tile.reduce %q
    %y = tile.scan %x {axis = 1}        -->    %x' = cluster.convert %x           each block all of the axis (gathers,
                                               %y' = tile.scan %x'                histograms and sorts too)
                                               %y = tile.convert %y'
    %old = memory.atomic %p, %v         -->    %o = memory.atomic %p, %v          one block executes it for all
                                               %old = cluster.convert %o {first = true}

Afterwards only `cluster.convert` moves elements between blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.analysis.apart import apart
from weft.analysis.blocks import reaches_blocks
from weft.ir.core import Func, Op, OpDef, Value, walk
from weft.ir.rebuild import Operands, Rebuilder, Replacement, rebuild
from weft.ir.types import ScalarType, TileType
from weft.layout import BlockedLayout, DistributedLayout
from weft.layout.cluster import copies
from weft.layout.convert.plans import crosses, plan_conversion
from weft.layout.distributed.across_blocks import halves, splits_axis, within_blocks
from weft.ops import cluster, memory, shared, tile
from weft.ops.check import linear_of
from weft.ops.control import run_by

Rewrite = Callable[[Rebuilder, Op, Operands], Replacement]


def exchange_blocks(func: Func) -> Func:
    """The function with exchanges between blocks; unchanged without clusters, and in thread-level kernels."""
    blocks = func.attrs.num_ctas
    if (
        blocks == 1
        or func.attrs.block is not None
        or not any(op.kind in _REWRITES or op.kind in _ATOMICS for op in walk(func.body))
    ):
        return func
    used = {value for op in walk(func.body) for value in op.uses}
    warps, alone = dict(run_by(func)), apart(func).each

    def rule(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
        if op.kind in _ATOMICS:
            wanted = op.result in used and op not in alone and (op.kind is not shared.atomic or reaches_blocks(op))
            return _atomic(out, op, operands, blocks, warps[op]) if wanted else None
        rewrite = _REWRITES.get(op.kind)
        return None if rewrite is None else rewrite(out, op, operands)

    return rebuild(func, rule)


def _type(value: Value | None) -> TileType:
    assert value is not None and isinstance(value.type, TileType)
    return value.type


def _converted(out: Rebuilder, value: Value, layout: DistributedLayout) -> Value:
    """A tile in another layout, by whichever conversion it needs."""
    t = _type(value)
    if t.layout == layout:
        return value
    target = layout.to_linear(t.shape)
    assert t.linear is not None
    if crosses(plan_conversion(t.linear, target, t.element.bits)):
        return _exchanged(out, value, layout)
    return out.emit(tile.convert, value, layout=layout)


def _exchanged(out: Rebuilder, value: Value, layout: DistributedLayout, first: bool = False) -> Value:
    """A tile in a layout whose blocks hold other elements. `meet_partitions` gives the exchange its mbarrier."""
    return out.emit(cluster.convert, value, None, layout=layout, first=first)


def _convert(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
    (x,) = operands
    assert x is not None
    plan = plan_conversion(linear_of(x), linear_of(op.result), _type(x).element.bits)
    return (_exchanged(out, x, op.attrs["layout"]),) if crosses(plan) else None


def _reduce(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
    axis: int = op.attrs["axis"]
    linear = linear_of(operands[0])
    if not splits_axis(linear, axis):
        return None
    parts = halves(linear, axis)
    if parts is None or (op.attrs["in_order"] and not parts.in_order):
        whole = within_blocks(linear, axis)
        return _fitted(
            out, op, _reduced(out, op, [_converted(out, value, whole) for value in _present(operands)], axis)
        )
    values: list[Value] = []
    for value in _present(operands):
        split = out.emit(tile.reshape, value, shape=parts.split)
        values.append(out.emit(tile.reshape, out.emit(tile.permute, split, order=parts.order), shape=parts.joined))
    last = len(parts.joined) - 1
    values = _reduced(out, op, values, last)
    together = within_blocks(linear_of(values[0]), last - 1)
    values = [_converted(out, value, together) for value in values]
    return _fitted(out, op, _reduced(out, op, values, last - 1))


def _reduced(out: Rebuilder, op: Op, values: Sequence[Value], axis: int) -> list[Value]:
    attrs: dict[str, Any] = {"axis": axis, "in_order": op.attrs["in_order"]}
    made = out.emit(tile.reduce, *values, regions=(out.copy_region(op.regions[0]),), **attrs)
    return [made] if isinstance(made, Value) else list(made)


def _fitted(out: Rebuilder, op: Op, values: Sequence[Value]) -> tuple[Value, ...]:
    """Results in the layouts of the operation that they replace, with its names."""
    made: list[Value] = []
    for value, old in zip(values, op.results, strict=True):
        new = _converted(out, value, old.type.layout) if isinstance(old.type, TileType) else value
        new.name = new.name or old.name
        made.append(new)
    return tuple(made)


def _scan(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
    linear, axis = linear_of(operands[0]), op.attrs["axis"]
    if not splits_axis(linear, axis):
        return None
    whole = within_blocks(linear, axis)
    values = [_converted(out, value, whole) for value in _present(operands)]
    made = out.emit(tile.scan, *values, regions=(out.copy_region(op.regions[0]),), **op.attrs)
    return _fitted(out, op, [made] if isinstance(made, Value) else list(made))


def _sort_step(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
    (x,) = operands
    assert x is not None
    axis: int = op.attrs["axis"]
    stride: int = op.attrs["stride"]
    if not any(basis[axis] & stride for basis in linear_of(x).bases("block")):
        return None
    made = out.emit(tile.sort_step, _converted(out, x, within_blocks(linear_of(x), axis)), **op.attrs)
    return _fitted(out, op, [made])


def _gather(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
    """Each block gets the elements that its indices can name: all along the axis, at its indices' other coordinates."""
    source, index = operands
    assert source is not None
    linear, axis = linear_of(source), int(op.attrs["axis"])
    chosen = [[0 if d == axis else v for d, v in enumerate(basis)] for basis in linear_of(index).bases("block")]
    if not splits_axis(linear, axis) and [list(basis) for basis in linear.bases("block")] == chosen:
        return None
    return (out.emit(tile.gather, _converted(out, source, within_blocks(linear, axis, chosen)), index, **op.attrs),)


def _histogram(out: Rebuilder, op: Op, operands: Operands) -> Replacement:
    """Each block counts all elements."""
    x, mask = operands
    assert x is not None
    if not splits_axis(linear_of(x), 0):
        return None
    whole = within_blocks(linear_of(x), 0)
    chosen = None if mask is None else _converted(out, mask, whole)
    return (out.emit(tile.histogram, _converted(out, x, whole), chosen, **op.attrs),)


def _atomic(out: Rebuilder, op: Op, operands: Operands, blocks: int, warps: int) -> Replacement:
    """The other blocks get the old value from the one that executes the atomic."""
    scalar = isinstance(op.result.type, ScalarType)
    if not scalar and not copies(linear_of(op.result), blocks):
        return None
    (old,) = out.keep(op, operands)
    if not scalar:
        return (_exchanged(out, old, _type(old).layout, first=True),)
    line = BlockedLayout([1], [32], [warps], [0], cga_layout=[[0]] * (blocks.bit_length() - 1))
    given = _exchanged(out, out.emit(tile.splat, old, shape=(1,), layout=line), line, first=True)
    return (out.emit(tile.extract, given, name=op.result.name),)


def _present(operands: Operands) -> list[Value]:
    """The operands, none of which is absent."""
    return [value for value in operands if value is not None]


_ATOMICS = (memory.atomic, memory.atomic_cas, shared.atomic)
_REWRITES: dict[OpDef, Rewrite] = {
    tile.convert: _convert,
    tile.reduce: _reduce,
    tile.scan: _scan,
    tile.sort_step: _sort_step,
    tile.gather: _gather,
    tile.histogram: _histogram,
}

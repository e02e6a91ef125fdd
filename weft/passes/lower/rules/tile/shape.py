"""Lowering of shape operations: each is a permutation, repetition or selection of a thread's registers.

    %y = tile.permute %x    -->    %y = regs.gather %x {table=(0, 2, 1, 3)}

The layout maps (register, lane, warp) to the tile coordinates of an element. A shape operation maps coordinates of the result
to coordinates of the operand without changing lane and warp. It is therefore a register table, which is computed by looking up
coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from weft.ir.core import Op, OpDef
from weft.ir.types import TileType
from weft.layout import LinearLayout
from weft.ops import regs, tile
from weft.ops.check import linear_of
from weft.ops.regs import Table
from weft.passes.lower.forms import Array, Form, Splat
from weft.passes.lower.placement import flat_table, register_coordinates
from weft.passes.lower.state import Lowering, LowerRule


@cache
def lookup(linear: LinearLayout, wanted: tuple[Table, ...]) -> Table:
    """For each wanted coordinate (the register's part of it), the first register that holds it."""
    first: dict[Table, int] = {}
    for register, coordinate in enumerate(register_coordinates(linear)):
        first.setdefault(coordinate, register)
    return tuple([first[coordinate] for coordinate in wanted])


def arange(lo: Lowering, op: Op) -> None:
    """Each thread's coordinate, plus the start."""
    lo.define(op, lo.coordinate(linear_of(op.result), 0, op.attrs["start"]))


def splat(lo: Lowering, op: Op) -> None:
    """A scalar in every register."""
    assert isinstance(op.result.type, TileType)
    lo.define(op, Splat(lo.scalar(op.operands[0]), op.result.type.registers))


def _moved(lo: Lowering, op: Op, table: Callable[..., Table], *how: object) -> None:
    (source,) = op.uses
    registers = table(linear_of(source), linear_of(op.result), *how)
    lo.define(op, lo.picked(lo.form(source), registers))


def expand_dims(lo: Lowering, op: Op) -> None:
    """The coordinate along the new axis is dropped."""
    _moved(lo, op, _expanded, op.attrs["axis"])


@cache
def _expanded(source: LinearLayout, target: LinearLayout, axis: int) -> Table:
    return lookup(source, tuple([c[:axis] + c[axis + 1 :] for c in register_coordinates(target)]))


def broadcast(lo: Lowering, op: Op) -> None:
    """Coordinates along axes of length one become zero."""
    _moved(lo, op, _broadcast)


@cache
def _broadcast(source: LinearLayout, target: LinearLayout) -> Table:
    sizes = source.out_sizes
    wanted = [
        tuple([0 if size == 1 else c for c, size in zip(at, sizes, strict=True)]) for at in register_coordinates(target)
    ]
    return lookup(source, tuple(wanted))


def permute(lo: Lowering, op: Op) -> None:
    """Coordinates are permuted."""
    _moved(lo, op, _permuted, op.attrs["order"])


@cache
def _permuted(source: LinearLayout, target: LinearLayout, order: Table) -> Table:
    inverse = [order.index(axis) for axis in range(len(order))]
    return lookup(source, tuple([tuple([c[axis] for axis in inverse]) for c in register_coordinates(target)]))


def reshape(lo: Lowering, op: Op) -> None:
    """The row-major index of each element stays the same."""
    _moved(lo, op, _reshaped)


@cache
def _reshaped(source: LinearLayout, target: LinearLayout) -> Table:
    first: dict[int, int] = {}
    for register, number in enumerate(flat_table(source)):
        first.setdefault(number, register)
    return tuple([first[number] for number in flat_table(target)])


def join(lo: Lowering, op: Op) -> None:
    """The last coordinate selects the operand, in the concatenation of both register arrays."""
    coordinates = register_coordinates(linear_of(op.result))
    source = lookup(linear_of(op.uses[0]), tuple(c[:-1] for c in coordinates))
    _paired(lo, op, source, [c[-1] for c in coordinates])


def _paired(lo: Lowering, op: Op, source: Table, which: Sequence[int]) -> None:
    """Each register of the result from a register of the first (0) or the second operand (1)."""
    lhs, rhs = op.uses
    both = lo.emit(regs.concat, lo.array(lo.form(lhs)), lo.array(lo.form(rhs)))
    count = lo.count(lo.form(lhs))
    table = tuple([register + count * one for register, one in zip(source, which, strict=True)])
    lo.define(op, Array(lo.gather(both, table)))


def split(lo: Lowering, op: Op) -> None:
    """The two halves along the last coordinate."""
    (source,) = op.uses
    form = lo.form(source)
    coordinates = register_coordinates(linear_of(op.results[0]))
    halves: list[Form] = []
    for half in (0, 1):
        table = lookup(linear_of(source), tuple((*c, half) for c in coordinates))
        halves.append(lo.picked(form, table))
    lo.define(op, *halves)


def slice_(lo: Lowering, op: Op) -> None:
    """The offsets are added to the coordinates."""
    _moved(lo, op, _sliced, op.attrs["offsets"])


@cache
def _sliced(source: LinearLayout, target: LinearLayout, offsets: Table) -> Table:
    wanted = [tuple([c + o for c, o in zip(at, offsets, strict=True)]) for at in register_coordinates(target)]
    return lookup(source, tuple(wanted))


def cat(lo: Lowering, op: Op) -> None:
    """Coordinates beyond the operands' size are those of the second."""
    lhs = op.uses[0]
    axis: int = op.attrs["axis"]
    size = linear_of(lhs).sizes[axis]
    coordinates = register_coordinates(linear_of(op.result))
    own = tuple(tuple([c % size if d == axis else c for d, c in enumerate(at)]) for at in coordinates)
    _paired(lo, op, lookup(linear_of(lhs), own), [at[axis] // size for at in coordinates])


def extract(lo: Lowering, op: Op) -> None:
    """The only element, which all threads hold."""
    (source,) = op.uses
    form = lo.form(source)
    if isinstance(form, Splat):
        lo.env[op.result] = form.value
        return
    lo.env[op.result] = lo.emit(regs.extract, lo.array(lo.picked(form, (0,))), index=0, name=op.result.name)


RULES: dict[OpDef, LowerRule] = {
    tile.arange: arange,
    tile.splat: splat,
    tile.expand_dims: expand_dims,
    tile.broadcast: broadcast,
    tile.permute: permute,
    tile.reshape: reshape,
    tile.join: join,
    tile.split: split,
    tile.slice_: slice_,
    tile.cat: cat,
    tile.extract: extract,
}

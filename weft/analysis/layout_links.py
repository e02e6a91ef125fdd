"""Layout constraints of an operation: which of its tiles have the same layout, and which layouts determine each other.

    arith.add, memory.load, loop-carried values      the same layout for all of them (a tie)
    tile.expand_dims, tile.reduce                    parent <-> SliceLayout(axis, parent) (a link)
    tile.permute, tile.reshape, tile.join, tile.cat  each layout is a function of the other (a link)
    tile.slice                                       the part's is a function of the whole's
    tile.convert                                     no constraint

`resolve_layouts` propagates layouts over these constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from weft.analysis.flow import STRUCTURED, joints
from weft.ir.core import Op, OpDef, Value
from weft.ir.types import TileType
from weft.layout import DistributedLayout, DotOperandLayout, SliceLayout
from weft.layout.distributed import infer
from weft.ops import asm, control, debug, tile

# The layout that another one determines, or None if it determines none.
Follow = Callable[[DistributedLayout], DistributedLayout | None]


@dataclass(frozen=True, slots=True)
class Tie:
    """Values that must have the same layout, and the operation that demands it."""

    values: tuple[Value, ...]
    op: Op


@dataclass(frozen=True, slots=True)
class Link:
    """Two values whose layouts determine each other, and the operation that demands it.

    `forward` maps the source's layout to the target's, as the operation does. `backward` gives one source layout that
    `forward` maps to the given target layout.
    """

    source: Value
    target: Value
    forward: Follow
    backward: Follow
    op: Op


def links_of(op: Op) -> Iterator[Tie | Link]:
    """The layout constraints of an operation on its operands and results."""
    special = _SPECIAL.get(op.kind)
    if special is not None:
        yield from special(op)
    elif op.kind in STRUCTURED:
        for joint in joints(op):
            for row in joint.rows:
                yield from _tie(op, row)
    else:
        yield from _tie(op, (*op.uses, *op.results))


def _tie(op: Op, values: Sequence[Value]) -> Iterator[Tie]:
    tiles = tuple(value for value in values if isinstance(value.type, TileType))
    if len(tiles) > 1 and any(not value.type.resolved for value in tiles if isinstance(value.type, TileType)):
        yield Tie(tiles, op)


def _shape(value: Value) -> tuple[int, ...]:
    assert isinstance(value.type, TileType)
    return value.type.shape


def _free(op: Op) -> Iterator[Tie | Link]:
    yield from ()


def _slice(parent: Value, part: Value, axis: int, op: Op) -> Link:
    def backward(layout: DistributedLayout) -> DistributedLayout | None:
        return layout.parent if isinstance(layout, SliceLayout) and layout.dim == axis else None

    return Link(parent, part, lambda layout: infer.slice_of(layout, axis), backward, op)


def _expand_dims(op: Op) -> Iterator[Tie | Link]:
    (x,) = op.uses
    axis: int = op.attrs["axis"]
    yield Link(
        x,
        op.result,
        lambda layout: infer.expand_dims(layout, _shape(x), axis),
        lambda layout: SliceLayout(axis, layout),
        op,
    )


def _reduce(op: Op) -> Iterator[Tie | Link]:
    yield from _tie(op, op.uses)
    for result in op.results:
        if isinstance(result.type, TileType):
            yield _slice(op.uses[0], result, op.attrs["axis"], op)


def _permute(op: Op) -> Iterator[Tie | Link]:
    (x,), out = op.uses, op.result
    order: tuple[int, ...] = op.attrs["order"]
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    yield Link(
        x, out,
        lambda layout: infer.permute(layout, _shape(x), order), lambda layout: infer.permute(layout, _shape(out), inverse), op,
    )  # fmt: skip


def _reshape(op: Op) -> Iterator[Tie | Link]:
    (x,), out = op.uses, op.result
    yield Link(
        x, out,
        lambda layout: infer.reshape(layout, _shape(x), _shape(out)),
        lambda layout: infer.reshape(layout, _shape(out), _shape(x)), op,
    )  # fmt: skip


def _join(op: Op) -> Iterator[Tie | Link]:
    half, whole = op.uses[0], op.result
    yield from _tie(op, op.uses)
    yield Link(
        half, whole,
        lambda layout: infer.join(layout, _shape(half)), lambda layout: infer.split(layout, _shape(whole)), op,
    )  # fmt: skip


def _split(op: Op) -> Iterator[Tie | Link]:
    (whole,), half = op.uses, op.results[0]
    yield from _tie(op, op.results)
    yield Link(
        whole, half,
        lambda layout: infer.split(layout, _shape(whole)), lambda layout: infer.join(layout, _shape(half)), op,
    )  # fmt: skip


def _cut(op: Op) -> Iterator[Tie | Link]:
    """A part's layout leaves open where the rest of the tile lies; it serves the whole tile where cutting gives it back."""
    (whole,), part = op.uses, op.result
    offsets: tuple[int, ...] = op.attrs["offsets"]

    def backward(layout: DistributedLayout) -> DistributedLayout | None:
        return layout if infer.keeps_parts(layout, _shape(whole), offsets, _shape(part)) else None

    yield Link(
        whole, part, lambda layout: infer.extract(layout, _shape(whole), offsets, _shape(part)), backward, op
    )  # fmt: skip


def _cat(op: Op) -> Iterator[Tie | Link]:
    half, whole = op.uses[0], op.result
    start = (0,) * len(_shape(half))
    yield from _tie(op, op.uses)
    yield Link(
        half, whole,
        lambda layout: infer.cat(layout, _shape(half), op.attrs["axis"]),
        lambda layout: infer.extract(layout, _shape(whole), start, _shape(half)), op,
    )  # fmt: skip


def _histogram(op: Op) -> Iterator[Tie | Link]:
    yield from _tie(op, op.uses)


def _gather(op: Op) -> Iterator[Tie | Link]:
    _, index = op.uses
    yield from _tie(op, (index, op.result))


def _dot(op: Op) -> Iterator[Tie | Link]:
    a, b, acc = op.uses
    yield from _tie(op, (acc, op.result))
    for index, operand in enumerate((a, b)):
        yield Link(acc, operand, _operand(index), _accumulator, op)


def _operand(index: int) -> Follow:
    return lambda layout: DotOperandLayout(index, layout, 0)


def _accumulator(layout: DistributedLayout) -> DistributedLayout | None:
    return layout.parent if isinstance(layout, DotOperandLayout) else None


_SPECIAL: dict[OpDef, Callable[[Op], Iterator[Tie | Link]]] = {
    tile.expand_dims: _expand_dims, tile.permute: _permute, tile.reshape: _reshape, tile.join: _join, tile.split: _split,
    tile.slice_: _cut, tile.cat: _cat,
    tile.reduce: _reduce, tile.histogram: _histogram, tile.gather: _gather, tile.dot_fma: _dot,
    **dict.fromkeys(
        (
            tile.convert, control.yield_, control.condition, control.return_, debug.print_, debug.breakpoint_,
            asm.block, asm.block_volatile, asm.block_memory,
        ),
        _free,
    ),
}  # fmt: skip

"""Tiles in a function of scalars: each becomes one scalar for every element.

The combine function of a reduction or scan is executed by every thread for elements of its own, so a tile in it, such as a pair
that a packed instruction adds, is the thread's own too:

    %lanes = tile.arange {start = 0, end = 2}
    %pair = arith.select (%lanes == 0), (tile.splat %a), (tile.splat %b)      -->    %x, %y = %a + %c, %b + %d
    %x, %y = tile.split (%pair + ...)

Operations that no row of `_ELEMENTS` covers stay as they are, and are refused where tiles of a block are (control-scope).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any

from weft.ir.build import Builder
from weft.ir.core import Op, Region, Value
from weft.ir.types import DType, ScalarType, TileType, Type
from weft.ops import arith, tile

MOST = 64
"""Elements of the largest tile that is unrolled."""

Elements = tuple[Value, ...]


def unrolled(builder: Builder, region: Region) -> Region:
    """The region with scalars in place of tiles; the region itself if it has none, or has operations of tiles that have to be
    executed by a block."""
    if not any(isinstance(value.type, TileType) for op in region.ops for value in op.results):
        return region
    if not all(map(_can_be, region.ops)):
        return region
    here = builder.loc
    with builder.region([arg.type for arg in region.args]) as body:
        unroller = _Unroller(builder, {old: (new,) for old, new in zip(region.args, body.args, strict=True)})
        for op in region.ops:
            unroller.take(op)
    builder.loc = here
    return body.done


def _can_be(op: Op) -> bool:
    tiles = [value.type for value in (*op.uses, *op.results) if isinstance(value.type, TileType)]
    if any(prod(t.shape) > MOST for t in tiles):
        return False
    return not op.regions and (not tiles or op.kind.elementwise or op.kind is arith.constant or op.kind in _ELEMENTS)


class _Unroller:
    """Emits the operations of a region element by element. `numbers` has the integers that are known."""

    def __init__(self, builder: Builder, env: dict[Value, Elements]) -> None:
        self.builder = builder
        self.env = env
        self.numbers: dict[Value, int] = {}

    def take(self, op: Op) -> None:
        """Emit an operation's elements."""
        self.builder.loc = op.loc
        operands = [self.env.get(value, (value,)) for value in op.uses]
        if op.kind in _ELEMENTS:
            self.env.update(zip(op.results, _ELEMENTS[op.kind](self, op, operands), strict=True))
            return
        count = max((len(each) for each in operands), default=1)
        (shape,) = {value.type.shape for value in op.results if isinstance(value.type, TileType)} or {()}
        count = max(count, prod(shape)) if op.results else 1
        found = [self._element(op, [each[i if len(each) > 1 else 0] for each in operands]) for i in range(count)]
        self.env.update(zip(op.results, zip(*found, strict=True), strict=True))

    def number(self, value: int, type: Type) -> Value:
        """A known integer."""
        found: Value = self.builder.emit(arith.constant, value=value, type=type)
        self.numbers[found] = value
        return found

    def _element(self, op: Op, operands: Sequence[Value]) -> tuple[Value, ...]:
        attrs = {name: ScalarType(v.element) if isinstance(v, TileType) else v for name, v in op.attrs.items()}
        if op.kind is arith.constant and isinstance(attrs["value"], int):
            return (self.number(attrs["value"], attrs["type"]),)
        known = [self.numbers[value] for value in operands if value in self.numbers]
        if op.kind is arith.select and operands[0] in self.numbers:
            return (operands[1] if known[0] else operands[2],)
        if op.kind.fold is not None and operands and len(known) == len(operands):
            element = operands[0].type.element
            assert isinstance(element, DType)
            folded = op.kind.fold(tuple(known), op.attrs, element)
            if folded is not None:
                return (self.number(int(folded), ScalarType(op.result.type.element)),)
        given = iter(operands)
        return self.builder.create(op.kind, tuple(v and next(given) for v in op.operands), attrs)


def _arange(unroller: _Unroller, op: Op, _: Sequence[Elements]) -> Sequence[Elements]:
    type = ScalarType(op.result.type.element)
    return [tuple(unroller.number(at, type) for at in range(op.attrs["start"], op.attrs["end"]))]


def _splat(unroller: _Unroller, op: Op, operands: Sequence[Elements]) -> Sequence[Elements]:
    return [operands[0] * prod(op.attrs["shape"])]


def _same(unroller: _Unroller, op: Op, operands: Sequence[Elements]) -> Sequence[Elements]:
    return operands


def _chosen(indices: Callable[[Any, Op], Any]) -> Callable[[_Unroller, Op, Sequence[Elements]], Sequence[Elements]]:
    """Elements of the operand by the positions that `indices` makes of the array of its positions."""

    def take(unroller: _Unroller, op: Op, operands: Sequence[Elements]) -> Sequence[Elements]:
        import numpy as np

        t = op.uses[0].type
        assert isinstance(t, TileType)
        order: list[int] = indices(np.arange(prod(t.shape)).reshape(t.shape), op).reshape(-1).tolist()
        return [tuple([operands[0][place] for place in order])]

    return take


def _broadcast(places: Any, op: Op) -> Any:
    import numpy as np

    return np.broadcast_to(places, op.attrs["shape"])


def _join(unroller: _Unroller, op: Op, operands: Sequence[Elements]) -> Sequence[Elements]:
    left, right = operands
    pairs: Iterator[Elements] = zip(left, right, strict=True)
    return [tuple(chain.from_iterable(pairs))]


def _split(unroller: _Unroller, op: Op, operands: Sequence[Elements]) -> Sequence[Elements]:
    return [operands[0][::2], operands[0][1::2]]


_ELEMENTS: dict[Any, Callable[[_Unroller, Op, Sequence[Elements]], Sequence[Elements]]] = {
    tile.arange: _arange,
    tile.splat: _splat,
    tile.broadcast: _chosen(_broadcast),
    tile.permute: _chosen(lambda places, op: places.transpose(op.attrs["order"])),
    tile.join: _join,
    tile.split: _split,
    **dict.fromkeys((tile.expand_dims, tile.reshape, tile.convert, tile.set_layout, tile.extract), _same),
}

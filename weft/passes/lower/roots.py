"""Forward analysis of tile IR: which loop-carried tiles differ from their initial value by a uniform offset only.

    %p = control.for (%at) {^(%i, %a): ... control.yield (arith.add %a, (tile.splat %s))}      %a and %p have the root %at

If the initial value is affine (a base per thread plus constants per register), adding a uniform value changes only the base.
The loop then carries one base per thread instead of one register per element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft.analysis.flow import Edge, Values
from weft.ir.core import Func, Op, Value
from weft.ir.types import DType, TileType, Type
from weft.ops import arith, control, hints, memory, tile


@dataclass(frozen=True, slots=True, eq=False)
class Equal:
    """All registers of a thread are equal. `scalar`: the lowered form is a `Splat`; otherwise it is an affine base."""

    scalar: bool


SPLAT: Final = Equal(True)
BASE: Final = Equal(False)
Root = Value | Equal
"""The tile from which another one differs by a uniform offset. A tile without such a tile is its own root."""
_SHAPES = (tile.expand_dims, tile.broadcast, tile.permute, tile.reshape)
_SUMS = (arith.add, arith.sub, memory.addptr)


class Roots(Values[Root, None]):
    """The root of each tile. `arrays` are tiles that are always register arrays (accumulators)."""

    def __init__(self, func: Func, arrays: set[Value]) -> None:
        super().__init__()
        self._arrays = arrays
        self.run(func.body, None)

    def of(self, value: Value) -> Root:
        """The root of a tile; a scalar counts as a splat."""
        return self.known.get(value, value if isinstance(value.type, TileType) else SPLAT)

    def visit(self, op: Op, context: None) -> None:
        """The sum of a tile and a uniform value has the tile's root."""
        for result in op.results:
            if isinstance(result.type, TileType) and result not in self._arrays:
                self.known[result] = self._root(op, result)

    def join(self, value: Value, old: Root, new: Root, number: int) -> Root:
        """Values with different roots join to a root of their own."""
        return old if old is new else value

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> Root | None:
        """Only a `for` carries bases, and only of integer and pointer tiles."""
        t = target.type
        if not isinstance(t, TileType):
            return None
        if op.kind is not control.for_ or not is_index(t):
            return target
        root = self.of(value)
        return BASE if root is SPLAT else root

    def _root(self, op: Op, result: Value) -> Root:
        if op.kind is tile.splat:
            return SPLAT
        roots = [self.of(value) for value in op.uses]
        if op.kind.elementwise and all(root is SPLAT for root in roots):
            return SPLAT
        if op.kind is hints.axes:
            return roots[0]
        if op.kind in _SHAPES or op.kind is tile.convert:
            return roots[0] if roots[0] is SPLAT or (roots[0] is BASE and op.kind in _SHAPES) else result
        if op.kind not in _SUMS:
            return result
        lhs, rhs = roots
        if isinstance(rhs, Equal):
            return lhs if not isinstance(lhs, Equal) else SPLAT if lhs is rhs is SPLAT else BASE
        return rhs if isinstance(lhs, Equal) and op.kind is arith.add else result


def is_index(type: Type) -> bool:
    """Whether the elements are integers or pointers."""
    element = type.element
    return not isinstance(element, DType) or (element.is_int() and not element.is_bool())

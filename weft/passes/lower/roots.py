"""Which tiles a loop may carry as one base for each thread, known on tile IR.

    %p = control.for (%at) {^(%i, %a): ... control.yield (arith.add %a, (tile.splat %s))}      %a, %p: %at, moved

A tile whose registers are a base of the thread's plus constants stays so while it only moves: while the same is added to all of
its registers. Then a loop carries the base alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weft.analysis.flow import Edge, Values
from weft.ir.core import Func, Op, OpDef, Value
from weft.ir.types import DType, TileType, Type
from weft.ops import arith, control, memory, tile


@dataclass(frozen=True, slots=True)
class Equal:
    """All registers of a thread hold the same. `scalar`: it is a scalar for the lowering, too, and not a base."""

    scalar: bool


SPLAT: Final = Equal(True)
BASE: Final = Equal(False)
Root = Value | Equal
"""The tile that another one is, but for what was added to all registers alike; a tile that is no such is its own."""
_SHAPES = (tile.expand_dims, tile.broadcast, tile.permute, tile.reshape)
_ELEMENTWISE = frozenset(kind for kind in vars(arith).values() if isinstance(kind, OpDef)) | {memory.addptr}
_SUMS = (arith.add, arith.sub, memory.addptr)


class Roots(Values[Root, None]):
    """The root of each tile. `arrays` are tiles that are registers in any case."""

    def __init__(self, func: Func, arrays: set[Value]) -> None:
        super().__init__()
        self._arrays = arrays
        self.run(func.body, None)

    def of(self, value: Value) -> Root:
        """The root of a tile; a scalar is equal for all registers."""
        return self.known.get(value, value if isinstance(value.type, TileType) else SPLAT)

    def visit(self, op: Op, context: None) -> None:
        """Sums of a tile and what is equal have the tile's root."""
        for result in op.results:
            if isinstance(result.type, TileType) and result not in self._arrays:
                self.known[result] = self._root(op, result)

    def join(self, value: Value, old: Root, new: Root, number: int) -> Root:
        """Of different roots something of its own."""
        return old if old == new else value

    def handed(self, op: Op, edge: Edge, value: Value, target: Value) -> Root | None:
        """Only a `for` carries bases, which are integers or addresses."""
        t = target.type
        if not isinstance(t, TileType):
            return None
        if op.kind is not control.for_ or not is_index(t):
            return target
        root = self.of(value)
        return BASE if root == SPLAT else root

    def _root(self, op: Op, result: Value) -> Root:
        roots = [self.of(value) for value in op.uses]
        if op.kind is tile.splat or (op.kind in _ELEMENTWISE and all(root == SPLAT for root in roots)):
            return SPLAT
        if op.kind is tile.hint:
            return roots[0]
        if op.kind in _SHAPES or op.kind is tile.convert:
            return roots[0] if roots[0] == SPLAT or (roots[0] == BASE and op.kind in _SHAPES) else result
        if op.kind not in _SUMS:
            return result
        lhs, rhs = roots
        if isinstance(rhs, Equal):
            return lhs if not isinstance(lhs, Equal) else SPLAT if lhs == rhs == SPLAT else BASE
        return rhs if isinstance(lhs, Equal) and op.kind is arith.add else result


def is_index(type: Type) -> bool:
    """Whether elements are integers or addresses."""
    element = type.element
    return not isinstance(element, DType) or (element.is_int() and not element.is_bool())
